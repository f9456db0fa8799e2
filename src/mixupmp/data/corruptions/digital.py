"""Digital: contrast, brightness, saturation, JPEG, pixels, elastic deformation."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Generator, Tensor

from mixupmp.core.errors import extra
from mixupmp.data.corruptions.filters import apply, box_matrix, gaussian, scale_of


def contrast(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """(x - mean) c + mean, the mean of each channel of each image."""
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * factor + mean


def brightness(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """V + b in HSV. With hue and saturation kept, all channels grow by V'/V; for gray that is x + b itself."""
    more = (0.05, 0.10, 0.15, 0.20, 0.30)[severity - 1]
    value = images.amax(1, keepdim=True)
    brighter = (value + more).clamp_(max=1)
    return torch.where(value > 0, images * (brighter / value.clamp(min=1e-6)), brighter)


def saturate(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """S a + b in HSV. A color's distance from V grows by S'/S; a pixel without hue counts as red, as in HSV.

    One-channel images have no saturation and stay as they are.
    """
    if images.shape[1] == 1:
        return images
    factor, more = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[severity - 1]
    value = images.amax(1, keepdim=True)
    saturation = (value - images.amin(1, keepdim=True)) / value.clamp(min=1e-6)
    wanted = (saturation * factor + more).clamp_(max=1)
    red = torch.cat([value, value * (1 - wanted), value * (1 - wanted)], 1)
    return torch.where(saturation > 0, value - (value - images) * (wanted / saturation.clamp(min=1e-6)), red)


def jpeg_compression(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Through JPEG and back. The coder takes one image at a time, so this is a loop."""
    with extra("pillow", "corruptions", "the corruption jpeg_compression"):
        from PIL import Image
    quality = (80, 65, 58, 50, 40)[severity - 1]
    pixels = (images * 255).round_().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    result = np.empty_like(pixels)
    for before, after in zip(pixels, result, strict=True):
        file = io.BytesIO()
        Image.fromarray(before if before.shape[2] == 3 else before[..., 0]).save(file, "JPEG", quality=quality)
        with Image.open(file) as image:
            after[:] = np.asarray(image).reshape(after.shape)
    return torch.from_numpy(result).permute(0, 3, 1, 2).to(torch.float32).div_(255)


def pixelate(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Box-resized to a share of its pixels and back."""
    share = (0.95, 0.90, 0.85, 0.75, 0.65)[severity - 1]
    there_and_back = []
    for side in images.shape[-2:]:
        fewer = max(1, int(side * share))
        there_and_back.append(box_matrix(fewer, side) @ box_matrix(side, fewer))
    return apply(images, *there_and_back)


def elastic_transform(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A random affine map, then displacements smoothed from uniform noise; both resample bilinearly and mirror."""
    settings = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
    amount, smooth, shift = (32 * part for part in settings[severity - 1])
    scale = scale_of(images)
    count, _, height, width = images.shape
    down, across = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
    grid = torch.stack([across, down], -1)
    images = _sampled(
        images, torch.einsum("hwk,nkj->nhwj", _homogeneous(grid), _affine(images, shift * scale, generator))
    )
    if amount == 0:
        return images
    steps = torch.rand((count, 2, height, width), generator=generator) * 2 - 1
    steps = amount * scale * gaussian(steps, smooth, 3.0, reflect=True)
    return _sampled(images, grid + steps.permute(0, 2, 3, 1))


def _homogeneous(points: Tensor) -> Tensor:
    return torch.cat([points, torch.ones_like(points[..., :1])], -1)


def _affine(images: Tensor, shift: float, generator: Generator) -> Tensor:
    """(count, 3, 2): for each image the map that takes three shifted corners of a square back to where they were."""
    height, width = images.shape[-2:]
    half = max(min(height, width) // 3, 1)
    x, y = width // 2, height // 2
    corners = torch.tensor([[x + half, y + half], [x + half, y - half], [x - half, y - half]], dtype=torch.float64)
    moves = torch.rand((len(images), 3, 2), generator=generator, dtype=torch.float64) * 2 - 1
    return torch.linalg.solve(_homogeneous(corners + shift * moves), corners.expand(len(images), 3, 2)).float()


def _sampled(images: Tensor, places: Tensor) -> Tensor:
    """The images at (x, y) places in pixels."""
    height, width = images.shape[-2:]
    unit = places / (torch.tensor([max(width - 1, 1), max(height - 1, 1)]) / 2) - 1
    return torch.nn.functional.grid_sample(images, unit, "bilinear", "reflection", align_corners=True)
