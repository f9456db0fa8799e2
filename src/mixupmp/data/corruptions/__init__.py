"""The 19 corruptions of CIFAR-C at five severities (Hendrycks and Dietterich, 2019), for images of any size.

Written for whole arrays and seeded: the same images, name, severity and seed give the same bytes. Lengths are those
published for 32 x 32 images, scaled by side/32. What differs from the published files: the random draws, the textures
of frost (procedural here, photographs there) and the shading of the drops in spatter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.errors import UnknownName, check
from mixupmp.data.corruptions import blur, digital, noise, weather

__all__ = ["CORRUPTIONS", "NOT_RISING", "SEVERITIES", "corrupt", "unchanged_for_gray"]

# Each takes float images (rows, channels, height, width) in [0, 1], a severity and a generator.
_BY_NAME: dict[str, Callable[[Tensor, int, Generator], Tensor]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "glass_blur": blur.glass_blur,
    "defocus_blur": blur.defocus_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "fog": weather.fog,
    "frost": weather.frost,
    "snow": weather.snow,
    "spatter": weather.spatter,
    "contrast": digital.contrast,
    "brightness": digital.brightness,
    "saturate": digital.saturate,
    "jpeg_compression": digital.jpeg_compression,
    "pixelate": digital.pixelate,
    "elastic_transform": digital.elastic_transform,
}
CORRUPTIONS = tuple(_BY_NAME)
SEVERITIES = (1, 2, 3, 4, 5)
# From one severity to the next the mean change of a pixel rises, but for these, whose published parameters do not
# make it so: what grows with severity is something else, or turns over.
NOT_RISING = {
    "glass_blur": "the stronger blur of 3 against 2, and of 5 against 4, evens out pixels before they change places",
    "spatter": "1 to 3 are drops of water, 4 and 5 are fewer and smaller spots of mud",
    "saturate": "1 and 2 take color away, 3 to 5 add it, and 3 is the mildest of all",
    "elastic_transform": "the affine part, which moves pixels furthest, shrinks while the local displacements grow",
}
BLOCK_PIXELS = 1024 * 1024  # images are taken in blocks of about this many pixels, to stay in the caches


def unchanged_for_gray(name: str) -> bool:
    """Whether a corruption leaves one-channel images as they are (saturation has no meaning there)."""
    _check_name(name)
    return name == "saturate"


def corrupt(images: Tensor | Array, name: str, severity: int, seed: int = 0) -> Tensor:
    """Corrupted copies of uint8 images (rows, channels, height, width), gray or RGB; `name` is one of `CORRUPTIONS`."""
    _check_name(name)
    check(severity in SEVERITIES, "severity", severity, "one of 1, 2, 3, 4, 5")
    given = torch.from_numpy(images) if isinstance(images, np.ndarray) else images
    good = isinstance(given, Tensor) and given.dtype == torch.uint8 and given.ndim == 4 and given.shape[1] in (1, 3)
    shown = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else given
    check(good, "images", shown, "uint8 (rows, 1 or 3 channels, height, width)")
    size = max(1, BLOCK_PIXELS // max(1, given.shape[2] * given.shape[3]))
    result = torch.empty(given.shape, dtype=torch.uint8)
    for start in range(0, len(given), size):
        # A block's draws depend on its place alone, so blocks could be made in any order. They are the same for all
        # severities: what changes from one to the next is the strength, not the luck.
        generator = torch.Generator().manual_seed(_seed(seed, name, start // size))
        block = given[start : start + size].cpu().to(torch.float32).div_(255)
        changed = _BY_NAME[name](block, severity, generator)
        result[start : start + size] = changed.clamp_(0, 1).mul_(255).round_().to(torch.uint8)
    return result.to(given.device)


def _check_name(name: str) -> None:
    if name not in _BY_NAME:
        raise UnknownName("corruption", name, CORRUPTIONS)


def _seed(*parts: object) -> int:
    """Parts to a seed such that neighboring parts give unrelated ones."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
