"""`mixupmp detect`: what a fit keeps for it, what it prints, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from commands import mixupmp

from mixupmp import data, load, save
from mixupmp.decide.detect import fit_detector, read_detector
from mixupmp.metrics import GuaranteeWarning
from mixupmp.store.folder import DETECTOR
from mixupmp.store.manifest import Sealed

DIGITS = data.load("digits")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "calibrated"
    options = ("--network", "mlp", "--rows", "300", "--epochs", "20", "--members", "2", "--ratio", "1", "--alpha", "1")
    said = mixupmp("fit", *options, "--out", folder)
    assert said.code == 0, said
    return folder


def test_a_run_keeps_the_scores_of_what_it_held_out(run: Path) -> None:
    detector = read_detector(Sealed(run))
    assert detector is not None
    assert detector.refitted
    assert 20 <= detector.rows < 300
    assert detector.reference is not None
    assert detector.reference.features.shape[:2] == (2, 300)
    said = mixupmp("detect", run, "--data", "digits", "--false-alarm", "0.1", "--json")
    expected = detector.detect(load(run), DIGITS.test.inputs, false_alarm=0.1)
    assert said.json["flagged"] == int(expected.flagged.sum())
    assert said.json["score"] == "entropy"
    assert [one["p_value"] for one in said.json["detected"]] == pytest.approx(expected.p_values.tolist())
    assert "approximate" in said.err


def test_rows_of_ones_own_make_it_exact_and_noise_is_found(run: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 1, 8, 8), dtype=np.uint8)
    np.save("noise.npy", noise)
    options = ("--input", "noise.npy", "--held-out", "digits", "--metrics")
    found = mixupmp("detect", run, *options, "--json").json
    assert found["score"] == "nearest"
    assert found["guarantee"] == "at most 5.0% of rows like the 898 held-out ones are flagged"
    assert found["flagged"] > 100
    assert found["metrics"]["auroc"] > 0.8
    said = mixupmp("detect", run, *options, "--out", "flags.csv")
    sentence = (
        f"{found['flagged']} of 200 rows are flagged ({found['flagged'] / 2:.1f}%) by nearest. At most 5.0% of rows"
    )
    assert sentence in said.out
    assert "AUROC" in said.out
    lines = list(csv.DictReader(Path("flags.csv").read_text().splitlines()))
    assert sum(line["flagged"] == "True" for line in lines) == found["flagged"]
    energy = mixupmp("detect", run, *options, "--score", "energy", "--json").json
    posterior = load(run)
    assert energy["threshold"] == fit_detector(posterior, DIGITS.test.inputs).threshold(score="energy")
    assert "approximate" not in mixupmp("detect", run, *options[:-1]).err


def test_what_cannot_be_done_is_said(run: Path) -> None:
    save(load(run), "bare")
    assert "without held-out rows" in mixupmp("detect", "bare", "--data", "digits").err
    assert mixupmp("detect", "bare", "--data", "digits", "--held-out", "digits", "--json").json["score"] == "entropy"
    with pytest.warns(GuaranteeWarning, match="no row is flagged"):
        said = mixupmp("detect", run, "--data", "digits", "--false-alarm", "0.001")
    assert "0 of 898 rows are flagged (0.0%) by entropy. No row can be flagged: " in said.out
    assert "nearest" in mixupmp("detect", run, "--data", "digits", "--score", "nerest").err
    assert "given, or --data" in mixupmp("detect", run).err
    assert ".json, .csv" in mixupmp("detect", run, "--data", "digits", "--out", "x.npz").err
    assert "false_alarm" in mixupmp("detect", run, "--data", "digits", "--false-alarm", "2").err


def test_an_interrupted_start_does_not_block_the_folder(tmp_path: Path) -> None:
    """A kill between the detector and config.json leaves the first alone."""
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / DETECTOR).write_bytes(b"old")
    options = ("--network", "mlp", "--rows", "60", "--epochs", "2", "--members", "1", "--method", "deep-ensemble")
    assert mixupmp("fit", *options, "--out", "again").code == 0
    assert read_detector(Sealed("again")) is not None
