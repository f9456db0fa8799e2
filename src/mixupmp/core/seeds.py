"""Random generators: one seed, from which each member and purpose gets a generator of its own.

A member's random numbers depend on (seed, member, purpose) alone, not on the order of members, the worker or the
engine. So a member trained alone has the same bits as in an ensemble, and two methods with one seed start from the same
weights.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Generator


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed: the first bits of SHA-256 of the seed and these names and numbers."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *path: int | str) -> Generator:
    """A CPU generator seeded by `derive`; drawing on the CPU gives the same numbers for every device."""
    return Generator().manual_seed(derive(seed, *path))


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed torch's global generator in a block, and restore it after.

    Weight initialization, `nn.Dropout` and users' transforms draw from it and take no generator.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def seed_all(seed: int) -> None:
    """Seed the global generators of torch, NumPy and `random`, for transforms of a user's Dataset."""
    torch.default_generator.manual_seed(seed)  # of the CPU alone: a worker process must not start a GPU's
    np.random.seed(seed % 2**32)  # noqa: NPY002 - what users' transforms draw from
    random.seed(seed)


@contextmanager
def all_restored() -> Iterator[None]:
    """Put the states of the generators that `seed_all` seeds back after a block."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
