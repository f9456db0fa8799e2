"""Where a member's fit starts, and what it is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from one_member import FEW, Silent, close, ran, same
from torch import nn

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.methods import deep_ensemble, mixup_ensemble, single_network
from mixupmp.core.rows import Dataset
from mixupmp.networks import CNN, MLP
from mixupmp.train.member import MemberFit
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit


def test_members_start_from_their_own_weights_and_methods_from_the_same(table: Dataset) -> None:
    plan, other = plan_for(table, deep_ensemble(), "mlp", FEW), plan_for(table, mixup_ensemble(), "mlp", FEW)
    zero, one = (plan.build(member).state_dict() for member in (0, 1))
    assert not same(zero, one)
    assert same(zero, other.build(0).state_dict())
    assert not same(zero, replace(plan, seed=1).build(0).state_dict())


def test_a_fit_can_start_from_another_posteriors_members(table: Dataset) -> None:
    ensemble = fit(plan_for(table, deep_ensemble(2), "mlp", FEW), engine="inline")
    before = [network.state_dict() for network in ensemble.networks]
    copies = [{name: value.clone() for name, value in state.items()} for state in before]
    plan = plan_for(table, deep_ensemble(2), "mlp", replace(FEW, epochs=1, learning_rate=1e-20), initial=ensemble)
    assert close(ran(plan, 1)[0].weights(), copies[1], 1e-9)
    ran(replace(plan, recipe=FEW), 1)
    assert all(same(one, two) for one, two in zip(before, copies, strict=True))  # which are not touched by it


def test_starting_from_weights_of_another_network_is_refused(table: Dataset) -> None:
    ensemble = fit(plan_for(table, deep_ensemble(1), "mlp", FEW), engine="inline")
    with pytest.raises(InvalidArgument, match="initial must be weights of this network"):
        plan_for(table, deep_ensemble(1), lambda: MLP(4, 3, hidden=(5,)), FEW, initial=ensemble)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MLP(4, 1), r"network must be one that returns \(rows, 3\)"),
        (lambda: MLP(4, 5), r"network must be one that returns \(rows, 3\)"),
        (lambda: nn.Unflatten(1, (2, 2)), "network must be"),
        (lambda: "mlp", "network must be a factory that returns an nn.Module"),
    ],
)
def test_networks_that_do_not_suit_are_named(build: Any, message: str, table: Dataset) -> None:
    with pytest.raises(InvalidArgument, match=message):
        fit(plan_for(table, deep_ensemble(2), build, FEW), engine="inline")


def test_a_factory_must_build_a_new_network_each_time(table: Dataset) -> None:
    only = MLP(4, 3)
    with pytest.raises(InvalidArgument, match="network must be a factory that builds a new network at each call"):
        fit(plan_for(table, deep_ensemble(2), lambda: only, FEW), engine="inline")


@pytest.mark.parametrize("members", [(), (4,), (-1,), (0, 0), (0.5,), ("0",)])
def test_members_that_do_not_exist_are_refused(members: Any, table: Dataset) -> None:
    with pytest.raises(InvalidArgument, match="members must be different numbers from 0 to 3"):
        fit(plan_for(table, deep_ensemble(4), "mlp", FEW), engine="inline", members=members)


def test_an_unknown_engine_is_refused(table: Dataset) -> None:
    with pytest.raises(InvalidArgument, match="engine must be one of auto, inline"):
        fit(plan_for(table, deep_ensemble(4), "mlp", FEW), engine="gpu")  # type: ignore[arg-type]


def test_the_cnn_is_fitted_in_channels_last_memory_and_handed_out_in_plain(images: Dataset) -> None:
    plan = plan_for(images, single_network(), lambda: CNN(1, (20, 20), 3), FEW)
    fitted = MemberFit(plan, 0)
    assert fitted.network.second.weight.is_contiguous(memory_format=torch.channels_last)
    fitted.run(Silent())
    assert all(value.is_contiguous() for value in fitted.weights().values())
