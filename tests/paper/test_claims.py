"""Verdicts follow from effects, their t intervals and the quantifier alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch
from scipy.stats import t as student

from mixupmp.core.errors import UnknownName
from mixupmp.metrics.catalog import METRICS
from mixupmp.paper.cases import Case, Part, cases_of
from mixupmp.paper.claims import QUANTIFIERS, Claim, all_claims, untested
from mixupmp.paper.effects import Effect, Sample, combine
from mixupmp.paper.evidence import PaperEvidence, RunEvidence
from mixupmp.paper.ledger import Judged, identities, make_ledger
from mixupmp.paper.ledger_page import _by_dataset, _on_paper, render
from mixupmp.paper.lines import ALPHAS, comparison_lines
from mixupmp.paper.reference import concordance, group_of, paper_figures, ratio_of
from mixupmp.paper.resampling import RESAMPLES
from mixupmp.paper.settings import setting_named
from mixupmp.paper.verdicts import (
    FAILS,
    HOLDS,
    NOT_COMPARABLE,
    NOT_RUN,
    OPEN,
    Verdict,
    case_verdict,
    decide,
    judge,
    p_values,
)


@pytest.mark.parametrize(
    ("mean", "error", "tolerance", "expected"),
    [
        (1.0, 0.3, None, HOLDS),
        (1.0, 0.6, None, OPEN),
        (-1.0, 0.6, None, OPEN),
        (-1.0, 0.3, None, FAILS),
        (1.0, None, None, OPEN),
        (0.1, 0.1, 0.5, HOLDS),
        (-0.1, 0.1, 0.5, HOLDS),
        (0.4, 0.1, 0.5, OPEN),
        (-0.9, 0.1, 0.5, FAILS),
        (0.0, 0.0, 0.1, HOLDS),
        (0.0, 0.0, None, OPEN),
    ],
)
def test_a_case(mean, error, tolerance, expected):
    assert case_verdict(*p_values(Case("", (), tolerance=tolerance), Effect(mean, error, 2))) == expected


def test_the_quantile_is_that_of_the_number_of_repeats():
    assert Effect(0, 1.0, 1).reach == pytest.approx(6.314, abs=1e-3)
    assert Effect(0, 1.0, 4).reach == pytest.approx(2.132, abs=1e-3)
    # Two standard errors of two repeats are no test: one in three such differences of nothing is outside.
    assert 2 * student.sf(2, 1) == pytest.approx(0.295, abs=1e-3)
    two = combine([(1, Sample.of({0: 1.0, 1: 1.6})), (-1, Sample.of({0: 0.5, 1: 0.6}))])
    assert two.mean > 2 * two.error
    assert case_verdict(*p_values(Case("", ()), two)) == OPEN


def test_differences_are_paired_by_repeat():
    effect = combine([(1, Sample.of({0: 1.0, 1: 5.0, 2: 9.0})), (-1, Sample.of({2: 8.5, 1: 4.5, 0: 0.5}))])
    assert (effect.mean, effect.error, effect.freedom) == (0.5, 0.0, 2)
    assert combine([(1, Sample.of({0: 1.0})), (-1, Sample.of({0: 0.0}))]).error is None


def test_what_test_rows_add_is_counted_and_what_two_lines_share_of_it_is_not():
    wave = [0.1 * (-1) ** k for k in range(RESAMPLES)]
    one = Sample.of({0: 1.0, 1: 1.2}, {0: wave, 1: wave})
    other = Sample.of({0: 0.5, 1: 0.5}, {0: [0.5 * value for value in wave]} | {1: wave})
    variance = sum(value**2 for value in wave) / (RESAMPLES - 1)
    alone = combine([(1, one)])
    assert alone.error == pytest.approx((0.01 + variance) ** 0.5)
    assert (alone.freedom, alone.test_rows) == (1, pytest.approx(variance))
    assert combine([(1, one), (-1, other)]).error == pytest.approx((0.01 + variance / 16) ** 0.5)
    assert combine([(1, one), (-1, Sample.of({0: 0.5, 1: 0.5}))]).error == pytest.approx(0.1)


def test_unpaired_samples_are_compared_as_welch_does():
    effect = combine([(1, Sample(3.0, 0.3, 3)), (-1, Sample(1.0, 0.4, 6))])
    assert (effect.mean, effect.error) == (2.0, pytest.approx(0.5))
    assert effect.freedom == pytest.approx(0.5**4 / (0.3**4 / 2 + 0.4**4 / 5))


@pytest.mark.parametrize(
    ("quantifier", "holding", "failing", "open_", "expected"),
    [
        ("all", 4, 0, 0, HOLDS),
        ("all", 3, 0, 1, OPEN),
        ("all", 3, 1, 0, FAILS),
        ("almost all", 9, 1, 0, HOLDS),
        ("almost all", 8, 2, 0, FAILS),
        ("most", 3, 1, 0, HOLDS),
        ("most", 2, 2, 0, FAILS),  # half is not most
        ("most", 2, 1, 1, OPEN),
        ("most", 1, 3, 0, FAILS),
        ("can", 1, 3, 0, HOLDS),
        ("can", 0, 3, 1, OPEN),
        ("can", 0, 4, 0, FAILS),
    ],
)
def test_quantifiers(quantifier, holding, failing, open_, expected):
    effects = [Effect(1, 0.01, 4)] * holding + [Effect(-1, 0.01, 4)] * failing + [Effect(0.1, 1, 4)] * open_
    found = decide([(Case("", ()), effect) for effect in effects], quantifier)
    assert (found.verdict, found.holding, found.failing) == (expected, holding, failing)


def test_the_worst_case_decides_and_of_a_claim_that_one_suffices_for_the_best():
    holds, wide, fails = Effect(1, 0.1, 3, "a"), Effect(0.5, 5, 3, "b"), Effect(-1, 0.1, 3, "c")
    cases = [(Case(effect.what, ()), effect) for effect in (holds, wide, fails)]
    assert decide(cases[:2], "all").deciding.what == "b"
    assert decide(cases, "all").deciding.what == "c"
    assert decide(cases, "can").deciding.what == "a"
    assert decide([], "all").verdict == NOT_RUN


@pytest.mark.parametrize(("quantifier", "cases", "wrong"), [("can", 48, HOLDS), ("all", 32, FAILS), ("most", 9, HOLDS)])
def test_chance_decides_few_sentences_of_many_cases(quantifier, cases, wrong):
    """Where no case has any effect, of the sentences that one lucky case could decide."""
    draws = torch.randn(100, cases, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    decided = 0
    for sentence in draws:
        effects = [Effect(float(one.mean()), float(one.std()) / 5**0.5, 4) for one in sentence]
        decided += decide([(Case("", ()), effect) for effect in effects], quantifier).verdict == wrong
    assert decided / len(draws) < 0.12  # 5%, and some more by chance; case by case it was 91% and 80%


def test_one_case_of_many_decides_where_it_is_far_from_chance():
    null = [(Case("", ()), Effect(0.0, 1.0, 4))] * 47
    assert decide([*null, (Case("", ()), Effect(1, 0.1, 4))], "can").verdict == HOLDS
    assert decide([*null, (Case("", ()), Effect(1, 0.3, 4))], "can").verdict == OPEN  # p = .015
    assert decide([*null, (Case("", ()), Effect(-1, 0.1, 4))], "all").verdict == FAILS


def claim(part: Part, quantifier: str = "all") -> Claim:
    return Claim("x", "5.3", "a sentence", quantifier, "comparison", ("fmnist",), (part,))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "comparison" / "cpu" / "fmnist"
    folder.mkdir(parents=True)
    nll = {"DE": (0.50, 0.60, 0.55), "NN": (0.90, 1.00, 0.96)}
    lines = [
        {"group": "g", "label": label, "repeats": [{"nll": v, "acc": 1 - v, "seed": n} for n, v in enumerate(values)]}
        for label, values in nll.items()
    ]
    (folder / "evaluations.json").write_text(json.dumps(lines))
    record = {"setting": "FMNIST: 3 rows", "versions": {"mixupmp": "0.1.0"}, "date": "2026-11-15T23:53:19+00:00"}
    (folder / "run.json").write_text(json.dumps(record))
    return tmp_path


def test_a_sentence_is_judged_by_our_runs_and_by_the_papers_own_table(results: Path):
    better = claim(Part("better", ("DE",), ("NN",), ("nll",)))
    here = judge(better, RunEvidence(results, "cpu"))
    assert (here.verdict, here.holding, here.deciding.mean) == (HOLDS, 1, pytest.approx(0.4033, abs=1e-4))
    assert judge(better, PaperEvidence()).verdict == HOLDS
    worse = claim(Part("better", ("NN",), ("DE",), ("nll",)))
    assert judge(worse, RunEvidence(results, "cpu")).verdict == FAILS
    assert judge(claim(Part("better", ("DE",), ("Laplace",), ("nll",))), RunEvidence(results, "cpu")).verdict == NOT_RUN


def test_the_papers_table_of_resnet18_is_not_judged_again_as_that_of_the_cnn():
    part = Part("better", ("DE",), ("MixupMP r=1 alpha=2",), ("nll",))
    both = Claim("x", "5.2", "q", "all", "ablation", ("fmnist", "fmnist-cnn"), (part,))
    assert set(judge(both, PaperEvidence()).datasets) == {"fmnist"}


def test_lines_outside_the_papers_regime_give_no_verdict(results: Path):
    file = results / "comparison/cpu/fmnist/evaluations.json"
    lines = json.loads(file.read_text())
    for one in lines[1]["repeats"]:
        one["training_accuracy"] = 0.97
    file.write_text(json.dumps(lines))
    evidence = RunEvidence(results, "cpu")
    found = judge(claim(Part("better", ("DE",), ("NN",), ("acc", "nll"))), evidence)
    assert (found.verdict, found.cases, found.left_out) == (NOT_COMPARABLE, 0, 2)
    assert not judge(claim(Part("better", ("DE",), ("NN",), ("nll",)), "tends"), evidence).cases
    sure = [(Case("", ()), Effect(1, 0.001, 4))] * 3
    assert decide(sure, "all", undecided=1).verdict == OPEN  # a case that was not tested does not hold
    assert decide(sure, "most", undecided=1).verdict == decide(sure, "can", undecided=1).verdict == HOLDS
    reached = claim(Part("reaches", ("NN",), measures=("training_accuracy",), threshold=0.98))
    assert judge(reached, evidence).verdict == FAILS  # what the sentence is about is no reason to leave it out
    assert set(evidence.means("comparison", "fmnist")) == {"DE", "NN"}
    assert set(evidence.means("comparison", "fmnist", comparable_only=True)) == {"DE"}


def test_longer_training_judges_the_cases_of_lines_that_do_not_interpolate(results: Path):
    """And no others: cases that the shorter runs can decide stay theirs, and so do those that stay below 98%."""
    accuracy = {"fmnist": {"NN": 0.97, "Mixup": 0.9}, "fmnist-long": {"NN": 0.99, "Mixup": 0.97}}
    share = {"fmnist": {"DE": 0.5, "NN": 0.3, "Mixup": 0.2}, "fmnist-long": {"DE": 0.1, "NN": 0.3, "Mixup": 0.2}}
    for part, reached in accuracy.items():
        (results / "comparison/cpu" / part).mkdir(exist_ok=True)
        lines = [
            {
                "group": "Single model",
                "label": label,
                "repeats": [
                    {"seed": n, "acc": value + n / 1000, "training_accuracy": reached.get(label, 1.0)} for n in range(3)
                ],
            }
            for label, value in share[part].items()
        ]
        (results / "comparison/cpu" / part / "evaluations.json").write_text(json.dumps(lines))
    evidence = RunEvidence(results, "cpu")
    both = Part("better", ("DE",), ("NN", "Mixup"), ("acc",))
    found = judge(claim(both, "can"), evidence)
    # DE against NN is decided by the longer runs, in which DE is the worse one; Mixup is in the regime nowhere.
    assert (found.cases, found.failing, found.left_out, found.longer) == (1, 1, 1, 1)
    assert found.deciding.what == "acc of DE against NN (fmnist-long)"
    best = judge(claim(Part("best", ("DE",), ("NN",), ("acc",))), evidence)
    assert (best.verdict, best.left_out, best.longer) == (NOT_COMPARABLE, 1, 0)
    assert judge(claim(both, "tends"), evidence).longer == 0
    assert judge(claim(both), PaperEvidence()).longer == 0
    none = Verdict(NOT_RUN)
    assert "0/1 (1 against, 1 not comparable, 1 of [fmnist-long](comparison/cpu/fmnist-long/run.json))" in _by_dataset(
        Judged(claim(both, "can"), found, none, none), "cpu"
    )


def test_every_run_must_reach_a_threshold_and_the_lowest_is_shown(results: Path):
    verdicts = {}
    for threshold in (0.4, 0.41):
        part = Part("reaches", ("DE",), measures=("acc",), threshold=threshold)
        found = judge(claim(part), RunEvidence(results, "cpu"))
        verdicts[threshold] = found.verdict
        assert (found.deciding.mean, found.deciding.error) == (pytest.approx(0.4), 0.0)
        assert found.deciding.what == "acc of DE, lowest of 3 runs"
    assert verdicts == {0.4: HOLDS, 0.41: FAILS}


def test_members_of_one_repeat_are_no_replicates_and_are_paired_by_number(tmp_path: Path):
    folder = tmp_path / "bb-vs-de" / "cpu" / "mnist"
    folder.mkdir(parents=True)

    def track(seed: int, numbers: list[int], values: list[float]) -> dict[str, object]:
        return {"stage": 3, "seed": seed, "members": numbers, "member_acc": values}

    tracks = {
        "DE from DE": [track(0, [0, 1, 2], [0.9, 0.2, 0.7]), track(1, [0, 1], [0.5, 0.7])],
        "BB from DE": [track(0, [0, 2], [0.8, 0.6]), track(1, [0, 1], [0.4, 0.7])],
    }
    (folder / "members.json").write_text(json.dumps(tracks))
    lines = [{"group": "MNIST", "label": label, "repeats": [{"seed": 0}, {"seed": 1}]} for label in tracks]
    (folder / "evaluations.json").write_text(json.dumps(lines))
    evidence = RunEvidence(tmp_path, "cpu")
    found = {line: evidence.sample("bb-vs-de", "mnist", line, "member_acc", None) for line in tracks}
    assert found["DE from DE"].values == pytest.approx({0: 0.8, 1: 0.6})  # without member 1, which BB has lost
    assert found["BB from DE"].values == pytest.approx({0: 0.7, 1: 0.55})


def test_differences_of_members_do_not_cancel(tmp_path: Path):
    folder = tmp_path / "bb-vs-de" / "cpu" / "mnist"
    folder.mkdir(parents=True)
    values = {"DE from DE": ([0.5, 0.5], [0.5, 0.5]), "BB from DE": ([0.9, 0.1], [0.8, 0.2])}
    tracks = {
        label: [{"stage": 3, "seed": seed, "members": [0, 1], "member_acc": many} for seed, many in enumerate(both)]
        for label, both in values.items()
    }
    (folder / "members.json").write_text(json.dumps(tracks))
    lines = [{"group": "MNIST", "label": label, "repeats": [{"seed": 0}, {"seed": 1}]} for label in tracks]
    (folder / "evaluations.json").write_text(json.dumps(lines))
    within = Part("within", ("BB from DE",), ("DE from DE",), ("member_acc",), tolerance=0.01)
    found = judge(Claim("x", "5.1", "q", "all", "bb-vs-de", ("mnist",), (within,)), RunEvidence(tmp_path, "cpu"))
    assert (found.verdict, found.deciding.mean) == (FAILS, pytest.approx(0.35))  # their means are the same


class Given:
    """Evidence of one run of each line, by its sign."""

    by_sign = True

    def __init__(self, outside: tuple[str, ...] = (), **values: float) -> None:
        self.values, self.outside = values, outside

    def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
        known = line in self.values
        return Sample(self.values[line], None, 1, comparable=line not in self.outside) if known else None

    def expects(self, experiment: str, dataset: str, line: str) -> bool:
        return True

    def longer(self, dataset: str) -> str | None:
        return None


def test_the_best_of_some_lines_is_compared_with_the_best_of_others():
    best = claim(Part("best", ("a{a}",), ("b", "c"), ("ece",), alphas=("1", "2")))
    found = judge(best, Given(a1=0.5, a2=0.1, b=0.2, c=0.3))  # a lower ECE is better
    assert (found.verdict, found.cases, found.deciding.what) == (HOLDS, 1, "ece of a2 against b")
    assert judge(best, Given(a1=0.5, a2=0.1, b=0.05, c=0.3)).verdict == FAILS
    # A line that does not interpolate, or was not run, could be the best one.
    outside = judge(best, Given(outside=("a2",), a1=0.5, a2=0.1, b=0.2, c=0.3))
    assert (outside.verdict, outside.left_out) == (OPEN, 1)
    missing = judge(best, Given(a1=0.1, a2=0.2, b=0.3))
    assert (missing.verdict, missing.not_run) == (OPEN, 1)
    assert judge(best, Given(outside=("a1", "a2"), a1=0.1, a2=0.1, b=0.2, c=0.3)).verdict == NOT_COMPARABLE
    assert judge(best, Given(a1=0.1)).verdict == NOT_RUN


def test_values_beyond_the_papers_tables_count_only_where_the_experiment_has_them(tmp_path: Path):
    """The ablation's r = .4 is ours: a grid without it lacks nothing, one with it does until it is run."""
    folder = tmp_path / "ablation" / "cpu" / "cifar10"
    folder.mkdir(parents=True)
    ours, theirs = [f"MixupMP r={r} alpha=2" for r in ("0.4", "0.1")]
    repeats = {"DE": (0.50, 0.51, 0.52), "Mixup Ensemble alpha=2": (0.40, 0.42, 0.41), theirs: (0.60, 0.62, 0.61)}
    listed = [
        {"group": "alpha=2", "label": label, "repeats": [{"seed": n, "acc": one} for n, one in enumerate(values)]}
        for label, values in repeats.items()
    ]

    def judged(lines: list[str], test: str, *names: str) -> Verdict:
        (folder / "evaluations.json").write_text(json.dumps(listed))
        (folder / "run.json").write_text(json.dumps({"lines": lines}))
        part = Part(test, names, ("DE",), ("acc",))
        return judge(Claim("x", "5.2", "q", "all", "ablation", ("cifar10",), (part,)), RunEvidence(tmp_path, "cpu"))

    for test in ("better", "best"):
        without = judged(list(repeats), test, theirs, ours)
        assert (without.verdict, without.cases, without.absent, without.not_run) == (HOLDS, 1, 1, 0)
    planned = judged([*repeats, ours], "better", theirs, ours)
    assert (planned.verdict, planned.absent, planned.not_run) == (OPEN, 0, 1)
    # What the paper's tables have, of any dataset, counts whatever the experiment has.
    for other in ("MixupMP r=1 alpha=2", "Mixup alpha=0.1", "MC Dropout"):
        reduced = judged(list(repeats), "better", theirs, other)
        assert (reduced.verdict, reduced.absent, reduced.not_run) == (OPEN, 0, 1)


