"""All members in one program, held to the reference: the same draws, and the same weights but for rounding."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixupmp import (
    Method,
    Recipe,
    Rows,
    WarpedMixup,
    bayesian_bootstrap,
    deep_ensemble,
    dp_mp_perturbed,
    dp_mp_uniform,
    martingale_posterior,
    mixup_ensemble,
    mixup_mp,
    plan_for,
)
from mixupmp.core import seeds
from mixupmp.core.base_measures import AtLayer, BaseMeasure, Mixup, Perturbed
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.kernels import HorizontalFlip
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Task
from mixupmp.networks import MLP
from mixupmp.train.run import choose_engine, fit
from mixupmp.train.vectorized.engine import VectorizedFit
from mixupmp.train.vectorized.feeds import BLOCK, Constant, OneByOne, Shuffled, WholeMixup
from mixupmp.train.vectorized.group import vectorizable
from small_data import small_images, small_table

WHOLE = Recipe(epochs=12, batch_size=None, learning_rate=0.1, momentum=0.0, nesterov=False, schedule="constant")
BATCHES = Recipe(epochs=3, batch_size=16, learning_rate=0.05)
ADAM = replace(BATCHES, optimizer="adamw", learning_rate=0.01)


def plan(method: Method, recipe: Recipe, weighted: bool = False) -> Plan:
    data = small_table()
    if weighted:
        weights = torch.rand(len(data.train), generator=torch.Generator().manual_seed(1)) + 0.5
        data = data.with_train(Rows(data.train.inputs, data.train.labels, weights))
    return plan_for(data, method, "mlp", recipe, seed=5)


def largest_difference(one: Any, other: Any) -> float:
    pairs = zip(one.networks, other.networks, strict=True)
    return max(
        float((a - b).abs().max()) for n, m in pairs for a, b in zip(n.parameters(), m.parameters(), strict=True)
    )


@pytest.mark.parametrize("recipe", [WHOLE, BATCHES, ADAM, replace(BATCHES, pseudo_batch_size=7)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        deep_ensemble(3),
        mixup_mp(0.3, 0.4, 3),
        mixup_ensemble(2.0, 3),
        martingale_posterior(0.3, WarpedMixup(0.4), 3),
        martingale_posterior(inf, WarpedMixup(2.0, 1.0, "targets"), 3),
        bayesian_bootstrap(3),
        dp_mp_perturbed(0.5, 1.0, 3),
        dp_mp_uniform(1.0, -3.0, 3.0, 3),
    ],
    ids=lambda method: f"{method.name} {method.predictive.base}",
)
def test_members_are_the_references_to_1e_5(method: Method, recipe: Recipe, weighted: bool) -> None:
    whole = plan(method, recipe, weighted)
    reference, together = fit(whole, engine="inline"), fit(whole, engine="vectorized")
    assert largest_difference(reference, together) < 1e-5
    for one, other in zip(reference.summaries, together.summaries, strict=True):
        assert (one.steps, one.epochs) == (other.steps, other.epochs)
        assert [r["loss"] for r in one.history] == pytest.approx([r["loss"] for r in other.history], abs=1e-5)
        assert one.training_accuracy == other.training_accuracy


def test_images_with_a_kernel_and_without_bias() -> None:
    data = small_images(shape=(1, 6, 6))
    method = mixup_mp(1.0, 1.0, 3, kernel=HorizontalFlip())

    def factory() -> nn.Module:
        return MLP(36, 3, hidden=(8,), bias=False)

    whole = plan_for(data, method, factory, BATCHES)
    assert largest_difference(fit(whole, engine="inline"), fit(whole, engine="vectorized")) < 1e-5


def test_regression() -> None:
    data = small_table()
    rows = Rows(data.train.inputs, data.train.inputs.sum(1))
    task = Task(Gaussian(), data.standardize, (4,))
    whole = Plan(mixup_mp(1.0, 1.0, 3), lambda: MLP(4, 2, hidden=(8,)), rows, task, BATCHES)
    assert largest_difference(fit(whole, engine="inline"), fit(whole, engine="vectorized")) < 1e-5


def test_validation_rows_are_judged_as_in_the_reference() -> None:
    data = small_table()
    whole = plan_for(data, deep_ensemble(2), "mlp", BATCHES, validation=data.test)
    for one, other in zip(
        fit(whole, engine="inline").summaries, fit(whole, engine="vectorized").summaries, strict=True
    ):
        assert one.history[-1]["validation_nll"] == pytest.approx(other.history[-1]["validation_nll"], abs=1e-5)


@pytest.mark.parametrize(
    ("method", "recipe", "kind"),
    [
        (deep_ensemble(2), WHOLE, Constant),
        (bayesian_bootstrap(2), WHOLE, Constant),
        (mixup_mp(1.0, 1.0, 2), WHOLE, WholeMixup),
        (mixup_mp(inf, 1.0, 2), WHOLE, WholeMixup),
        (mixup_mp(1.0, 1.0, 2), BATCHES, Shuffled),
        (martingale_posterior(1.0, WarpedMixup(), 2), WHOLE, WholeMixup),
        (martingale_posterior(1.0, WarpedMixup(), 2), BATCHES, Shuffled),
        (deep_ensemble(2), BATCHES, Shuffled),
        (bayesian_bootstrap(2), BATCHES, OneByOne),
        (mixup_mp(1.0, 1.0, 2, kernel=lambda inputs, generator: inputs + 0), WHOLE, OneByOne),
    ],
)
def test_the_fast_feeds_serve_where_they_can(method: Method, recipe: Recipe, kind: type) -> None:
    """So that the comparisons above are of the fast paths."""
    together = VectorizedFit(plan(method, recipe), [(0,), (1,)])
    assert all(type(group.feed) is kind for group in together.groups)
    together.close()


@pytest.mark.parametrize("steps", [1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_uniforms_drawn_in_blocks_are_those_drawn_one_by_one(steps: int) -> None:
    whole = plan(mixup_mp(1.0, 1.0, 2), replace(WHOLE, epochs=2 * BLOCK))
    together = VectorizedFit(whole, [(0,), (1,)])
    together.advance(steps)
    for member in (0, 1):
        generator = seeds.generator(whole.seed, member, "draws")
        for _ in range(steps):
            torch.rand(4, len(whole.train), generator=generator)  # type: ignore[arg-type]
        assert torch.equal(together.state(member)[0]["generator/draws"], generator.get_state())
    together.close()


@pytest.mark.parametrize("recipe", [replace(WHOLE, epochs=50), BATCHES, ADAM])
@pytest.mark.parametrize("base", [Mixup(1.0), AtLayer(Mixup(1.0), "2"), AtLayer(Perturbed(), "2")])
def test_a_state_put_back_goes_on_to_the_same_bits(recipe: Recipe, base: BaseMeasure) -> None:
    whole = plan(martingale_posterior(1.0, base, 3), recipe)
    members = (0, 1, 2)
    groups = [(0, 2), (1,)]
    straight = VectorizedFit(whole, groups)
    straight.advance(straight.total_steps)
    first = VectorizedFit(whole, groups)
    first.advance(2 * first.steps_an_epoch)
    second = VectorizedFit(whole, groups, {member: first.state(member) for member in members})
    second.advance(second.total_steps)
    assert second.step == straight.step
    for member in members:
        for one, other in zip(straight.weights(member).values(), second.weights(member).values(), strict=True):
            assert torch.equal(one, other)
        assert straight.history[member][-1]["loss"] == second.history[member][-1]["loss"]
    for finished in (straight, first, second):
        finished.close()


def test_a_member_alone_is_the_member_of_the_ensemble() -> None:
    """To rounding: a product of three matrices at once may take another path than of one."""
    whole = plan(mixup_mp(1.0, 1.0, 3), BATCHES)
    everyone, alone = fit(whole, engine="vectorized"), fit(whole, engine="vectorized", members=(1,))
    for one, other in zip(everyone.networks[1].parameters(), alone.networks[0].parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


class ExplodesForOne(nn.Sequential):
    """An MLP whose weights, for member 1 of seed 0, are too large to have a finite loss."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        if torch.initial_seed() == seeds.derive(0, 1, "weights"):
            nn.init.constant_(self[0].weight, float("inf"))


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
def test_a_member_that_diverges_stops_alone(engine: str) -> None:
    data = small_table()
    posterior = fit(plan_for(data, deep_ensemble(3), ExplodesForOne, BATCHES), engine=engine)  # type: ignore[arg-type]
    assert posterior.notes == ("member 1 diverged at step 1; left out",)
    assert "2 of 3 networks" in repr(posterior)
    assert bool(torch.isfinite(posterior.probabilities(data.test.inputs)).all())


