"""Small files in the publishers' formats, and the real ones where they are."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from mixupmp.core.errors import DataNotFound
from mixupmp.data import Dataset, load


def real_or_skip(name: str) -> Dataset:
    """A published dataset, where $MIXUPMP_DATA or the cache has it."""
    try:
        return load(name)
    except DataNotFound:
        pytest.skip(f"{name} is not under $MIXUPMP_DATA ({os.environ.get('MIXUPMP_DATA', 'unset')}) or the cache")


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx_folder(folder: Path, rows: int = 30, side: int = 4) -> np.ndarray:
    """The four files of an MNIST-like dataset; returns the training images."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (rows, side, side), np.uint8)
    labels = np.arange(rows, dtype=np.uint8) % 10
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return images
