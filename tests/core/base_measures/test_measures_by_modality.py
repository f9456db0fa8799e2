"""Base measures for images, text and tables, and mixtures, each held to what its docstring says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from mixupmp import (
    ClassAdjustedMixup,
    CutMix,
    FeatureSwap,
    GaussianCopula,
    Mixture,
    Mixup,
    Perturbed,
    SentencePair,
    SentenceSplice,
    Smote,
    Uniform,
)
from mixupmp.core.base_measures import BaseMeasure, choose
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument


def flat_images(count: int, height: int = 8, width: int = 6) -> Batch:
    """Images of one color, the number of their class."""
    pixels = torch.arange(float(count)).view(-1, 1, 1, 1).expand(count, 2, height, width).contiguous()
    return Batch(pixels, torch.eye(count), torch.ones(count))


def sentences(*lengths: int, room: int = 8) -> Batch:
    """Sentences whose tokens tell their number and place: 11, 12, .. and 21, 22, .."""
    tokens = torch.zeros(len(lengths), room, dtype=torch.long)
    for row, length in enumerate(lengths):
        tokens[row, :length] = 10 * (row + 1) + torch.arange(1, length + 1)
    return Batch(tokens, torch.eye(len(lengths)), torch.ones(len(lengths)))


def blobs(rows: int = 90) -> Batch:
    generator = Generator().manual_seed(5)
    labels = torch.arange(rows) % 3
    inputs = torch.randn(rows, 4, generator=generator) + 20 * labels[:, None]
    return Batch(inputs, torch.eye(3)[labels], torch.ones(rows))


def test_a_cutmix_label_is_the_share_of_pixels(generator: Generator) -> None:
    drawn = CutMix(1.0).sample(flat_images(3), 2000, generator)
    for number in range(3):
        pixels = (drawn.inputs == number).float().mean((1, 2, 3))
        assert torch.allclose(pixels, drawn.targets[:, number], atol=1e-6)


def test_what_cutmix_pastes_is_one_box_in_its_own_place(generator: Generator) -> None:
    """Pixels that tell their place are still there, and those of the second image form a rectangle."""
    place = torch.arange(48.0).view(1, 1, 8, 6)
    seen = Batch(torch.cat([place, place + 100]), torch.eye(2), torch.ones(2))
    drawn = CutMix(1.0).sample(seen, 500, generator)
    assert torch.equal(drawn.inputs % 100, place.expand(500, 1, 8, 6))
    second = drawn.inputs[:, 0] >= 100
    boxes = [part == (part.any(2).unsqueeze(2) & part.any(1).unsqueeze(1)) for part in (second, ~second)]
    assert bool((boxes[0].all(2).all(1) | boxes[1].all(2).all(1)).all())
    assert 0.2 < float(second.float().mean()) < 0.8


@pytest.mark.parametrize("alpha", [0.5, 4.0])
def test_cutmix_boxes_have_the_area_of_a_beta_share_and_a_uniform_center(alpha: float) -> None:
    """The share of pasted pixels is that of a square of side sqrt(1 - lambda), less what lies outside of the image."""
    count, size = 3000, 48
    images = torch.zeros(200, 1, size, size)
    drawn = CutMix(alpha).sample(Batch(images, torch.eye(200), torch.ones(200)), count, Generator().manual_seed(0))
    first = choose(torch.rand(6, count, generator=Generator().manual_seed(0))[0], 200)
    pasted = 1 - drawn.targets.gather(1, first[:, None]).flatten()  # 0 too where an image meets itself, once in 200
    known = np.random.default_rng(0)
    half = np.sqrt(known.beta(alpha, alpha, 100_000)) / 2
    middle = known.random((2, 100_000))
    sides = np.minimum(middle + half, 1) - np.maximum(middle - half, 0)
    assert stats.ks_2samp(pasted.numpy(), sides.prod(0)).statistic < 0.05


def test_cutmix_takes_images_only(generator: Generator) -> None:
    with pytest.raises(InvalidArgument, match="inputs must be images"):
        CutMix().sample(blobs(), 3, generator)


@pytest.mark.parametrize("base", [SentenceSplice(1.0), SentencePair()], ids=repr)
def test_sentences_are_joined_in_order_with_labels_by_tokens(base: BaseMeasure, generator: Generator) -> None:
    drawn = base.sample(sentences(5, 3, 8), 1000, generator)
    for tokens, target in zip(drawn.inputs.tolist(), drawn.targets, strict=True):
        kept = [token for token in tokens if token]
        assert tokens == kept + [0] * (8 - len(kept))
        assert len(kept) > 0
        source = [token // 10 - 1 for token in kept]
        assert torch.allclose(target, torch.bincount(torch.tensor(source), minlength=3) / len(kept), atol=1e-6)
        turns = [n for n in range(1, len(kept)) if kept[n] != kept[n - 1] + 1]
        assert len(turns) <= 1  # two runs at most: a beginning, and an end
        assert kept[0] % 10 == 1 or turns == []
        assert kept[-1] % 10 == (5, 3, 8)[source[-1]] or turns == []


@pytest.mark.parametrize("alpha", [0.4, 3.0])
def test_spliced_shares_are_beta(alpha: float, generator: Generator) -> None:
    tokens = torch.ones(2, 1000, dtype=torch.long)
    drawn = SentenceSplice(alpha).sample(Batch(tokens, torch.eye(2), torch.ones(2)), 4000, generator)
    share = drawn.targets[drawn.targets.amax(1) < 1, 0].double().numpy()  # of two different sentences
    known = stats.beta(alpha, alpha)
    low, high = known.cdf([0.0005, 0.9995])
    assert stats.kstest(share, lambda x: (known.cdf(x) - low) / (high - low)).statistic < 0.06


@pytest.mark.parametrize("base", [SentenceSplice(), SentencePair()], ids=repr)
def test_tables_are_no_sentences(base: BaseMeasure, generator: Generator) -> None:
    with pytest.raises(InvalidArgument, match=r"whole token numbers .*float32"):
        base.sample(blobs(), 3, generator)


def test_a_pair_is_both_sentences_whole_where_there_is_room(generator: Generator) -> None:
    drawn = SentencePair().sample(sentences(2, 3), 200, generator)
    assert {tuple(row) for row in drawn.inputs.tolist()} == {
        (11, 12, 11, 12, 0, 0, 0, 0),
        (11, 12, 21, 22, 23, 0, 0, 0),
        (21, 22, 23, 11, 12, 0, 0, 0),
        (21, 22, 23, 21, 22, 23, 0, 0),
    }


def test_features_are_swapped_within_the_class_with_their_rate(generator: Generator) -> None:
    seen = blobs()
    drawn = FeatureSwap(0.3).sample(seen, 4000, generator)
    label = drawn.targets.argmax(1)
    assert torch.equal(drawn.targets, torch.eye(3)[label])
    foreign = torch.ones_like(drawn.inputs)
    for number in range(3):
        mine = seen.inputs[seen.targets.argmax(1) == number]
        here = drawn.inputs[label == number]
        matches = here.unsqueeze(1) == mine  # (drawn, rows of the class, features)
        assert bool(matches.any(1).all())  # every value is one of the class's, in its own column
        foreign[label == number] = 4 - matches.sum(2).amax(1, keepdim=True).expand(-1, 4).float()
    # One partner in thirty is the row itself; beyond half of the features, the partner is the nearer of the two.
    replaced = stats.binom(4, 0.3)
    wanted = sum(min(k, 4 - k) * replaced.pmf(k) for k in range(5)) * 29 / 30
    assert float(foreign[:, 0].mean()) == pytest.approx(wanted, abs=0.08)


def test_smote_lies_between_a_row_and_one_of_its_nearest_of_the_class(generator: Generator) -> None:
    line = torch.tensor([0.0, 1.0, 3.0, 100.0, 102.0, 0.5]).view(6, 1)
    seen = Batch(line, torch.eye(2)[torch.tensor([0, 0, 0, 1, 1, 1])], torch.ones(6))
    drawn = Smote(1).sample(seen, 3000, generator)
    first, other = (drawn.inputs[drawn.targets[:, k] == 1, 0] for k in (0, 1))
    assert float(first.min()) >= 0
    assert float(first.max()) <= 3
    assert stats.kstest(first[first < 1].numpy(), stats.uniform(0, 1).cdf).pvalue > 1e-4  # 0 and 1 are neighbors
    assert bool(((other >= 99.99) | ((other >= 0.5) & (other <= 100))).all())
    near = (other >= 100) & (other <= 102)
    assert float(near.float().mean()) == pytest.approx(2 / 3, abs=0.05)  # the far row of the class is drawn to 100


def test_smote_interpolates_numbers_and_keeps_a_row_without_neighbors(generator: Generator) -> None:
    line = torch.linspace(0, 1, 20).view(20, 1)
    drawn = Smote(2).sample(Batch(line, 2 * line, torch.ones(20)), 100, generator)
    assert torch.allclose(drawn.targets, 2 * drawn.inputs, atol=1e-6)
    alone = Batch(line[:2], torch.eye(2), torch.ones(2))
    assert set(Smote().sample(alone, 50, generator).inputs.flatten().tolist()) == set(line[:2].flatten().tolist())


def test_a_copula_has_the_marginals_and_rank_correlations_of_each_class(generator: Generator) -> None:
    rows = 400
    normal = torch.randn(2 * rows, 2, generator=generator)
    joint = torch.stack([normal[:, 0], 0.8 * normal[:, 0] + 0.6 * normal[:, 1]], 1)
    joint[rows:, 1] *= -1  # the second class is correlated the other way round
    inputs = torch.stack([joint[:, 0].exp(), joint[:, 1] ** 3], 1)
    labels = torch.arange(2 * rows) // rows
    drawn = GaussianCopula().sample(Batch(inputs, torch.eye(2)[labels], torch.ones(2 * rows)), 6000, generator)
    for number in (0, 1):
        mine, here = inputs[labels == number].numpy(), drawn.inputs[drawn.targets[:, number] == 1].numpy()
        for column in (0, 1):
            assert stats.ks_2samp(mine[:, column], here[:, column]).pvalue > 1e-3
            assert mine[:, column].min() <= here[:, column].min()
            assert here[:, column].max() <= mine[:, column].max()
        assert stats.spearmanr(here)[0] == pytest.approx(stats.spearmanr(mine)[0], abs=0.05)


def test_a_copula_of_independent_columns_with_ties_leaves_them_independent() -> None:
    generator = Generator().manual_seed(2)
    drawn = []
    for _ in range(40):
        seen = torch.zeros(64, 3)
        for column in (0, 1):
            seen[torch.randperm(64, generator=generator)[:13], column] = 1  # the third column is constant
        copy = GaussianCopula().sample(Batch(seen, torch.ones(64, 2), torch.ones(64)), 1000, generator).inputs
        assert float(copy[:, 0].mean()) == pytest.approx(13 / 64, abs=0.08)
        assert bool((copy[:, 2] == 0).all())
        drawn.append(np.corrcoef(copy[:, :2].T)[0, 1])
    assert np.mean(drawn) == pytest.approx(0, abs=5 * 0.125 / 40**0.5)


def test_a_copula_of_equal_columns_with_ties_leaves_them_equal(generator: Generator) -> None:
    column = (torch.arange(90.0) % 3).view(-1, 1)
    drawn = GaussianCopula().sample(Batch(column.expand(90, 2), torch.ones(90, 2), torch.ones(90)), 1000, generator)
    assert np.corrcoef(drawn.inputs.T)[0, 1] > 0.98


def test_a_copula_of_numbers_draws_the_target_with_the_features(generator: Generator) -> None:
    inputs = torch.randn(300, 1, generator=generator)
    drawn = GaussianCopula().sample(Batch(inputs, 3 * inputs, torch.ones(300)), 2000, generator)
    assert np.corrcoef(drawn.inputs[:, 0], drawn.targets[:, 0])[0, 1] > 0.99


def test_a_copula_of_fewer_rows_than_columns_is_finite(generator: Generator) -> None:
    seen = Batch(torch.randn(3, 8, generator=generator), torch.eye(2)[torch.tensor([0, 0, 1])], torch.ones(3))
    drawn = GaussianCopula().sample(seen, 40, generator)
    assert bool(torch.isfinite(drawn.inputs).all())
    assert torch.equal(drawn.inputs[drawn.targets[:, 1] == 1][0], seen.inputs[2])


def test_swaps_need_classes_and_tables(generator: Generator) -> None:
    numbers = Batch(torch.zeros(4, 2), torch.zeros(4, 1), torch.ones(4))
    with pytest.raises(InvalidArgument, match="base must be a base measure for regression"):
        FeatureSwap().sample(numbers, 3, generator)
    for base in (FeatureSwap(), Smote(), GaussianCopula()):
        with pytest.raises(InvalidArgument, match="inputs must be a table"):
            base.sample(flat_images(3), 3, generator)


def test_half_mixup_half_cutmix(generator: Generator) -> None:
    """Blends have pixels between the colors, boxes have none."""
    drawn = Mixture((Mixup(2.0), CutMix(2.0))).sample(flat_images(40), 1000, generator)
    blended = (drawn.inputs % 1 != 0).flatten(1).any(1)
    alone = drawn.targets.amax(1) == 1
    assert 440 <= int(blended.sum()) <= 500
    assert 440 <= int((~blended & ~alone).sum()) + int(alone.sum()) // 2 <= 560


def test_the_rows_of_a_mixture_are_right_on_average_for_any_count(generator: Generator) -> None:
    mixture = Mixture((Uniform(-1.0, 1.0), Perturbed(1.0)), (1.0, 3.0))
    seen = Batch(torch.full((5, 1), 100.0), torch.eye(5), torch.ones(5))
    counts = [int((mixture.sample(seen, 3, generator).inputs < 50).sum()) for _ in range(600)]
    assert set(counts) == {0, 1}
    assert np.mean(counts) == pytest.approx(0.75, abs=0.09)


@pytest.mark.parametrize(
    ("measures", "weights", "match"),
    [
        ((), None, "at least one base measure"),
        ((Mixup,), None, "at least one base measure"),
        ((ClassAdjustedMixup(),), None, "do not adapt"),
        ((Mixup(), CutMix()), (1.0,), "2 numbers"),
        ((Mixup(), CutMix()), (0.0, 0.0), "2 numbers"),
        ((Mixup(), CutMix()), (-1.0, 2.0), "2 numbers"),
    ],
)
def test_a_mixture_needs_measures_with_weights(measures: Any, weights: Any, match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        Mixture(measures, weights)
