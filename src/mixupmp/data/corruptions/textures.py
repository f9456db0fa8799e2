"""Textures made by formula: plasma for fog, crystals for frost."""

from __future__ import annotations

import functools
import math

import torch
from torch import Generator, Tensor

CLEAR, WHITE = 0.45, 0.75
TEXTURE_SIDES = 8  # the frost texture is this many image sides wide


def plasma(count: int, side: int, decay: float, generator: Generator) -> Tensor:
    """Diamond-square fractals in [0, 1], (count, size, size) with size the next power of two; they wrap around.

    From one level to the next the amplitude falls by decay squared: the generator of the published files multiplies
    its amplitude in twice, and the published decays are meant for that.
    """
    size = 1 << max(1, math.ceil(math.log2(side)))
    field = torch.zeros(count, size, size)
    step, amplitude = size, 1.0

    def jitter(mean: Tensor) -> Tensor:
        return mean + amplitude * (torch.rand(mean.shape, generator=generator) * 2 - 1)

    while step > 1:
        half = step // 2
        corners = field[:, ::step, ::step]
        right, below = corners.roll(-1, 2), corners.roll(-1, 1)
        middles = jitter((corners + right + below + right.roll(-1, 1)) / 4)
        field[:, half::step, half::step] = middles
        field[:, ::step, half::step] = jitter((corners + right + middles + middles.roll(1, 1)) / 4)
        field[:, half::step, ::step] = jitter((corners + below + middles + middles.roll(1, 2)) / 4)
        step, amplitude = half, amplitude / decay**2
    return _unit(field)


def _unit(field: Tensor) -> Tensor:
    """Each field stretched to [0, 1]."""
    low, high = field.amin((-2, -1), keepdim=True), field.amax((-2, -1), keepdim=True)
    return (field - low) / (high - low).clamp(min=1e-12)


@functools.lru_cache(maxsize=4)
def frost_texture(side: int) -> Tensor:
    """(3, 8 side, 8 side): ice crystals on dark glass, periodic, always the same.

    Needles grow from random points along six directions; where patches of a slowly varying field favor one
    direction they form feathers. Feathers of two lengths are laid over each other and tinted as ice.
    """
    size, unit = TEXTURE_SIDES * side, side / 32
    generator = torch.Generator().manual_seed(0)
    field = torch.zeros(size, size)
    for length, share in ((9.0, 1.0), (4.0, 0.7)):
        for k in range(6):
            angle = math.pi * (k + float(torch.rand((), generator=generator))) / 6
            seeds = (torch.rand((size, size), generator=generator) < 0.02 / unit).float()
            needles = _filtered(seeds, length * unit, 0.45 * max(unit, 0.5), angle)
            noise = torch.randn((size, size), generator=generator)
            patch = _unit(_filtered(noise, 10 * unit, 10 * unit, 0.0))
            field += share * needles / needles.amax() * (patch - 0.45).clamp_(min=0)
    cover = _unit(_filtered(torch.randn((size, size), generator=generator), 9 * unit, 9 * unit, 0.0))
    sample = field.flatten()[:: max(1, field.numel() // 100_000)]
    ice = (field / sample.quantile(0.97)).clamp_(0, 1).sqrt() * (0.4 + 0.9 * cover)
    # Glass shows between the crystals: what is faint becomes clear, what is bright becomes white.
    ice = ((ice - CLEAR) / (WHITE - CLEAR)).clamp_(0, 1)
    ice = _filtered(ice.square() * (3 - 2 * ice), 0.5 * unit, 0.5 * unit, 0.0).clamp_(0, 1)  # narrow filters ring
    tint = torch.tensor([0.86, 0.94, 1.0]).view(3, 1, 1)
    return ice * tint


def _filtered(field: Tensor, along: float, across: float, angle: float) -> Tensor:
    """The field smoothed by a Gaussian of two deviations turned by an angle; done with FFTs, so it wraps around."""
    size = field.shape[0]
    down, right = torch.meshgrid(torch.fft.fftfreq(size), torch.fft.rfftfreq(size), indexing="ij")
    first = right * math.cos(angle) + down * math.sin(angle)
    second = down * math.cos(angle) - right * math.sin(angle)
    response = torch.exp(-2 * math.pi**2 * ((along * first) ** 2 + (across * second) ** 2))
    return torch.fft.irfft2(torch.fft.rfft2(field) * response, s=(size, size))
