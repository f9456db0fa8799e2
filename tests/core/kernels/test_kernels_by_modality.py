"""Kernels for text, and for time series and sound, each held to what its docstring says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Generator, Tensor

from mixupmp import (
    FrequencyMask,
    Gain,
    GaussianNoise,
    SpanCut,
    TimeMask,
    TimeShift,
    TokenDropout,
    TokenSwap,
    WindowWarp,
)
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.kernels import KERNELS

TEXT = [TokenDropout(0.4), TokenSwap(2), SpanCut(0.6)]
WAVE = torch.linspace(0, 9, 50).sin().view(1, 1, 50)


def sentences(rows: int = 400, room: int = 9) -> Tensor:
    """Sentences 1 2 3 .., of one to nine tokens."""
    place = torch.arange(1, room + 1)
    return place * (place <= (torch.arange(rows) % room + 1)[:, None])


def kept(row: Tensor) -> list[int]:
    return [token for token in row.tolist() if token]


@pytest.mark.parametrize("kernel", TEXT, ids=repr)
def test_text_kernels_keep_sentences_sentences(kernel: Any, generator: Generator) -> None:
    tokens = sentences()
    before = tokens.clone()
    changed = kernel(tokens, generator)
    assert torch.equal(tokens, before)
    assert changed.dtype == tokens.dtype
    for old, new in zip(tokens, changed, strict=True):
        assert len(kept(new)) >= 1
        assert new.tolist() == kept(new) + [0] * (9 - len(kept(new)))
        assert set(kept(new)) <= set(kept(old))


def test_dropped_tokens_are_as_many_as_the_rate_says(generator: Generator) -> None:
    tokens = torch.arange(1, 101).expand(500, 100)
    shorter = TokenDropout(0.3)(tokens, generator)
    assert all(row == sorted(row) for row in map(kept, shorter))
    left = (shorter != 0).sum()
    assert abs(int(left) - 35_000) < 5 * (50_000 * 0.21) ** 0.5
    assert torch.equal(TokenDropout(0.0)(tokens, generator), tokens)


def test_swaps_exchange_two_tokens_at_most(generator: Generator) -> None:
    tokens = sentences()
    swapped = TokenSwap()(tokens, generator)
    assert torch.equal(swapped.sort(1).values, tokens.sort(1).values)
    moved = (swapped != tokens).sum(1)
    assert set(moved.tolist()) == {0, 2}


def test_swapped_tokens_are_anywhere_in_the_sentence(generator: Generator) -> None:
    tokens = torch.arange(1, 7).expand(6000, 6)
    moved = TokenSwap()(tokens, generator) != tokens
    assert abs(float(moved.any(1).float().mean()) - 5 / 6) < 5 * (5 / 36 / 6000) ** 0.5  # a place meets itself in 1/6
    assert stats.chisquare(moved.sum(0).numpy()).pvalue > 1e-4


def test_a_span_is_cut_in_one_piece_of_every_length_up_to_its_share(generator: Generator) -> None:
    tokens = torch.arange(1, 11).expand(6000, 10)
    cut = SpanCut(0.35)(tokens, generator)
    lengths = 10 - (cut != 0).sum(1)
    assert stats.chisquare(torch.bincount(lengths).numpy()).pvalue > 1e-4
    assert int(lengths.max()) == 3
    for row in map(kept, cut[:300]):
        assert sum(b != a + 1 for a, b in pairwise(row)) <= 1
    starts = (cut[lengths == 3] == torch.arange(1, 11)).sum(1)  # tokens before the span are in their place
    assert stats.chisquare(torch.bincount(starts, minlength=8).numpy()).pvalue > 1e-4


def test_shifted_waves_repeat_their_edge(generator: Generator) -> None:
    wave = torch.arange(1.0, 11.0).expand(500, 1, 10)
    shifted = TimeShift(0.3)(wave, generator)
    wanted = {tuple(torch.clamp(torch.arange(1, 11) - s, 1, 10).tolist()) for s in range(-3, 4)}
    assert {tuple(row.flatten().tolist()) for row in shifted} == wanted


def test_noise_is_relative_to_the_rows_own_deviation(generator: Generator) -> None:
    waves = torch.cat([WAVE, 100 * WAVE]).expand(2, 1, 50).repeat_interleave(400, 0)
    noise = (GaussianNoise(0.2)(waves, generator) - waves).view(2, -1)
    for part, factor in zip(noise, (1, 100), strict=True):
        deviation = 0.2 * factor * float(WAVE.std(correction=0))
        assert stats.kstest(part.numpy(), stats.norm(0, deviation).cdf).pvalue > 1e-4


def test_gain_is_uniform_in_decibels(generator: Generator) -> None:
    louder = Gain(6.0)(WAVE.expand(3000, 1, 50), generator)
    ratio = louder[:, 0, 25] / WAVE[0, 0, 25]
    assert torch.allclose(louder, ratio.view(-1, 1, 1) * WAVE, atol=1e-6)
    assert stats.kstest((20 * ratio.log10()).numpy(), stats.uniform(-6, 12).cdf).pvalue > 1e-4


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_a_warped_window_has_its_slope_and_the_ends_stay(scale: float, generator: Generator) -> None:
    """On a straight line, the time at which the original is read can be seen."""
    line = torch.arange(101.0).expand(50, 1, 101)
    warped = WindowWarp(0.2, (scale,))(line, generator)[:, 0]
    assert torch.allclose(warped[:, 0], torch.zeros(50), atol=1e-4)
    assert torch.allclose(warped[:, -1], torch.full((50,), 100.0), atol=1e-3)
    speed = (100 + (scale - 1) * 20) / 100  # of the whole, resampled
    steps = warped.diff(dim=1)
    inside, outside = speed / scale, speed
    assert float(steps.min()) >= min(inside, outside) - 1e-3
    assert float(steps.max()) <= max(inside, outside) + 1e-3
    slow = ((steps - inside).abs() < 1e-3).sum(1)
    assert bool(((slow - 20 / inside).abs() <= 2).all())  # twenty steps of the original pass in the window
    assert len(slow.unique()) < 4


def test_a_warped_window_is_anywhere(generator: Generator) -> None:
    line = torch.arange(101.0).expand(3000, 1, 101)
    steps = WindowWarp(0.2, (2.0,))(line, generator)[:, 0].diff(dim=1)
    start = (steps < 0.9).int().argmax(1) * 1.2  # 1.2 of the original's steps pass in each before the window
    assert stats.kstest(start.numpy(), stats.uniform(0, 80).cdf).statistic < 0.05


@pytest.mark.parametrize(("kernel", "axis"), [(TimeMask(0.25), 3), (FrequencyMask(0.25), 2)], ids=repr)
def test_lengths_and_starts_of_masks_are_uniform(kernel: Any, axis: int, generator: Generator) -> None:
    sound = torch.arange(400.0).view(1, 1, 20, 20).expand(4000, 1, 20, 20)
    hidden = (kernel(sound, generator) != sound).any(dim=5 - axis).squeeze(1)
    lengths = hidden.sum(1)
    assert stats.chisquare(torch.bincount(lengths, minlength=6).numpy()).pvalue > 1e-4
    starts = hidden[lengths == 5].int().argmax(1)
    assert stats.chisquare(torch.bincount(starts, minlength=16).numpy()).pvalue > 1e-4


def test_masks_hide_one_span_with_the_mean(generator: Generator) -> None:
    sound = torch.rand(300, 1, 12, 20, generator=generator) + 5
    mean = sound.mean((1, 2, 3), keepdim=True)
    for kernel, axis, size in ((TimeMask(0.25), 3, 20), (FrequencyMask(0.25), 2, 12)):
        masked = kernel(sound, generator)
        hidden = (masked != sound).all(dim=5 - axis).squeeze(1)  # (rows, size)
        assert torch.equal(masked, torch.where((masked != sound), mean, sound))
        assert torch.equal((masked != sound).any(dim=5 - axis).squeeze(1), hidden)
        assert int(hidden.sum(1).max()) == size // 4
        assert int(hidden.sum(1).min()) == 0
        assert int(hidden.int().diff(dim=1).abs().sum(1).max()) <= 2
    twice = (TimeMask(0.1, masks=2)(sound, generator) != sound).all(dim=2).squeeze(1)
    assert int(twice.int().diff(dim=1).abs().sum(1).max()) in (3, 4)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_keeps_shape_and_type_and_repeats_with_its_seed(name: str) -> None:
    kernel, module = KERNELS[name], type(KERNELS[name]).__module__.rpartition(".")[2]
    inputs = sentences() if module == "text" else torch.rand(20, 1, 8, 20, generator=Generator().manual_seed(0))
    before = inputs.clone()
    one, two, other = (kernel(inputs, Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(inputs, before)
    assert (one.shape, one.dtype) == (inputs.shape, inputs.dtype)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("kernel", [TimeShift(), WindowWarp(), TimeMask(), FrequencyMask()], ids=repr)
def test_spectrograms_may_be_bytes(kernel: Any, generator: Generator) -> None:
    images = torch.randint(0, 256, (30, 1, 10, 12), generator=generator).to(torch.uint8)
    assert kernel(images, generator).dtype == torch.uint8


@pytest.mark.parametrize(
    ("kernel", "options", "match"),
    [
        (TokenDropout, {"rate": 1.0}, "rate must be"),
        (TokenSwap, {"swaps": 0}, "swaps must be"),
        (SpanCut, {"share": -0.1}, "share must be"),
        (TimeShift, {"share": 1.0}, "share must be"),
        (GaussianNoise, {"share": float("nan")}, "share must be"),
        (Gain, {"decibels": "6"}, "decibels must be"),
        (WindowWarp, {"window": 0.0}, "window must be"),
        (WindowWarp, {"scales": ()}, "scales must be"),
        (TimeMask, {"share": 1.1}, "share must be"),
        (FrequencyMask, {"masks": 0}, "masks must be"),
    ],
)
def test_settings_out_of_range_are_named(kernel: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        kernel(**options)


def test_inputs_of_another_kind_are_named(generator: Generator) -> None:
    for kernel in TEXT:
        for inputs in (WAVE, WAVE[0]):  # a wave, and a table of numbers that are not whole
            with pytest.raises(InvalidArgument, match="whole token numbers"):
                kernel(inputs, generator)
    with pytest.raises(InvalidArgument, match="spectrograms"):
        FrequencyMask()(WAVE, generator)
    with pytest.raises(InvalidArgument, match="floating point"):
        Gain()(torch.zeros(2, 1, 5, dtype=torch.uint8), generator)
