"""The reference fit of one member, against plain PyTorch and against answers known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from one_member import FEW, close, ran, same
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from mixupmp.core import seeds
from mixupmp.core.base_measures import Mixup
from mixupmp.core.batch import Batch
from mixupmp.core.kernels import cifar_kernel
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.methods import ca_mixup_mc, deep_ensemble, mc_dropout, mixup_mp, single_network
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Task
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.networks import MLP
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit
from mixupmp.train.validation import over_confidence, validation_record


def by_hand(plan: Plan, member: int, pseudo: Callable[[Batch, Generator], tuple[Batch | None, float]]) -> nn.Module:
    """Algorithm 2 in plain PyTorch: its loops, torch's own optimizer and schedule; only the random streams are ours."""
    recipe, rows = plan.recipe, plan.train
    assert isinstance(rows, Rows)
    torch.manual_seed(seeds.derive(plan.seed, member, "weights"))
    network = plan.network().train()
    optimizer = torch.optim.SGD(
        network.parameters(), recipe.learning_rate, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
    )
    draws = seeds.generator(plan.seed, member, "draws")
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(rows), generator=seeds.generator(plan.seed, member, "order", epoch))
        for chunk in order.split(recipe.batch_size):
            inputs = plan.task.standardize(rows.inputs[chunk])
            targets = functional.one_hot(rows.labels[chunk], 3).float()
            seen = Batch(inputs, targets, torch.ones(len(chunk)))
            made, ratio = pseudo(seen, draws)
            loss = functional.cross_entropy(network(inputs), targets, reduction="sum")
            if made is not None:
                extra = functional.cross_entropy(network(made.inputs), made.targets, reduction="sum")
                loss = loss + ratio * len(chunk) / len(made.inputs) * extra
            optimizer.zero_grad()
            (loss / (len(chunk) * (1 + ratio))).backward()
            optimizer.step()
    return network


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_the_fit_is_algorithm_2(kind: str, ratio: float, table: Dataset, images: Dataset) -> None:
    dataset = table if kind == "mlp" else images
    recipe = Recipe(epochs=3, batch_size=12, pseudo_batch_size=7, learning_rate=0.05, schedule="constant")
    plan = plan_for(dataset, mixup_mp(ratio, 2.0), kind, recipe)
    fitted, summary = ran(plan, 1)

    def pseudo(seen: Batch, draws: Generator) -> tuple[Batch | None, float]:
        return (Mixup(2.0).sample(seen, 7, draws) if ratio else None), ratio

    assert close(fitted.weights(), by_hand(plan, 1, pseudo).state_dict(), 2e-5)
    assert summary.steps == 3 * (5 if kind == "mlp" else 4)


def test_row_weights_count_as_repeats(table: Dataset) -> None:
    """A step with a row of weight two is a step with that row twice, at a rate that allows for the mean."""
    rows = table.train.take(torch.arange(10))
    weights = torch.ones(10)
    weights[3] = 2
    once = Rows(rows.inputs, rows.labels, weights)
    twice = rows.take(torch.tensor([0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]))
    recipe = Recipe(epochs=1, batch_size=None, momentum=0.0, weight_decay=0.0, schedule="constant", learning_rate=0.1)
    plan = plan_for(table.with_train(once), single_network(), "mlp", recipe)
    repeated = plan_for(table.with_train(twice), single_network(), "mlp", replace(recipe, learning_rate=0.11))
    assert close(ran(plan)[0].weights(), ran(repeated)[0].weights(), 1e-7)


def test_a_dataset_of_torchs_gives_the_same_bits_as_rows_in_memory(table: Dataset) -> None:
    plan = plan_for(table, mc_dropout(), "mlp", FEW)
    dataset = TensorDataset(table.train.inputs, table.train.labels)
    loaded = Plan(plan.method, plan.network, dataset, plan.task, plan.recipe)
    assert same(ran(plan)[0].weights(), ran(loaded)[0].weights())


