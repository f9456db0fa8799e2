"""Learning rates of body and head, unfreezing from the top, and that fine-tuning pays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mixupmp import MixupMPClassifier, Recipe, deep_ensemble, fit, plan_for
from mixupmp.core.errors import InvalidArgument
from mixupmp.train.forward import blocks_of
from mixupmp.train.job import FitInterrupted
from mixupmp.train.member import MemberFit
from mixupmp.train.plans import make_plan
from mixupmp.train.progress import Callback
from small_data import small_table

DATA = small_table(60)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def changes(recipe: Recipe) -> list[bool]:
    """Which of the four parts with parameters a fit changes."""
    given = network()
    fitted = fit(plan_for(DATA, deep_ensemble(1), lambda: network(), recipe), engine="inline").networks[0]
    return [not torch.equal(given[part].weight, fitted[part].weight) for part in (0, 1, 3, 5)]


def test_layers_are_unfrozen_from_the_top() -> None:
    recipe = Recipe(epochs=2, batch_size=20, learning_rate=0.01, schedule="constant")
    assert changes(recipe) == [True, True, True, True]
    assert changes(Recipe(**{**vars(recipe), "unfreeze": 2})) == [False, False, False, True]
    assert changes(Recipe(**{**vars(recipe), "unfreeze": 1})) == [False, False, True, True]


def test_the_body_learns_at_its_own_rate() -> None:
    """With plain gradient descent the first step is the rate times the gradient."""
    common = {"epochs": 1, "batch_size": None, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
    moved = []
    for share in (1.0, 0.1):
        recipe = Recipe(**common, learning_rate=0.01, schedule="constant", body_rate=share)  # type: ignore[arg-type]
        fitted = fit(plan_for(DATA, deep_ensemble(1), lambda: network(), recipe), engine="inline").networks[0]
        moved.append([fitted[part].weight - network()[part].weight for part in (0, 3, 5)])
    for part, (whole, tenth) in enumerate(zip(*moved, strict=True)):
        torch.testing.assert_close(tenth, whole if part == 2 else whole / 10, rtol=1e-3, atol=1e-6)


def test_it_is_resumed_with_the_same_bits(tmp_path) -> None:
    recipe = Recipe(epochs=4, batch_size=20, optimizer="adamw", learning_rate=0.01, unfreeze=1, body_rate=0.5)
    plan = plan_for(DATA, deep_ensemble(1), lambda: network(), recipe)
    whole = fit(plan, engine="inline")

    class Stop(Callback):
        steps = 0

        def should_stop(self) -> bool:
            self.steps += 1
            return self.steps == 4  # in the second epoch, when two parts of four have been trained

    with pytest.raises(FitInterrupted):
        fit(plan, engine="inline", run=tmp_path / "run", progress=Stop())
    resumed = fit(plan, engine="inline", run=tmp_path / "run", resume=True)
    for ours, theirs in zip(whole.networks[0].parameters(), resumed.networks[0].parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_parts_of_a_network_are_its_children_and_the_head_is_the_last() -> None:
    wrapped = nn.Sequential(network())
    assert [len(block) for block in blocks_of(wrapped)] == [2, 2, 2, 2]
    wrapped[0][0].requires_grad_(False)
    assert [len(block) for block in blocks_of(wrapped)] == [2, 2, 2]


class HeadFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(8, 3), nn.ModuleList([nn.Linear(4, 8)])

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body[0](inputs).relu())  # type: ignore[no-any-return]


def test_the_head_is_the_part_that_is_used_last() -> None:
    torch.manual_seed(0)
    given = HeadFirst()
    recipe = Recipe(epochs=2, batch_size=20, learning_rate=0.01, unfreeze=2)
    plan = make_plan(DATA.train, plan_for(DATA, deep_ensemble(1)).task, deep_ensemble(1), given, recipe, fine_tune=True)
    fitted = fit(plan, engine="inline").networks[0]
    assert not torch.equal(fitted.get_parameter("head.weight"), given.head.weight)
    assert torch.equal(fitted.get_parameter("body.0.weight"), given.get_parameter("body.0.weight"))


def test_wrong_numbers_are_named() -> None:
    with pytest.raises(InvalidArgument, match="body_rate must be in"):
        Recipe(body_rate=0.0)
    with pytest.raises(InvalidArgument, match="unfreeze must be"):
        Recipe(unfreeze=-1)
    plan = plan_for(DATA, deep_ensemble(1), "mlp", Recipe(body_rate=0.5))
    assert MemberFit(plan, 0).optimizer.param_groups[1]["share"] == 0.5
    with pytest.raises(InvalidArgument, match="differently from its head"):
        fit(plan, engine="vectorized")


def test_fine_tuning_with_a_new_head_reaches_what_training_afresh_does() -> None:
    """A body that knows the ten digits, a new head for their parity, and 60 rows."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    torch.manual_seed(0)
    body = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()]
    digits = MixupMPClassifier(0.0, members=1, network=nn.Sequential(*body, nn.Linear(32, 10)), random_state=0)
    trained = list(digits.set_params(calibrate=False).fit(X[:1000], y[:1000]).posterior_.networks[0])[:-1]
    start = nn.Sequential(*trained, nn.Linear(32, 2)).requires_grad_(True)
    few, rest = (X[1000:1060], y[1000:1060] % 2), (X[1060:], y[1060:] % 2)
    scores = []
    for fine_tune in (False, True):
        model = MixupMPClassifier(1.0, 0.4, 2, network=start, fine_tune=fine_tune, random_state=0, calibrate=False)
        scores.append(model.fit(*few).score(*rest))
    assert scores[1] >= scores[0] > 0.8
