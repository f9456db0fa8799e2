"""How a member's fit ends: by its rule, at its epochs, or by diverging; and what it says of itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import inf

import pytest
import torch
from one_member import FEW, Silent, ran, same
from torch import Generator
from torch.nn import functional

from mixupmp.core import seeds
from mixupmp.core.base_measures import Mixup
from mixupmp.core.batch import Batch
from mixupmp.core.errors import MixupMPError
from mixupmp.core.methods import Method, deep_ensemble, mc_dropout, mixup_mp, single_network
from mixupmp.core.predictive import Predictive
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.samplers import Ensemble
from mixupmp.core.weights import Dirichlet
from mixupmp.train.member import MemberFit
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit


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
        outputs = fitted.network.eval()(table.standardize(table.test.inputs))
        right = fitted.network(table.standardize(table.train.inputs)).argmax(1) == table.train.labels
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
    assert posterior.notes == ("member 2 diverged at step 1; left out",)
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


def test_whether_every_row_is_right_is_counted_over_all_rows(table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of the rows could be all right where the fit has gone on because a few others were not."""
    monkeypatch.setattr(sys.modules[MemberFit.__module__], "ENOUGH_ROWS", 1)
    recipe = Recipe(epochs=1, batch_size=20, schedule="constant", epochs_after_interpolation=0)
    for waits in (None, 0):
        plan = plan_for(table, single_network(), "mlp", replace(recipe, epochs_after_interpolation=waits))
        fitted, summary = ran(plan)
        outputs = fitted.network.eval()(table.standardize(table.train.inputs))
        exact = float((outputs.argmax(1) == table.train.labels).float().mean())
        assert 0 < exact < 1
        assert (summary.training_accuracy == pytest.approx(exact)) == (waits is not None)
