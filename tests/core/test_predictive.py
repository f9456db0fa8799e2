from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor
from torch.nn import functional
from torch.utils.data import TensorDataset

from mixupmp.core.base_measures import BaseMeasure, ClassAdjustedMixup, Mixup, Perturbed, Uniform
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.kernels import RandomResizedCrop
from mixupmp.core.likelihoods import Categorical, weighted_loss
from mixupmp.core.predictive import FixedFuture, Predictive, ResampledFuture, TrainingData, simulate
from mixupmp.core.rows import Rows, Standardize
from mixupmp.core.streams import DatasetRows
from mixupmp.core.weights import Dirichlet, StabilizedDirichlet

CLASSES = 3


def some_rows(count: int = 12, weights: Tensor | None = None) -> Rows:
    inputs = torch.randn(count, 2, generator=Generator().manual_seed(0))
    return Rows(inputs, torch.arange(count) % CLASSES, weights)


def seen_of(rows: Rows, standardize: Standardize | None = None) -> TrainingData:
    return TrainingData(rows, Categorical(CLASSES), standardize or Standardize())


def only_batch(predictive: Predictive, rows: Rows, pseudo: int | None = None, seed: int = 1) -> Batch:
    """All rows as one batch."""
    future = simulate(predictive, seen_of(rows), pseudo, Generator().manual_seed(seed))
    (batch,) = future.batches([torch.arange(len(future))], Generator().manual_seed(seed))
    return batch


