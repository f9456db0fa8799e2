"""Verdicts follow from the effect and its error alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mixupmp.paper.claims import (
    FAILS,
    HOLDS,
    NOT_RUN,
    OPEN,
    Claim,
    Effect,
    Results,
    judge,
    ledger,
    paired,
    verdict,
    worst,
)
from mixupmp.paper.paper_claims import all_claims


@pytest.mark.parametrize(
    ("mean", "error", "tolerance", "expected"),
    [
        (1.0, 0.4, None, HOLDS),
        (1.0, 0.6, None, OPEN),
        (-1.0, 0.6, None, OPEN),
        (-1.0, 0.4, None, FAILS),
        (1.0, None, None, OPEN),
        (0.1, 0.1, 0.5, HOLDS),
        (-0.1, 0.1, 0.5, HOLDS),
        (0.4, 0.1, 0.5, OPEN),
        (-0.8, 0.1, 0.5, FAILS),
        (0.0, 0.0, 0.0, HOLDS),
    ],
)
def test_verdict(mean, error, tolerance, expected):
    assert verdict(Effect(mean, error, 3), tolerance) == expected


def test_no_result_is_not_run():
    assert verdict(None) == NOT_RUN
    assert paired(None, [1.0]) is None
    assert worst([Effect(1, 0, 3), None]) is None


def test_differences_are_paired():
    effect = paired([1.0, 5.0, 9.0], [0.5, 4.5, 8.5])
    assert (effect.mean, effect.standard_error, effect.repeats) == (0.5, 0.0, 3)
    assert paired([1.0], [0.0]).standard_error is None


def test_a_claim_for_all_cases_is_refuted_by_one_that_fails():
    holds, wide, fails = Effect(1, 0.1, 3, "a"), Effect(0.5, 5, 3, "b"), Effect(-1, 0.1, 3, "c")
    assert worst([holds, wide]).what == "b"
    assert worst([holds, wide, fails]).what == "c"


def test_the_ledger_names_and_links_what_decided(tmp_path: Path):
    folder = tmp_path / "comparison" / "cpu" / "fmnist"
    folder.mkdir(parents=True)
    lines = [
        {"group": "g", "label": "DE", "repeats": [{"nll": 0.5}, {"nll": 0.6}]},
        {"group": "g", "label": "NN", "repeats": [{"nll": 0.9}, {"nll": 1.0}]},
    ]
    (folder / "evaluations.json").write_text(json.dumps(lines))

    def gain(results: Results) -> Effect | None:
        sides = [[one["nll"] for one in results.repeats("comparison", "fmnist", label)] for label in ("NN", "DE")]
        return paired(*sides)

    done = Claim("nn-worst", "NN is worst", "fall of NLL", "comparison/fmnist", gain)
    missing = Claim("other", "something", "else", "shift/fmnist", lambda results: None)
    text = ledger([judge(claim, Results(tmp_path, "cpu")) for claim in (done, missing)], "cpu")
    assert "1 holds, 0 fails, 0 not decided, 1 not run, of 2 claims." in text
    assert "| +0.4 | " in text
    assert "[comparison/fmnist](comparison/cpu/fmnist/run.json)" in text
    assert "| - | - | - | **not run** | shift/fmnist |" in text


def test_claims_have_distinct_names_and_are_many():
    names = [claim.name for claim in all_claims()]
    assert len(names) == len(set(names)) > 60


def test_the_exact_claims_hold():
    empty = Results(Path("/nowhere"), "cpu")
    exact = [claim for claim in all_claims() if claim.run == "claims"]
    assert [judge(claim, empty).verdict for claim in exact] == [HOLDS] * 3
