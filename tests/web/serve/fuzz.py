"""Bodies that are nearly right, in every way that is taken: cut, flipped, repeated, spliced, or noise."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator

import numpy as np
import torch

from mixupmp.web.png import png

from .models import images

KINDS = (
    "application/json", "application/octet-stream", "application/x-npy", "image/png", "image/jpeg", "image/gif",
    "image/webp", "image/bmp", "multipart/form-data; boundary=b", "multipart/form-data", "text/plain", "", "; ;",
)  # fmt: skip


def _whole(draws: random.Random) -> tuple[str, bytes]:
    """A body that would be answered, or nearly, and what it is."""
    inputs = images(draws.randint(1, 3), seed=draws.randint(0, 99))
    choice = draws.randint(0, 5)
    if choice == 0:
        return KINDS[0], json.dumps({"inputs": inputs.tolist()}).encode()
    if choice == 1:
        values = [draws.choice([0, -1, 1e308, 1e38, 2**63, 2**64, 0.1, True, None, "x", []]) for _ in range(64)]
        return KINDS[0], json.dumps({"inputs": values}).encode()
    if choice == 2:
        dtype = draws.choice(["u1", "f4", "f8", ">f4", "i8", "c8", "f2", "b1", "U3", "M8[s]"])
        content = io.BytesIO()
        np.save(content, np.zeros(draws.choice([(1, 1, 8, 8), (64,), (), (0, 1, 8, 8), (2, 8, 8)])).astype(dtype))
        return KINDS[1], content.getvalue()
    if choice == 3:
        sizes = draws.choice([1, 3]), draws.randint(1, 40), draws.randint(1, 40)
        return "image/png", png(torch.zeros(sizes, dtype=torch.uint8))
    if choice == 4:
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\nContent-Type: image/png\r\n\r\n'
        return "multipart/form-data; boundary=b", head + png(inputs[0]) + b"\r\n--b--\r\n"
    return draws.choice(KINDS), draws.randbytes(draws.randint(0, 400))


def _spoilt(body: bytes, draws: random.Random) -> bytes:
    spoilt = bytearray(body)
    for _ in range(draws.randint(0, 4)):
        if not spoilt:
            break
        place = draws.randrange(len(spoilt))
        action = draws.randint(0, 3)
        if action == 0:
            spoilt[place] ^= 1 << draws.randint(0, 7)
        elif action == 1:
            del spoilt[place:]
        elif action == 2:
            spoilt[place:place] = draws.choice([b"NaN", b"1e999", b"[", b"]", b"\0", b"{", b'"', b"-", b"\xff" * 9])
        else:
            spoilt[place:place] = spoilt[: draws.randint(0, 60)]
    return bytes(spoilt)


def bodies(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Content types and bodies."""
    draws = random.Random(seed)
    for _ in range(count):
        kind, body = _whole(draws)
        yield kind if draws.random() < 0.7 else draws.choice(KINDS), _spoilt(body, draws)
