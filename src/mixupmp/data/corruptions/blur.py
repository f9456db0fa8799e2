"""Blur: Gaussian, frosted glass, out of focus, motion, zoom."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mixupmp.data.corruptions.filters import apply, gaussian, gaussian_weights, scale_of, shrunk, streak, zoom_matrix


def gaussian_blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A Gaussian blur."""
    sigma = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    return gaussian(images, sigma)


def glass_blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Blur, exchange each pixel with one near it, pass by pass, and blur again."""
    settings = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
    sigma, distance, passes = settings[severity - 1]
    source = _exchanged(images, distance * scale_of(images), passes, generator)
    flat = gaussian(images, sigma).flatten(2)
    moved = flat.gather(2, source.unsqueeze(1).expand_as(flat))
    return gaussian(moved.view(images.shape), sigma)


def _exchanged(images: Tensor, distance: float, passes: int, generator: Generator) -> Tensor:
    """Where each pixel comes from, (rows, height * width), after passes of exchanges with a neighbor.

    In one pass a pixel moves at most once: exchanged again and again, it would be carried across the image. So each
    pixel proposes a neighbor, the proposals are ranked at random, and one that ranks first for both sides is kept;
    after three such rounds few pixels are left without a partner. A distance below one pixel is the chance of a move.
    """
    height, width = images.shape[-2:]
    reach, chance = max(1, round(distance)), min(1.0, distance)
    own = torch.arange(height * width)
    source = own.repeat(len(images), 1)
    for _ in range(passes):
        free = torch.rand(source.shape, generator=generator) < chance**0.5  # for both of a pair to be free
        for _ in range(3):
            steps = torch.randint(-reach, reach + 1, (2, *source.shape), generator=generator)
            rows, columns = (
                (own // width + steps[0]).clamp_(0, height - 1),
                (own % width + steps[1]).clamp_(0, width - 1),
            )
            partner = rows * width + columns
            rank = torch.randint(1 << 40, source.shape, generator=generator) * len(own) + own  # no two alike
            rank = torch.where(free & free.gather(1, partner), rank, 1 << 62)
            first = rank.clone().scatter_reduce_(1, partner, rank, "amin")
            kept = (rank == first) & (rank == first.gather(1, partner)) & (rank < 1 << 62)
            image, left = kept.nonzero(as_tuple=True)
            right = partner[image, left]
            free[image, left] = free[image, right] = False
            source[image, left], source[image, right] = source[image, right], source[image, left]
    return source


def defocus_blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A convolution with a disk, itself smoothed over 3 x 3 pixels."""
    radius, smooth = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[severity - 1]
    kernel = _disk(radius, smooth, scale_of(images))
    reach = kernel.shape[0] // 2
    flat = images.reshape(-1, 1, *images.shape[2:])
    # Mirrored without repeating the edge; a side no longer than the reach can only repeat it.
    mode = "reflect" if reach < min(images.shape[2:]) else "replicate"
    padded = torch.nn.functional.pad(flat, (reach,) * 4, mode=mode)
    return torch.nn.functional.conv2d(padded, kernel[None, None]).view(images.shape)


def _disk(radius: float, smooth: float, scale: float) -> Tensor:
    radius, smooth = radius * max(scale, 1), smooth * max(scale, 1)
    reach = int(radius) + 1
    places = torch.arange(-reach, reach + 1)
    disk = (places.square() + places.square().unsqueeze(1) <= radius**2).float()
    weights = gaussian_weights(smooth, 1)
    kernel = torch.nn.functional.conv2d(disk[None, None], torch.outer(weights, weights)[None, None], padding=1)[0, 0]
    laid = shrunk(reach, min(scale, 1))
    kernel = laid @ kernel @ laid.T
    return kernel / kernel.sum()


def motion_blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A one-sided streak at an angle of its own for each image, within 45 degrees of the horizontal."""
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[severity - 1]
    angles = torch.rand(len(images), generator=generator) * 90 - 45
    return streak(images, radius, sigma, angles)


def zoom_blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """The mean of the image and its center-zooms by 1, 1.01, and so on up to, not including, 1 + steps/100."""
    steps = (6, 11, 16, 21, 26)[severity - 1]
    height, width = images.shape[-2:]
    total = images.clone()
    for step in range(steps):
        total += apply(images, zoom_matrix(height, 1 + step / 100), zoom_matrix(width, 1 + step / 100))
    return total / (steps + 1)
