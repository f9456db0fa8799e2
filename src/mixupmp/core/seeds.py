"""Where randomness comes from: one seed, and for each member and purpose a generator of its own.

A member's draws depend on (seed, member, purpose) alone, never on the order of members, on the worker or on the
engine. So a member trained by itself has the same bits as the same member of an ensemble, and two methods given one
seed start from the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed for this path of names and numbers."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *path: int | str) -> Generator:
    """A CPU generator for this path. Draws are made on the CPU on every device, so that they are the same there."""
    return Generator().manual_seed(derive(seed, *path))


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed torch's global generator inside, and leave it as it was.

    Weight initialization, `nn.Dropout` and users' own transforms draw from it, and take no generator.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
