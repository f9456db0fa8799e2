"""The reference fit of one member, against plain PyTorch and against answers known beforehand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from mixupmp import seeds
from mixupmp.augment import cifar_kernel
from mixupmp.base_measures import Mixup
from mixupmp.batch import Batch
from mixupmp.data.rows import Dataset, Rows, Standardise
from mixupmp.errors import InvalidArgument, MixupMPError
from mixupmp.fit import fit
from mixupmp.fit.member import MemberFit, build_network
from mixupmp.fit.plan import Plan, plan_for
from mixupmp.fit.validation import over_confidence, validation_record
from mixupmp.loss import Categorical, Gaussian
from mixupmp.methods import Method, ca_mixup_mc, deep_ensemble, mc_dropout, mixup_ensemble, mixup_mp, single_network
from mixupmp.networks import CNN, MLP
from mixupmp.posterior import Summary, Task
from mixupmp.predictive import Predictive
from mixupmp.recipe import Recipe
from mixupmp.samplers import Ensemble
from mixupmp.weights import Dirichlet

FEW = Recipe(epochs=3, batch_size=16, learning_rate=0.05)


class Silent:
    """Watches and says nothing; counts the steps it saw."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def stepped(self, fit: MemberFit) -> None:
        self.steps.append(fit.step)


def ran(plan: Plan, member: int = 0) -> tuple[MemberFit, Summary]:
    one = MemberFit(plan, member)
    return one, one.run(Silent())


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def close(first: dict[str, Tensor], second: dict[str, Tensor], tolerance: float = 1e-5) -> bool:
    return all(torch.allclose(first[name], second[name], atol=tolerance, rtol=1e-4) for name in first)


def by_hand(plan: Plan, member: int, pseudo: Callable[[Batch, Generator], tuple[Batch | None, float]]) -> nn.Module:
    """Algorithm 2 in plain PyTorch: its loops, torch's own optimiser and schedule; only the random streams are ours."""
    recipe, rows = plan.recipe, plan.train
    assert isinstance(rows, Rows)
    torch.manual_seed(seeds.derive(plan.seed, member, "weights"))
    network = plan.network().train()
    optimiser = torch.optim.SGD(
        network.parameters(), recipe.learning_rate, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
    )
    draws = seeds.generator(plan.seed, member, "draws")
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(rows), generator=seeds.generator(plan.seed, member, "order", epoch))
        for chunk in order.split(recipe.batch_size):
            inputs = plan.task.standardise(rows.inputs[chunk])
            targets = functional.one_hot(rows.labels[chunk], 3).float()
            seen = Batch(inputs, targets, torch.ones(len(chunk)))
            made, ratio = pseudo(seen, draws)
            loss = functional.cross_entropy(network(inputs), targets, reduction="sum")
            if made is not None:
                extra = functional.cross_entropy(network(made.inputs), made.targets, reduction="sum")
                loss = loss + ratio * len(chunk) / len(made.inputs) * extra
            optimiser.zero_grad()
            (loss / (len(chunk) * (1 + ratio))).backward()
            optimiser.step()
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
    task = Task(Gaussian(), Standardise(), (1,))
    recipe = Recipe(epochs=60, batch_size=16, optimiser="adamw", learning_rate=0.02)
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


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_fit_stops_so_many_epochs_after_100_percent(after: int, table: Dataset) -> None:
    recipe = Recipe(epochs=100, batch_size=20, schedule="constant", learning_rate=0.1, epochs_after_interpolation=after)
    plan = plan_for(table, single_network(), "mlp", recipe)
    fitted, summary = ran(plan)
    accuracies = [record["training_accuracy"] for record in summary.history if "training_accuracy" in record]
    first = len(accuracies)  # it is looked at until it is there
    assert accuracies[-1] == 1
    assert all(accuracy < 1 for accuracy in accuracies[:-1])
    assert 1 < first < 90
    assert summary.epochs == first + after
    assert fitted.finished
    # By hand: as many epochs without the rule give the same bits, and one fewer is not yet at 100%.
    plainly = replace(recipe, epochs=first + after, epochs_after_interpolation=None)
    assert same(ran(replace(plan, recipe=plainly))[0].weights(), fitted.weights())
    earlier = replace(recipe, epochs=first - 1, epochs_after_interpolation=None)
    assert ran(replace(plan, recipe=earlier))[1].training_accuracy != 1


