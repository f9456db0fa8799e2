"""Filters as matrices: what acts on rows and columns alone is two matrix products, edges included."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor


def scale_of(images: Tensor) -> float:
    """By what the published lengths, which are for 32 x 32 images, are multiplied."""
    return min(images.shape[-2:]) / 32


def apply(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ image @ columns^T for every image: one filter down, one across."""
    return rows @ (images @ columns.T)


def shrunk(reach: int, scale: float) -> Tensor:
    """The matrix that lays weights at -reach..reach on pixels 1/scale as coarse (scale <= 1).

    A weight that falls between two pixels is shared by them, so a blur too narrow to reach the next pixel still
    has its small effect instead of none.
    """
    places = torch.arange(-reach, reach + 1, dtype=torch.float64) * scale
    low = places.floor()
    share = (places - low).float().unsqueeze(0)
    fewer = math.ceil(reach * scale)
    at = (low.long() + fewer).unsqueeze(0)
    matrix = torch.zeros(2 * fewer + 2, 2 * reach + 1).scatter_add_(0, at, 1 - share)
    return matrix.scatter_add_(0, at + 1, share)[:-1]


def gaussian_weights(sigma: float, radius: int) -> Tensor:
    """A normal density at -radius..radius, summing to one."""
    weights = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=torch.float64) / max(sigma, 1e-6)) ** 2)
    return (weights / weights.sum()).float()


def gaussian_matrix(side: int, sigma: float, truncate: float = 4.0, reflect: bool = False, scale: float = 1) -> Tensor:
    """A Gaussian blur of one axis; beyond the edge the last pixel is repeated, or the image is mirrored."""
    sigma = sigma * max(scale, 1)
    reach = int(truncate * sigma + 0.5)
    weights = shrunk(reach, min(scale, 1)) @ gaussian_weights(sigma, reach)
    reach = len(weights) // 2
    places = torch.arange(side).unsqueeze(1) + torch.arange(-reach, reach + 1)
    if reflect:
        places = places.remainder(2 * side)
        places = torch.minimum(places, 2 * side - 1 - places)
    places = places.clamp(0, side - 1)
    return torch.zeros(side, side).scatter_add_(1, places, weights.repeat(side, 1))


def gaussian(images: Tensor, sigma: float, truncate: float = 4.0, reflect: bool = False) -> Tensor:
    """A Gaussian blur of the last two axes, sigma in pixels of a 32 x 32 image."""
    scale = scale_of(images)
    rows, columns = (gaussian_matrix(side, sigma, truncate, reflect, scale) for side in images.shape[-2:])
    return apply(images, rows, columns)


def zoom_matrix(side: int, factor: float) -> Tensor:
    """One axis enlarged about its center by a factor of at least 1, bilinear, cut to its own length."""
    center = (side - 1) / 2
    places = center + (torch.arange(side, dtype=torch.float64) - center) / factor
    left = places.floor().long().clamp(0, max(side - 2, 0))
    share = (places - left).float().unsqueeze(1)
    matrix = torch.zeros(side, side).scatter_add_(1, left.unsqueeze(1), 1 - share)
    return matrix.scatter_add_(1, (left + 1).clamp(max=side - 1).unsqueeze(1), share)


def box_matrix(source: int, target: int) -> Tensor:
    """One axis resized from one length to another; a pixel is the mean of those whose centers its box holds."""
    ratio = source / target
    reach = max(ratio, 1.0) / 2
    centers = (torch.arange(target, dtype=torch.float64).unsqueeze(1) + 0.5) * ratio
    distance = torch.arange(source, dtype=torch.float64) + 0.5 - centers
    inside = ((distance > -reach) & (distance <= reach)).float()
    return inside / inside.sum(1, keepdim=True)


def streak(images: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """Motion blur: each pixel becomes a one-sided Gaussian mean of those up to a radius away at its image's angle.

    Angles in degrees; radius and sigma in pixels of a 32 x 32 image.
    """
    scale = scale_of(images)
    reach, sigma = math.ceil(radius * max(scale, 1)), sigma * max(scale, 1)
    weights = gaussian_weights(sigma, reach)[reach:].unsqueeze(1)
    laid = shrunk(reach, min(scale, 1))
    weights = (laid[laid.shape[0] // 2 :, reach:] @ weights).flatten()
    taps = torch.arange(len(weights), dtype=torch.float64)
    # Sorted by angle, the images that share a tap's offset lie side by side, and shifting them is a slice.
    order = angles.argsort()
    radians = torch.deg2rad(angles[order].double()).unsqueeze(1)
    down, across = torch.round(taps * radians.sin()).long(), torch.round(taps * radians.cos()).long()
    reach = len(taps) - 1
    height, width = images.shape[-2:]
    padded = torch.nn.functional.pad(images[order], (reach,) * 4, mode="replicate")
    total = torch.zeros_like(images)
    for k, weight in enumerate((weights / weights.sum()).tolist()):
        for first, last in _runs(down[:, k], across[:, k]):
            top, left = reach + int(down[first, k]), reach + int(across[first, k])
            total[first:last].add_(padded[first:last, :, top : top + height, left : left + width], alpha=weight)
    result = torch.empty_like(total)
    result[order] = total
    return result


def _runs(*columns: Tensor) -> list[tuple[int, int]]:
    """(first, last + 1) of each stretch over which all columns stay the same."""
    changes = torch.zeros(len(columns[0]) - 1, dtype=torch.bool)
    for column in columns:
        changes |= column[1:] != column[:-1]
    edges = [0, *(changes.nonzero().flatten() + 1).tolist(), len(columns[0])]
    return list(itertools.pairwise(edges))
