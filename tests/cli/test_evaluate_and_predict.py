"""`mixupmp evaluate`, `predict` and `methods`: what they print is what the library computes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import mixupmp
from PIL import Image

from mixupmp import ALL_METHODS, PosteriorClassifier, Recipe, data, deep_ensemble, load
from mixupmp.metrics import evaluate, mutual_information, predictive_entropy

DIGITS = data.load("digits")


def test_evaluate_measures_the_test_rows(finished_run: Path) -> None:
    result = mixupmp("evaluate", finished_run, "--json").json
    expected = evaluate(load(finished_run).member_probabilities(DIGITS.test.inputs), DIGITS.test.labels)
    assert result["metrics"] == pytest.approx(expected)
    assert sum(line["count"] for line in result["reliability"]) == len(DIGITS.test)
    assert f"{100 * expected['acc']:.2f}" in mixupmp("evaluate", finished_run).out  # type: ignore[operator]


def test_evaluate_on_other_rows(finished_run: Path) -> None:
    assert mixupmp("evaluate", finished_run, "--split", "all", "--json").json["metrics"]["rows"] == 1797
    foggy = mixupmp("evaluate", finished_run, "--corruption", "fog", "--severity", "5", "--json").json
    images = data.corrupt(DIGITS.test.inputs, "fog", 5)
    expected = evaluate(load(finished_run).member_probabilities(images), DIGITS.test.labels)
    assert foggy["on"] == "digits, test rows, fog 5"
    assert foggy["metrics"]["nll"] == pytest.approx(expected["nll"])


def test_classes_are_matched_by_name(finished_run: Path, tmp_path: Path) -> None:
    """Data with some of the classes only numbers them otherwise; what counts is their names."""
    chosen = (DIGITS.test.labels == 3) | (DIGITS.test.labels == 7)
    inputs, labels = DIGITS.test.inputs[chosen], DIGITS.test.labels[chosen]
    np.savez(tmp_path / "some.npz", X=inputs.numpy(), y=labels.numpy())
    result = mixupmp("evaluate", finished_run, "--data", "some.npz", "--split", "all", "--json").json
    expected = evaluate(load(finished_run).member_probabilities(inputs), labels)
    assert result["metrics"]["nll"] == pytest.approx(expected["nll"])


@pytest.mark.parametrize("ending", ["npy", "npz", "json", "csv"])
def test_predictions_are_written_in_every_format(finished_run: Path, tmp_path: Path, ending: str) -> None:
    np.save(tmp_path / "in.npy", DIGITS.test.inputs[:30].numpy())
    out = tmp_path / f"out.{ending}"
    assert mixupmp("predict", finished_run, "--input", "in.npy", "--out", out).code == 0
    members = load(finished_run).member_probabilities(DIGITS.test.inputs[:30])
    expected = members.mean(0)
    if ending in ("npy", "npz"):
        found = np.load(out)
        probabilities, classes = found["probabilities"], found["predicted"]
        entropy, information = found["entropy"], found["mutual_information"]
    else:
        lines = json.loads(out.read_text()) if ending == "json" else list(csv.DictReader(out.read_text().splitlines()))
        classes = [int(line["predicted"]) for line in lines]
        entropy, information = ([float(line[n]) for line in lines] for n in ("entropy", "mutual_information"))
        names = "0123456789"
        if ending == "csv":
            lines = [{**line, "probabilities": {k: line[f"p_{k}"] for k in names}} for line in lines]
        probabilities = np.array([[float(line["probabilities"][k]) for k in names] for line in lines])
    assert torch.allclose(torch.tensor(probabilities, dtype=torch.float32), expected, atol=1e-6)
    assert list(classes) == expected.argmax(1).tolist()
    assert list(entropy) == pytest.approx(predictive_entropy(members).tolist(), abs=1e-6)
    assert list(information) == pytest.approx(mutual_information(members).tolist(), abs=1e-6)


def test_predict_prints_the_first_rows(finished_run: Path) -> None:
    said = mixupmp("predict", finished_run, "--data", "digits")
    assert "and 888 rows more" in said.out
    assert len(mixupmp("predict", finished_run, "--data", "digits", "--json").json["predictions"]) == 898


def test_predict_takes_an_image_and_resizes_it_only_when_told(finished_run: Path, tmp_path: Path) -> None:
    Image.fromarray(DIGITS.test.inputs[0, 0].numpy()).save(tmp_path / "small.png")
    expected = load(finished_run).probabilities(DIGITS.test.inputs[:1])[0]
    found = mixupmp("predict", finished_run, "--input", "small.png", "--json").json["predictions"]
    assert list(found[0]["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-6)
    Image.new("RGB", (20, 30)).save(tmp_path / "large.png")
    said = mixupmp("predict", finished_run, "--input", "large.png")
    assert said.code == 2
    assert "30 x 20" in said.err
    assert mixupmp("predict", finished_run, "--input", "large.png", "--resize").code == 0


@pytest.mark.parametrize("heading", ["x,y\n", ""])
def test_predict_takes_a_table_of_features(tmp_path: Path, heading: str) -> None:
    fit = ("fit", "--data", "clusters", "--epochs", "1", "--members", "2", "--engine", "inline", "--out", "run")
    assert mixupmp(*fit, "--no-calibrate").code == 0
    (tmp_path / "rows.csv").write_text(f"{heading}1.5,2\n-3,4e0\n")
    found = mixupmp("predict", "run", "--input", "rows.csv", "--json").json["predictions"]
    expected = load("run").probabilities(torch.tensor([[1.5, 2.0], [-3.0, 4.0]]))
    assert torch.allclose(torch.tensor([list(line["probabilities"].values()) for line in found]), expected)


def test_a_run_is_calibrated_and_predictions_and_evaluations_use_it(tmp_path: Path) -> None:
    fit = ("fit", "--network", "mlp", "--epochs", "5", "--ratio", "inf", "--alpha", "2", "--members", "2")
    said = mixupmp(*fit, "--out", "run", "--json").json
    temperature = said["temperature"]
    assert temperature < 1  # blends alone make a network too unsure
    assert said["calibrated_metrics"]["nll"] < said["metrics"]["nll"]
    assert mixupmp("evaluate", "run", "--json").json["calibrated_metrics"] == said["calibrated_metrics"]
    assert "calibrated (T = " in mixupmp("evaluate", "run").out
    np.save(tmp_path / "in.npy", DIGITS.test.inputs[:3].numpy())
    found = mixupmp("predict", "run", "--input", "in.npy", "--json").json["predictions"]
    raw = load("run").probabilities(DIGITS.test.inputs[:3]).double()
    expected = (raw.log() / temperature).softmax(1)
    assert torch.allclose(torch.tensor([list(line["probabilities"].values()) for line in found]).double(), expected)


def test_a_calibrator_that_is_no_temperature_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    inputs = DIGITS.test.inputs
    model = PosteriorClassifier(deep_ensemble(2), recipe=Recipe(epochs=2), random_state=0)
    model.fit(inputs[:300], DIGITS.test.labels[:300].numpy())
    model.calibrate_on(inputs[:200], DIGITS.test.labels[:200].numpy(), kind="isotonic").save(tmp_path / "run")
    found = mixupmp("evaluate", "run", "--data", "digits", "--json").json
    assert (found["calibrator"], found["temperature"]) == ("Isotonic", None)
    assert found["calibrated_metrics"]["nll"] != found["metrics"]["nll"]
    shown = mixupmp("evaluate", "run", "--data", "digits").out
    assert "calibrated" in shown
    assert "Isotonic" in shown


def test_pixels_as_floats_are_remarked_on(finished_run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "floats.npy", DIGITS.test.inputs[:3].double().numpy())
    said = mixupmp("predict", finished_run, "--input", "floats.npy")
    assert said.code == 0
    assert "whole numbers" in said.err


def test_methods_lists_all_of_them() -> None:
    listed = mixupmp("methods", "--json").json["methods"]
    assert [entry["name"] for entry in listed] == [m.__name__.replace("_", "-") for m in ALL_METHODS]
    assert all(entry["what"] for entry in listed)
    assert {entry["name"]: entry["options"] for entry in listed}["mixup-mp"] == {
        "ratio": 1.0,
        "alpha": 2.0,
        "members": 4,
    }
    assert "stabilized-bootstrap" in mixupmp("methods").out


@pytest.mark.parametrize("command", ["fit", "evaluate", "predict", "demo", "methods", "corrupt"])
def test_help_teaches_by_example(command: str) -> None:
    said = mixupmp(command, "--help")
    assert said.code == 0
    assert f"mixupmp {command}" in said.out.split("Example", 1)[1]


def test_predict_takes_a_folder_of_images_and_names_its_files(finished_run: Path, tmp_path: Path) -> None:
    for row, name in enumerate(("b.png", "a.png", "deeper/c.png")):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DIGITS.test.inputs[row, 0].numpy()).save(tmp_path / "photos" / name)
    (tmp_path / "photos/notes.txt").write_text("not an image")
    found = mixupmp("predict", finished_run, "--input", "photos", "--json").json["predictions"]
    assert [line["file"] for line in found] == ["a.png", "b.png", "deeper/c.png"]
    expected = load(finished_run).probabilities(DIGITS.test.inputs[[1, 0, 2]])
    assert torch.allclose(torch.tensor([list(line["probabilities"].values()) for line in found]), expected, atol=1e-6)
    for ending in ("csv", "npy"):
        assert mixupmp("predict", finished_run, "--input", "photos", "--out", f"out.{ending}").code == 0
    assert list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))[2]["file"] == "deeper/c.png"
    assert list(np.load(tmp_path / "out.npy")["file"]) == ["a.png", "b.png", "deeper/c.png"]
    assert "a.png" in mixupmp("predict", finished_run, "--input", "photos").out
    (tmp_path / "empty").mkdir()
    assert "holds no images" in mixupmp("predict", finished_run, "--input", "empty").err


@pytest.mark.parametrize("label", [(), ("--label", "kind")])
def test_predict_takes_the_table_that_a_run_was_fitted_to(tmp_path: Path, label: tuple[str, ...]) -> None:
    """Its labels are left out: in the last column, or in the one that the fit was told."""
    draws = np.random.default_rng(0).normal(size=(40, 2))
    order = [0, 1, 2] if not label else [2, 0, 1]
    rows = [[f"{a:.6f}", f"{b:.6f}", "far, right" if a > 0 else "left"] for a, b in draws]
    with (tmp_path / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([[line[k] for k in order] for line in [["x", "y", "kind"], *rows]])
    fit = ("fit", "--data", "table.csv", "--epochs", "1", "--members", "2", "--engine", "inline", "--out", "run")
    assert mixupmp(*fit, "--no-calibrate", *label).code == 0
    said = mixupmp("predict", "run", "--input", "table.csv", "--json")
    assert "column kind is left out" in said.err
    expected = load("run").probabilities(torch.tensor([[float(a), float(b)] for a, b, _ in rows]))
    found = torch.tensor([list(line["probabilities"].values()) for line in said.json["predictions"]])
    assert torch.allclose(found, expected, atol=1e-6)
