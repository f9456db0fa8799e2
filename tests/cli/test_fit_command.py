"""`mixupmp fit`: a run folder that holds everything, and that a resume needs nothing beside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from math import inf
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from commands import mixupmp, mixupmp_process, refused

from mixupmp import load
from mixupmp.cli.fit import _chosen
from mixupmp.decide.calibrators import Temperature
from mixupmp.decide.search import Candidate
from mixupmp.decide.select import Selection
from mixupmp.train.settings import Settings

SMALL = ("--network", "mlp", "--epochs", "2", "--members", "2")


def test_it_writes_a_run_that_loads_and_says_what_it_is_worth(finished_run: Path) -> None:
    kept = {path.relative_to(finished_run).as_posix() for path in finished_run.rglob("*") if path.is_file()}
    assert {"config.json", "metrics.jsonl", "evaluations.jsonl", "README.md", "manifest.json"} < kept
    assert {"members/000.safetensors", "members/001.safetensors"} < kept
    posterior = load(finished_run)
    assert posterior.members == 2
    assert "digits, test rows" in (finished_run / "README.md").read_text()


def test_json_says_what_was_written_down(tmp_path: Path) -> None:
    said = mixupmp("fit", *SMALL, "--ratio", "inf", "--rows", "60", "--json", "--out", "new")
    result = said.json
    assert result["run"] == "new"
    assert result["members"] == 2
    written = json.loads((tmp_path / "new" / "evaluations.jsonl").read_text())
    assert written["metrics"] == result["metrics"]
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["spec"]["method"]["predictive"]["ratio"] == "inf"
    assert config["fingerprints"]["rows"] == 60
    assert config["spec"]["data"]["rows"] == 60


def test_collapsed_members_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    too_fast = ("--network", "cnn", "--rows", "60", "--epochs", "12", "--learning-rate", "1", "--ratio", "0")
    said = mixupmp("fit", *too_fast, "--members", "2", "--keep-collapsed", "--json", "--out", "kept").json
    assert said["members"] == 2
    assert said["notes"] == [
        "members 0, 1 collapsed: the outputs do not depend on the inputs; kept, as keep_collapsed says"
    ]


def test_a_lone_network_that_predicts_one_class_is_named_and_kept(tmp_path: Path) -> None:
    """Classes are uneven, and the inputs say nothing."""
    lines = [
        f"{value:.3f},{'rare' if row % 12 == 0 else 'common'}" for row, value in enumerate(np.sin(np.arange(120.0)))
    ]
    (tmp_path / "uneven.csv").write_text("\n".join(["x,label", *lines]))
    said = mixupmp("fit", "--data", "uneven.csv", "--network", "mlp", "--method", "single-network", "--epochs", "60")
    note = " ".join(said.out.split("note: ")[1].split())
    assert note.startswith("member 0 predicted one class for all training rows")
    assert note.endswith("lower the learning rate or train longer.")
    assert "left out" not in note


def test_runs_are_numbered_where_no_folder_is_given(tmp_path: Path) -> None:
    for expected in ("runs/clusters-mixup-mp", "runs/clusters-mixup-mp-2"):
        assert mixupmp("fit", "--data", "clusters", *SMALL, "--json").json["run"] == expected


def test_live_curves_for_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "recipe.toml").write_text("[data]\nvalidation = 0.2\n")
    mixupmp("fit", *SMALL, "--config", "recipe.toml", "--tensorboard", "curves", "--out", "run")
    events = EventAccumulator(str(tmp_path / "curves"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"member_1/epoch_loss", "member_0/validation_ece", "posterior/disagreement_in_training"} <= tags
    assert len(events.Scalars("member_0/validation_nll")) == 2


def test_a_table_by_its_path_and_its_settings_in_a_file(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(60, 3))
    lines = ["a,b,kind,c"] + [f"{x},{y},{'high' if x > 0 else 'low'},{z}" for x, y, z in inputs]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    (tmp_path / "recipe.toml").write_text(
        'seed = 3\n[data]\nname = "table.csv"\nlabel = "kind"\n[network]\nhidden = [8]\n'
        '[method]\nname = "bayesian-bootstrap"\nmembers = 2\n[recipe]\nepochs = 5\noptimizer = "adamw"\n'
    )
    said = mixupmp("fit", "--config", "recipe.toml", "--epochs", "3", "--out", "run")
    assert said.code == 0, said.err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["spec"]["seed"] == 3
    assert config["spec"]["recipe"]["epochs"] == 3  # the flag goes over the file
    assert config["spec"]["recipe"]["optimizer"] == "adamw"
    assert config["spec"]["network"]["arguments"]["hidden"] == [8]
    assert config["spec"]["data"]["name"] == str(tmp_path / "table.csv")  # means the same from everywhere
    os.chdir("/")
    assert mixupmp("evaluate", tmp_path / "run").code == 0


def test_a_stopped_run_is_resumed_by_its_folder_alone(tmp_path: Path) -> None:
    words = ("fit", "--network", "mlp", "--epochs", "60", "--members", "2", "--engine", "inline")
    command = [sys.executable, "-m", "mixupmp", *words, "--out", "stopped"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "stopped" / "config.json").exists():
        time.sleep(0.02)
        assert process.poll() is None
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 143, said
    assert "mixupmp fit --resume stopped" in said
    refused(mixupmp("evaluate", "stopped"), "--resume stopped")
    assert mixupmp_process("fit", "--resume", tmp_path / "stopped", cwd=Path("/")).code == 0
    assert mixupmp(*words, "--out", "whole").code == 0
    for member in ("000", "001"):
        one, other = (
            safetensors.torch.load_file(tmp_path / run / "members" / f"{member}.safetensors")
            for run in ("stopped", "whole")
        )
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_resume_with_other_settings_is_refused_until_overridden(run: Path) -> None:
    refused(mixupmp("fit", "--resume", run, "--epochs", "4"), "recipe.epochs: was 3, is 4", "--override")
    assert mixupmp("fit", "--resume", run, "--epochs", "4", "--override").code == 0


def test_a_run_started_in_python_is_resumed_there(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["spec"]["data"]
    (run / "config.json").write_text(json.dumps(config))
    refused(mixupmp("fit", "--resume", run), "resume it in Python")


def test_initial_weights_come_from_another_run(finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / "start.toml").write_text(f'initial = "{finished_run}"\n')
    assert mixupmp("fit", "--config", "start.toml", *SMALL, "--out", "next").code == 0
    config = json.loads((tmp_path / "next" / "config.json").read_text())
    assert len(config["fingerprints"]["initial_sha256"]) == 2
    assert config["spec"]["initial"] == str(finished_run)


@pytest.mark.parametrize("words", [("--out", "x"), ("--config", "x.toml")])
def test_a_resume_takes_no_second_folder_or_file(run: Path, words: tuple[str, str]) -> None:
    refused(mixupmp("fit", "--resume", run, *words), "--resume")


def test_a_temperature_at_its_bound_is_a_note(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(500, 2))
    lines = ["a,b,kind", *(f"{a:.4f},{b:.4f},{'left' if a < 0 else 'right'}" for a, b in inputs)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    words = ("fit", "--data", tmp_path / "table.csv", "--ratio", "inf", "--alpha", "0.4", "--epochs", "1")
    said = mixupmp(*words, "--out", tmp_path / "run")
    assert "note: the temperature ended at its bound 0.25" in " ".join(said.out.split())
    again = mixupmp(*words, "--out", tmp_path / "again", "--json").json
    assert "bound 0.25" in again["calibration_note"]


@pytest.mark.parametrize(
    ("given", "candidate", "temperature", "chosen"),
    [
        (("method.ratio", "method.alpha"), Candidate(0.1, 1.0, 12), 1.423, "12 epochs, temperature 1.42"),
        (("method.ratio",), Candidate(0.1, 0.4), 1.0, "alpha=0.4, temperature 1.00"),
        (("recipe.epochs",), Candidate(inf, 2.0), None, "r=inf, alpha=2"),
        ((), Candidate(0.0, None, 7), 0.9, "r=0, 7 epochs, temperature 0.90"),
    ],
)
def test_what_was_given_is_not_said_to_be_chosen(
    given: tuple[str, ...], candidate: Candidate, temperature: float | None, chosen: str
) -> None:
    calibrator = None if temperature is None else Temperature(temperature)
    selection = Selection(candidate, (), "nll", 40, 4, 1.0, calibrator)
    assert _chosen(selection, Settings(given=given)) == f"Chosen on 40 held-out rows: {chosen}."


def test_a_fit_says_what_was_chosen() -> None:
    inputs = np.random.default_rng(0).normal(size=(80, 3))
    np.savez("table.npz", X=inputs, y=inputs[:, 0] > 0)
    said = mixupmp("fit", "--data", "table.npz", "--ratio", "0.1", "--alpha", "1", "--epochs", "4", "--out", "run")
    assert re.search(r"Chosen on \d+ held-out rows: temperature \d\.\d\d\.\n", said.out), said
