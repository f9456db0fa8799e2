"""Rows that a run was not fitted to: every row of a file counts, unless it has a test part or is the training data."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import Said, mixupmp, refused

from mixupmp import data, load
from mixupmp.cli.serve import _held_out

DIGITS = data.load("digits")
TRAINING = ("--members", "2", "--epochs", "3", "--ratio", "1", "--no-calibrate")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """40 rows, first all of one class and so on, so that a split or another order would show."""
    order = DIGITS.test.labels.argsort(stable=True)[:40]
    rows = DIGITS.test.take(order)
    np.savez(tmp_path / "other.npz", X=rows.inputs.numpy(), y=rows.labels.numpy())
    return tmp_path / "other.npz"


def evaluated_rows(said: Said) -> int:
    """How many rows an evaluation says that it used."""
    assert said.code == 0, said
    return int(said.json["metrics"]["rows"])


def test_all_rows_of_an_archive_in_their_order(finished_run: Path, archive: Path) -> None:
    assert evaluated_rows(mixupmp("evaluate", finished_run, "--data", archive, "--json")) == 40
    assert "on 40 rows (other, all rows)" in mixupmp("evaluate", finished_run, "--data", archive).out
    assert evaluated_rows(mixupmp("evaluate", finished_run, "--data", archive, "--split", "all", "--json")) == 40
    refused(mixupmp("evaluate", finished_run, "--data", archive, "--split", "train"), "--split", "no training rows")
    by_name = mixupmp("predict", finished_run, "--data", archive, "--json").json
    assert by_name["predictions"] == mixupmp("predict", finished_run, "--input", archive, "--json").json["predictions"]
    assert by_name["rows"] == 40
    found = mixupmp("detect", finished_run, "--data", archive, "--held-out", archive, "--json").json
    assert found["rows"] == 40
    assert found["guarantee"].endswith("of rows like the 40 held-out ones are flagged")
    held_out = _held_out(finished_run, load(finished_run), str(archive), None)
    assert held_out is not None
    assert len(held_out) == 40
    reported = mixupmp("report", finished_run, "--data", archive, "--json").json["metrics"]
    assert reported[str(finished_run)]["rows"] == 40


def test_the_test_part_of_an_archive(finished_run: Path, tmp_path: Path) -> None:
    parts = {"X_train": DIGITS.train.inputs, "y_train": DIGITS.train.labels}
    parts |= {"X_test": DIGITS.test.inputs[:50], "y_test": DIGITS.test.labels[:50]}
    np.savez(tmp_path / "parts.npz", **{name: part.numpy() for name, part in parts.items()})
    said = mixupmp("evaluate", finished_run, "--data", "parts.npz", "--json")
    assert evaluated_rows(said) == 50
    assert said.json["on"] == "parts, test rows"


@pytest.mark.parametrize("classes", [1, 3])
def test_all_images_of_a_folder(finished_run: Path, tmp_path: Path, classes: int) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in "789"[:classes]:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number, pixels in enumerate(DIGITS.test.inputs[DIGITS.test.labels == int(name)][:4]):
            image.fromarray(pixels[0].numpy()).save(tmp_path / "photos" / name / f"{number}.png")
    assert evaluated_rows(mixupmp("evaluate", finished_run, "--data", "photos", "--json")) == 4 * classes
    options = ("--data", "digits", "--held-out", "photos", "--false-alarm", "0.3", "--json")
    guarantee = mixupmp("detect", finished_run, *options).json["guarantee"]
    assert guarantee == f"at most 30.0% of rows like the {4 * classes} held-out ones are flagged"


def table(tmp_path: Path, name: str, rows: int, seed: int, numbers: bool = False) -> None:
    """A table whose label column is the first."""
    pandas = pytest.importorskip("pandas")
    generator = np.random.default_rng(seed)
    color, size = generator.choice(["red", "blue"], rows), generator.normal(size=rows)
    features = {"shade": (color == "red") * 1.0} if numbers else {"color": color}
    frame = pandas.DataFrame({"sold": np.where(color == "red", "yes", "no"), **features, "size": size})
    frame.to_csv(tmp_path / name, index=False)


@pytest.mark.parametrize("numbers", [False, True])
def test_all_rows_of_a_table_but_not_those_of_the_training_table(tmp_path: Path, numbers: bool) -> None:
    table(tmp_path, "cars.csv", 100, 0, numbers)
    table(tmp_path, "more.csv", 35, 1, numbers)
    (tmp_path / "one.csv").write_text("\n".join((tmp_path / "more.csv").read_text().splitlines()[:2]) + "\n")
    assert mixupmp("fit", "--data", "cars.csv", "--label", "sold", *TRAINING, "--out", "run").code == 0
    assert evaluated_rows(mixupmp("evaluate", "run", "--data", "more.csv", "--json")) == 35
    assert evaluated_rows(mixupmp("evaluate", "run", "--data", "one.csv", "--json")) == 1
    assert mixupmp("predict", "run", "--data", "more.csv", "--json").json["rows"] == 35
    before = mixupmp("evaluate", "run", "--json").json
    shutil.copy("cars.csv", "copy.csv")
    for name in ("cars.csv", "copy.csv"):
        said = mixupmp("evaluate", "run", "--data", name, "--json")
        assert evaluated_rows(said) == 20
        assert said.json["metrics"] == before["metrics"]
    assert "copy.csv holds the training rows of the run: its 20 test rows are used" in said.err


def test_the_training_table_is_known_when_only_some_of_its_rows_were_used(tmp_path: Path) -> None:
    table(tmp_path, "cars.csv", 100, 0)
    (tmp_path / "recipe.toml").write_text('[data]\nname = "cars.csv"\nlabel = "sold"\nrows = 60\nvalidation = 0.2\n')
    assert mixupmp("fit", "--config", "recipe.toml", *TRAINING, "--out", "run").code == 0
    shutil.copy("cars.csv", "copy.csv")
    assert evaluated_rows(mixupmp("evaluate", "run", "--data", "copy.csv", "--json")) == 20


def test_all_sentences_of_a_file(tmp_path: Path) -> None:
    lines = [f"{'buy' if number % 2 else 'sell'} {number},{number % 2}" for number in range(60)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))
    (tmp_path / "more.csv").write_text("\n".join(["text,label", *lines[:9]]))
    assert mixupmp("fit", "--data", "texts.csv", "--text", "text", *TRAINING, "--out", "run").code == 0
    assert evaluated_rows(mixupmp("evaluate", "run", "--data", "more.csv", "--json")) == 9
    shutil.copy("texts.csv", "copy.csv")
    assert evaluated_rows(mixupmp("evaluate", "run", "--data", "copy.csv", "--json")) == 12
