"""Members that share weights: held to what each of them computes alone, and to their own futures."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch
from torch import nn

from mixupmp import Plan, Recipe, SharedEnsemble, load, mixup_mp, plan_for, save, shared_mixup_mp
from mixupmp.core.errors import MixupMPError
from mixupmp.core.methods import Method
from mixupmp.core.predictive import Predictive
from mixupmp.core.shared import MemberLinear, SharedLinear, SharedNetwork, SharedPosterior
from mixupmp.core.weights import Dirichlet
from mixupmp.networks import MLP, TabularMLP, quantile_edges
from mixupmp.train.member import MemberFit
from mixupmp.train.run import fit
from small_data import small_table

RECIPE = Recipe(epochs=6, batch_size=16, optimizer="adamw", learning_rate=1e-2, schedule="constant")


def plan_of(method: Method, recipe: Recipe = RECIPE) -> Plan:
    return plan_for(small_table(), method, lambda: MLP(4, 3, (8, 8)), recipe)


def test_a_member_is_the_network_with_its_own_rank_one_weights() -> None:
    torch.manual_seed(0)
    shared = SharedEnsemble(3).adapt(MLP(4, 2, (5, 6))).eval()
    inputs = torch.randn(7, 4)
    outputs = shared.member_outputs(inputs)
    assert outputs.shape == (3, 7, 2)
    for b in range(3):
        values = inputs
        for layer in shared.network.children():  # type: ignore[union-attr]
            if isinstance(layer, SharedLinear):
                assert layer.bias is not None
                weight = layer.output_scale[b][:, None] * layer.weight * layer.input_scale[b]
                values = values @ weight.T + layer.bias[b]
            elif isinstance(layer, MemberLinear):
                assert layer.bias is not None
                values = values @ layer.weight[b] + layer.bias[b]
            else:
                values = layer(values)
        assert torch.allclose(outputs[b], values, atol=1e-6)
    assert torch.allclose(shared(inputs).softmax(-1), outputs.softmax(-1).mean(0), atol=1e-6)


def test_only_the_first_layer_starts_with_random_signs() -> None:
    shared = SharedEnsemble(16).adapt(MLP(4, 2, (50, 60)))
    first, second = (module for module in shared.modules() if isinstance(module, SharedLinear))
    assert set(first.input_scale.unique().tolist()) == {-1.0, 1.0}
    assert bool((second.input_scale == 1).all())
    assert bool((first.output_scale == 1).all())


def test_in_training_a_block_of_rows_goes_to_each_member() -> None:
    shared = SharedEnsemble(2).adapt(MLP(4, 2, (5,)))
    inputs = torch.randn(6, 4)
    outputs = shared.train()(inputs)
    each = shared.member_outputs(inputs)
    assert torch.allclose(outputs, torch.cat([each[0, :3], each[1, 3:]]), atol=1e-6)


def test_every_member_has_its_own_shuffles_and_blends() -> None:
    plan = plan_of(shared_mixup_mp(1.0, 0.4, members=4))
    training = MemberFit(plan, 0)
    batch = next(training.future.batches(training._chunks(0), training.draws))
    rows = batch.inputs.view(4, 32, 4)
    for b in range(1, 4):
        assert not torch.equal(rows[0, :16], rows[b, :16])
        assert not torch.equal(rows[0, 16:], rows[b, 16:])
    assert float(batch.weights.mean()) == pytest.approx(1.0)
    # An epoch visits every row once for each member.
    visited = torch.cat(
        [b.inputs.view(4, -1, 4) for b in training.future.batches(training._chunks(1), training.draws)], 1
    )
    assert visited.shape[1] == 2 * len(plan.train)  # type: ignore[arg-type]
    seen = torch.cat(
        [
            b.inputs.view(4, -1, 4)[:, : len(c)]
            for c, b in zip(
                training._chunks(2), training.future.batches(training._chunks(2), training.draws), strict=True
            )
        ],
        1,
    )
    assert torch.allclose(seen[0].sort(0).values, seen[3].sort(0).values)


def test_drawn_weights_are_each_members_own() -> None:
    method = Method("shared bootstrap", Predictive(weights=Dirichlet()), SharedEnsemble(3))
    training = MemberFit(plan_of(method), 0)
    weights = [future.weights for future in training.future.futures]  # type: ignore[attr-defined]
    assert not torch.equal(weights[0], weights[1])
    assert fit(plan_of(method)).members == 3


@pytest.mark.parametrize("ratio", [0.0, 1.0, inf])
def test_it_learns_and_members_differ(ratio: float) -> None:
    plan = plan_of(shared_mixup_mp(ratio, 0.4, members=8), replace(RECIPE, epochs=40))
    posterior = fit(plan)
    assert isinstance(posterior, SharedPosterior)
    test = small_table().test
    each = posterior.member_probabilities(test.inputs)
    assert each.shape == (8, len(test), 3)
    separate = fit(plan_of(mixup_mp(ratio, 0.4, members=4), replace(RECIPE, epochs=40))).probabilities(test.inputs)
    accuracies = [float((p.argmax(1) == test.labels).float().mean()) for p in (each.mean(0), separate)]
    assert accuracies[0] > accuracies[1] - 0.05
    assert accuracies[0] > 0.8
    assert float((each - each[0]).abs().max()) > 1e-3


def test_a_resumed_fit_ends_with_the_same_bits() -> None:
    plan = plan_for(small_table(), shared_mixup_mp(1.0, 0.4, 3), lambda: MLP(4, 3, (8,), dropout=0.2), RECIPE)

    class StopAt:
        def __init__(self, step: int) -> None:
            self.step = step

        def on_step(self, training: MemberFit) -> None:
            if training.step == self.step:
                raise KeyboardInterrupt

    whole = MemberFit(plan, 0)
    whole.run(StopAt(-1))
    first = MemberFit(plan, 0)
    with pytest.raises(KeyboardInterrupt):
        first.run(StopAt(7))
    second = MemberFit(plan, 0)
    second.restore(*first.state())
    second.run(StopAt(-1))
    assert all(torch.equal(value, second.weights()[name]) for name, value in whole.weights().items())


def test_other_layers_are_shared_and_networks_without_linear_layers_refused() -> None:
    body = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2))
    shared = SharedEnsemble(3).adapt(body).eval()
    assert shared.member_outputs(torch.randn(5, 4)).shape == (3, 5, 2)
    assert SharedEnsemble(2).adapt(nn.Linear(4, 2)).eval()(torch.randn(5, 4)).shape == (5, 2)
    with pytest.raises(MixupMPError, match="with nn"):
        SharedEnsemble(2).adapt(nn.Sequential(nn.Conv2d(1, 2, 3)))
    with pytest.raises(MixupMPError, match="made by SharedEnsemble"):
        SharedPosterior([body], plan_of(shared_mixup_mp()).task)


def test_a_table_network_is_shared_too() -> None:
    rows = small_table().train
    edges = quantile_edges(small_table().standardize(rows.inputs), 4)
    plan = plan_for(small_table(), shared_mixup_mp(0.0, members=4), lambda: TabularMLP(edges, 3, (8,)), RECIPE)
    posterior = fit(plan)
    assert isinstance(posterior.networks[0], SharedNetwork)
    assert posterior.probabilities(rows.inputs).shape == (len(rows), 3)


@pytest.mark.parametrize("network", ["mlp", "tabular"])
def test_it_is_saved_and_loaded(network: str, tmp_path: Path) -> None:
    posterior = fit(plan_for(small_table(), shared_mixup_mp(members=3), network, RECIPE))
    save(posterior, tmp_path / "model")
    inputs = small_table().test.inputs
    again = load(tmp_path / "model")
    assert isinstance(again, SharedPosterior)
    assert torch.equal(again.member_probabilities(inputs), posterior.member_probabilities(inputs))