def test_a_fit_that_never_interpolates_stops_at_its_epochs(table: Dataset) -> None:
    noise = Rows(torch.zeros_like(table.train.inputs), table.train.labels)
    recipe = Recipe(epochs=4, batch_size=20, schedule="constant", epochs_after_interpolation=1)
    _, summary = ran(plan_for(table.with_train(noise), single_network(), "mlp", recipe))
    assert summary.epochs == 4


def test_the_summary_says_how_it_went(table: Dataset) -> None:
    plan = plan_for(table, single_network(), "mlp", Recipe(epochs=5, batch_size=16), validation=table.test)
    fitted, summary = ran(plan)
    assert (summary.member, summary.steps, summary.epochs, summary.diverged_at) == (0, 20, 5, None)
    assert [record["epoch"] for record in summary.history] == [1, 2, 3, 4, 5]
    assert summary.seconds > 0
    with torch.no_grad():
        outputs = fitted.network.eval()(table.standardise(table.test.inputs))
        right = fitted.network(table.standardise(table.train.inputs)).argmax(1) == table.train.labels
    assert summary.training_accuracy == pytest.approx(float(right.float().mean()))
    last = summary.history[-1]
    assert last["validation_nll"] == pytest.approx(
        float(functional.cross_entropy(outputs, table.test.labels)), rel=1e-4
    )
    assert last["validation_accuracy"] == pytest.approx(float((outputs.argmax(1) == table.test.labels).float().mean()))


def test_watching_sees_every_step(table: Dataset) -> None:
    watch = Silent()
    MemberFit(plan_for(table, single_network(), "mlp", FEW), 0).run(watch)
    assert watch.steps == list(range(1, 13))


def test_a_fit_leaves_threads_and_the_global_generator_as_they_were(table: Dataset) -> None:
    plan = plan_for(table, mc_dropout(), "mlp", FEW)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        ran(plan)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("method", [mc_dropout(), mixup_mp(), deep_ensemble(kernel=lambda x: x + torch.rand_like(x))])
def test_bits_do_not_depend_on_the_global_generator_or_threads(method: Method, table: Dataset) -> None:
    plan = plan_for(table, method, "mlp", FEW)
    weights = []
    before = torch.get_num_threads()
    for seed in (1, 2):
        torch.manual_seed(seed)
        torch.set_num_threads(seed)
        try:
            weights.append(ran(plan)[0].weights())
        finally:
            torch.set_num_threads(before)
    assert same(*weights)


def test_the_future_is_simulated_with_the_recipes_threads(table: Dataset) -> None:
    """A user's measure may compute at length: one and two threads would give it different bits."""
    met: list[int] = []

    class Counting:
        def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
            met.append(torch.get_num_threads())
            return Mixup(1.0).sample(seen, count, generator)

    method = Method("mine", Predictive(1.0, Counting(), weights=Dirichlet()), Ensemble(1))
    plan = plan_for(table, method, "mlp", FEW)
    torch.set_num_threads(2)
    try:
        MemberFit(plan, 0)
    finally:
        torch.set_num_threads(1)
    assert met == [1]


# --- divergence ------------------------------------------------------------------------------------------------------


def test_a_member_that_diverges_stops_at_that_step(table: Dataset) -> None:
    plan = plan_for(table, single_network(), "mlp", replace(FEW, learning_rate=1e18, schedule="constant"))
    watch = Silent()
    fitted = MemberFit(plan, 0)
    summary = fitted.run(watch)
    assert summary.diverged_at == summary.steps
    assert 2 <= summary.diverged_at <= 6
    assert watch.steps == list(range(1, summary.diverged_at))  # the step itself is not offered for a checkpoint
    assert summary.training_accuracy is None
    assert summary.seconds > 0


