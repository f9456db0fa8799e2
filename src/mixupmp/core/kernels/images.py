"""Kernels for images, (rows, channels, height, width)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from mixupmp.core.errors import InvalidArgument, check, is_number, is_whole
from mixupmp.core.kernels.kernel import Compose, Kernel


@dataclass(frozen=True)
class PadCrop:
    """Pad with `padding` black pixels on each side and crop to the original size at random, as is usual for CIFAR.

    Parameters
    ----------
    padding
        Pixels on each side.
    """

    padding: int = 4

    def __post_init__(self) -> None:
        check(is_whole(self.padding, 0), "padding", self.padding, "a whole number of pixels, zero or more")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_images(inputs, "PadCrop")
        offsets = 2 * self.padding + 1
        offset = torch.randint(offsets, (2, len(inputs)), generator=generator)
        if inputs.device.type == "cpu" and inputs.dtype in _NUMPY:
            return torch.from_numpy(_crops(inputs.numpy(), self.padding, *offset.numpy()))
        count, channels, height, width = inputs.shape
        padded = functional.pad(inputs, (self.padding,) * 4)
        # All crops of the padded images are one view; choosing one for each image is a single gather.
        image, channel, row, column = padded.stride()
        shape = (count, offsets, offsets, channels, height, width)
        crops = padded.as_strided(shape, (image, row, column, channel, row, column))
        down, across = offset.to(inputs.device)
        return crops[torch.arange(count, device=inputs.device), down, across]


# On a CPU, NumPy gathers crops as runs of memory, eight times faster than torch does element by element.
_NUMPY = (torch.uint8, torch.float32, torch.float64)


def _crops(images: np.ndarray, padding: int, down: np.ndarray, across: np.ndarray) -> np.ndarray:
    """The crop at (down, across) of each padded image."""
    count, channels, height, width = images.shape
    padded = np.zeros((count, channels, height + 2 * padding, width + 2 * padding), images.dtype)
    padded[:, :, padding : padding + height, padding : padding + width] = images
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    return windows[np.arange(count), :, down, across]


@dataclass(frozen=True)
class HorizontalFlip:
    """Mirror each image, left to right, with this probability.

    Parameters
    ----------
    probability
        Of each image to be mirrored.
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        check(is_number(self.probability) and 0 <= self.probability <= 1, "probability", self.probability, "in [0, 1]")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_images(inputs, "HorizontalFlip")
        flip = torch.rand(len(inputs), generator=generator) < self.probability
        # One gather of rows from all images and their mirrors: three times as fast as writing some into a copy.
        rows = torch.arange(len(inputs)) + len(inputs) * flip
        return torch.cat([inputs, inputs.flip(-1)]).index_select(0, rows.to(inputs.device))


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crop a random part of the image and scale it to the original size.

    The paper's text has it for CIFAR, the authors' code has `PadCrop`.

    Parameters
    ----------
    area
        Least and largest area of the crop, as a share of the image's.
    aspect
        Least and largest ratio of width to height; its logarithm is uniform.
    """

    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        low, high = self.area
        check(0 < low <= high <= 1, "area", self.area, "two shares, 0 < low <= high <= 1")
        low, high = self.aspect
        check(0 < low <= high, "aspect", self.aspect, "two ratios, 0 < low <= high")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_images(inputs, "RandomResizedCrop")
        share, shape, across, down = torch.rand(4, len(inputs), generator=generator)
        share = self.area[0] + share * (self.area[1] - self.area[0])
        low, high = torch.tensor(self.aspect).log()
        root = torch.exp(0.5 * (low + shape * (high - low)))
        side = share.sqrt()
        width, height = (side * root).clamp(max=1), (side / root).clamp(max=1)
        # In the grid's coordinates the image is [-1, 1]: a crop of relative width w has its center within +-(1 - w).
        transform = torch.zeros(len(inputs), 2, 3)
        transform[:, 0, 0], transform[:, 0, 2] = width, (2 * across - 1) * (1 - width)
        transform[:, 1, 1], transform[:, 1, 2] = height, (2 * down - 1) * (1 - height)
        grid = functional.affine_grid(transform.to(inputs.device), list(inputs.shape), align_corners=False)
        values = functional.grid_sample(inputs.float(), grid, padding_mode="border", align_corners=False)
        return (values if inputs.is_floating_point() else values.round_()).to(inputs.dtype)


def cifar_kernel() -> Kernel:
    """Random crop of images padded with 4 pixels, and horizontal flip: the paper's for CIFAR."""
    return Compose((PadCrop(4), HorizontalFlip()))


def _check_images(inputs: Tensor, kernel: str) -> None:
    if inputs.ndim != 4:
        must = f"images (rows, channels, height, width) for the kernel {kernel}"
        raise InvalidArgument("inputs", tuple(inputs.shape), must)
