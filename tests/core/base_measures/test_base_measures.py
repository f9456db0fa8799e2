from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Generator, Tensor

from mixupmp.core.base_measures import (
    BASE_MEASURES,
    AdaptiveBaseMeasure,
    BaseMeasure,
    ClassAdjustedMixup,
    FeatureSwap,
    GaussianCopula,
    Mixup,
    Perturbed,
    Smote,
    Uniform,
    WarpedMixup,
    blend,
    choose,
    symmetric_beta,
)
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument

ALPHAS = (0.05, 0.1, 0.4, 0.5, 1.0, 2.0, 10.0, 1e4)


def seen_rows(count: int = 6, classes: int = 3, shape: tuple[int, ...] = (2,)) -> Batch:
    generator = Generator().manual_seed(8)
    labels = torch.arange(count) % classes
    weights = torch.rand(count, generator=generator) + 0.5
    return Batch(torch.randn(count, *shape, generator=generator), torch.eye(classes)[labels], weights)


def numbered_rows(count: int) -> Batch:
    """Rows whose input and target both give their number away."""
    return Batch(torch.arange(count).float().view(-1, 1), torch.eye(count), torch.ones(count))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_beta_draws_have_the_distribution_of_scipys(alpha: float, generator: Generator) -> None:
    count = 40_000
    draws = symmetric_beta(alpha, *torch.rand(2, count, generator=generator))
    assert draws.dtype == torch.float32
    assert bool(torch.isfinite(draws).all())
    assert float(draws.min()) >= 0
    assert float(draws.max()) <= 1
    known = stats.beta(alpha, alpha)
    # The Kolmogorov-Smirnov distance. Float32 rounds what is within 1e-6 of an end to that end, so compare inside.
    values = np.sort(draws.double().numpy())
    points = values[(values > 1e-6) & (values < 1 - 1e-6)]
    below = np.searchsorted(values, points, side="left") / count
    upto = np.searchsorted(values, points, side="right") / count
    exact = known.cdf(points)
    distance = max(np.max(exact - below), np.max(upto - exact))
    assert distance < 2.0 / count**0.5  # surpassed once in 1,500
    for power in (1, 2, 3, 4):
        mean, error = known.moment(power), (known.moment(2 * power) - known.moment(power) ** 2) ** 0.5 / count**0.5
        assert abs(np.mean(values**power) - mean) < 4.5 * error + 1e-7


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 1.0, 10.0, 1e6])
@pytest.mark.parametrize("first", [0.0, 1e-38, 0.5, 1 - 2**-24])
@pytest.mark.parametrize("second", [0.0, 0.25, 0.5, 0.75, 1 - 2**-24])
def test_beta_is_a_share_even_at_the_ends_of_its_uniforms(alpha: float, first: float, second: float) -> None:
    share = float(symmetric_beta(alpha, torch.tensor([first]), torch.tensor([second])))
    assert 0 <= share <= 1


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 2**24), uniform=st.floats(0, 1, exclude_max=True, width=32))
def test_chosen_rows_exist(count: int, uniform: float) -> None:
    assert 0 <= int(choose(torch.tensor(uniform), count)) < count


def test_chosen_rows_are_uniform(generator: Generator) -> None:
    counts = torch.bincount(choose(torch.rand(70_000, generator=generator), 7), minlength=7)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_a_blend_at_its_ends_is_exactly_one_of_the_two(generator: Generator) -> None:
    first, second = torch.randn(2, 50, 3, generator=generator)
    assert torch.equal(blend(first, second.clone(), torch.ones(50)), first)
    assert torch.equal(blend(first, second.clone(), torch.zeros(50)), second)


