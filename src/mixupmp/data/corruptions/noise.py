"""Noise: Gaussian, shot, impulse, speckle."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def gaussian_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """x + N(0, s)."""
    deviation = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return images.add_(torch.randn(images.shape, generator=generator), alpha=deviation)


def shot_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Poisson(x k) / k: the fewer photons k, the more noise."""
    photons = (500, 250, 100, 75, 50)[severity - 1]
    return torch.poisson(images * photons, generator=generator) / photons


def impulse_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Salt and pepper, in equal parts, on a fraction of all values."""
    fraction = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    chance = torch.rand(images.shape, generator=generator)
    images[chance < fraction] = 1
    images[chance < fraction / 2] = 0
    return images


def speckle_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """x + x N(0, s)."""
    deviation = (0.06, 0.10, 0.12, 0.16, 0.20)[severity - 1]
    return images.mul_(torch.randn(images.shape, generator=generator).mul_(deviation).add_(1))
