"""Kernels for time series and sound: waves (rows, channels, time), and spectrograms (rows, channels, frequency, time).

The last axis is time. Blends of waves or spectrograms need no measure of their own: `Mixup` makes them (Tokozume et al.
2018 for sound).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Generator, Tensor

from mixupmp.core.errors import InvalidArgument, check, is_number, is_whole


@dataclass(frozen=True)
class TimeShift:
    """Move by up to this share of the length, to either side; the value at the edge is repeated.

    Parameters
    ----------
    share
        Of the length, the farthest it moves.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        check(is_number(self.share) and 0 <= self.share < 1, "share", self.share, "a share of the length in [0, 1)")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_series(inputs, "TimeShift")
        length = inputs.shape[-1]
        most = int(self.share * length)
        shift = torch.randint(-most, most + 1, (len(inputs), 1), generator=generator)
        return _gathered(inputs, (torch.arange(length) - shift).clamp(0, length - 1))


@dataclass(frozen=True)
class GaussianNoise:
    """Noise whose standard deviation is this share of the row's own (jittering, Um et al. 2017).

    Parameters
    ----------
    share
        Of the row's own standard deviation.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        check(is_number(self.share) and 0 <= self.share < inf, "share", self.share, "a finite number, zero or more")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_floats(inputs, "GaussianNoise")
        noise = torch.randn(inputs.shape, generator=generator).to(inputs)
        spread = inputs.flatten(1).std(1, correction=0)
        return inputs + noise * (self.share * _per_row(spread, inputs))


@dataclass(frozen=True)
class Gain:
    """Louder or softer by up to so many decibels, uniformly: x' = x 10^(g/20) (scaling, Um et al. 2017). For waves.

    Parameters
    ----------
    decibels
        The largest change, to either side.
    """

    decibels: float = 6.0

    def __post_init__(self) -> None:
        known = is_number(self.decibels) and 0 <= self.decibels < inf
        check(known, "decibels", self.decibels, "a finite number, zero or more")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_floats(inputs, "Gain")
        gain = (2 * torch.rand(len(inputs), generator=generator) - 1) * self.decibels
        return inputs * _per_row((10 ** (gain / 20)).to(inputs), inputs)


@dataclass(frozen=True)
class WindowWarp:
    """Play a random window slower or faster, then resample to the original length (Le Guennec et al. 2016).

    Parameters
    ----------
    window
        The window's share of the length.
    scales
        The factors by which its duration changes, one of them drawn for each row.
    """

    window: float = 0.1
    scales: tuple[float, ...] = (0.5, 2.0)

    def __post_init__(self) -> None:
        check(is_number(self.window) and 0 < self.window <= 1, "window", self.window, "a share of the length in (0, 1]")
        known = len(self.scales) > 0 and all(is_number(scale) and 0 < scale < inf for scale in self.scales)
        check(known, "scales", self.scales, "positive numbers")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_series(inputs, "WindowWarp")
        length = inputs.shape[-1]
        place, which = torch.rand(2, len(inputs), 1, generator=generator)
        scale = torch.tensor(self.scales)[(which * len(self.scales)).long()]
        width = self.window * (length - 1)
        start = place * (length - 1 - width)
        # The time at which the original is read, for each time of the result: steeper or flatter within the window.
        time = torch.linspace(0, 1, length) * (length - 1 + (scale - 1) * width)
        inside = ((time - start) / scale).clamp(torch.zeros(()), torch.tensor(width))
        after = (time - start - scale * width).clamp(min=0)
        source = (torch.minimum(time, start) + inside + after).clamp(0, length - 1)
        left = source.floor().long()
        share = (source - left).to(inputs.device).view(len(inputs), *(1,) * (inputs.ndim - 2), length)
        first, second = _gathered(inputs, left), _gathered(inputs, (left + 1).clamp(max=length - 1))
        values = torch.lerp(first.float(), second.float(), share)
        return (values if inputs.is_floating_point() else values.round_()).to(inputs.dtype)


@dataclass(frozen=True)
class TimeMask:
    """Replace spans of time by the row's mean (SpecAugment, Park et al. 2019).

    Parameters
    ----------
    share
        The longest span, as a share of the length; its length is uniform.
    masks
        How many spans.
    """

    share: float = 0.2
    masks: int = 1

    def __post_init__(self) -> None:
        _check_mask(self.share, self.masks)

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        _check_series(inputs, "TimeMask")
        return _masked(inputs, -1, self.share, self.masks, generator)


@dataclass(frozen=True)
class FrequencyMask:
    """Replace bands of a spectrogram's frequencies by the row's mean (SpecAugment, Park et al. 2019).

    Parameters
    ----------
    share
        The widest band, as a share of all frequencies; its width is uniform.
    masks
        How many bands.
    """

    share: float = 0.2
    masks: int = 1

    def __post_init__(self) -> None:
        _check_mask(self.share, self.masks)

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        if inputs.ndim != 4:
            must = "spectrograms (rows, channels, frequency, time) for the kernel FrequencyMask"
            raise InvalidArgument("inputs", tuple(inputs.shape), must)
        return _masked(inputs, -2, self.share, self.masks, generator)


def _masked(inputs: Tensor, axis: int, share: float, masks: int, generator: Generator) -> Tensor:
    """Spans along an axis replaced by the mean, which is zero in the normalized spectrograms of Park et al."""
    size = inputs.shape[axis]
    length, place = torch.rand(2, len(inputs), masks, 1, generator=generator).to(inputs.device)
    most = int(share * size)
    span = (length * (most + 1)).floor().clamp(max=most)
    start = (place * (size - span + 1)).floor()
    position = torch.arange(size, device=inputs.device)
    hidden = ((position >= start) & (position < start + span)).any(1)  # (rows, size)
    shape = [len(inputs), *(1,) * (inputs.ndim - 1)]
    shape[axis] = size
    mean = inputs.flatten(1).float().mean(1)
    return torch.where(hidden.view(shape), _per_row(mean, inputs).to(inputs.dtype), inputs)


def _gathered(inputs: Tensor, index: Tensor) -> Tensor:
    """Each row read at its own times, (rows, time)."""
    shape = (len(inputs), *(1,) * (inputs.ndim - 2), index.shape[1])
    return inputs.gather(-1, index.to(inputs.device).view(shape).expand(inputs.shape))


def _per_row(values: Tensor, inputs: Tensor) -> Tensor:
    return values.view(-1, *(1,) * (inputs.ndim - 1))


def _check_series(inputs: Tensor, kernel: str) -> None:
    if inputs.ndim < 2:
        must = f"series (rows, ..., time) for the kernel {kernel}"
        raise InvalidArgument("inputs", tuple(inputs.shape), must)


def _check_floats(inputs: Tensor, kernel: str) -> None:
    _check_series(inputs, kernel)
    check(inputs.is_floating_point(), "inputs", inputs.dtype, f"floating point for the kernel {kernel}")


def _check_mask(share: float, masks: int) -> None:
    check(is_number(share) and 0 <= share <= 1, "share", share, "a share in [0, 1]")
    check(is_whole(masks), "masks", masks, "a whole number, at least 1")