def test_mixup_draws_pairs_independently_and_one_share_a_row(generator: Generator) -> None:
    """Each pseudo row is lambda of one row and 1 - lambda of another, in its input and in its target alike."""
    seen = numbered_rows(5)
    count = 30_000
    mixed = Mixup(1.0).sample(seen, count, generator)
    assert torch.allclose(mixed.targets.sum(1), torch.ones(count), atol=1e-6)
    assert int((mixed.targets > 0).sum(1).max()) == 2
    # The input is the same blend of the rows' numbers as the target says.
    assert torch.allclose(mixed.inputs[:, 0], mixed.targets @ torch.arange(5.0), atol=1e-5)
    # A row is mixed with itself once in five times, and every pair is as likely as any other.
    alone = (mixed.targets > 0).sum(1) == 1
    assert abs(float(alone.float().mean()) - 1 / 5) < 5 * (0.2 * 0.8 / count) ** 0.5
    pairs = mixed.targets[~alone].topk(2, 1).indices.sort(1).values
    counts = torch.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25)
    assert stats.chisquare(counts[counts > 0].numpy()).pvalue > 1e-4
    assert int((counts > 0).sum()) == 10
    # Shares differ from row to row, and are uniform for alpha = 1.
    share = mixed.targets[~alone].gather(1, pairs[:, :1]).flatten()
    assert stats.kstest(share.numpy(), "uniform").pvalue > 1e-4


def test_mixup_blends_images_too(generator: Generator) -> None:
    seen = numbered_rows(4)
    images = seen._replace(inputs=seen.inputs.view(4, 1, 1, 1).expand(4, 2, 3, 3))
    mixed = Mixup(2.0).sample(images, 200, generator)
    place = mixed.targets @ torch.arange(4.0)
    assert torch.allclose(mixed.inputs, place.view(-1, 1, 1, 1).expand(200, 2, 3, 3), atol=1e-5)


def test_rows_that_all_count_nothing_give_blends_that_count_nothing(generator: Generator) -> None:
    assert (
        Mixup(1.0).sample(numbered_rows(4)._replace(weights=torch.zeros(4)), 10, generator).weights.tolist() == [0] * 10
    )


def test_the_shares_of_mixup_are_beta(generator: Generator) -> None:
    draws = Mixup(2.0).draw(20_000, generator)
    assert stats.kstest(Mixup(2.0).share(draws).double().numpy(), stats.beta(2, 2).cdf).pvalue > 1e-4


ROWS = {"plane": (2,), "images": (3, 4, 4), "text": (7,)}
TAKES = {
    "paper": ("plane", "images"),
    "warped": ("plane", "images"),
    "at_layer": ("plane", "images"),
    "mixture": ("images",),
    "images": ("images",),
    "tables": ("plane",),
    "text": ("text",),
}
BASES = [*BASE_MEASURES.values(), ClassAdjustedMixup(0.4, (True, False, True)), Perturbed(2.0), FeatureSwap(0.9)]
CASES = [(base, kind) for base in BASES for kind in TAKES[type(base).__module__.rpartition(".")[2]]]


def rows_of(kind: str, count: int = 6) -> Batch:
    seen = seen_rows(count, shape=ROWS[kind])
    if kind != "text":
        return seen
    tokens = torch.randint(1, 50, (count, 7), generator=Generator().manual_seed(3))
    return seen._replace(inputs=tokens * (torch.arange(7) < torch.arange(count)[:, None] % 7 + 1))


@pytest.mark.parametrize(("base", "kind"), CASES, ids=map(str, CASES))
@pytest.mark.parametrize("count", [1, 6, 17])
def test_every_base_measure_leaves_what_was_seen_alone(base: BaseMeasure, kind: str, count: int) -> None:
    seen = rows_of(kind)
    before = [part.clone() for part in seen]
    drawn = [base.sample(seen, count, Generator().manual_seed(seed)) for seed in (1, 1, 7)]
    assert all(torch.equal(part, kept) for part, kept in zip(seen, before, strict=True))
    assert drawn[0].inputs.shape == (count, *ROWS[kind])
    assert drawn[0].inputs.dtype == seen.inputs.dtype
    assert drawn[0].targets.shape == (count, 3)
    assert drawn[0].weights.shape == (count,)
    assert torch.allclose(drawn[0].targets.sum(1), torch.ones(count), atol=1e-6)
    assert all(torch.equal(one, two) for one, two in zip(drawn[0], drawn[1], strict=True))
    assert not torch.equal(drawn[0].inputs, drawn[2].inputs)


