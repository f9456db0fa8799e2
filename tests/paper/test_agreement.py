"""The error of a concordance: what other repeats and other test rows would have changed."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path

import pytest

from mixupmp.paper.agreement import SHARE, agreements
from mixupmp.paper.evidence import RunEvidence
from mixupmp.paper.ledger import make_ledger
from mixupmp.paper.ledger_page import render
from mixupmp.paper.resampling import RESAMPLES, UNIT

# In the paper DE has a lower NLL than NN. Here it has, too, but not without the first or the second repeat.
NLL = {"DE": (0.0, 0.0, 2.0), "NN": (1.0, 1.0, 1.0)}


def write(folder: Path, moved: dict[str, list[int]], seeds: tuple[int, ...] = (0, 1, 2)) -> RunEvidence:
    lines = [
        {
            "group": "g",
            "label": label,
            "repeats": [{"nll": values[n], "seed": n, "resampled": {"nll": moved.get(label)}} for n in seeds],
        }
        for label, values in NLL.items()
    ]
    place = folder / "comparison" / "cpu" / "fmnist"
    place.mkdir(parents=True, exist_ok=True)
    (place / "evaluations.json").write_text(json.dumps(lines))
    record = {"setting": "FMNIST: 3 rows", "versions": {"mixupmp": "0.2.0"}, "date": "2026-11-18T23:53:19+00:00"}
    (place / "run.json").write_text(json.dumps(record))
    return RunEvidence(folder, "cpu")


def test_the_jackknife_over_repeats(tmp_path: Path):
    found = agreements(write(tmp_path, {}))["comparison/fmnist"]
    assert (found.all_lines.same, found.all_lines.total) == (1, 1)
    # Shares of 0, 0 and 1 with one of the three left out: sqrt(2 / 3 * 2 / 3).
    assert found.errors == {SHARE: pytest.approx(2 / 3)}


def test_test_rows_add_their_variance(tmp_path: Path):
    half = [round(1 / UNIT) * (k % 2) for k in range(RESAMPLES)]  # on every other resample DE is the worse one
    found = agreements(write(tmp_path, {"DE": half, "NN": [0] * RESAMPLES}))["comparison/fmnist"]
    assert found.errors == {SHARE: pytest.approx(sqrt(4 / 9 + 0.25 * RESAMPLES / (RESAMPLES - 1)))}
    both = agreements(write(tmp_path, {"DE": half, "NN": half}))["comparison/fmnist"]  # which is no difference
    assert both.errors == {SHARE: pytest.approx(2 / 3)}


def test_a_single_repeat_has_no_error(tmp_path: Path):
    runs = write(tmp_path, {}, seeds=(0,))
    assert agreements(runs)["comparison/fmnist"].errors == {}
    assert "**100%**, 1 of 1" in render(make_ledger(runs), "cpu")


def test_the_page_and_the_json_have_it(tmp_path: Path):
    ledger = make_ledger(write(tmp_path, {}))
    assert "**100%** (66.7), 1 of 1" in render(ledger, "cpu")
    kept = ledger.to_dict()["concordance"]["comparison/fmnist"]["all lines"]  # type: ignore[index]
    assert kept["standard errors"] == {SHARE: pytest.approx(2 / 3)}
