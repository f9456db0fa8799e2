"""A fit whose state is taken out after any step and put into a fresh one ends with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from mixupmp.core.kernels import cifar_kernel
from mixupmp.core.methods import (
    bayesian_bootstrap,
    ca_mixup_mc,
    deep_ensemble,
    dp_mp_perturbed,
    mc_dropout,
    mixup_mp,
    mixup_mp_mc,
)
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import Recipe
from mixupmp.networks import CNN, MLP, WideResNet
from mixupmp.store.folder import RunFolder
from mixupmp.train.member import MemberFit, StopTraining
from mixupmp.train.plans import plan_for
from small_data import small_images, small_table

State = tuple[dict[str, Tensor], dict[str, str]]
SHORT = Recipe(epochs=2, batch_size=16, learning_rate=0.05)


def from_torch_dataset() -> Plan:
    table = small_table()
    plan = plan_for(table, mixup_mp_mc(), "mlp", SHORT)
    return Plan(plan.method, plan.network, TensorDataset(table.train.inputs, table.train.labels), plan.task, SHORT)


def stopping() -> Plan:
    recipe = Recipe(epochs=30, batch_size=20, schedule="constant", learning_rate=0.1, epochs_after_interpolation=1)
    return plan_for(small_table(), deep_ensemble(), "mlp", recipe)


PLANS: dict[str, Callable[[], Plan]] = {
    "plain": lambda: plan_for(small_table(), deep_ensemble(), "mlp", SHORT),
    "no momentum": lambda: plan_for(small_table(), deep_ensemble(), "mlp", replace(SHORT, momentum=0.0)),
    "all rows at once": lambda: plan_for(small_table(), mixup_mp(), "mlp", replace(SHORT, epochs=4, batch_size=None)),
    "pseudo rows": lambda: plan_for(small_table(), mixup_mp(), "mlp", replace(SHORT, pseudo_batch_size=5)),
    "dropout": lambda: plan_for(small_table(), mc_dropout(), "mlp", SHORT),
    "adamw and dropout": lambda: plan_for(small_table(), mixup_mp_mc(), "mlp", replace(SHORT, optimizer="adamw")),
    "drawn weights": lambda: plan_for(small_table(), bayesian_bootstrap(), "mlp", SHORT),
    "drawn atoms": lambda: plan_for(small_table(), dp_mp_perturbed(members=2, atoms=15), "mlp", SHORT),
    "class-adjusted": lambda: plan_for(small_table(), ca_mixup_mc(validation_fraction=0.2), "mlp", SHORT),
    "a kernel of the user's": lambda: plan_for(
        small_table(), deep_ensemble(kernel=lambda x: x + torch.rand_like(x)), "mlp", SHORT
    ),
    "rows through a loader": from_torch_dataset,
    "a stop rule": stopping,
    "cnn": lambda: plan_for(small_images(), mixup_mp(kernel=cifar_kernel()), "cnn", SHORT),
    "cnn, adamw, dropout": lambda: plan_for(
        small_images(), mc_dropout(), "cnn", replace(SHORT, optimizer="adamw", learning_rate=0.01)
    ),
    "batch norm and dropout": lambda: plan_for(
        small_images(shape=(1, 8, 8)), mc_dropout(), lambda: WideResNet(1, 3, 10, 1, 0.3), SHORT
    ),
    "half precision": lambda: plan_for(small_images(), mixup_mp(), "cnn", replace(SHORT, precision="bfloat16")),
    "frozen weights": lambda: plan_for(small_table(), mc_dropout(), frozen, SHORT),
}


def frozen() -> MLP:
    network = MLP(4, 3, dropout=0.2)
    network[1].requires_grad_(False)
    return network


class Keep:
    """Takes the state after every step, and lets the fit go on."""

    def __init__(self) -> None:
        self.states: list[State] = []

    def on_step(self, fit: MemberFit) -> None:
        self.states.append(fit.state())


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def story(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


@pytest.mark.parametrize("name", PLANS)
def test_a_fit_resumed_after_any_step_ends_with_the_same_bits(name: str) -> None:
    plan = PLANS[name]()
    keep, fit = Keep(), MemberFit(plan, 1 if plan.method.sampler.networks > 1 else 0)
    expected = fit.run(keep)
    assert expected.steps == len(keep.states)
    assert expected.steps >= 4
    taken = keep.states if len(keep.states) < 10 else keep.states[:: len(keep.states) // 7]
    for state in taken:
        torch.manual_seed(77)  # wherever the new process is
        resumed = MemberFit(plan, fit.member)
        resumed.restore(*state)
        later = Keep()
        summary = resumed.run(later)
        assert same(resumed.weights(), fit.weights())
        assert (summary.steps, summary.epochs, summary.training_accuracy) == (
            expected.steps,
            expected.epochs,
            expected.training_accuracy,
        )
        assert story(summary.history) == story(expected.history)
        if later.states:  # not only the weights: everything
            assert same(later.states[-1][0], keep.states[-1][0])


@pytest.mark.parametrize("name", ["adamw and dropout", "cnn"])
def test_states_pass_through_files(name: str, tmp_path: Path) -> None:
    plan = PLANS[name]()
    keep, fit = Keep(), MemberFit(plan, 0)
    fit.run(keep)
    for step, state in enumerate(keep.states, 1):
        RunFolder(tmp_path).checkpoints(0).write(step, *state)
    read = RunFolder(tmp_path).checkpoints(0).read(len(keep.states) - 1)
    assert read is not None
    resumed = MemberFit(plan, 0)
    resumed.restore(*read)
    resumed.run(Keep())
    assert same(resumed.weights(), fit.weights())


def test_a_resumed_fit_can_be_resumed_again() -> None:
    plan = PLANS["dropout"]()
    keep, whole = Keep(), MemberFit(plan, 0)
    whole.run(keep)
    state = keep.states[1]
    for _ in range(3):  # two more steps at a time
        part = MemberFit(plan, 0)
        part.restore(*state)
        stop = StopAfter(2)
        with pytest.raises(StopTraining):
            part.run(stop)
        assert stop.state is not None
        state = stop.state
        if part.step >= whole.step:
            break
    assert same(part.weights(), whole.weights())


class StopAfter:
    def __init__(self, steps: int) -> None:
        self.left, self.state = steps, None

    def on_step(self, fit: MemberFit) -> None:
        self.left -= 1
        if not self.left:
            self.state = fit.state()
            raise StopTraining


@pytest.mark.parametrize("name", ["dropout", "cnn"])
def test_a_fit_that_was_stopped_can_simply_go_on(name: str) -> None:
    """The same object, without a restore; and its state can be taken after the stop as well as in it."""
    plan = PLANS[name]()
    whole, stopped = MemberFit(plan, 0), MemberFit(plan, 0)
    whole.run(Keep())
    with pytest.raises(StopTraining):
        stopped.run(StopAfter(3))
    torch.manual_seed(5)
    other = MemberFit(plan, 0)
    other.restore(*stopped.state())
    torch.manual_seed(6)
    for fit in (stopped, other):
        fit.run(Keep())
        assert same(fit.weights(), whole.weights())


def test_a_state_before_the_first_step_is_the_start() -> None:
    plan = PLANS["dropout"]()
    first, second = MemberFit(plan, 0), MemberFit(plan, 0)
    second.restore(*first.state())
    first.run(Keep())
    second.run(Keep())
    assert same(first.weights(), second.weights())


def test_a_state_does_not_change_while_the_fit_goes_on() -> None:
    plan = PLANS["adamw and dropout"]()
    copies: list[dict[str, Tensor]] = []
    keep = Keep()

    class Copying(Keep):
        def on_step(self, fit: MemberFit) -> None:
            keep.on_step(fit)
            copies.append({name: value.clone() for name, value in keep.states[-1][0].items()})

    MemberFit(plan, 0).run(Copying())
    assert all(same(state[0], copy) for state, copy in zip(keep.states, copies, strict=True))


def test_momentum_lies_in_memory_as_the_weights_do() -> None:
    """The fused step walks raw memory: in another order it would add one weight's momentum to another."""
    plan = plan_for(small_images(), deep_ensemble(), lambda: CNN(1, (20, 20), 3), SHORT)
    keep, fit = Keep(), MemberFit(plan, 0)
    fit.run(keep)
    resumed = MemberFit(plan, 0)
    resumed.restore(*keep.states[2])
    for parameter, values in resumed.optimizer.state.items():
        assert values["momentum_buffer"].stride() == parameter.stride()