def test_the_best_may_be_worse_by_the_margin_and_is_not_refuted_within_it():
    """What is comparable to the best cannot be shown to be no such thing, too: the margin is on the same side."""
    best = claim(Part("best", ("a",), ("b",), ("acc",), margin=0.02))
    assert judge(best, Given(a=0.90, b=0.90)).verdict == HOLDS
    assert judge(best, Given(a=0.90, b=0.91)).verdict == HOLDS
    assert judge(best, Given(a=0.90, b=0.93)).verdict == FAILS
    alike = Sample.of({0: 0.901, 1: 0.900, 2: 0.899})

    class Alike(Given):
        by_sign = False

        def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
            return alike if line == "a" else replace(alike, values={n: v + 1e-4 * n for n, v in alike.values.items()})

    found = judge(best, Alike(a=0.9, b=0.9))
    assert found.verdict == HOLDS
    assert found.deciding.p[1] > 0.9  # it was as small as the other one


def test_a_side_that_is_not_in_the_tables_does_not_count():
    class Printed(Given):
        def expects(self, experiment: str, dataset: str, line: str) -> bool:
            return False

    for test in ("better", "best"):
        parts = (Part(test, ("a",), ("b",), ("acc",)), Part(test, ("a",), ("c",), ("acc",)))
        found = judge(Claim("x", "5.2", "q", "all", "ablation", ("fmnist",), parts), Printed(a=0.9, b=0.8))
        assert (found.verdict, found.cases, found.absent) == (HOLDS, 1, 1), test


