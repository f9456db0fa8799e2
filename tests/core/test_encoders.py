"""Sounds as rows, and what a run keeps of encoders."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from mixupmp.core.encoders import Spectrogram
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.spec import decode, encode
from mixupmp.core.tokenizers import Vocabulary, WordPieces


def tone(hertz: float, seconds: float = 1.0, rate: int = 8000) -> torch.Tensor:
    return torch.sin(2 * math.pi * hertz * torch.arange(round(seconds * rate)) / rate)


@pytest.mark.parametrize("hertz", [500.0, 1800.0, 3500.0])
def test_a_tone_is_loudest_in_its_own_band(hertz: float) -> None:
    (picture,) = Spectrogram(8000, bands=32)([tone(hertz)])
    assert picture.shape == (1, 32, 63)
    assert picture.dtype == torch.uint8
    loudest = picture[0, :, 5:-5].float().mean(1).argmax()
    assert abs(31 - int(loudest) - hertz / 4000 * 32) <= 1  # the highest band is the first
    assert int(picture.max()) == 255


def test_loudness_does_not_matter_but_decibels_below_the_loudest_do() -> None:
    wave = tone(1000)
    both = Spectrogram(8000)([wave, 0.01 * wave])
    assert torch.equal(both[0], both[1])
    half = torch.cat([wave[:4000], 0.1 * wave[4000:]])
    (picture,) = Spectrogram(8000, floor=80.0)([half])
    fall = int(picture[0, :, 10].max()) - int(picture[0, :, 50].max())
    assert fall == pytest.approx(20 / 80 * 255, abs=2)


def test_sounds_are_cut_or_end_in_silence() -> None:
    spectrogram = Spectrogram(8000, 0.5)
    short, long, silent = spectrogram([tone(900, 0.2), tone(900, 3.0), torch.zeros(100)])
    assert short.shape == long.shape == (1, 64, 32)
    assert int(short[..., 20:].max()) == 0
    assert int(silent.max()) == 0


@pytest.mark.parametrize(
    "encoder",
    [Vocabulary(("x", "y"), 3), WordPieces(("##y", "x"), 3), Spectrogram(8000, 0.25, 128, 32, 60.0)],
    ids=repr,
)
def test_what_a_run_keeps_is_read_back(encoder: Any) -> None:
    assert decode(encode(encoder), type(encoder)) == encoder


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Vocabulary((), 3), "words must be"),
        (lambda: Vocabulary(("a",), 0), "length must be"),
        (lambda: Vocabulary(("a",), 3)("not a list"), "sentences must be"),
        (lambda: Vocabulary(("a",), 3)(["a", 3]), "sentences must be"),  # type: ignore[list-item]
        (lambda: Spectrogram(0), "rate must be"),
        (lambda: Spectrogram(8000, 0.01), "window must be"),
        (lambda: Spectrogram(8000, bands=60), "bands must be"),
        (lambda: Spectrogram(8000, 1e9), "seconds must be"),
        (lambda: Spectrogram(8000)([]), "waves must be"),
        (lambda: Spectrogram(8000)([torch.zeros(2, 9000)]), "waves must be"),
    ],
)
def test_what_cannot_be_encoded_is_named(make: Any, match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        make()
