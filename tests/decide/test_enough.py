"""When members are enough: the test errs as rarely as promised, and decides where it can."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mixupmp import Dataset, MixupMPClassifier, Recipe, deep_ensemble, plan_for
from mixupmp.core.errors import MixupMPError
from mixupmp.decide.enough import LARGEST, doubling_gains, e_process, enough_members
from mixupmp.networks import MLP


@pytest.mark.parametrize("spread", [0.02, 0.5])
def test_it_stops_too_early_as_rarely_as_promised_however_often_one_looks(spread: float) -> None:
    """Gains of mean exactly the tolerance: most of them zero and few large, or all near it."""
    generator = torch.Generator().manual_seed(0)
    tolerance, level, stopped = 0.05, 0.1, 0
    for _ in range(400):
        rare = tolerance / (spread * LARGEST) if spread > 0.1 else 1.0
        size = spread * LARGEST if spread > 0.1 else tolerance
        gains = size * torch.bernoulli(torch.full((1500,), rare), generator=generator).double()
        if spread < 0.1:
            gains = gains + spread * (2 * torch.rand(1500, generator=generator).double() - 1)
        stopped += bool(e_process(gains, tolerance).max() >= 1 / level)
    assert stopped <= 400 * level + 2 * (400 * level * (1 - level)) ** 0.5


def test_it_decides_where_gains_are_clearly_smaller() -> None:
    generator = torch.Generator().manual_seed(0)
    gains = 0.02 * torch.rand(1000, generator=generator).double()
    assert bool(e_process(gains, 0.05).max() >= 20)
    assert not bool(e_process(gains + 0.05, 0.05).max() >= 20)
    assert not bool(e_process(gains[:20], 0.05).max() >= 20)  # few rows do not decide


def test_gains_are_those_of_the_mean_over_its_halves() -> None:
    same = torch.tensor([[[0.3, 0.7]], [[0.3, 0.7]]])
    assert doubling_gains(same, torch.tensor([1])).item() == pytest.approx(0, abs=1e-12)
    apart = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert doubling_gains(apart, torch.tensor([0])).item() == pytest.approx(LARGEST)


def test_members_are_doubled_until_that_gains_too_little(table: Dataset) -> None:
    recipe = Recipe(epochs=3, batch_size=None, optimizer="adamw", learning_rate=1e-3, schedule="constant")
    plan = plan_for(table, deep_ensemble(4), lambda: MLP(4, 3, (8,)), recipe)
    loose, strict = (enough_members(plan, tolerance=t, most=6, share=0.5) for t in (1.5, 1e-3))
    assert (loose.members, loose.decided) == (2, True)
    assert (strict.members, strict.decided) == (6, False)
    assert list(strict.gains) == [2, 4, 6]
    assert loose.gains[2] == strict.gains[2]
    with pytest.raises(MixupMPError, match="tolerance"):
        enough_members(plan, tolerance=0.0)


def test_the_classifier_takes_as_many_as_are_enough(table: Dataset, tmp_path: Path) -> None:
    recipe = Recipe(epochs=3, batch_size=None, optimizer="adamw", learning_rate=1e-3, schedule="constant")
    model = MixupMPClassifier(ratio=1.0, alpha=0.4, members="auto", recipe=recipe, random_state=0)
    model.fit(table.train.inputs.numpy(), table.train.labels.numpy())
    assert model.enough_ is not None
    assert model.posterior_.members == model.enough_.members == model.method_.sampler.members
    assert model.temperature_ == model.enough_.calibrator.temperature
    model.save(tmp_path / "run")
    assert MixupMPClassifier.load(tmp_path / "run").enough_ is None
