"""Datasets small enough to fit in a fraction of a second."""

from __future__ import annotations

import torch
from torch import Generator

from mixupmp.core.rows import Dataset, Rows, Standardize


def _rows(shape: tuple[int, ...], count: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centers = torch.randn(classes, *shape, generator=Generator().manual_seed(99))
    return 2 * centers[labels] + torch.randn(count, *shape, generator=generator), labels


def small_table(count: int = 60, classes: int = 3, features: int = 4) -> Dataset:
    """A few clusters of float rows."""
    train, test = (Rows(*_rows((features,), count, classes, seed)) for seed in (0, 1))
    return Dataset("small", train, test, tuple("abcdefghij"[:classes]), Standardize.of(train.inputs))


def small_images(count: int = 48, classes: int = 3, shape: tuple[int, int, int] = (1, 20, 20)) -> Dataset:
    """A few kinds of noisy uint8 images, large enough for 5x5 convolutions."""
    parts = []
    for seed in (2, 3):
        values, labels = _rows(shape, count, classes, seed)
        parts.append(Rows((values * 30 + 128).clamp(0, 255).to(torch.uint8), labels))
    return Dataset("images", parts[0], parts[1], tuple("abcdefghij"[:classes]), Standardize.of(parts[0].inputs))
