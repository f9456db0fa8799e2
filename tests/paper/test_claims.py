"""Verdicts follow from effects, their t intervals and the quantifier alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy.stats import t as student

from mixupmp.metrics.catalog import METRICS
from mixupmp.paper.claims import (
    FAILS,
    HOLDS,
    NOT_RUN,
    OPEN,
    QUANTIFIERS,
    Case,
    Claim,
    Part,
    all_claims,
    case_verdict,
    cases_of,
    decide,
    judge,
)
from mixupmp.paper.evidence import Effect, PaperEvidence, RunEvidence, Sample, combine
from mixupmp.paper.ledger import identities, make_ledger, render
from mixupmp.paper.reference import paper_figures
from mixupmp.paper.resampling import RESAMPLES


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
        (-0.8, 0.1, 0.5, FAILS),
        (0.0, 0.0, 0.0, HOLDS),
    ],
)
def test_a_case(mean, error, tolerance, expected):
    assert case_verdict(Case("", (), tolerance=tolerance), Effect(mean, error, 2)) == expected


def test_the_quantile_is_that_of_the_number_of_repeats():
    assert Effect(0, 1.0, 1).reach == pytest.approx(6.314, abs=1e-3)
    assert Effect(0, 1.0, 4).reach == pytest.approx(2.132, abs=1e-3)
    # Two standard errors of two repeats are no test: one in three such differences of nothing is outside.
    assert 2 * student.sf(2, 1) == pytest.approx(0.295, abs=1e-3)
    two = combine([(1, Sample.of({0: 1.0, 1: 1.6})), (-1, Sample.of({0: 0.5, 1: 0.6}))])
    assert two.mean > 2 * two.error
    assert case_verdict(Case("", ()), two) == OPEN


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
    assert 1 < alone.freedom < RESAMPLES
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
        ("most", 2, 2, 0, HOLDS),
        ("most", 1, 2, 1, OPEN),
        ("most", 1, 3, 0, FAILS),
        ("can", 1, 3, 0, HOLDS),
        ("can", 0, 3, 1, OPEN),
        ("can", 0, 4, 0, FAILS),
    ],
)
def test_quantifiers(quantifier, holding, failing, open_, expected):
    effects = [Effect(1, 0.1, 4)] * holding + [Effect(-1, 0.1, 4)] * failing + [Effect(0.1, 1, 4)] * open_
    found = decide([(Case("", ()), effect) for effect in effects], quantifier)
    assert (found.verdict, found.holding, found.failing) == (expected, holding, failing)


def test_the_worst_case_decides_and_of_a_claim_that_one_suffices_for_the_best():
    holds, wide, fails = Effect(1, 0.1, 3, "a"), Effect(0.5, 5, 3, "b"), Effect(-1, 0.1, 3, "c")
    cases = [(Case(effect.what, ()), effect) for effect in (holds, wide, fails)]
    assert decide(cases[:2], "all").deciding.what == "b"
    assert decide(cases, "all").deciding.what == "c"
    assert decide(cases, "can").deciding.what == "a"
    assert decide([], "all").verdict == NOT_RUN


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


def test_the_papers_single_runs_are_judged_by_their_sign():
    shifted = Claim("x", "E.4", "q", "all", "shift", ("cifar10",), (Part("better", ("DE",), ("NN",), ("acc",)),))
    found = judge(shifted, PaperEvidence())
    assert (found.verdict, found.by_sign) == (HOLDS, True)


def test_some_sentences_fail_in_the_papers_own_tables():
    verdicts = {one.name: judge(one, PaperEvidence()).verdict for one in all_claims()}
    # FMNIST: MixupMP r = 1 has ACC 94.70 (.07) and the Mixup ensemble 94.74 (.10); CIFAR100: r = .1 has the worse ECE.
    assert verdicts["r01-ece"] == FAILS
    assert verdicts["r1-acc-nll"] != HOLDS
    assert verdicts["camixup-acc-nll"] == HOLDS


def test_the_ledger_has_lists_and_counts_of_their_own(results: Path):
    text = render(make_ledger(RunEvidence(results, "cpu")), "cpu")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        f"## {name}"
        for name in ("Concordance with the paper's tables", "Runs", "Sentences", "Extensions", "Identities", "Costs")
    ]
    assert "5 holds, 0 fails, 0 not decided, 0 not run, of 5." in text
    assert "0 holds, 0 fails, 0 not decided, 3 not run, of 3." in text
    assert "[fmnist](comparison/cpu/fmnist/run.json)" in text
    cells = [cell.strip() for line in text.splitlines() if "FMNIST: 3 rows" in line for cell in line.split("|")]
    assert cells[2:7] == ["FMNIST: 3 rows", "text", "0.1.0", "2026-11-15", "-"]


def test_claims_are_one_for_each_sentence_and_name_what_exists():
    claims = all_claims()
    assert len({one.name for one in claims}) == len({one.quote for one in claims}) == len(claims) > 40
    labels = set(paper_figures()["in_distribution"]["CIFAR10"])
    for one in claims:
        assert one.quantifier in QUANTIFIERS
        if one.experiment in ("comparison", "shift"):
            for part in one.parts:
                assert {*part.lines, *part.than} <= labels, one.name
                assert set(part.measures) <= set(METRICS), one.name
        assert all(list(cases_of(part)) for part in one.parts)


def test_the_identities_hold():
    assert [one.verdict for one in identities()] == [HOLDS] * 5
