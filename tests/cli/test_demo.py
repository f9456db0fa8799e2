"""The demonstration: its parts are what it says they are. (`mixupmp demo` itself takes the better part of a minute.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch

from mixupmp import data as datasets
from mixupmp import deep_ensemble, mixup_mp, plan_for, split
from mixupmp.cli.demo import _figure, _reading, _table
from mixupmp.cli.demonstration import FAMILIES, METHODS, Demo, Outcome, _test_sets, run_demo
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.posterior import MemberSummary
from mixupmp.data.corruptions import CORRUPTIONS, corrupt
from mixupmp.metrics import evaluate
from mixupmp.plots import write
from mixupmp.train.plans import fewer_rows
from mixupmp.train.progress import Callback
from mixupmp.train.run import fit

SMALL = Demo(
    rows=60, validation_rows=40, seeds=(0, 1), ratios=(0.0, 1.0, inf), alphas=(0.5, 2.0), members=2, trial_members=1,
    recipe=replace(Demo().recipe, epochs=3),
)  # fmt: skip


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_demo(SMALL, "inline")


def test_what_is_tried() -> None:
    assert SMALL.candidates == ((0.0, 0.5), (1.0, 0.5), (1.0, 2.0), (inf, 0.5), (inf, 2.0))
    assert Demo().ratios[0] == 0
    assert Demo().ratios[-1] == inf
    assert len(Demo().seeds) >= 3
    with pytest.raises(InvalidArgument, match="trial_members"):
        replace(SMALL, trial_members=3)


def test_all_corruptions_that_change_gray_images_are_there() -> None:
    assert sorted(name for names in FAMILIES.values() for name in names) == sorted(set(CORRUPTIONS) - {"saturate"})


@pytest.mark.parametrize("seed", [0, 1])
def test_every_number_is_that_of_a_plain_fit(outcome: Outcome, seed: int) -> None:
    """Sharing members between methods, and adding some to the chosen candidate, changes nothing."""
    digits = datasets.load("digits")
    train, validation = split(fewer_rows(digits, 100, seed).train, 0.4, seed)
    assert (len(train), len(validation)) == (60, 40)
    plain = digits.with_train(train)
    ensemble = fit(plan_for(plain, deep_ensemble(2), "cnn", SMALL.recipe, seed=seed), engine="inline")
    chosen = fit(plan_for(plain, mixup_mp(*outcome.chosen, 2), "cnn", SMALL.recipe, seed=seed), engine="inline")
    trial = outcome.trials[seed]
    members = ensemble.member_probabilities(digits.test.inputs)
    expected = {"NN": members[:1], "DE": members, "MixupMP": chosen.member_probabilities(digits.test.inputs)}
    for method, probabilities in expected.items():
        found = trial.scores[method, "clean"].result()
        assert found.nll == pytest.approx(evaluate(probabilities, digits.test.labels)["nll"], rel=1e-6)
    if seed == 0:
        for candidate, posterior in (((0.0, 0.5), ensemble), (outcome.chosen, chosen)):
            first = evaluate(posterior.member_probabilities(validation.inputs)[:1], validation.labels)
            assert outcome.validation_nll[candidate] == pytest.approx(first["nll"], rel=1e-6)


def test_the_choice_is_the_best_on_validation_rows(outcome: Outcome) -> None:
    assert set(outcome.validation_nll) == set(SMALL.candidates)
    assert outcome.validation_nll[outcome.chosen] == min(outcome.validation_nll.values())


def test_as_many_networks_are_trained_as_it_says() -> None:
    class Counted(Callback):
        count = 0

        def on_member_end(self, summary: MemberSummary) -> None:
            self.count += 1

    for demo in (SMALL, replace(SMALL, seeds=(4,), members=3, trial_members=2)):
        counted = Counted()
        chosen = run_demo(demo, "inline", counted).chosen
        expected = demo.fits if chosen[0] else demo.fits - demo.members * len(demo.seeds) + demo.trial_members
        assert counted.count == expected


def test_corruptions_take_turns_within_a_family() -> None:
    test = datasets.load("digits").test
    noisy = _test_sets(test, 4)["noise"]
    assert torch.equal(noisy.labels, test.labels)
    assert torch.equal(noisy.inputs[1::4], corrupt(test.inputs[1::4], "shot_noise", 4))


def test_differences_are_paired_by_seed(outcome: Outcome) -> None:
    pairs = [(t.scores["MixupMP", "noise"].result().nll, t.scores["DE", "noise"].result().nll) for t in outcome.trials]
    gaps = torch.tensor([ours - theirs for ours, theirs in pairs], dtype=torch.float64)
    found = outcome.difference("nll", "noise")
    assert found.mean == pytest.approx(float(gaps.mean()))
    assert found.standard_error == pytest.approx(float(gaps.std() / 2**0.5))


def test_what_is_printed_is_what_was_measured(outcome: Outcome, tmp_path: Path) -> None:
    table = _table(outcome).markdown()
    for method in METHODS:
        assert f"{outcome.summaries(method, 'weather')['nll'].mean:.3f} ± " in table
    said = "\n".join(_reading(outcome))
    for metric, name in (("acc", "accuracy"), ("nll", "NLL"), ("ece", "ECE")):
        line = next(line for line in said.splitlines() if f"against DE in {name}" in line)
        for rows in ("clean", *FAMILIES):
            gap = outcome.difference(metric, rows)
            clear = abs(gap.mean) > 2 * (gap.standard_error or 0)
            better = (gap.mean > 0) == (metric == "acc")
            word = "no clear difference" if not clear else "better" if better else "worse"
            part = next(part for part in line.split(";") if rows in part)
            assert word in part
    assert write(_figure(outcome), tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_command_prints_its_table_and_writes_its_picture(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "mixupmp", "demo", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment, check=True)
    result = json.loads(done.stdout)
    assert (tmp_path / result["picture"]).stat().st_size > 10_000
    by = {(m["method"], m["rows"]): m["nll"] for m in result["trials"][0]["metrics"]}
    assert by["MixupMP", "clean"] < by["NN", "clean"]