def step_parts(batch: Batch, real: int) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of a batch under some outputs, and the bare losses of its seen and pseudo rows."""
    outputs = batch.inputs @ torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -1.0]])
    rows = functional.cross_entropy(outputs, batch.targets, reduction="none")
    return weighted_loss(Categorical(CLASSES), outputs, batch), rows[:real], rows[real:]


@settings(max_examples=40, deadline=None)
@given(
    real=st.integers(2, 20), pseudo=st.one_of(st.none(), st.integers(1, 40)), ratio=st.floats(0.01, 100),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_the_loss_of_a_step_is_algorithm_2s_over_its_total_weight(
    real: int, pseudo: int | None, ratio: float, seed: int
) -> None:
    """(sum l + r n/t sum l') / (n (1 + r)), whatever t is."""
    batch = only_batch(Predictive(ratio, Mixup(1.0)), some_rows(real), pseudo, seed)
    loss, seen, made = step_parts(batch, real)
    count = pseudo or real
    assert len(seen) == real
    assert len(made) == count
    expected = (seen.sum() + ratio * real / count * made.sum()) / (real * (1 + ratio))
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    assert float(batch.weights[real:].sum() / batch.weights[:real].sum()) == pytest.approx(ratio, rel=1e-4)
    assert float(batch.weights.mean()) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("ratio", [0.1, 1.0, 5.0])
def test_normalized_by_rows_it_is_the_plain_mean_of_the_authors(ratio: float) -> None:
    batch = only_batch(Predictive(ratio, Mixup(1.0), normalize="rows"), some_rows())
    loss, seen, made = step_parts(batch, 12)
    assert torch.equal(batch.weights[:12], torch.ones(12))
    assert torch.allclose(batch.weights[12:], torch.full((12,), ratio))
    assert float(loss) == pytest.approx(float(torch.cat([seen, ratio * made]).mean()), rel=1e-5)
    total = only_batch(Predictive(ratio, Mixup(1.0)), some_rows())
    assert float(loss) == pytest.approx(float(step_parts(total, 12)[0]) * (1 + ratio) / 2, rel=1e-5)


def test_a_ratio_of_zero_draws_nothing() -> None:
    generator = Generator().manual_seed(3)
    before = generator.get_state()
    future = simulate(Predictive(0.0, Mixup(1.0)), seen_of(some_rows()), None, generator)
    (batch,) = future.batches([torch.arange(12)], generator)
    assert torch.equal(batch.inputs, some_rows().inputs)
    assert torch.equal(batch.weights, torch.ones(12))
    assert torch.equal(generator.get_state(), before)


def test_an_infinite_ratio_leaves_only_pseudo_rows() -> None:
    batch = only_batch(Predictive(inf, Mixup(1.0)), some_rows(), 7)
    assert len(batch.inputs) == 7
    assert torch.allclose(batch.weights, torch.ones(7))
    alone = only_batch(Predictive(1.0, Mixup(1.0)), some_rows(), 7)
    assert torch.equal(batch.inputs, alone.inputs[12:])  # the same that come beside seen rows


def test_the_factors_are_what_rows_of_a_batch_count() -> None:
    batch = only_batch(Predictive(0.5, Mixup(1.0)), some_rows(), 4)
    future = ResampledFuture(Predictive(0.5, Mixup(1.0)), seen_of(some_rows()), 4)
    for_seen, for_pseudo = future.factors(12, 4)
    assert torch.allclose(batch.weights[:12], torch.full((12,), for_seen))
    assert torch.allclose(batch.weights[12:], torch.full((4,), for_pseudo))
    assert ResampledFuture(Predictive(inf, Mixup(1.0)), seen_of(some_rows()), 4).factors(12, 4) == (0.0, 1.0)


BASES = [Mixup(1.0), ClassAdjustedMixup(1.0), Perturbed(1.0), Uniform(-1, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("base", BASES, ids=repr)
def test_row_weights_pass_through_to_seen_and_pseudo_rows(base: BaseMeasure, dtype: torch.dtype) -> None:
    given = torch.arange(1, 13).to(dtype)
    plain = only_batch(Predictive(0.5, base), some_rows())
    weighted = only_batch(Predictive(0.5, base), some_rows(weights=given))
    assert weighted.weights.dtype == torch.float32
    assert torch.allclose(weighted.weights[:12], plain.weights[:12] * given.float())
    assert torch.equal(weighted.inputs, plain.inputs)
    heavier = only_batch(Predictive(0.5, base), some_rows(weights=torch.full((12,), 3).to(dtype)))
    assert torch.allclose(heavier.weights, 3 * plain.weights)


@pytest.mark.parametrize("base", BASES[2:], ids=repr)
def test_row_weights_count_beside_drawn_weights(base: BaseMeasure) -> None:
    predictive = Predictive(1.0, base, weights=Dirichlet(5))
    plain = only_batch(predictive, some_rows())
    heavier = only_batch(predictive, some_rows(weights=torch.full((12,), 3.0)))
    assert torch.allclose(heavier.weights, 3 * plain.weights)


def test_the_kernel_acts_on_raw_inputs_and_mixing_on_what_comes_of_them() -> None:
    images = torch.full((4, 1, 2, 2), 51, dtype=torch.uint8)
    rows = Rows(images, torch.tensor([0, 1, 2, 0]))
    met: list[Tensor] = []

    def brighter(inputs: Tensor) -> Tensor:
        met.append(inputs)
        return inputs + 51

    seen = seen_of(rows, Standardize((0.0,), (2.0,)))
    future = simulate(Predictive(1.0, Mixup(1.0), brighter), seen, None, Generator())
    (batch,) = future.batches([torch.arange(4)], Generator())
    assert met[0].dtype == torch.uint8
    assert torch.equal(images, torch.full_like(images, 51))  # the data themselves are left alone
    assert torch.allclose(batch.inputs, torch.full((8, 1, 2, 2), 0.2))


def test_batches_have_the_rows_of_their_chunks() -> None:
    rows = some_rows()
    chunks = [torch.tensor([3, 1]), torch.tensor([11, 0, 5])]
    future = simulate(Predictive(), seen_of(rows), None, Generator())
    assert isinstance(future, ResampledFuture)
    assert len(future) == 12
    for chunk, batch in zip(chunks, future.batches(chunks, Generator()), strict=True):
        assert torch.equal(batch.inputs, rows.inputs[chunk])
        assert torch.equal(batch.targets.argmax(1), rows.labels[chunk])


@pytest.mark.parametrize("weights", [Dirichlet(5), StabilizedDirichlet(2.0, 5)], ids=repr)
def test_a_drawn_future_is_drawn_once(weights: Dirichlet | StabilizedDirichlet) -> None:
    """Algorithm 1: T atoms and n + T weights of mean one, the same in every epoch."""
    rows = some_rows()
    predictive = Predictive(2.0, Perturbed(1.0), weights=weights)
    generator = Generator().manual_seed(2)
    future = simulate(predictive, seen_of(rows), None, generator)
    assert isinstance(future, FixedFuture)
    assert len(future) == 17
    assert float(future.weights.mean()) == pytest.approx(1, rel=1e-5)
    order = torch.randperm(17, generator=generator)
    whole = next(iter(future.batches([torch.arange(17)], generator)))
    assert torch.equal(whole.inputs[:12], rows.inputs)
    assert torch.allclose(whole.weights, future.weights)
    assert future.atoms is not None
    assert torch.equal(whole.inputs[12:], future.atoms.inputs)
    again = list(future.batches(order.split(4), generator))
    for chunk, batch in zip(order.split(4), again, strict=True):
        chunk = torch.cat([chunk[chunk < 12], chunk[chunk >= 12]])  # seen rows first
        for got, expected in zip(batch, whole, strict=True):
            assert torch.equal(got, expected[chunk])


def test_atoms_do_not_depend_on_where_the_global_generator_is() -> None:
    """A user's kernel may draw from it; a member's future must still be a function of (seed, member)."""
    predictive = Predictive(1.0, Perturbed(1.0), lambda x: x + torch.rand(len(x), 1), Dirichlet())
    atoms = []
    for somewhere in (1, 2):
        torch.manual_seed(somewhere)
        before = torch.get_rng_state()
        future = simulate(predictive, seen_of(some_rows()), None, Generator().manual_seed(7))
        assert torch.equal(torch.get_rng_state(), before)
        assert isinstance(future, FixedFuture)
        assert future.atoms is not None
        atoms.append(future.atoms.inputs)
    assert torch.equal(*atoms)


def test_the_bayesian_bootstrap_has_no_atoms() -> None:
    future = simulate(Predictive(weights=Dirichlet()), seen_of(some_rows()), None, Generator().manual_seed(0))
    assert isinstance(future, FixedFuture)
    assert future.atoms is None
    assert len(future) == 12


def test_a_chunk_of_atoms_alone_does_not_reach_the_kernel() -> None:
    """Augmentations, a user's and ours, need not cope with no rows at all."""
    rows = Rows(torch.randint(0, 256, (4, 1, 5, 5), dtype=torch.uint8), torch.tensor([0, 1, 2, 0]))
    predictive = Predictive(1.0, Perturbed(1.0), RandomResizedCrop(), Dirichlet(40))
    future = simulate(predictive, seen_of(rows), None, Generator().manual_seed(0))
    chunks = [torch.tensor([20, 30]), torch.tensor([1, 5]), torch.tensor([9, 10]), torch.tensor([2])]
    sizes = [len(batch.inputs) for batch in future.batches(chunks, Generator().manual_seed(0))]
    assert sizes == [2, 2, 2, 1]


def test_loaded_rows_are_those_in_memory() -> None:
    rows = some_rows(10)
    chunks = [torch.tensor([3, 1]), torch.tensor([9, 0, 5])]
    for workers in (0, 1):
        loaded = DatasetRows(TensorDataset(rows.inputs, rows.labels), workers=workers)
        assert len(loaded) == 10
        for chunk, got in zip(chunks, loaded.batches(chunks), strict=True):
            assert torch.equal(got.inputs, rows.inputs[chunk])
            assert torch.equal(got.labels, rows.labels[chunk])


def test_loading_rows_leaves_the_global_generator_alone() -> None:
    """A fit that is resumed in the middle of an epoch starts a second loader: that must not change its dropout."""
    rows = some_rows(10)
    before = torch.get_rng_state()
    list(DatasetRows(TensorDataset(rows.inputs, rows.labels), workers=0).batches([torch.arange(4)]))
    assert torch.equal(torch.get_rng_state(), before)


def test_loaded_rows_with_drawn_atoms() -> None:
    rows = some_rows(4)
    source = DatasetRows(TensorDataset(rows.inputs, rows.labels), workers=0)
    predictive = Predictive(1.0, Perturbed(1.0), weights=Dirichlet(6))
    future = simulate(predictive, TrainingData(source, Categorical(CLASSES)), None, Generator().manual_seed(0))
    assert [len(b.inputs) for b in future.batches([torch.tensor([5, 6]), torch.tensor([0, 7])], Generator())] == [2, 2]


def test_only_an_adaptive_base_measure_changes_with_over_confidence() -> None:
    over = torch.tensor([0.1, -0.1, 0.2])
    plain, adaptive = Predictive(1.0, Mixup(1.0)), Predictive(1.0, ClassAdjustedMixup(1.0))
    assert not plain.adaptive
    assert plain.adapted(over) is plain
    assert adaptive.adaptive
    assert adaptive.adapted(over).base == ClassAdjustedMixup(1.0, (True, False, True))
    assert adaptive.base == ClassAdjustedMixup(1.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Predictive(-0.1, Mixup(1.0)), r"ratio must be r = c/n in \[0, infinity\], got -0.1"),
        (lambda: Predictive(float("nan"), Mixup(1.0)), "ratio must be"),
        (lambda: Predictive("1", Mixup(1.0)), "ratio must be"),  # type: ignore[arg-type]
        (lambda: Predictive(True, Mixup(1.0)), "ratio must be"),
        (lambda: Predictive(1.0), "base must be a base measure, as ratio is 1.0"),
        (lambda: Predictive(1.0, "mixup"), "base must be"),  # type: ignore[arg-type]
        (lambda: Predictive(1.0, Mixup), "base must be"),  # type: ignore[arg-type]
        (lambda: Predictive(1.0, Mixup(1.0), normalize="mean"), "normalize must be"),  # type: ignore[arg-type]
        (lambda: Predictive(kernel=3), "kernel must be"),  # type: ignore[arg-type]
        (lambda: Predictive(weights=1.0), "weights must be"),  # type: ignore[arg-type]
        (lambda: Predictive(weights=Dirichlet), "weights must be"),  # type: ignore[arg-type]
        (lambda: Predictive(1.0, ClassAdjustedMixup(1.0), weights=Dirichlet()), "weights must be Expected"),
    ],
)
def test_bad_settings_are_named(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build()