@pytest.mark.parametrize("base", BASES, ids=str)
def test_every_base_measure_takes_points_or_says_that_it_does_not(base: BaseMeasure, generator: Generator) -> None:
    """So that the playground can find those to show by trying them."""
    if "plane" in TAKES[type(base).__module__.rpartition(".")[2]]:
        assert base.sample(rows_of("plane"), 64, generator).inputs.shape == (64, 2)
    else:
        with pytest.raises(InvalidArgument, match="inputs"):
            base.sample(rows_of("plane"), 64, generator)


@pytest.mark.parametrize(("base", "kind"), CASES, ids=map(str, CASES))
def test_pseudo_rows_weigh_as_much_as_seen_ones(base: BaseMeasure, kind: str, generator: Generator) -> None:
    """Rows that count three times are as if they had been seen three times; then r stays the ratio of the two."""
    seen = rows_of(kind, 60)._replace(weights=torch.full((60,), 3.0))
    assert torch.allclose(base.sample(seen, 500, generator).weights, torch.full((500,), 3.0))


@pytest.mark.parametrize(("base", "kind"), CASES, ids=map(str, CASES))
def test_a_weighted_row_is_drawn_as_often_as_if_it_were_repeated(base: BaseMeasure, kind: str) -> None:
    """Weighted means over pseudo rows are plain means over those of the rows with repetitions written out."""
    generator = Generator().manual_seed(6)
    weights = torch.tensor([1.0, 6, 2, 0, 3, 1, 2, 9, 1, 1, 0, 2])
    seen = rows_of(kind, 12)._replace(weights=weights)
    rows = torch.arange(12).repeat_interleave(weights.long())
    written = Batch(seen.inputs[rows], seen.targets[rows], torch.ones(len(rows)))
    weighted, plain = (base.sample(batch, 20_000, generator) for batch in (seen, written))
    assert float(weighted.weights.mean()) == pytest.approx(float(weights.mean()), rel=0.05)
    moments = [(weighted.targets, plain.targets)]
    if not isinstance(base, Smote | GaussianCopula | WarpedMixup):  # neighbors, ranks, distances of the batch's rows
        moments += [(weighted.targets.square(), plain.targets.square())]
        moments += [tuple(batch.inputs.flatten(1).float() for batch in (weighted, plain))]
    for ours, theirs in moments:
        share = weighted.weights[:, None] / weighted.weights.sum()
        mean = (ours * share).sum(0)
        error = (share.square() * (ours - mean).square()).sum(0).sqrt() + theirs.std(0) / 20_000**0.5
        assert bool(((mean - theirs.mean(0)).abs() < 5 * error + 1e-6).all())


def test_class_adjusted_mixup_mixes_all_classes_until_it_knows_better() -> None:
    seen = seen_rows()
    plain, adjusted = (
        base.sample(seen, 50, Generator().manual_seed(0)) for base in (Mixup(0.5), ClassAdjustedMixup(0.5))
    )
    assert all(torch.equal(one, two) for one, two in zip(plain, adjusted, strict=True))


def test_class_adjusted_mixup_leaves_rows_of_other_classes_as_they_are() -> None:
    seen = numbered_rows(6)._replace(targets=torch.eye(3)[torch.arange(6) % 3])
    base = ClassAdjustedMixup(1.0).adapted(torch.tensor([0.2, -0.1, 0.0]))
    assert base.mixed == (True, False, False)
    plain = Mixup(1.0).sample(seen, 3000, Generator().manual_seed(0))
    adjusted = base.sample(seen, 3000, Generator().manual_seed(0))
    draws = Mixup(1.0).draw(3000, Generator().manual_seed(0))
    first = choose(draws[0], 6)
    over = first % 3 == 0  # the class that is mixed
    assert torch.equal(adjusted.inputs[over], plain.inputs[over])
    assert torch.equal(adjusted.targets[over], plain.targets[over])
    assert torch.equal(adjusted.inputs[~over, 0], first[~over].float())
    assert torch.equal(adjusted.targets[~over], seen.targets[first[~over]])
    assert 0 < int(over.sum()) < 3000


