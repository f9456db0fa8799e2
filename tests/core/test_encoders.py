"""Sentences and sounds as rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixupmp.core.encoders import Spectrogram, Vocabulary, tokens_of
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.spec import decode, encode

TEXT = ["What's my balance?", "what is my balance", "pay my bill, please", "Pay the bill"]


def tone(hertz: float, seconds: float = 1.0, rate: int = 8000) -> torch.Tensor:
    return torch.sin(2 * math.pi * hertz * torch.arange(round(seconds * rate)) / rate)


def test_tokens_are_words_and_marks_in_lower_case() -> None:
    assert tokens_of("What's up, Doc? 3.5%") == ["what's", "up", ",", "doc", "?", "3", ".", "5", "%"]


def test_rare_words_are_unknown_and_the_rest_comes_back() -> None:
    vocabulary = Vocabulary.of(TEXT)
    assert vocabulary.words == ("balance", "bill", "my", "pay")
    rows = vocabulary(["Pay my dog", "", "my " * 50])
    assert rows.shape == (3, vocabulary.length)
    assert rows[0].tolist()[:4] == [5, 4, 1, 0]
    assert [vocabulary.text(row) for row in rows] == ["pay my [?]", "", " ".join(["my"] * vocabulary.length)]
    assert int(rows.max()) < vocabulary.size == 6


def test_the_most_frequent_words_and_the_usual_length_are_kept() -> None:
    sentences = ["a a a b b c"] * 99 + ["d " * 40]
    assert Vocabulary.of(sentences, most=2).words == ("a", "b")
    assert Vocabulary.of(sentences).length == 6
    assert Vocabulary.of(["a b c d"], longest=3) == Vocabulary(("a", "b", "c", "d"), 3)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_becomes_tokens(sentences: list[str]) -> None:
    rows = Vocabulary(("a", "b"), 7)(sentences)
    assert rows.dtype == torch.int64
    assert set(rows.flatten().tolist()) <= {0, 1, 2, 3}


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


@pytest.mark.parametrize("encoder", [Vocabulary(("x", "y"), 3), Spectrogram(8000, 0.25, 128, 32, 60.0)], ids=repr)
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
