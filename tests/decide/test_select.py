"""Choosing r: what is tried, what is trained, and which way a tie falls."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
import torch

import mixupmp.decide.select as selection
from mixupmp import Dataset, Plan, Recipe, Rows, deep_ensemble, mc_dropout, mixup_mp, plan_for
from mixupmp.core.errors import MixupMPError
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import split
from mixupmp.decide.held_out import folds
from mixupmp.decide.select import Candidate, Search, select
from mixupmp.networks import MLP
from mixupmp.train.run import fit

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


def test_no_member_is_trained_twice(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[float, int, tuple[int, ...]]] = []

    def counting(plan: Plan, *, engine: str, members: list[int]) -> Posterior:
        trained.append((plan.method.predictive.ratio, len(plan.train), tuple(members)))
        return fit(plan, engine="inline", members=members)

    monkeypatch.setattr(selection, "fit", counting)
    found = select(plan, Search(alphas=(1.0,)))
    single = [(ratio, rows, member) for ratio, rows, members in trained for member in members]
    assert len(single) == len(set(single)) == found.member_fits
    # Halving: everyone is judged by one member, not everyone by four; the deep ensemble always by all.
    counts = {tried.candidate.ratio: tried.members for tried in found.curve}
    assert set(counts) == set(selection.RATIOS)
    assert counts[0.0] == 4
    assert found.member_fits < 4 * len(counts)


def test_scores_are_those_of_the_members_together(plan: Plan) -> None:
    found = select(plan, Search(ratios=(1.0,), alphas=(1.0,), halving=False), engine="inline")
    assert isinstance(plan.train, Rows)
    train, held = split(plan.train, 0.2, plan.seed)
    for tried in found.curve:
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


def curve(*pairs: tuple[float, float], noise: float) -> tuple[list[selection.Tried], selection._Judge]:
    rows = Rows(torch.zeros(400, 1), torch.zeros(400, dtype=torch.int64))
    judge = selection._Judge([], [rows], "nll", "inline")
    generator = torch.Generator().manual_seed(0)
    tried = []
    for ratio, score in pairs:
        losses = score + noise * torch.randn(400, generator=generator).double()
        losses += score - losses.mean()
        tried.append(selection.Tried(Candidate(ratio, 1.0 if ratio else None), 4, score, {}, {4: losses}))
    return tried, judge


def test_what_cannot_be_told_apart_falls_to_the_smaller_ratio() -> None:
    close, judge = curve((0.0, 0.501), (1.0, 0.5), (inf, 0.9), noise=0.1)
    assert selection._choose(close, judge, 4, 1.0) == Candidate(0.0)
    assert selection._choose(close, judge, 4, 0.0).ratio == 1.0
    clear, judge = curve((0.0, 0.6), (0.1, 0.51), (1.0, 0.5), (inf, 0.9), noise=0.01)
    assert selection._choose(clear, judge, 4, 1.0).ratio == 1.0


def test_candidates_that_were_pruned_cannot_win() -> None:
    tried, judge = curve((0.0, 0.6), (1.0, 0.1), noise=0.01)
    tried[1].members = 1
    assert selection._choose(tried, judge, 4, 1.0) == Candidate(0.0)


def test_a_diverging_candidate_loses_and_does_no_harm(plan: Plan) -> None:
    wild = replace(plan, recipe=Recipe(epochs=30, batch_size=None, learning_rate=1e18, schedule="constant"))
    with pytest.raises(MixupMPError, match="lower the learning rate"):
        select(wild, Search(ratios=(), alphas=(1.0,)), engine="inline")


def test_the_report_shows_the_curve(plan: Plan) -> None:
    said: list[str] = []
    found = select(plan, Search(ratios=(0.5,), alphas=(1.0,)), engine="inline", say=said.append)
    assert found.table().count("chosen") == 1
    assert "| inf | 1 |" in found.table()
    assert said[0].startswith("r=0: 1 members")
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
    assert all(0 <= tried.score <= 2 for tried in select(plan, search, engine="inline").curve)


def test_wrong_searches_are_refused(plan: Plan) -> None:
    for wrong in ({"ratios": (-1.0,)}, {"alphas": ()}, {"validation": 1}, {"validation": 1.5}, {"criterion": "auc"}):
        with pytest.raises(MixupMPError):
            Search(**wrong)  # type: ignore[arg-type]
    with pytest.raises(MixupMPError, match="nll, brier, error"):
        select(plan, Search(criterion="crps"))


def test_the_plan_s_own_method_is_of_no_matter(plan: Plan) -> None:
    search = Search(ratios=(), alphas=(1.0,))
    other = replace(plan, method=deep_ensemble(4))
    first, second = (select(p, search, engine="inline") for p in (plan, other))
    assert [t.score for t in first.curve] == [t.score for t in second.curve]