def test_only_class_adjusted_mixup_adapts() -> None:
    for base in BASES:
        assert isinstance(base, AdaptiveBaseMeasure) == isinstance(base, ClassAdjustedMixup)


def test_perturbed_rows_are_seen_rows_with_noise_of_this_variance(generator: Generator) -> None:
    seen = Batch(torch.tensor([[1000.0, -1000.0], [-1000.0, 1000.0]]), torch.eye(2), torch.tensor([1.0, 2.0]))
    drawn = Perturbed(4.0).sample(seen, 20_000, generator)
    which = (drawn.inputs[:, 0] < 0).long()
    assert torch.equal(drawn.targets, torch.eye(2)[which])  # each keeps its label
    assert torch.equal(drawn.weights, seen.weights[which])
    assert abs(float(which.float().mean()) - 0.5) < 0.02
    noise = (drawn.inputs - seen.inputs[which]).flatten()
    assert stats.kstest(noise.double().numpy(), stats.norm(0, 2).cdf).pvalue > 1e-4
    assert abs(float(noise.var()) - 4) < 5 * 4 * (2 / 40_000) ** 0.5


def test_uniform_rows_fill_the_box_with_any_label(generator: Generator) -> None:
    drawn = Uniform(-15, 15).sample(seen_rows(classes=5, count=10), 20_000, generator)
    assert stats.kstest(drawn.inputs.flatten().double().numpy(), stats.uniform(-15, 30).cdf).pvalue > 1e-4
    assert float(drawn.inputs.min()) >= -15
    assert float(drawn.inputs.max()) <= 15
    labels = drawn.targets.argmax(1)
    assert torch.equal(drawn.targets, torch.eye(5)[labels])
    assert stats.chisquare(torch.bincount(labels, minlength=5).numpy()).pvalue > 1e-4
    for column in (0, 1):  # inputs say nothing of the label
        means = torch.stack([drawn.inputs[labels == k, column].mean() for k in range(5)])
        assert float(means.abs().max()) < 5 * (900 / 12 / 4000) ** 0.5


def test_uniform_labels_need_classes(generator: Generator) -> None:
    numbers = Batch(torch.zeros(4, 2), torch.zeros(4, 1), torch.ones(4))
    with pytest.raises(InvalidArgument, match="base must be a base measure for regression"):
        Uniform().sample(numbers, 3, generator)


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf"), "1", None, True])
@pytest.mark.parametrize("measure", [Mixup, ClassAdjustedMixup])
def test_alpha_must_be_positive(measure: Callable[[Any], Any], alpha: Any) -> None:
    with pytest.raises(InvalidArgument, match="alpha must be a positive number"):
        measure(alpha)


@pytest.mark.parametrize("variance", [0, -4, float("nan"), float("inf"), "4"])
def test_variance_must_be_positive(variance: Any) -> None:
    with pytest.raises(InvalidArgument, match="variance must be"):
        Perturbed(variance)


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 1), (2, 1), (0, float("nan")), (float("nan"), 0), (0, float("inf")), (-float("inf"), 0), ("0", 1)],
)
def test_the_box_must_have_a_width(low: Any, high: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"(low|high) must be"):
        Uniform(low, high)


def test_numbers_of_numpy_are_numbers(generator: Generator) -> None:
    seen = seen_rows()
    plain: Tensor = Mixup(0.5).sample(seen, 4, Generator().manual_seed(0)).inputs
    assert torch.equal(Mixup(np.float32(0.5)).sample(seen, 4, Generator().manual_seed(0)).inputs, plain)
