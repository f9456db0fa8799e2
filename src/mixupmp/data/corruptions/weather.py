"""Weather: fog, frost, snow, spatter."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mixupmp.data.corruptions.filters import apply, gaussian, scale_of, streak, zoom_matrix
from mixupmp.data.corruptions.textures import frost_texture, plasma

TURQUOISE = (175 / 255, 238 / 255, 238 / 255)
BROWN = (63 / 255, 42 / 255, 20 / 255)
LUMA = (0.299, 0.587, 0.114)


def gray(images: Tensor) -> Tensor:
    """(rows, 1, height, width): the luma of RGB; a gray image is its own."""
    return images if images.shape[1] == 1 else torch.einsum("nchw,c->nhw", images, torch.tensor(LUMA)).unsqueeze(1)


def _color(color: tuple[float, float, float], images: Tensor) -> Tensor:
    """A color for these images: its luma where they are gray."""
    return gray(torch.tensor(color).view(1, 3, 1, 1)) if images.shape[1] == 1 else torch.tensor(color).view(1, 3, 1, 1)


def _scaled_to_one(layer: Tensor) -> Tensor:
    """Each image's layer over its own maximum; an empty one stays empty."""
    return layer / layer.amax((1, 2, 3), keepdim=True).clamp(min=1e-6)


def fog(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """x + f plasma, scaled back by max / (max + f) so that an image keeps its own maximum."""
    amount, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[severity - 1]
    layer = plasma(len(images), max(images.shape[-2:]), decay, generator)[:, None, : images.shape[2], : images.shape[3]]
    most = images.amax((1, 2, 3), keepdim=True)
    return (images + amount * layer) * (most / (most + amount))


def frost(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """a x + b times a crop of a frost texture. The published textures are photographs; this one is a formula's."""
    keep, add = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    height, width = images.shape[-2:]
    texture = frost_texture(min(height, width))
    if images.shape[1] == 1:
        texture = gray(texture.unsqueeze(0))[0]
    # Long sides wrap around: the texture is periodic.
    tops = torch.randint(texture.shape[1], (len(images), 1), generator=generator)
    lefts = torch.randint(texture.shape[2], (len(images), 1), generator=generator)
    rows = (tops + torch.arange(height)) % texture.shape[1]
    columns = (lefts + torch.arange(width)) % texture.shape[2]
    crops = texture[:, rows.unsqueeze(2), columns.unsqueeze(1)].transpose(0, 1)
    return keep * images + add * crops


def snow(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """The image whitened, under flakes of a falling layer and of the same layer turned by 180 degrees."""
    settings = (
        (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )
    mean, deviation, zoom, threshold, radius, sigma, keep = settings[severity - 1]
    height, width = images.shape[-2:]
    layer = mean + deviation * torch.randn((len(images), 1, height, width), generator=generator)
    zoom = max(1.0, zoom * scale_of(images))
    layer = apply(layer, zoom_matrix(height, zoom), zoom_matrix(width, zoom))
    layer = torch.where(layer < threshold, torch.zeros(()), layer).clamp_(0, 1)
    angles = torch.rand(len(images), generator=generator) * 90 - 135
    layer = streak(layer, radius, sigma, angles)
    white = torch.maximum(images, 1.5 * gray(images) + 0.5)
    return keep * images + (1 - keep) * white + layer + layer.rot90(2, (2, 3))


def spatter(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Drops of a liquid: turquoise water, lit from one side, up to severity 3; brown mud from 4 on."""
    settings = (
        (0.62, 0.1, 0.7, 0.7, 0.5),
        (0.65, 0.1, 0.8, 0.7, 0.5),
        (0.65, 0.3, 1.0, 0.69, 0.5),
        (0.65, 0.1, 0.7, 0.69, 0.6),
        (0.65, 0.1, 0.5, 0.68, 0.6),
    )
    mean, deviation, smooth, threshold, strength = settings[severity - 1]
    shape = (len(images), 1, *images.shape[-2:])
    layer = gaussian(mean + deviation * torch.randn(shape, generator=generator), smooth)
    layer = torch.where(layer < threshold, torch.zeros(()), layer)
    if severity <= 3:
        return images + strength * _lit(layer) * _color(TURQUOISE, images)
    mud = gaussian((layer > threshold).float(), strength)
    mud = torch.where(mud < 0.8, torch.zeros(()), mud)
    return images * (1 - mud) + mud * _color(BROWN, images)


def _lit(layer: Tensor) -> Tensor:
    """Drops as bright as they slope towards the lower right, at most one: a rim of light, and a clear other side."""
    relief = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]).view(1, 1, 3, 3)
    mask = torch.nn.functional.pad((layer > 0).float(), (1, 1, 1, 1), mode="replicate")
    slope = torch.nn.functional.conv2d(mask, relief).clamp_(min=0)
    slope = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(slope, (1, 1, 1, 1), mode="replicate"), 3, 1)
    return _scaled_to_one(layer * slope)
