"""The cache: which networks are the same, and what an interrupted plan does when it is run again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch

from mixupmp import (
    bayesian_bootstrap,
    ca_mixup_mc,
    deep_ensemble,
    laplace,
    mc_dropout,
    mixup,
    mixup_ensemble,
    mixup_mp,
    single_network,
)
from mixupmp.metrics import evaluate
from mixupmp.paper import Wanted
from mixupmp.paper.lines import Line
from mixupmp.paper.members import pieces_of
from mixupmp.paper.reference import EXPLICIT, SINGLE
from mixupmp.paper.report import OnRows, on_test_rows, report_lines, run_lines
from mixupmp.paper.resampling import RESAMPLES, UNIT, _counts, deviations
from mixupmp.paper.settings import setting_named
from mixupmp.paper.study import Study
from mixupmp.train.run import fit

SETTING = setting_named("fmnist", "smoke")
SETTING = replace(SETTING, recipe=replace(SETTING.recipe, epochs=1))


def keys(method, seed: int = 0) -> list[str]:
    return [piece.key for piece in Wanted(SETTING.plan(method, seed)).pieces]


def test_methods_that_need_the_same_network_share_it():
    ensemble = keys(deep_ensemble(3))
    assert len(set(ensemble)) == 3
    assert keys(mixup_mp(0, 0.4, 3)) == keys(mixup_mp(0, 2.0, 3)) == ensemble
    assert keys(single_network()) == keys(laplace(5)) == ensemble[:1]
    assert keys(deep_ensemble(2)) == ensemble[:2]
    assert keys(mixup_mp(inf, 2.0, 2)) == keys(mixup_ensemble(2.0, 2))
    assert keys(mixup(2.0)) == keys(mixup_ensemble(2.0, 2))[:1]


@pytest.mark.parametrize(
    "other",
    [mixup_mp(0.1, 2.0, 1), mixup_mp(0.1, 1.0, 1), mc_dropout(5), bayesian_bootstrap(1), mixup(2.0), ca_mixup_mc(2.0)],
    ids=lambda method: method.name,
)
def test_other_networks_are_not_shared(other):
    assert keys(other) != keys(single_network())


def test_seed_recipe_and_start_are_part_of_the_key():
    plan = SETTING.plan(single_network(), 0)
    longer = replace(plan, recipe=replace(plan.recipe, epochs=2))
    posterior = fit(plan, engine="inline")
    start = [{name: value.clone() for name, value in posterior.networks[0].state_dict().items()}]
    started = replace(plan, initial=start)
    assert len({Wanted(one).pieces[0].key for one in (plan, longer, started, replace(plan, seed=1))}) == 4


def test_masks_of_one_network_are_one_fit_but_two_posteriors():
    few, many = Wanted(SETTING.plan(mc_dropout(5), 0)), Wanted(SETTING.plan(mc_dropout(20), 0))
    assert len(pieces_of([few, many])) == 1
    assert few.key != many.key


def test_what_comes_from_the_cache_is_what_fit_gives(study):
    wanted = Wanted(SETTING.plan(mixup_mp(1.0, 2.0, 2), 3))
    one = study()
    one.train([wanted])
    rows = SETTING.test.inputs[:50]
    ours = one.cache.posterior(wanted).member_probabilities(rows)
    theirs = fit(wanted.plan, engine="inline").member_probabilities(rows)
    assert torch.equal(ours, theirs)


def test_the_second_run_trains_nothing_and_says_so(study):
    wanted = [Wanted(SETTING.plan(deep_ensemble(2), 0)), Wanted(SETTING.plan(laplace(5), 0))]
    one = study()
    one.train(wanted)
    assert "2 member-fits, 0 cached, 2 to train" in one.said[0]
    before = {path: path.stat().st_mtime_ns for path in one.cache.path.rglob("*.safetensors")}
    one.said.clear()
    one.train(wanted)
    assert one.said == ["test (smoke): 2 member-fits, 2 cached, 0 to train."]
    assert before == {path: path.stat().st_mtime_ns for path in one.cache.path.rglob("*.safetensors")}


def test_two_workers_give_the_same_members(study):
    wanted = [Wanted(SETTING.plan(deep_ensemble(2), 5))]
    one = study(workers=2)
    one.train(wanted)
    rows = SETTING.test.inputs[:20]
    theirs = fit(wanted[0].plan, engine="inline").member_probabilities(rows)
    assert torch.equal(one.cache.posterior(wanted[0]).member_probabilities(rows), theirs)


def test_evaluations_are_kept(study):
    one = study()
    wanted = Wanted(SETTING.plan(single_network(), 0))
    one.train([wanted])
    pair = (wanted, OnRows(SETTING.test, SETTING.calibration(0)))
    (first,) = one.evaluate([pair])
    assert 0 <= first["acc"] <= 1
    assert first["diverged"] == 0
    assert first["seed"] == 0
    assert {"nll_calibrated", "ece_calibrated", "temperature"} <= set(first)
    for path in one.cache.path.rglob("*.safetensors"):
        path.unlink()
    assert one.evaluate([pair]) == [first]


def test_a_machine_without_the_weights_goes_on_from_the_results(study, tmp_path: Path):
    one = study()
    lines = [Line(EXPLICIT, "DE", deep_ensemble(2)), Line(SINGLE, "NN", deep_ensemble(2), (0, 1))]
    setting = replace(SETTING, repeats=1)
    first = report_lines(one, setting, lines, "A table", ("acc", "nll"))
    shutil.rmtree(one.cache.path)
    other = study()
    assert (
        report_lines(other, SETTING, lines[1:], "Other lines, and another repeat", ("acc",))[0][1][:1]
        == first[1][1][:1]
    )
    assert "2 member-fits, 0 cached, 2 to train" in other.said[0]  # of the second repeat alone
    shutil.rmtree(one.cache.path)
    partial = replace(study(), partial=True)
    assert [len(found) for _, found in report_lines(partial, SETTING, lines, "What there is", ("acc",))] == [4]


def test_what_is_finished_is_written_while_the_rest_is_trained(study, monkeypatch):
    one = study()
    lines = [Line(EXPLICIT, f"DE {count}", deep_ensemble(count)) for count in (4, 5)]
    written = []
    run_lines(
        one, replace(SETTING, repeats=1), lines, on_test_rows(SETTING), lambda done, missing: written.append(missing)
    )
    assert written == [["DE 5 (0 of 1 runs)"], []]


def test_resampled_test_rows_are_the_bootstrap(study):
    torch.manual_seed(0)
    labels = torch.randint(10, (500,))
    pooled = torch.randn(500, 10).mul(2).softmax(1)
    found = deviations(pooled, labels)
    everything = evaluate(pooled, labels)
    counts = _counts(500)[1] * 500
    rows = torch.arange(500).repeat_interleave(counts.round().long())
    resample = evaluate(pooled[rows], labels[rows])
    for name, values in found.items():
        assert len(values) == RESAMPLES
        assert abs(values[0] * UNIT - (resample[name] - everything[name])) < 2 * UNIT
    error = everything["acc"] * (1 - everything["acc"]) / 500
    assert 0.5 * error < float(torch.tensor(found["acc"]).double().mul(UNIT).var()) < 2 * error


def test_evaluations_side_by_side_are_those_of_one_process(study):
    wanted = [Wanted(SETTING.plan(single_network(), seed)) for seed in (0, 1)]
    one, two = study(), study(workers=2)
    one.train(wanted)
    pairs = [(each, OnRows(SETTING.test)) for each in wanted]
    found = two.evaluate(pairs)
    for path in one.cache.path.rglob("evaluations/*/*.json"):
        path.unlink()
    again = one.evaluate(pairs)
    for made in (*found, *again):
        assert made.pop("made")["date"]  # which may differ
    assert found == again


def test_each_repeat_draws_its_own_training_rows_and_calibrates_on_others():
    first, second = SETTING.dataset(0).train, SETTING.dataset(1).train
    assert len(first) == len(second) == 300
    assert first.fingerprint() != second.fingerprint()
    held_out = SETTING.calibration(0)
    trained = {row.numpy().tobytes() for row in first.inputs}
    assert len(held_out) == 100
    assert not any(row.numpy().tobytes() in trained for row in held_out.inputs)


def test_a_diverged_member_is_counted_and_left_out(study):
    one = study()
    plan = SETTING.plan(single_network(), 0)
    wanted = Wanted(replace(plan, recipe=replace(plan.recipe, learning_rate=1e9)))
    one.train([wanted])
    (found,) = one.evaluate([(wanted, OnRows(SETTING.test))])
    assert found["diverged"] == 1
    assert "acc" not in found
    one.said.clear()
    one.train([wanted])
    assert "0 to train" in one.said[0]


INTERRUPTED = """
import sys
from dataclasses import replace
from pathlib import Path
from mixupmp import deep_ensemble
from mixupmp.paper import Study, Wanted
from mixupmp.paper.members import Cache
from mixupmp.paper.settings import setting_named
if __name__ == "__main__":
    setting = setting_named("fmnist", "smoke")
    plan = setting.plan(deep_ensemble(4), 0)
    plan = replace(plan, recipe=replace(plan.recipe, epochs=int(sys.argv[2])))
    Study("interrupted", "smoke", Cache(Path(sys.argv[1])), Path(sys.argv[1]), 1, say=print).train([Wanted(plan)])
"""


def test_an_interrupted_plan_goes_on_without_redoing_a_finished_member(tmp_path: Path, study):
    script = tmp_path / "plan.py"
    script.write_text(INTERRUPTED)
    cache = tmp_path / "cache"
    command = [sys.executable, str(script), str(cache), "12"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 120
        while not list(cache.rglob("members/*.safetensors")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finished = {path: path.stat().st_mtime_ns for path in cache.rglob("members/*.safetensors")}
    assert 1 <= len(finished) < 4
    plan = setting_named("fmnist", "smoke").plan(deep_ensemble(4), 0)
    wanted = Wanted(replace(plan, recipe=replace(plan.recipe, epochs=12)))
    one: Study = study()
    one.train([wanted])
    assert f"{len(finished)} cached" in one.said[0]  # type: ignore[attr-defined]
    assert finished.items() <= {p: p.stat().st_mtime_ns for p in cache.rglob("members/*.safetensors")}.items()
    rows = setting_named("fmnist", "smoke").test.inputs[:20]
    theirs = fit(wanted.plan, engine="inline").member_probabilities(rows)
    assert torch.equal(one.cache.posterior(wanted).member_probabilities(rows), theirs)