def test_which_networks_fit_in_one_program() -> None:
    linear, relu = nn.Linear(2, 2), nn.ReLU()
    assert vectorizable(nn.Sequential(nn.Flatten(), linear, relu, nn.Linear(2, 2)))
    assert not vectorizable(nn.Sequential(linear, nn.Tanh(), linear))
    assert not vectorizable(nn.Sequential(linear, relu))
    assert not vectorizable(nn.Sequential(linear, linear))
    assert not vectorizable(nn.Sequential(linear, relu, nn.Dropout(0.1), linear))
    assert not vectorizable(linear)


def test_what_it_cannot_do_is_refused_by_name() -> None:
    images = small_images()
    with pytest.raises(InvalidArgument, match="engine must be another engine for this network"):
        fit(plan_for(images, deep_ensemble(2), "cnn", BATCHES), engine="vectorized")
    stops = Recipe(epochs=5, schedule="constant", epochs_after_interpolation=1)
    with pytest.raises(InvalidArgument, match="stops each member by itself"):
        fit(plan(deep_ensemble(2), stops), engine="vectorized")


def test_auto_picks_by_the_network_and_by_the_work() -> None:
    images = small_images()
    assert choose_engine(plan(deep_ensemble(3), BATCHES), 3) == "vectorized"
    assert choose_engine(plan(deep_ensemble(3), BATCHES), 1) == "vectorized"
    assert choose_engine(plan_for(images, deep_ensemble(3), "cnn", BATCHES), 3) == "inline"
    long = replace(BATCHES, epochs=100_000)
    assert choose_engine(plan_for(images, deep_ensemble(3), "cnn", long), 3) == "processes"


@pytest.mark.parametrize("likelihood", [Categorical(3), Gaussian()])
def test_slopes_are_the_gradients_of_the_loss(likelihood: Categorical | Gaussian) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(5, likelihood.outputs, generator=generator, dtype=torch.float64).requires_grad_()
    targets: Tensor = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    targets = targets / targets.sum(1, keepdim=True) if isinstance(likelihood, Categorical) else targets[:, :1]
    (expected,) = torch.autograd.grad(likelihood.row_losses(outputs, targets).sum(), outputs)
    assert torch.allclose(likelihood.output_gradient(outputs.detach(), targets), expected)
    assert torch.allclose(likelihood.output_gradient(outputs.detach().T, targets.T, dim=0).T, expected)
