from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Generator, Tensor

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.weights import Dirichlet, StabilizedDirichlet

REPEATS = 4000


def many(weights: Dirichlet | StabilizedDirichlet, seen: int, atoms: int, ratio: float) -> Tensor:
    generator = Generator().manual_seed(5)
    return torch.stack([weights.draw(seen, atoms, ratio, generator) for _ in range(REPEATS)]).double()


@pytest.mark.parametrize(("seen", "atoms", "ratio"), [(6, 6, 1.0), (5, 20, 0.4), (8, 2, 3.0), (4, 50, 0.25)])
def test_dirichlet_weights_have_the_moments_of_algorithm_1(seen: int, atoms: int, ratio: float) -> None:
    """Dirichlet(1, .., 1, c/T, .., c/T): mean a_i / A, variance m (1 - m) / (A + 1); the tail is Beta(c, n)."""
    draws = many(Dirichlet(), seen, atoms, ratio)
    mass = ratio * seen  # c
    shapes = torch.cat([torch.ones(seen), torch.full((atoms,), mass / atoms)]).double()
    total = float(shapes.sum())
    assert total == pytest.approx(seen + mass)
    mean = shapes / total
    variance = mean * (1 - mean) / (total + 1)
    assert float(((draws.mean(0) - mean).abs() / (variance / REPEATS).sqrt()).max()) < 4.5
    # Averaged over the rows of one kind, so that the tolerance can be narrow.
    for kind in (slice(0, seen), slice(seen, None)):
        assert float((draws.var(0)[kind].mean() / variance[kind].mean() - 1).abs()) < 0.12
    tail = draws[:, seen:].sum(1)
    assert float(tail.mean()) == pytest.approx(mass / (seen + mass), abs=4.5 * float(tail.std()) / REPEATS**0.5)
    assert stats.kstest(tail.numpy(), stats.beta(mass, seen).cdf).pvalue > 1e-4
    assert torch.allclose(draws.sum(1), torch.ones(REPEATS).double(), atol=1e-6)


def test_without_atoms_it_is_the_bayesian_bootstrap() -> None:
    draws = many(Dirichlet(), 7, 0, 0.0)
    assert draws.shape == (REPEATS, 7)
    assert torch.allclose(draws.sum(1), torch.ones(REPEATS).double(), atol=1e-6)
    assert stats.kstest(draws[:, 3].numpy(), stats.beta(1, 6).cdf).pvalue > 1e-4
    assert float(draws.var(0).mean()) == pytest.approx(6 / (49 * 8), rel=0.05)
    covariance = torch.cov(draws[:, :2].T)[0, 1]
    assert float(covariance) == pytest.approx(-1 / (49 * 8), abs=4 * (6 / (49 * 8)) / REPEATS**0.5)


def test_few_of_many_atoms_of_little_mass_carry_the_tail(generator: Generator) -> None:
    """c/T far below one: the paper's c = 1 with T = 870 atoms. No weight may come out as NaN."""
    draws = torch.stack([Dirichlet().draw(870, 870, 1 / 870, generator) for _ in range(800)]).double()
    assert bool(torch.isfinite(draws).all())
    tail = draws[:, 870:].sum(1)
    assert float(tail.mean()) == pytest.approx(1 / 871, rel=0.2)
    assert stats.kstest(tail.numpy(), stats.beta(1, 870).cdf).pvalue > 1e-4


def test_an_infinite_ratio_leaves_only_the_atoms(generator: Generator) -> None:
    weights = Dirichlet().draw(5, 4, float("inf"), generator)
    assert torch.equal(weights, torch.tensor([0.0] * 5 + [0.25] * 4))


@settings(max_examples=40, deadline=None)
@given(
    seen=st.integers(2, 300), atoms=st.integers(0, 300), ratio=st.floats(0.01, 10), bound=st.floats(1.05, 50),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_stabilized_weights_sum_to_one_within_their_bound(
    seen: int, atoms: int, ratio: float, bound: float, seed: int
) -> None:
    rows = seen + atoms
    weights = StabilizedDirichlet(bound).draw(seen, atoms, ratio, Generator().manual_seed(seed)).double()
    limit = bound * rows  # M
    assert float(weights.sum()) == pytest.approx(1, abs=1e-5)
    assert float(weights.min()) >= 1 / limit * (1 - 1e-5)
    assert float(weights.max()) <= limit
    # Far more than A5 asks: with mean one, no row counts more than the plain bootstrap lets it.
    plain = Dirichlet().draw(seen, atoms, ratio, Generator().manual_seed(seed)).double()
    eta = 1 / (limit - rows)
    assert torch.allclose(weights, (plain + eta) / (1 + rows * eta), atol=1e-7)


def test_a_narrow_bound_makes_the_rows_count_alike(generator: Generator) -> None:
    weights = StabilizedDirichlet(1.0001).draw(50, 0, 0.0, generator)
    assert torch.allclose(weights, torch.full((50,), 0.02), rtol=2e-3)


@pytest.mark.parametrize("kind", [Dirichlet(), StabilizedDirichlet(3.0)])
def test_weights_repeat_with_their_generator(kind: Dirichlet | StabilizedDirichlet) -> None:
    first, again, other = (kind.draw(9, 5, 0.5, Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dirichlet(0), "atoms must be"),
        (lambda: Dirichlet(2.5), "atoms must be"),  # type: ignore[arg-type]
        (lambda: StabilizedDirichlet(2.0, 0), "atoms must be"),
        (lambda: StabilizedDirichlet(1.0), "bound must be"),
        (lambda: StabilizedDirichlet(float("nan")), "bound must be"),
        (lambda: StabilizedDirichlet("2"), "bound must be"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_named(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build()
