"""From what people have, sentences, sounds, tables, to rows of numbers: what a run must keep to be asked alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from mixupmp.core.arrays import ArrayLayout
from mixupmp.core.columns import Columns
from mixupmp.core.errors import InvalidArgument, check, is_number, is_whole
from mixupmp.core.tokenizers import Vocabulary, WordPieces

SAMPLES_LIMIT = 2**26  # of a sound, in memory as floats: 256 MB


@dataclass(frozen=True)
class Spectrogram:
    """Sounds as pictures: log-spectrograms by `torch.stft`, bytes of (1, bands, frames), the highest band first.

    Decibels below the loudest point of a recording, from `-floor` (0) to 0 (255).

    Parameters
    ----------
    rate
        Samples a second.
    seconds
        Longer recordings are cut, shorter ones end in silence.
    window
        Samples of a Hann window; half a window lies between frames.
    bands
        Equal parts of the frequencies up to half the rate, whose power is averaged.
    """

    rate: int
    seconds: float = 1.0
    window: int = 256
    bands: int = 64
    floor: float = 80.0

    def __post_init__(self) -> None:
        check(is_whole(self.rate), "rate", self.rate, "a whole number of samples a second")
        check(is_number(self.seconds) and 0 < self.seconds < inf, "seconds", self.seconds, "positive and finite")
        check(is_number(self.floor) and 0 < self.floor < inf, "floor", self.floor, "positive and finite")
        check(is_whole(self.window, 4) and self.window % 2 == 0, "window", self.window, "an even number, at least 4")
        check(
            self.samples <= SAMPLES_LIMIT,
            "seconds",
            self.seconds,
            f"at most {SAMPLES_LIMIT / self.rate:g} at this rate",
        )
        check(self.samples >= self.window, "window", self.window, f"at most {self.samples}, the samples of a row")
        divides = is_whole(self.bands) and self.window // 2 % self.bands == 0
        check(divides, "bands", self.bands, f"a divisor of {self.window // 2}, half of the window")

    @property
    def samples(self) -> int:
        """How many samples of a recording are looked at."""
        return round(self.rate * self.seconds)

    def __call__(self, waves: Sequence[Tensor]) -> Tensor:
        """uint8 (rows, 1, bands, frames) of waves, each (samples,) float."""
        wrong = next((w for w in waves if not (isinstance(w, Tensor) and w.ndim == 1 and w.is_floating_point())), None)
        if wrong is not None or len(waves) == 0:
            given = waves if wrong is None else wrong
            raise InvalidArgument("waves", given, "a list of float tensors (samples,), at least one")
        heard = torch.zeros(len(waves), self.samples)
        for row, wave in zip(heard, waves, strict=True):
            row[: len(wave)] = wave[: self.samples]
        return torch.cat([self._pictures(block) for block in heard.split(256)])

    def _pictures(self, waves: Tensor) -> Tensor:
        window = torch.hann_window(self.window)
        spectrum = torch.stft(waves, self.window, self.window // 2, window=window, return_complex=True)
        power = spectrum[:, 1:].abs().square()  # without the constant part
        bands = power.unflatten(1, (self.bands, -1)).mean(2).flip(1)
        loudest = bands.flatten(1).amax(1).clamp(min=1e-12).view(-1, 1, 1)
        decibels = 10 * (bands / loudest).clamp(min=1e-12).log10()
        return ((decibels / self.floor + 1).clamp(min=0) * 255).round().to(torch.uint8).unsqueeze(1)


Encoder = Vocabulary | WordPieces | Spectrogram | Columns | ArrayLayout


def encoded(encoder: Encoder | None, given: Any) -> Any:
    """What a posterior is given, as the raw inputs of its networks: rows that are so already stay as they are."""
    encodes = isinstance(encoder, ArrayLayout) or (encoder is not None and isinstance(given, list | tuple))
    return encoder(given) if encoder is not None and encodes else given