def test_the_highest_is_by_value_whatever_is_good():
    highest = claim(Part("highest", ("a",), ("b", "c"), ("ece",)), "can")
    assert judge(highest, Given(a=0.3, b=0.2, c=0.1)).verdict == HOLDS
    assert judge(highest, Given(a=0.15, b=0.2, c=0.1)).verdict == FAILS


def test_a_part_can_be_about_some_datasets():
    parts = (Part("better", ("a",), ("b",), ("acc",)), Part("better", ("b",), ("a",), ("acc",), datasets=("mnist",)))
    both = Claim("x", "5.2", "q", "all", "ablation", ("fmnist", "mnist"), parts)
    found = judge(both, Given(a=0.9, b=0.8))
    assert (found.verdict, found.datasets["fmnist"].cases, found.datasets["mnist"].cases) == (FAILS, 1, 2)
    assert judge(both, Given(a=0.9, b=0.8), ["fmnist"]).verdict == HOLDS


def test_the_best_of_several_is_tested_without_choosing_it_by_its_own_results():
    """One line against four rivals, all alike: the best of four by chance must not make the sentence fail."""
    best = claim(Part("best", ("a",), ("b", "c", "d", "e"), ("acc",)))
    draws = torch.randn(200, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    class Drawn(Given):
        by_sign = False

        def __init__(self, values: torch.Tensor) -> None:
            self.samples = {
                name: Sample.of(dict(enumerate(one.tolist()))) for name, one in zip("abcde", values, strict=True)
            }

        def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
            return self.samples[line]

    assert sum(judge(best, Drawn(one)).verdict == FAILS for one in draws) / len(draws) < 0.08  # it was 12%


def test_repeats_that_agree_by_chance_are_no_proof():
    """At 3 repeats with some variance over test rows, the error of a test is at most its level, also far below 5%."""
    draws = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = 0.05  # variance over test rows, beside one of 1/3 over repeats
    shared = rows**0.5 * torch.randn(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wrong = {0.05: 0, 0.002: 0}
    for one, moved in zip(draws, shared.tolist(), strict=True):
        spread = float(one.var()) / 3
        effect = Effect(float(one.mean()) + moved, (spread + rows) ** 0.5, 2, test_rows=rows)
        p = p_values(Case("", ()), effect)[0]
        wrong = {level: count + (p < level) for level, count in wrong.items()}
    assert wrong[0.05] / 4000 < 0.06
    assert wrong[0.002] / 4000 < 0.005  # by Satterthwaite's degrees of freedom it was over .008


def test_the_tail_is_where_the_interval_ends():
    for effect in (Effect(0, 1.0, 4), Effect(0, 1.0, 2, test_rows=0.3)):
        assert effect.tail(effect.reach) == pytest.approx(0.05, rel=1e-6)
        assert effect.tail(0.7) + effect.tail(-0.7) == pytest.approx(1)


def test_one_run_shows_that_it_can_be_done_and_none_that_it_cannot(results: Path):
    verdicts = {}
    for threshold in (0.49, 0.99):
        part = Part("can reach", ("DE",), measures=("acc",), threshold=threshold)
        found = judge(claim(part), RunEvidence(results, "cpu"))
        verdicts[threshold] = found.verdict
        assert found.deciding.what == "acc of DE, highest of 3 runs"
    assert verdicts == {0.49: HOLDS, 0.99: OPEN}


def test_a_tendency_is_that_of_all_pairs_not_only_of_the_first_and_the_last():
    part = Part("rising overall", ("a", "b", "c", "d"), measures=("ue",))
    assert len(list(cases_of(part))) == 6
    tends = claim(part, "tends")
    assert judge(tends, Given(a=0.0, b=1.0, c=2.0, d=3.0)).verdict == HOLDS
    humped = Given(a=0.0, b=9.0, c=-9.0, d=1.0)  # d above a alone would be "rising"
    assert judge(tends, humped).verdict == FAILS
    for rising in (1, -1):  # the third could turn it
        assert judge(tends, Given(a=0.0, b=1.0 * rising, d=3.0 * rising)).verdict == OPEN


def test_what_is_said_again_and_what_has_one_draw_of_rows_have_lists_of_their_own(results: Path):
    ledger = make_ledger(RunEvidence(results, "cpu"))
    lists = [{one.claim.name for one in many} for many in (ledger.sentences, ledger.plane, ledger.restated)]
    assert set.union(*lists) == {one.name for one in all_claims()}
    assert sum(map(len, lists)) == len(all_claims())
    assert lists[2] == {"bb-is-de-extended", "bb-near-de-extended"}
    assert {"margins-meet", "landscape-r"} <= lists[1]
    assert all(one.claim.restates in lists[0] for one in ledger.restated)


def test_growth_is_compared_with_the_growth_of_others():
    part = Part("grows more", ("low", "high {a}"), ("other low", "other high {a}"), ("ece",), alphas=("1", "2"))
    grown = {"low": 3.0, "high 1": 5.0, "high 2": 7.0, "other low": 1.0, "other high 1": 4.0, "other high 2": 3.0}
    first, second = judge(claim(part, "can"), Given(**grown)), judge(claim(part), Given(**grown))
    assert (first.verdict, first.holding, first.failing) == (HOLDS, 1, 1)  # 2 against 3, and 4 against 2
    assert second.verdict == FAILS
    assert first.deciding.mean == 2.0


def test_what_can_hurt_two_measures_must_be_seen_in_both():
    parts = tuple(Part("larger", ("a",), ("b",), (measure,)) for measure in ("nll", "ece"))
    both = Claim("x", "5.2", "q", "can", "ablation", ("fmnist",), parts)

    class OnlyNll(Given):
        def sample(self, experiment: str, dataset: str, line: str, measure: str, level: int | None) -> Sample | None:
            found = super().sample(experiment, dataset, line, measure, level)
            return found if measure == "nll" or found is None else Sample(-found.mean, None, 1)

    assert judge(both, Given(a=1.0, b=0.0)).verdict == HOLDS
    assert judge(both, OnlyNll(a=1.0, b=0.0)).verdict == FAILS


def test_cases_without_runs_are_counted_and_unknown_tests_refused(results: Path):
    found = judge(claim(Part("better", ("DE", "Laplace"), ("NN",), ("nll",))), RunEvidence(results, "cpu"))
    assert (found.verdict, found.cases, found.datasets["fmnist"].not_run) == (OPEN, 1, 1)
    assert judge(claim(Part("better", ("DE",), ("NN",), ("nll",))), RunEvidence(results, "cpu")).verdict == HOLDS
    with pytest.raises(UnknownName, match="test"):
        Part("nicer", ("DE",))


def test_the_papers_single_runs_decide_nothing_but_their_signs_are_printed():
    shifted = Claim("x", "E.4", "q", "all", "shift", ("cifar10",), (Part("better", ("DE",), ("NN",), ("acc",)),))
    found = judge(shifted, PaperEvidence(by_sign=True))
    assert (found.verdict, found.single_runs) == (HOLDS, True)
    assert judge(shifted, PaperEvidence()).verdict == OPEN  # as ours would be
    text = _on_paper(Judged(shifted, found, judge(shifted, PaperEvidence()), found))
    assert text == "not decided, 0/1 (single runs; by sign holds, 1/1)"


def test_some_sentences_fail_in_the_papers_own_tables():
    verdicts = {one.name: judge(one, PaperEvidence()).verdict for one in all_claims()}
    # On CIFAR100: 3.39 (.10) of MixupMP-MC with r = .1, 2.14 (.04) of CAMixup-MC.
    assert verdicts["variants-ece"] == FAILS
    assert verdicts["mixup-ece"] == HOLDS  # 9.71 on CIFAR10
    # FMNIST: MixupMP r = 1 has ACC 94.70 (.07) and the Mixup ensemble 94.74 (.10).
    assert verdicts["r1-acc-nll"] != HOLDS
    assert verdicts["camixup-acc-nll"] == HOLDS
    # Under shift Mixup is the best of its group with some alpha, though not with alpha = 2.
    by_sign = {one.name: judge(one, PaperEvidence(by_sign=True)).verdict for one in all_claims()}
    assert (verdicts["ood-mixup-ece"], by_sign["ood-mixup-ece"]) == (OPEN, HOLDS)


def test_the_ledger_has_lists_and_counts_of_their_own(results: Path):
    text = render(make_ledger(RunEvidence(results, "cpu")), "cpu")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        f"## {name}"
        for name in ("Concordance with the paper's tables", "Runs", "Sentences", "Extensions", "Identities", "Costs")
    ]
    assert "7 holds, 0 fails, 0 not decided, 0 not run, of 7." in text
    assert "0 holds, 0 fails, 0 not decided, 4 not run, of 4." in text
    assert "[fmnist](comparison/cpu/fmnist/run.json)" in text
    cells = [cell.strip() for line in text.splitlines() if "FMNIST: 3 rows" in line for cell in line.split("|")]
    assert cells[2:7] == ["FMNIST: 3 rows", "-", "0.1.0", "2026-11-15", "-"]  # it does not say which protocol
    assert "margin -0.01 (ece)" in text
    assert "tolerance 0.005 (acc, ece)" in text
    assert "threshold 0.99 (margin share)" in text
    assert "same sign, comparable lines" in text


def test_claims_are_one_for_each_sentence_and_name_what_exists():
    claims = all_claims()
    assert len({one.name for one in claims}) == len({one.quote for one in claims}) == len(claims) > 50
    labels = set(paper_figures()["in_distribution"]["CIFAR10"])
    for one in claims:
        assert one.quantifier in QUANTIFIERS
        if one.experiment in ("comparison", "shift"):
            for part in one.parts:
                named = {name.replace("{a}", a) for name in (*part.lines, *part.than) for a in part.alphas}
                assert named <= labels, one.name
                assert set(part.measures) <= set(METRICS), one.name
        assert all(list(cases_of(part)) for part in one.parts)
    assert all(one.why for one in untested())


def test_the_identities_hold():
    assert [one.verdict for one in identities()] == [HOLDS] * 7


def test_pairs_within_chance_here_are_told_from_those_beyond(results: Path):
    """In the paper DE has the lower NLL and the higher accuracy, and MC Dropout lies between the two."""
    file = results / "comparison" / "cpu" / "fmnist" / "evaluations.json"
    lines = json.loads(file.read_text())
    noisy = [{"nll": v, "acc": 1 - v, "seed": n} for n, v in enumerate((0.1, 0.9, 0.55))]
    file.write_text(json.dumps([*lines, {"group": "g", "label": "MC Dropout", "repeats": noisy}]))
    found = make_ledger(RunEvidence(results, "cpu")).concordances["comparison/fmnist"]
    assert ("NN", "DE") in found.all_lines.pairs["nll"]
    assert found.all_lines.total > 2
    assert found.decided == (2, 2)  # DE against NN, by NLL and by accuracy


def test_undecided_sentences_with_missing_cases_are_told_from_the_others(results: Path):
    text = render(make_ledger(RunEvidence(results, "cpu")), "cpu")
    open_ = int(re.search(r"(\d+) not decided, (\d+ not comparable, )?\d+ not run, of \d\d", text)[1])  # type: ignore[index]
    whole = int(re.search(r"Of those not decided (\d+) have all their cases", text)[1])  # type: ignore[index]
    assert 0 <= whole < open_  # two lines are no whole case of most sentences


def test_reversals_are_counted_by_which_of_the_two_has_more_blends():
    every = comparison_lines(setting_named("fmnist", "smoke"), ALPHAS)
    labels = {"DE": 0, "MixupMP r=0.1 alpha=2": 0.1, "Mixup-MC alpha=2": inf, "CAMixup-MC alpha=2": None}
    assert {label: ratio_of(label) for label in labels} == labels
    assert {line.label: group_of(line.label) for line in every} == {line.label: line.group for line in every}
    # In the paper on CIFAR10, ECE: .46 of r = .1, .78 of DE, 9.71 of the Mixup ensemble; ACC: 97.13, 96.83, 97.55.
    ours = {
        "DE": {"ece": 0.3, "acc": 0.9},
        "MixupMP r=0.1 alpha=2": {"ece": 0.2, "acc": 0.8},
        "Mixup Ensemble alpha=2": {"ece": 0.1, "acc": 0.95},
    }
    found = concordance(ours, "in_distribution", "CIFAR10")
    # The paper has the Mixup ensemble above both, here it is below; r = .1 is below DE in both.
    assert found.reversed_by_blends("ece") == ((2, 2), (0, 1))
    # More blends are always better in the paper; here r = .1 is below DE.
    assert found.reversed_by_blends("acc") == ((0, 0), (1, 3))
    # A single network has fewer blends than these, but is not of their group.
    more = concordance({**ours, "NN": {"ece": 0.0, "acc": 0.0}}, "in_distribution", "CIFAR10")
    assert more.reversed_by_blends("ece") == found.reversed_by_blends("ece")
    assert more.total > found.total
