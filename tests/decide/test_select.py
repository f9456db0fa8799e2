"""Choosing r: what is tried, what is trained, and which way a tie falls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
import torch

import mixupmp.decide.trajectory as trajectory
import mixupmp.decide.trials as trials
from mixupmp import (
    AtLayer,
    CutMix,
    Dataset,
    FeatureSwap,
    Mixup,
    Plan,
    Recipe,
    Rows,
    SentencePair,
    WarpedMixup,
    bayesian_bootstrap,
    deep_ensemble,
    dp_mp_perturbed,
    dp_mp_uniform,
    martingale_posterior,
    mc_dropout,
    mixup,
    mixup_ensemble,
    mixup_mp,
    plan_for,
    shared_mixup_mp,
)
from mixupmp.core.errors import InvalidArgument, MixupMPError
from mixupmp.core.methods import ALL_METHODS, Method, laplace
from mixupmp.core.posterior import Posterior
from mixupmp.core.split import split
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.default import calibrated, choose, default_search
from mixupmp.decide.evaluator import CandidateResult, HeldOutEvaluator
from mixupmp.decide.held_out import class_losses, disjoint_parts, folds
from mixupmp.decide.search import RATIOS, Candidate, Search, epoch_grid
from mixupmp.decide.select import select
from mixupmp.decide.trajectory import outputs_by_epochs
from mixupmp.decide.trials import Trial
from mixupmp.networks import MLP
from mixupmp.train.run import Engine, fit

RECIPE = Recipe(epochs=15, batch_size=None, optimizer="adamw", learning_rate=2e-2)


def network() -> MLP:
    return MLP(4, 3, (8,))


@pytest.fixture
def plan(table: Dataset) -> Plan:
    return plan_for(table, mixup_mp(members=4), network, RECIPE, seed=1)


def test_zero_and_infinity_are_always_tried() -> None:
    candidates = Search(ratios=(0.5,), alphas=(0.2, 1.0)).candidates()
    assert candidates == [Candidate(0.0), Candidate(inf, 0.2), Candidate(inf, 1.0), Candidate(0.5, 0.2),
                          Candidate(0.5, 1.0)]  # fmt: skip


def test_other_base_measures_are_tried_with_every_ratio_and_the_best_is_refitted(plan: Plan) -> None:
    bases = (WarpedMixup(0.5), SentencePair(), FeatureSwap())
    candidates = Search(ratios=(1.0,), alphas=(1.0,), bases=bases[:1]).candidates()
    assert candidates[3:] == [Candidate(inf, 0.5, base=bases[0]), Candidate(1.0, 0.5, base=bases[0])]
    assert str(candidates[4]) == "r=1, WarpedMixup(alpha=0.5, width=0.5, distance=inputs)"
    found = select(plan, Search(ratios=(1.0,), alphas=(1.0,), bases=(bases[0], bases[2]), halving=False))
    assert len(found.results) == 1 + 2 + 4
    rows = [row for row in found.to_dict()["curve"] if "base" in row]
    assert sorted(row["base"]["type"] for row in rows) == ["FeatureSwap"] * 2 + ["WarpedMixup"] * 2
    best = min(found.results, key=lambda result: result.score).candidate
    assert best.applied(plan).method.predictive.base == (best.base or (Mixup(1.0) if best.ratio else None))
    assert found.table().startswith("| r | alpha or base | epochs | members | nll | against r=0 | |\n")
    assert "FeatureSwap(rate=0.2)" in found.table()
    with pytest.raises(MixupMPError, match="bases must be base measures"):
        Search(bases=(WarpedMixup,))  # type: ignore[arg-type]


def test_base_measures_for_other_data_are_refused_before_the_first_fit(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldOutEvaluator, "outputs", lambda *_: pytest.fail("a member was fitted"))
    for base, match in ((CutMix(), "inputs must be images"), (SentencePair(), "inputs must be whole token numbers")):
        with pytest.raises(InvalidArgument, match=match):
            select(plan, Search(bases=(base,)), engine="inline")


def test_the_plan_s_own_base_measure_is_tried_with_every_alpha(plan: Plan) -> None:
    warped = replace(plan, method=martingale_posterior(1.0, WarpedMixup(1.0, 0.3), 4))
    assert Candidate(inf, 0.2).applied(warped).method.predictive.base == WarpedMixup(0.2, 0.3)
    assert Candidate(0.0).applied(warped).method.predictive.base is None
    swapped = replace(plan, method=martingale_posterior(1.0, FeatureSwap(), 4))
    assert Candidate(1.0, 0.2).applied(swapped).method.predictive.base == FeatureSwap()


@pytest.mark.parametrize(
    ("method", "candidate", "name"),
    [
        (mixup_mp(members=4), Candidate(0.0), "mixup-mp"),
        (shared_mixup_mp(), Candidate(0.0), "shared-mixup-mp"),
        (mixup_mp(members=4), Candidate(1.0, 0.5, base=WarpedMixup(0.5)), "martingale-posterior"),
        (mixup_ensemble(), Candidate(inf, 0.2), "mixup-ensemble"),
        (mixup_ensemble(), Candidate(0.0), "deep-ensemble"),
        (mixup_ensemble(), Candidate(1.0, 0.2), "mixup-mp"),
        (deep_ensemble(4), Candidate(1.0, 0.2), "mixup-mp"),
        (mixup(), Candidate(1.0, 0.2), "reg-mixup"),
        (mc_dropout(), Candidate(0.3, 0.2), "mixup-mp-mc"),
        (bayesian_bootstrap(4), Candidate(1.0, 0.2), "martingale-posterior"),
        (replace(mixup_mp(), name="mine"), Candidate(1.0, 0.2), "mine"),
    ],
)
def test_what_is_chosen_has_the_name_of_what_it_is(plan: Plan, method: Method, candidate: Candidate, name: str) -> None:
    assert candidate.applied(replace(plan, method=method)).method.name == name


@pytest.mark.parametrize("constructor", ALL_METHODS)
def test_r_is_chosen_for_every_method(table: Dataset, constructor: Callable[..., Method]) -> None:
    if constructor is laplace:
        pytest.importorskip("laplace")
    sizes = {"members": 2} if "members" in inspect.signature(constructor).parameters else {}
    chosen = plan_for(
        table, constructor(**sizes), network if constructor is not shared_mixup_mp else None, {"epochs": 1}
    )
    found = select(chosen, Search(ratios=(), alphas=(0.2, 1.0), calibrate=False), engine="inline")
    applied = [result.candidate.applied(chosen).method for result in found.results]
    assert len(set(applied)) == len(applied), "the same method was tried twice"
    assert len(applied) == (2 if constructor in (dp_mp_perturbed, dp_mp_uniform) else 3)


def test_no_alpha_where_the_base_measure_has_none(plan: Plan) -> None:
    swapped = replace(plan, method=martingale_posterior(1.0, FeatureSwap(), 4))
    assert [str(c) for c in Search(ratios=(1.0,)).candidates(swapped)] == ["r=0", "r=inf", "r=1"]
    assert Candidate(1.0).applied(swapped).method.predictive.base == FeatureSwap()
    inside = replace(plan, method=martingale_posterior(1.0, AtLayer(Mixup(1.0), "0"), 4))
    assert len(Search(ratios=(), alphas=(0.2, 1.0)).candidates(inside)) == 3
    fixed = choose(swapped, ratio=1.0, calibrate=False)
    assert fixed.selection is None, "nothing was open"
    assert fixed.plan.method.predictive.base == FeatureSwap()


def test_no_member_is_trained_twice(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[float, int, tuple[int, ...]]] = []

    def counting(plan: Plan, *, engine: str, members: list[int]) -> Posterior:
        trained.append((plan.method.predictive.ratio, len(plan.train), tuple(members)))
        return fit(plan, engine="inline", members=members)

    monkeypatch.setattr(trajectory, "fit", counting)
    found = select(plan, Search(alphas=(1.0,)))
    single = [(ratio, rows, member) for ratio, rows, members in trained for member in members]
    assert len(single) == len(set(single)) == found.member_fits
    # Halving: everyone is judged by one member, not everyone by four; the deep ensemble always by all.
    counts = {result.candidate.ratio: result.members for result in found.results}
    assert set(counts) == set(RATIOS)
    assert counts[0.0] == 4
    assert found.member_fits < 4 * len(counts)


def test_scores_are_those_of_the_members_together(plan: Plan) -> None:
    found = select(plan, Search(ratios=(1.0,), alphas=(1.0,), halving=False, calibrate=False), engine="inline")
    assert isinstance(plan.train, Rows)
    train, held = split(plan.train, 0.2, plan.seed)
    for tried in found.results:
        posterior = fit(tried.candidate.applied(replace(plan, train=train)), engine="inline")
        true = posterior.probabilities(held.inputs).gather(1, held.labels[:, None])
        assert tried.score == pytest.approx(float(-true.log().mean()), rel=1e-4)


def test_folds_cover_every_row_once_with_every_class(plan: Plan) -> None:
    assert isinstance(plan.train, Rows)
    pairs = list(folds(plan.train, 3, True, 0))
    held = torch.cat([rows.inputs for _, rows in pairs])
    assert held.shape == plan.train.inputs.shape
    assert torch.equal(held.sum(1).sort().values, plan.train.inputs.sum(1).sort().values)
    for train, rows in pairs:
        assert len(train) + len(rows) == len(plan.train)
        assert rows.labels.bincount().tolist() in ([7, 7, 6], [7, 6, 7], [6, 7, 7])
    assert select(plan, Search(ratios=(), alphas=(1.0,), validation=3), engine="inline").rows == len(plan.train)


def results(plan: Plan, *pairs: tuple[float, float], noise: float) -> tuple[list[CandidateResult], HeldOutEvaluator]:
    """Results with these (ratio, score) on 400 rows, whose losses have this much noise."""
    evaluator = HeldOutEvaluator(plan, Search(), "inline")
    evaluator.weights = torch.ones(400).double()
    generator = torch.Generator().manual_seed(0)
    found = []
    for ratio, score in pairs:
        losses = score + noise * torch.randn(400, generator=generator).double()
        losses += score - losses.mean()
        found.append(CandidateResult(Candidate(ratio, 1.0 if ratio else None), 4, score, losses={4: losses}))
    return found, evaluator


def test_within_a_standard_error_the_smaller_ratio_wins(plan: Plan) -> None:
    close, evaluator = results(plan, (0.0, 0.501), (1.0, 0.5), (inf, 0.9), noise=0.1)
    assert evaluator.choose(close, 4).candidate == Candidate(0.0)
    evaluator.search = Search(standard_errors=0.0)
    assert evaluator.choose(close, 4).candidate.ratio == 1.0
    clear, evaluator = results(plan, (0.0, 0.6), (0.1, 0.51), (1.0, 0.5), (inf, 0.9), noise=0.01)
    assert evaluator.choose(clear, 4).candidate.ratio == 1.0


def test_candidates_that_were_pruned_cannot_win(plan: Plan) -> None:
    found, evaluator = results(plan, (0.0, 0.6), (1.0, 0.1), noise=0.01)
    found[1].members = 1
    assert evaluator.choose(found, 4).candidate == Candidate(0.0)


def test_lengths_in_geometric_progression() -> None:
    assert epoch_grid(100, 10) == (12, 25, 50, 100)
    assert epoch_grid(1) == (1,)
    assert epoch_grid(5, 5) == (5,)
    with pytest.raises(MixupMPError, match="longest"):
        epoch_grid(4, 5)


@pytest.mark.parametrize("engine", ["auto", "inline"])
@pytest.mark.parametrize("schedule", ["constant", "one-cycle"])
def test_every_length_predicts_as_a_training_of_that_length_does(plan: Plan, schedule: str, engine: Engine) -> None:
    recipe = replace(RECIPE, schedule=schedule, batch_size=16)  # type: ignore[arg-type]
    plan = replace(plan, recipe=recipe)
    assert isinstance(plan.train, Rows)
    found = outputs_by_epochs(plan, [0, 2], (3, 6), plan.train.inputs, engine)
    assert set(found) == {3, 6}
    for length, outputs in found.items():
        alone = fit(replace(plan, recipe=replace(recipe, epochs=length)), engine="inline", members=[0, 2])
        expected = alone.member_outputs(plan.train.inputs)
        assert outputs.numpy() == pytest.approx(expected.numpy(), abs=1e-4)


def test_the_length_is_chosen_with_the_ratio(plan: Plan) -> None:
    plan = replace(plan, recipe=replace(RECIPE, schedule="constant"))
    search = Search(ratios=(1.0,), alphas=(1.0,), halving=False, epochs=epoch_grid(40, 5))
    found = select(plan, search)
    for result in found.results:
        assert set(result.by_epochs) == {5, 10, 20, 40}
        assert result.score == min(result.by_epochs.values()) == result.by_epochs[result.candidate.epochs or 0]
    assert found.chosen.applied(plan).recipe.epochs == found.chosen.epochs
    assert found.to_dict()["epochs"] == found.chosen.epochs


def test_members_that_share_weights_are_one_training_for_all_lengths(plan: Plan) -> None:
    plan = replace(plan, method=shared_mixup_mp(1.0, 0.4, 3), recipe=replace(RECIPE, schedule="constant"))
    assert isinstance(plan.train, Rows)
    found = outputs_by_epochs(plan, [0], (3, 6), plan.train.inputs)
    for length, outputs in found.items():
        alone = fit(replace(plan, recipe=replace(plan.recipe, epochs=length)))
        assert torch.equal(outputs, alone.member_outputs(plan.train.inputs))
    assert select(plan, Search(ratios=(), alphas=(0.4,), epochs=(3, 6))).member_fits == 2


def test_scores_and_the_temperature_are_those_after_calibration(plan: Plan) -> None:
    found = select(plan, Search(ratios=(), alphas=(1.0,)), engine="inline")
    raw = select(plan, Search(ratios=(), alphas=(1.0,), calibrate=False), engine="inline")
    assert raw.calibrator is None
    assert found.calibrator is not None
    for scaled, plain in zip(found.results, raw.results, strict=True):
        assert scaled.score <= plain.score
    best = next(result for result in found.results if result.candidate == found.chosen)
    assert best.probabilities is not None
    assert len(best.probabilities) == found.rows


def test_a_diverging_candidate_loses_and_does_no_harm(plan: Plan) -> None:
    wild = replace(plan, recipe=Recipe(epochs=30, batch_size=None, learning_rate=1e18, schedule="constant"))
    with pytest.raises(MixupMPError, match="lower the learning rate"):
        select(wild, Search(ratios=(), alphas=(1.0,)), engine="inline")


def test_the_report_shows_the_curve(plan: Plan) -> None:
    lines: list[str] = []
    found = select(plan, Search(ratios=(0.5,), alphas=(1.0,)), engine="inline", callback=lines.append)
    assert found.table().count("chosen") == 1
    assert "| inf | 1 |  |" in found.table()
    assert lines[0].startswith("r=0: 1 members")
    plain = found.to_dict()
    assert plain["curve"][-1]["ratio"] == "inf"
    assert len(plain["curve"]) == 3


def test_one_network_with_masks_is_judged_at_once(table: Dataset) -> None:
    plan = plan_for(table, mc_dropout(3), "mlp", RECIPE)
    found = select(plan, Search(ratios=(1.0,), alphas=(1.0,)), engine="inline")
    assert found.member_fits == 3


@pytest.mark.parametrize("criterion", ["brier", "error"])
def test_other_criteria(plan: Plan, criterion: str) -> None:
    search = Search(ratios=(), alphas=(1.0,), criterion=criterion)  # type: ignore[arg-type]
    assert all(0 <= result.score <= 2 for result in select(plan, search, engine="inline").results)


def test_wrong_searches_are_refused(plan: Plan) -> None:
    for wrong in (
        {"ratios": (-1.0,)},
        {"alphas": ()},
        {"validation": 1},
        {"validation": 1.5},
        {"criterion": "auc"},
        {"epochs": ()},
        {"epochs": (0,)},
    ):
        with pytest.raises(MixupMPError):
            Search(**wrong)  # type: ignore[arg-type]
    with pytest.raises(MixupMPError, match="nll, brier, error"):
        select(plan, Search(criterion="crps"))


def test_the_plan_s_own_method_is_of_no_matter(plan: Plan) -> None:
    search = Search(ratios=(), alphas=(1.0,))
    other = replace(plan, method=deep_ensemble(4))
    first, second = (select(p, search, engine="inline") for p in (plan, other))
    assert [r.score for r in first.results] == [r.score for r in second.results]


def test_disjoint_parts_are_held_out_in_turn(plan: Plan) -> None:
    assert isinstance(plan.train, Rows)
    pairs = list(disjoint_parts(plan.train, 0.2, 3, 0))
    held = torch.cat([rows.inputs for _, rows in pairs]) if pairs else torch.empty(0)
    assert len(pairs) == 3
    assert len(held.unique(dim=0)) == len(held) == 3 * round(0.2 * len(plan.train))
    for train, rows in pairs:
        both = torch.cat([train.inputs, rows.inputs])
        assert torch.equal(both.sum(1).sort().values, plan.train.inputs.sum(1).sort().values)
    found = select(plan, Search(ratios=(), alphas=(1.0,), validation=0.2, parts=3), engine="inline")
    assert found.rows == len(held)


@pytest.mark.parametrize("epochs", [None, (5, 15)])
@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_the_temperature_of_the_chosen_comes_from_further_parts(
    plan: Plan, engine: Engine, epochs: tuple[int, ...] | None
) -> None:
    assert isinstance(plan.train, Rows)
    plan = replace(plan, recipe=replace(plan.recipe, schedule="constant"))
    search = Search(ratios=(), alphas=(1.0,), validation=0.2, parts=2, epochs=epochs)
    two = select(plan, search, engine=engine)
    four = select(plan, replace(search, calibration_parts=4), engine=engine)
    assert (four.chosen, four.rows, two.calibration_rows) == (two.chosen, two.rows, two.rows)
    assert four.member_fits == two.member_fits + 2 * 4
    assert [r.scores for r in four.results] == [r.scores for r in two.results]
    chosen = four.chosen.applied(plan)
    pairs = [(train.read(), held.read()) for train, held in disjoint_parts(plan.train, 0.2, 4, plan.seed)]
    assert len(pairs) == 4
    outputs = [fit(chosen.on(train), engine="inline").member_outputs(held.inputs) for train, held in pairs]
    probabilities = torch.cat([part.double().softmax(-1).mean(0) for part in outputs])
    wanted = fit_temperature(probabilities, torch.cat([held.labels for _, held in pairs]), warn=False)
    assert four.calibrator is not None
    assert four.calibrator.temperature == pytest.approx(wanted.temperature, rel=1e-5)
    assert wanted.temperature != 1.0
    assert four.detector is not None
    assert four.detector.rows == four.calibration_rows == len(probabilities)


def test_by_default_a_temperature_comes_from_two_hundred_rows_if_there_are_so_many(plan: Plan) -> None:
    assert isinstance(plan.train, Rows)
    for rows, parts in ((100, 5), (200, 5), (300, 4), (500, 2), (1000, 2), (5000, 1)):
        few = plan.on(Rows(torch.zeros(rows, 4), torch.arange(rows) % 3))
        search = default_search(few, None, None, False, True)
        assert search is not None
        assert search.calibration_parts == parts
        shared = default_search(replace(few, method=shared_mixup_mp()), None, None, False, True)
        assert shared is not None
        assert shared.calibration_parts == shared.parts
    chosen, given = choose(plan, engine="inline"), calibrated(plan, engine="inline")
    assert chosen.detector is not None
    assert given.detector is not None
    held_out = sum(len(held) for _, held in disjoint_parts(plan.train, 0.2, 5, plan.seed))
    assert chosen.detector.rows == given.detector.rows == held_out


def test_members_trained_in_worker_processes_score_the_same(plan: Plan) -> None:
    search = Search(ratios=(1.0,), alphas=(1.0,), validation=0.2, parts=2)
    inline, workers = (select(plan, search, engine=engine) for engine in ("inline", "processes"))
    assert workers.chosen == inline.chosen
    assert workers.member_fits == inline.member_fits
    for ours, theirs in zip(workers.results, inline.results, strict=True):
        assert ours.scores == pytest.approx(theirs.scores, rel=1e-6)  # members are evaluated one by one


@pytest.mark.parametrize(("gap", "members"), [(0.0, 4), (5.0, 1)])
def test_the_deep_ensemble_stays_unless_it_is_clearly_worse(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, gap: float, members: int
) -> None:
    """Candidates with r = 0 predict the right class with a lower logit, by `gap`; the rest is noise."""

    def outputs(self: HeldOutEvaluator, candidate: Candidate, fold: int, new: list[int]) -> dict[int, torch.Tensor]:
        labels = self.held[fold].labels
        noise = torch.randn(
            len(new), len(labels), 3, generator=torch.Generator().manual_seed(int(candidate.ratio == 0))
        )
        right = torch.nn.functional.one_hot(labels, 3)
        return {self.epochs[0]: noise - (gap * right if candidate.ratio == 0 else 0)}

    monkeypatch.setattr(HeldOutEvaluator, "outputs", outputs)
    found = select(plan, Search(ratios=(0.5, 1.0), alphas=(1.0,), calibrate=False), engine="inline")
    assert found.results[0].candidate.ratio == 0
    assert found.results[0].members == members
    assert found.results[1].standard_error > 0


def test_candidates_are_compared_by_the_temperature_that_will_be_applied(plan: Plan) -> None:
    evaluator = HeldOutEvaluator(plan, Search(), "inline")
    generator = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(1, 60, 3, generator=generator)
    averaged = logits.double().softmax(-1)[0]
    evaluator.labels = averaged.multinomial(1, generator=generator).squeeze(1)  # they are calibrated
    evaluator.weights = torch.ones(60, dtype=torch.float64)
    unguarded = fit_temperature(averaged, evaluator.labels, standard_errors=None)
    assert fit_temperature(averaged, evaluator.labels).temperature == 1 != unguarded.temperature  # the guard refuses
    losses, probabilities = evaluator.losses([logits])
    assert probabilities is not None
    assert torch.allclose(losses, class_losses(averaged, evaluator.labels, "nll"))
    under_confident = (averaged.log() * 0.3).softmax(-1)  # a large gain is not refused on these rows
    assert evaluator.temperature(under_confident).temperature < 0.5


@pytest.fixture
def shared(plan: Plan) -> Plan:
    recipe = replace(RECIPE, schedule="constant", batch_size=16)
    return replace(plan, method=shared_mixup_mp(1.0, 0.4, 3), recipe=recipe)


def test_threads_do_not_change_a_search(shared: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    dropout = replace(shared, network=lambda: MLP(4, 3, (8,), dropout=0.3))
    found = []
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for count in (1, 3):
        monkeypatch.setattr(trials, "cores", lambda count=count: count)
        search = Search(ratios=(1.0,), alphas=(0.4,), epochs=(2, 4, 8), parts=2, patience=1)
        found.append(select(dropout, search))
    assert torch.equal(torch.get_rng_state(), before)
    assert found[0].to_dict()["curve"] == found[1].to_dict()["curve"]
    assert found[0].rows == 2 * round(0.2 * len(shared.train))  # type: ignore[arg-type]


def test_a_shorter_training_wins_within_its_standard_errors_and_a_longer_one_is_not_begun(shared: Plan) -> None:
    search = Search(pairs=((0.0, None),), epochs=(1, 2, 4, 8, 16), patience=2, length_errors=1.0)
    trial = Trial(Candidate(0.0), HeldOutEvaluator(shared, search, "inline"))
    rows = trial.evaluator.rows
    noise = torch.randn(rows, generator=torch.Generator().manual_seed(0)).double()
    noise -= noise.mean()
    losses = {1: 0.9 + noise, 2: 0.502 - 0.1 * noise, 4: 0.5 + 0.1 * noise, 8: 0.51 + 0.1 * noise, 16: 0.6 + 0 * noise}
    trial.evaluator.losses = lambda outputs: (losses[int(outputs[0])], None)  # type: ignore[method-assign]
    goes_on = [trial.record(epochs, [torch.tensor(epochs)]) for epochs in (1, 2, 4, 8)]
    assert goes_on == [True, True, True, False]  # 8 is worse than 4 beyond the error of their difference, which is 0
    trial.result.members = 1
    trial.settle()
    assert trial.result.candidate.epochs == 2
    assert trial.result.score == pytest.approx(0.502)


def test_folds_are_parts_of_a_share_with_classes_and_without(plan: Plan) -> None:
    rows = plan.train
    assert isinstance(rows, Rows)
    for classes in (True, False):
        pairs = list(folds(rows, 0.2, classes, 0, parts=3))
        held = torch.cat([part.inputs for _, part in pairs])
        assert len(pairs) == 3
        assert len(held.unique(dim=0)) == len(held) == 3 * round(0.2 * len(rows))
        assert all(len(train) + len(part) == len(rows) for train, part in pairs)
    assert len(list(folds(rows, 0.4, True, 0, parts=9))) == 2  # no more than there are


def test_fewer_members_in_a_search_are_not_fewer_in_the_fit(shared: Plan) -> None:
    found = select(shared, Search(pairs=((0.0, None),), epochs=(1, 2), members=2))
    assert found.chosen.applied(shared).method.sampler.members == 3


def test_what_is_fixed_goes_over_the_pairs_of_a_search(shared: Plan) -> None:
    search = Search(pairs=((0.0, None), (1.0, 2.0)), epochs=(1,), members=2)
    for ratio, alpha, tried in (
        (0.0, None, [Candidate(0.0, None, 1)]),
        (None, 0.3, [Candidate(0.0, None, 1), Candidate(1.0, 0.3, 1)]),
    ):
        choice = choose(shared, ratio=ratio, alpha=alpha, search=search)
        assert choice.selection is not None
        assert [result.candidate for result in choice.selection.results] == tried
