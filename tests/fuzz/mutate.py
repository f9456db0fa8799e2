"""Strategies for files that are nearly right: valid ones with parts changed, as bytes, as JSON and as a container."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Join = Callable[[list[bytes]], bytes]

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)
TOKENS = (
    *(b"", b"\0", b"\xff" * 9, b"NaN", b"1e999", b"-", b"{", b"}", b"[", b"]", b'"', b",", b"\n", b"\r\n", b"=", b"'"),
    *(b"null", b"true", b"9" * 400, b"\xed\xa0\x80", b"[" * 5000, b'{"":' * 5000, b"(" * 300, b"..", b"/", b"\\u0000"),
)
ACTIONS = 10
NAN, INFINITY = float("nan"), float("inf")
ODD_INTEGERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, -(10**400), 10**9, 10_000)
ODD_NUMBERS = (*ODD_INTEGERS, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, NAN, INFINITY, -INFINITY)
ODD_NAMES = ("Mixup", "Ensemble", "Laplace", "Compose", "Perturbed", "inf", "NaN", "../x", "a\0b", "\ud800")
_DEEP = re.compile(r'"@deep (\d+)@"')


def mutated(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """A seed with a few changes: bits, lengths, cuts, tokens, repeated, moved and foreign parts."""
    change = st.tuples(
        st.integers(0, ACTIONS - 1),
        st.integers(0, 2),
        st.integers(0, 2**20),
        st.integers(0, 2**20),
        st.integers(0, 255),
    )
    changes = st.lists(change, min_size=1, max_size=5)
    return st.builds(lambda seed, todo: changed(seed, todo, seeds), st.sampled_from(seeds), changes)


def changed(seed: bytes, changes: list[tuple[int, ...]], seeds: Sequence[bytes] = ()) -> bytes:
    """The seed after each (action, region, place, other place, value)."""
    content = bytearray(seed)
    for action, region, place, other, value in changes:
        length = len(content)
        if length == 0:
            break
        # Headers and footers decide more than the data between them.
        at = (place % length, place % min(length, 96), length - 1 - place % min(length, 96))[region]
        until = at + 1 + other % 64
        if action == 0:
            content[at] ^= 1 << value % 8
        elif action == 1:
            content[at] = value
        elif action == 2:
            del content[at:]
        elif action == 3:
            del content[at:until]
        elif action == 4:
            content[at:at] = TOKENS[value % len(TOKENS)]
        elif action == 5:
            content[at:at] = content[at:until] * (1 + value)
        elif action == 6:
            elsewhere = other % length
            part = content[at : at + 8]
            content[at : at + 8] = content[elsewhere : elsewhere + 8]
            content[elsewhere : elsewhere + 8] = part
        elif action in (7, 8):
            width = (1, 2, 4, 8)[value % 4]
            extreme = EXTREMES[other % len(EXTREMES)] % 256**width
            content[at : at + width] = extreme.to_bytes(width, "little" if action == 7 else "big")
        else:
            foreign = seeds[value % len(seeds)] if seeds else seed
            content[at:] = foreign[other % max(1, len(foreign)) :]
    return bytes(content)


def joined(parts: Sequence[list[bytes]], join: Join) -> st.SearchStrategy[bytes]:
    """A container with one of its parts mutated and put together again, so that its checksums and lengths hold."""

    def strategy(number: int) -> st.SearchStrategy[bytes]:
        whole = parts[number]
        each = st.integers(0, len(whole) - 1).flatmap(
            lambda which: mutated([whole[which], *whole]).map(
                lambda part: join([*whole[:which], part, *whole[which + 1 :]])
            )
        )
        reordered = st.lists(st.sampled_from(whole), max_size=len(whole) + 2).map(join)
        return st.one_of(each, each, each, reordered)

    return st.integers(0, len(parts) - 1).flatmap(strategy)


def _deep(levels: int) -> str:
    return f"@deep {levels}@"


def too_long(chance: random.Random) -> Any:
    """A value that is much longer or deeper than any that is expected."""
    long = ([0] * 20_000, ["x"] * 2000, "x" * 100_000, {str(k): k for k in range(2000)})
    return chance.choice((*long, _deep(chance.randrange(1, 3000))))


def odd_values() -> st.SearchStrategy[Any]:
    """JSON values that are not expected where they stand."""
    names = st.sampled_from(ODD_NAMES)
    long = st.integers().map(lambda number: too_long(random.Random(number)))
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    leaves = st.one_of(plain, st.sampled_from(ODD_NUMBERS), names, st.integers(1, 3000).map(_deep), long)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | names, inner, max_size=3),
        max_leaves=4,
    )


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) in a document."""
    found: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        part = pending.pop()
        keys = list(part) if isinstance(part, dict) else list(range(len(part))) if isinstance(part, list) else []
        found += [(part, key) for key in keys]
        pending += [part[key] for key in keys]
    return found


@st.composite
def mutated_json(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A JSON seed with values replaced, removed, exchanged, added or renamed."""
    document = [json.loads(draw(st.sampled_from(seeds)))]
    for action, place, other, drawn in draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, 2**16), st.integers(0, 2**16), odd_values()),
            min_size=1,
            max_size=4,
        )
    ):
        value = copy.deepcopy(drawn)  # which may be a constant, and must not come to contain itself
        found = places(document)
        holder, key = found[place % len(found)]
        from_holder, from_key = found[other % len(found)]
        if action <= 2:
            holder[key] = value
        elif action == 3 and holder is not document:
            del holder[key]
        elif action == 4:
            holder[key] = copy.deepcopy(from_holder[from_key])
        elif isinstance(holder, dict):
            name = next((str(k) for h, k in found[other % len(found) :] if isinstance(h, dict)), "surprise")
            holder[name] = value
    return encoded(document[0])


def encoded(document: Any) -> bytes:
    """As JSON, with what stands for deep nesting written out."""
    text = json.dumps(document)
    return _DEEP.sub(lambda match: "[" * int(match[1]) + "]" * int(match[1]), text).encode()