def test_weights_that_burst_in_the_last_step_are_divergence_too(table: Dataset) -> None:
    recipe = Recipe(
        epochs=1, batch_size=None, learning_rate=1e38, schedule="constant", momentum=0.0, weight_decay=100.0
    )
    fitted, summary = ran(plan_for(table, single_network(), "mlp", recipe))
    assert not all(bool(torch.isfinite(value).all()) for value in fitted.weights().values())
    assert summary.diverged_at == 1
    assert summary.training_accuracy is None


@dataclass(frozen=True)
class SpoiltFor:
    """Blends whose inputs are NaN for one member, known by its generator's seed."""

    spoilt: int  # the seed of that member's draws

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        batch = Mixup(1.0).sample(seen, count, generator)
        if generator.initial_seed() == self.spoilt:
            batch.inputs.fill_(float("nan"))
        return batch


@pytest.mark.parametrize("ratio", [1.0, inf])
def test_a_member_that_diverges_is_left_out_and_named_and_the_others_kept(ratio: float, table: Dataset) -> None:
    spoilt = SpoiltFor(seeds.derive(0, 2, "draws"))
    method = Method("spoilt", Predictive(ratio, spoilt), Ensemble(4))
    posterior = fit(plan_for(table, method, "mlp", FEW), engine="inline")
    assert posterior.members == 3
    assert posterior.wanted == 4
    assert posterior.notes == ("member 2 diverged at step 1",)
    assert "3 of 4" in repr(posterior)
    assert [summary.diverged_at for summary in posterior.summaries] == [None, None, 1, None]
    healthy = fit(plan_for(table, Method("m", Predictive(ratio, Mixup(1.0)), Ensemble(4)), "mlp", FEW), engine="inline")
    kept = [healthy.networks[member] for member in (0, 1, 3)]
    for own, other in zip(posterior.networks, kept, strict=True):
        assert same(own.state_dict(), other.state_dict())


def test_when_all_diverge_it_is_an_error(table: Dataset) -> None:
    plan = plan_for(table, deep_ensemble(2), "mlp", replace(FEW, learning_rate=1e30, schedule="constant"))
    with pytest.raises(MixupMPError, match=r"no member is left: member 0 diverged at step \d+; member 1 .*Lower the"):
        fit(plan, engine="inline")


# --- over-confidence -------------------------------------------------------------------------------------------------


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
    task = Task(Categorical(3), Standardise(), (3,))
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


# --- where a fit starts, and what it is given ------------------------------------------------------------------------


def test_members_start_from_their_own_weights_and_methods_from_the_same(table: Dataset) -> None:
    plan, other = plan_for(table, deep_ensemble(), "mlp", FEW), plan_for(table, mixup_ensemble(), "mlp", FEW)
    zero, one = (build_network(plan, member).state_dict() for member in (0, 1))
    assert not same(zero, one)
    assert same(zero, build_network(other, 0).state_dict())
    assert not same(zero, build_network(replace(plan, seed=1), 0).state_dict())


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
    plan = plan_for(table, deep_ensemble(1), lambda: MLP(4, 3, hidden=(5,)), FEW, initial=ensemble)
    with pytest.raises(InvalidArgument, match="initial must be weights of this network"):
        fit(plan, engine="inline")


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


def test_the_accuracy_of_many_rows_is_judged_on_a_share_from_everywhere(
    table: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows may be sorted by class: the first of them would show one class alone."""
    ordered = table.train.take(table.train.labels.argsort(stable=True))
    fitted = MemberFit(plan_for(table.with_train(ordered), single_network(), "mlp", FEW), 0)
    with torch.no_grad():
        for parameter in fitted.network.parameters():
            parameter.zero_()
        fitted.network[-1].bias[0] = 1.0  # always says class 0
    monkeypatch.setattr(sys.modules[MemberFit.__module__], "ENOUGH_ROWS", 15)
    assert fitted.summary().training_accuracy == pytest.approx(1 / 3)
