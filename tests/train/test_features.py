"""A frozen body is computed once wherever that changes nothing."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import mixupmp
from mixupmp import Recipe, deep_ensemble, fit, mixup_mp, plan_for
from mixupmp.core.kernels import PadCrop
from mixupmp.core.methods import Method, bayesian_bootstrap
from mixupmp.core.plan import Plan
from mixupmp.train import features, run
from mixupmp.train.features import on_fixed_features
from mixupmp.train.progress import Callback
from small_data import small_images

DATA = small_images(40)
RECIPE = Recipe(epochs=3, batch_size=16, learning_rate=0.05)


def body(dropout: float = 0.0) -> list[nn.Module]:
    return [nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4), nn.Dropout(dropout), nn.Flatten()]


def network(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    built = nn.Sequential(*body(dropout), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    built[1].running_mean.normal_()
    built[:6].requires_grad_(False)
    return built


def plan(method: Method | None = None, given: nn.Module | None = None) -> Plan:
    return plan_for(DATA, method or deep_ensemble(2), given or network(), RECIPE)


class Messages(Callback):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_message(self, text: str) -> None:
        self.texts.append(text)


def uncached(given: Plan, monkeypatch: pytest.MonkeyPatch) -> mixupmp.Posterior:
    with monkeypatch.context() as patch:
        patch.setattr(run, "on_fixed_features", lambda plan: (plan, None))
        return fit(given, engine="inline")


@pytest.mark.parametrize("method", [deep_ensemble(2), bayesian_bootstrap(2)], ids=lambda method: method.name)
@pytest.mark.parametrize("engine", ["auto", "inline", "processes"])
def test_members_are_those_of_the_network_itself(method, engine, monkeypatch, tmp_path) -> None:
    given = plan(method)
    slow = uncached(given, monkeypatch)
    fast = fit(given, engine=engine, run=tmp_path / "run")
    for ours, theirs in zip(fast.networks, slow.networks, strict=True):
        for name, value in ours.state_dict().items():
            torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-5, atol=1e-5, msg=name)
    loaded = mixupmp.load(tmp_path / "run", network=network)
    assert torch.equal(loaded.member_outputs(DATA.test.inputs), fast.member_outputs(DATA.test.inputs))


def test_the_body_is_run_for_each_row_once() -> None:
    given = plan()
    rows: list[int] = []
    given.template[0].register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    fitted, why_not = on_fixed_features(given)
    assert why_not is None
    assert sum(rows) <= len(DATA.train) + 4 * 8  # and a few, four times, to see that it is exact
    assert fitted.task.input_shape == (64,)
    assert run.choose_engine(fitted, 2) == "vectorized"


def test_a_run_is_resumed_with_the_same_bits(tmp_path) -> None:
    whole = fit(plan(), engine="inline")

    class Stop(Callback):
        steps = 0

        def should_stop(self) -> bool:
            self.steps += 1
            return self.steps == 4

    with pytest.raises(run.FitInterrupted):
        fit(plan(), engine="inline", run=tmp_path / "run", progress=Stop())
    resumed = fit(plan(), engine="inline", run=tmp_path / "run", resume=True)
    assert torch.equal(whole.member_outputs(DATA.test.inputs), resumed.member_outputs(DATA.test.inputs))


def live_norm() -> nn.Module:
    built = network()
    built[1] = nn.BatchNorm2d(4, affine=False)  # whose statistics follow the batches
    return built


def another_body() -> nn.Module:
    built = nn.Sequential(*body(), nn.Linear(64, 3))
    built[:6].requires_grad_(False)
    return built


def without_body() -> nn.Module:
    built = network()
    built[0].requires_grad_(True)
    return built


@pytest.mark.parametrize(
    ("method", "given", "reason"),
    [
        (mixup_mp(1.0, 1.0, 2), network(), "raw inputs are blended"),
        (deep_ensemble(2, kernel=PadCrop(2)), network(), "the kernel changes the inputs"),
        (deep_ensemble(2), network(dropout=0.5), "is live"),
        (deep_ensemble(2), live_norm(), "is live"),
        (deep_ensemble(2), another_body, "members have different frozen weights"),
    ],
)
def test_where_it_is_not_exact_the_fit_says_why(method, given, reason) -> None:
    messages = Messages()
    fit(plan(method, given), engine="inline", progress=messages)
    assert any("computed at every step" in text and reason in text for text in messages.texts)


def test_without_a_frozen_body_nothing_is_said() -> None:
    given = plan(given=copy.deepcopy(network()).requires_grad_(True))
    assert on_fixed_features(given) == (given, None)


def test_the_first_layer_being_trained_leaves_no_body() -> None:
    fitted, why_not = on_fixed_features(plan(given=without_body()))
    assert why_not is None
    assert fitted.task.input_shape == DATA.train.inputs.shape[1:]


def test_frozen_normalization_keeps_its_statistics_where_it_is_run() -> None:
    given = network()
    posterior = fit(plan(mixup_mp(1.0, 1.0, 2), given), engine="inline")
    for member in posterior.networks:
        assert torch.equal(member[1].running_mean, given[1].running_mean)


def test_large_features_go_to_a_mapped_file(monkeypatch) -> None:
    in_memory = fit(plan(), engine="inline")
    monkeypatch.setattr(features, "IN_MEMORY", 100)
    mapped = fit(plan(), engine="inline")
    assert torch.equal(in_memory.networks[0][6].weight, mapped.networks[0][6].weight)