def test_regression_learns_a_line() -> None:
    inputs = torch.linspace(-1, 1, 64).view(-1, 1)
    rows = Rows(inputs, 2 * inputs[:, 0] + 1)
    task = Task(Gaussian(), Standardize(), (1,))
    recipe = Recipe(epochs=60, batch_size=16, optimizer="adamw", learning_rate=0.02)
    plan = Plan(mixup_mp(0.5, 0.2, 2), lambda: MLP(1, 2), rows, task, recipe)
    posterior = fit(plan, engine="inline")
    means = posterior.member_outputs(inputs)[:, :, 0]
    assert float((means - rows.labels).abs().mean()) < 0.15
    assert posterior.summaries[0].training_accuracy is None


def test_batch_norm_survives_a_last_row(images: Dataset) -> None:
    plan = plan_for(images, deep_ensemble(), "wrn-10-1", Recipe(epochs=1, batch_size=47, learning_rate=0.01))
    _, summary = ran(plan)
    assert summary.steps == 1
    assert summary.diverged_at is None


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_other_precisions_stay_near(precision: Any, images: Dataset) -> None:
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.02, precision=precision)
    exact = ran(plan_for(images, mixup_mp(), "cnn", replace(recipe, precision="float32")))[0].weights()
    near = ran(plan_for(images, mixup_mp(), "cnn", recipe))[0].weights()
    assert all(value.dtype == torch.float32 for value in near.values())
    assert all(float((near[name] - exact[name]).abs().max()) < 0.02 for name in exact)


def test_a_kernel_is_applied_in_training_and_not_in_judging(images: Dataset) -> None:
    plain = plan_for(images, single_network(), "cnn", FEW)
    augmented = plan_for(images, single_network(kernel=cifar_kernel()), "cnn", FEW)
    assert not same(ran(plain)[0].weights(), ran(augmented)[0].weights())
    posterior = fit(augmented, engine="inline")
    assert torch.equal(posterior.probabilities(images.test.inputs), posterior.probabilities(images.test.inputs))


class Fixed(nn.Module):
    """Logits that are its input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * inputs


def test_over_confidence_by_class_is_what_it_is_by_hand() -> None:
    """Class 0: sure (.9, .8), right once of two: .85 - .5. Class 1: .6, right: -.4. Class 2 has no row: 0."""
    believed = torch.tensor([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2]])
    validation = Rows(believed.log(), torch.tensor([0, 0, 1]))
    train = Rows(torch.eye(3), torch.arange(3))
    task = Task(Categorical(3), Standardize(), (3,))
    plan = Plan(ca_mixup_mc(), Fixed, train, task, FEW, validation=validation)
    network = Fixed().train()
    over = over_confidence(network, plan)
    assert torch.allclose(over, torch.tensor([0.35, -0.4, 0.0]), atol=1e-6)
    assert network.training
    assert network.scale.requires_grad
    record = validation_record(network, plan)
    assert record["validation_accuracy"] == pytest.approx(2 / 3)
    expected = -float(torch.tensor([0.9, 0.1, 0.6]).log().mean())
    assert record["validation_nll"] == pytest.approx(expected, rel=1e-5)


def test_class_adjusted_mixup_follows_the_validation_rows(table: Dataset) -> None:
    plan = plan_for(table, ca_mixup_mc(alpha=1.0, validation_fraction=0.2), "mlp", FEW)
    assert plan.validation is not None
    assert len(plan.validation) == 12
    assert len(plan.train) == 48  # type: ignore[arg-type]
    fitted, _ = ran(plan)
    assert fitted.over_confidence is not None
    mixed = fitted.future.predictive.base.mixed  # type: ignore[union-attr]
    assert mixed == tuple((fitted.over_confidence > 0).tolist())
    assert torch.allclose(fitted.over_confidence, over_confidence(fitted.network, plan))
