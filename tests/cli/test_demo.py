"""The demonstration: its parts are what it says they are. (`mixupmp demo` itself takes the better part of a minute.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mixupmp import MixupMPClassifier
from mixupmp import data as datasets
from mixupmp.cli.demo_results import document, figure, reading, table
from mixupmp.cli.demonstration import CLASSIFIERS, FAMILIES, Demo, Outcome, corrupted_sets, run_demo
from mixupmp.data.corruptions import CORRUPTIONS, corrupt
from mixupmp.metrics import evaluate, metric_named
from mixupmp.plots import write
from mixupmp.train.settings import fewer_rows

SMALL = {"epochs": 3, "members": 2, "engine": "inline"}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Two seeds of short fits: the classifiers of the demonstration, trained for three epochs."""
    small = {
        name: lambda random_state, make=make, name=name: make(
            random_state=random_state, **{**SMALL, "members": 1 if name == "NN" else 2}
        )
        for name, make in CLASSIFIERS.items()
    }
    return run_demo(Demo(rows=60, seeds=(0, 1)), classifiers=small)


def test_the_classifiers_have_their_default_settings() -> None:
    assert CLASSIFIERS["MixupMP"](random_state=0).get_params() == MixupMPClassifier(random_state=0).get_params()
    assert CLASSIFIERS["DE"]().get_params() == {**CLASSIFIERS["NN"]().get_params(), "members": None}
    assert len(Demo().seeds) >= 3


def test_all_corruptions_that_change_gray_images_are_there() -> None:
    assert sorted(name for names in FAMILIES.values() for name in names) == sorted(set(CORRUPTIONS) - {"saturate"})


@pytest.mark.parametrize("seed", [0, 1])
def test_every_number_is_that_of_the_estimator(outcome: Outcome, seed: int) -> None:
    digits = datasets.load("digits")
    train = fewer_rows(digits, 60, seed).train
    with pytest.warns(UserWarning, match="train longer"):
        plain = MixupMPClassifier(random_state=seed, **SMALL).fit(train.inputs, train.labels)
    probabilities = torch.from_numpy(plain.predict_proba(digits.test.inputs))
    found = outcome.trials[seed].calibrated["MixupMP", "clean"].result()
    assert found.nll == pytest.approx(evaluate(probabilities, digits.test.labels)["nll"], rel=1e-5)
    members = torch.from_numpy(np.asarray(plain.predict_members(digits.test.inputs)))
    raw = outcome.trials[seed].raw["MixupMP", "clean"].result()
    assert raw.ece == pytest.approx(evaluate(members, digits.test.labels)["ece"], rel=1e-5)


def test_corruptions_take_turns_within_a_family() -> None:
    test = datasets.load("digits").test
    noisy = corrupted_sets(test, 4)["noise"]
    assert torch.equal(noisy.labels, test.labels)
    assert torch.equal(noisy.inputs[1::4], corrupt(test.inputs[1::4], "shot_noise", 4))


def test_json_names_the_rows_of_every_measurement(outcome: Outcome) -> None:
    for trial in document(outcome, None, 1.0)["trials"]:
        found = {(one["method"], one["rows"], one["calibrated"]) for one in trial["metrics"]}
        assert found == {(m, r, c) for m in CLASSIFIERS for r in ("clean", *FAMILIES) for c in (False, True)}


def test_differences_are_paired_by_seed(outcome: Outcome) -> None:
    scores = [trial.calibrated for trial in outcome.trials]
    pairs = [(one["MixupMP", "noise"].result().nll, one["DE", "noise"].result().nll) for one in scores]
    gaps = torch.tensor([ours - theirs for ours, theirs in pairs], dtype=torch.float64)
    found = outcome.difference("nll_calibrated", "noise")
    assert found.mean == pytest.approx(float(gaps.mean()))
    assert found.standard_error == pytest.approx(float(gaps.std() / 2**0.5))


def test_what_is_printed_is_what_was_measured(outcome: Outcome, tmp_path: Path) -> None:
    printed = table(outcome).markdown()
    for name in CLASSIFIERS:
        for metric in ("nll", "nll_calibrated"):
            assert f"{outcome.summaries(name, 'weather')[metric].mean:.3f} ± " in printed
    said = "\n".join(reading(outcome))
    for metric, name in (("acc", "accuracy"), ("nll_calibrated", "NLL"), ("ece_calibrated", "ECE")):
        line = next(line for line in said.splitlines() if f"against DE in {name}" in line)
        for rows in ("clean", *FAMILIES):
            gap = outcome.difference(metric, rows)
            clear = abs(gap.mean) > 2 * (gap.standard_error or 0)
            better = (gap.mean > 0) == metric_named(metric).higher_is_better
            word = "no clear difference" if not clear else "better" if better else "worse"
            part = next(part for part in line.split(";") if rows in part)
            assert word in part
    assert write(figure(outcome), tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_command_shows_that_mixup_mp_is_better(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "mixupmp", "demo", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment, check=True)
    result = json.loads(done.stdout)
    assert (tmp_path / result["picture"]).stat().st_size > 10_000
    for trial in result["trials"]:
        by = {(m["method"], m["rows"]): m["nll"] for m in trial["metrics"] if m["calibrated"]}
        assert all(by["MixupMP", rows] < min(by["DE", rows], by["NN", rows]) for rows in ("clean", *FAMILIES))
        assert by["DE", "clean"] < by["NN", "clean"]  # a calibrated network may be better under shift
