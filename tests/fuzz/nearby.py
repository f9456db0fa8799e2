"""Cases near one that was read: what Hypothesis draws is followed by many of these, which take microseconds to make.

They know the format: a part of a container is changed and the container put together again, with its checksums.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

from tests.fuzz.mutate import ACTIONS, ODD_NAMES, ODD_NUMBERS, changed, encoded, places, too_long

Near = Callable[[bytes, random.Random], bytes]
GZIP, PNG = b"\x1f\x8b", b"\x89PNG\r\n\x1a\n"


def near_bytes(content: bytes, chance: random.Random) -> bytes:
    """Bits, lengths, cuts, tokens, repeated and moved parts."""
    draw = chance.randrange
    count = 1 if chance.random() < 0.6 else draw(2, 5)
    return changed(content, [(draw(ACTIONS), draw(3), draw(2**20), draw(2**20), draw(256)) for _ in range(count)])


def near_values(content: bytes, chance: random.Random) -> bytes:
    """As many bytes as before, so that what checks their number goes on to read them."""
    return near_bytes(content, chance)[: len(content)].ljust(len(content), b"\0")


def _odd_value(chance: random.Random) -> Any:
    kind = chance.randrange(100) // 9  # 11 is rare
    if kind < 4:
        return chance.choice(ODD_NUMBERS)
    if kind < 6:
        return chance.choice(ODD_NAMES)
    if kind < 8:
        return chance.choice((None, True, False, "", [], {}, [[]], "x" * 300, chance.getrandbits(16)))
    if kind < 11:
        return chance.uniform(-10, 10) if kind < 10 else [_odd_value(chance) for _ in range(chance.randrange(4))]
    return too_long(chance)


def near_json(content: bytes, chance: random.Random) -> bytes:
    """Values replaced, removed, exchanged, added; text that is JSON is changed inside. Bytes where it is none."""
    if chance.random() < 0.9:
        try:
            document = [json.loads(content)]
            for _ in range(1 if chance.random() < 0.6 else chance.randrange(2, 4)):
                _change_json(document, chance)
            return encoded(document[0])
        except (ValueError, RecursionError):  # no JSON, or nested so deep that it is not copied
            return near_bytes(content, chance)
    return near_bytes(content, chance)


def _change_json(document: list[Any], chance: random.Random) -> None:
    found = places(document)
    holder, key = chance.choice(found)
    action, inner = chance.randrange(8), holder[key]
    if isinstance(inner, str) and inner.startswith("{") and chance.random() < 0.8:
        holder[key] = near_json(inner.encode("utf-8", "replace"), chance).decode("utf-8", "replace")
    elif type(inner) in (int, float) and action < 3:
        holder[key] = chance.choice((inner + 1, inner - 1, -inner, inner * 1000, str(inner)))
    elif action < 5 or holder is document:
        holder[key] = _odd_value(chance)
    elif action == 5:
        del holder[key]
    elif action == 6:
        other, place = chance.choice(found)
        holder[key] = copy.deepcopy(other[place])
    elif isinstance(holder, dict):
        holder[chance.choice(ODD_NAMES)] = holder.pop(key)


def near_lines(content: bytes, chance: random.Random) -> bytes:
    """One line of JSON Lines."""
    lines = content.split(b"\n")
    which = chance.randrange(len(lines))
    lines[which] = near_json(lines[which], chance)
    return b"\n".join(lines)


def near_named(near: Callable[[bytes], Near]) -> Near:
    """The content after a first line, which names its kind."""

    def change(content: bytes, chance: random.Random) -> bytes:
        name, end, rest = content.partition(b"\n")
        return name + end + near(name)(rest, chance)

    return change


def near_tensors(content: bytes, chance: random.Random) -> bytes:
    """The header or the data of safetensors."""
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 2**63
    if length > len(content) - 8 or chance.random() < 0.1:
        return near_bytes(content, chance)
    header, data = content[8 : 8 + length], content[8 + length :]
    if chance.random() < 0.5:
        header = near_json(header, chance)
    else:
        data = near_values(data, chance) if chance.random() < 0.7 else near_bytes(data, chance)
    return struct.pack("<Q", len(header)) + header + data


def near_gzip(near: Near) -> Near:
    """What is packed, packed again; as a file of its own kind where it is not packed."""

    def change(content: bytes, chance: random.Random) -> bytes:
        if content.startswith(GZIP) and chance.random() < 0.7:
            try:
                return gzip.compress(near(gzip.decompress(content), chance), 1, mtime=0)
            except (OSError, EOFError, zlib.error):
                return near_bytes(content, chance)
        return (near_bytes if content.startswith(GZIP) else near)(content, chance)

    return change


def near_zip(content: bytes, chance: random.Random) -> bytes:
    """One of the files in an archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # noqa: BLE001 - whatever zipfile makes of a damaged archive
        files = {}
    if not files or chance.random() < 0.2:
        return near_bytes(content, chance)
    which = chance.choice(sorted(files))
    files[which] = near_bytes(files[which], chance)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, part in files.items():
            archive.writestr(zipfile.ZipInfo(name), part)
    return packed.getvalue()


def png_chunks(content: bytes) -> list[bytes]:
    found, at = [], len(PNG)
    while at + 8 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        found.append(content[at + 4 : at + 8 + length])
        at += 12 + length
    return found


def png_of(chunks: list[bytes]) -> bytes:
    each = (struct.pack(">I", max(0, len(c) - 4)) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    return PNG + b"".join(each)


def near_image(content: bytes, chance: random.Random) -> bytes:
    """One chunk of a PNG, with its checksum; bytes of any other kind."""
    chunks = png_chunks(content) if content.startswith(PNG) and chance.random() < 0.7 else []
    if not chunks:
        return near_bytes(content, chance)
    which = chance.randrange(len(chunks))
    chunks[which] = near_bytes(chunks[which], chance)
    return png_of(chunks)
