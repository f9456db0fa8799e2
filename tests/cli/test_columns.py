"""Tables with categories and missing values from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import mixupmp, mixupmp_process, refused

from mixupmp import load
from mixupmp.core.column_warnings import ColumnWarning
from mixupmp.core.columns import Columns

pandas = pytest.importorskip("pandas")


def test_a_table_as_people_have_it_is_fitted_evaluated_and_predicted(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    color, size = generator.choice(["red", "blue"], 120), generator.normal(size=120)
    frame = pandas.DataFrame({"color": color, "size": size, "sold": np.where(color == "red", "yes", "no")})
    frame.loc[::9, "size"] = None
    frame.to_csv(tmp_path / "cars.csv", index=False)
    words = ("--data", "cars.csv", "--members", "2", "--epochs", "8", "--ratio", "1")
    said = mixupmp("fit", *words, "--out", "run", "--json")
    assert said.code == 0, said
    assert isinstance(load(tmp_path / "run").task.encoder, Columns)
    assert mixupmp("evaluate", "run", "--json").json["metrics"]["acc"] == 1
    frame.iloc[:40, ::-1].to_csv(tmp_path / "others.csv", index=False)  # by name, in any order, the label beside them
    assert mixupmp("evaluate", "run", "--data", "others.csv", "--json").code == 2  # its last column is no label
    predicted = mixupmp("predict", "run", "--input", "others.csv", "--json").json["predictions"]
    assert [row["predicted"] for row in predicted] == frame["sold"].head(40).tolist()
    frame.assign(color="pink").head(3).to_csv(tmp_path / "new.csv", index=False)
    said = mixupmp_process("predict", "run", "--input", "new.csv", "--json", cwd=tmp_path)
    assert said.code == 0
    assert "note: new.csv has more than the fit: column sold is left out." in said.err
    assert "note: column 'color' has the new category 'pink', unseen in fit" in said.err
    assert "Warning" not in said.err
    frame.drop(columns="color").to_csv(tmp_path / "short.csv", index=False)
    refused(mixupmp("predict", "run", "--input", "short.csv"), "short.csv", "the column 'color' is not there")


@pytest.mark.parametrize("middle", [100, 1.7e9])  # the latter is centered in double precision
def test_columns_of_plain_numbers_are_found_by_name_too(tmp_path: Path, middle: float) -> None:
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame({"width": generator.normal(size=80), "height": middle + generator.normal(size=80)})
    frame.assign(large=frame["width"] > 0).to_csv(tmp_path / "boxes.csv", index=False)
    words = ("--data", "boxes.csv", "--members", "2", "--epochs", "4", "--ratio", "1")
    assert mixupmp("fit", *words, "--out", "run", "--json").code == 0
    files = {"same": frame, "turned": frame[["height", "width"]], "short": frame[["width"]]}
    for name, rows in files.items():
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    frame.to_csv(tmp_path / "bare.csv", index=False, header=False)
    said = {name: mixupmp("predict", "run", "--input", f"{name}.csv", "--json") for name in ("same", "turned", "bare")}
    assert said["turned"].json["predictions"] == said["same"].json["predictions"] == said["bare"].json["predictions"]
    refused(mixupmp("predict", "run", "--input", "short.csv"), "the column 'height' is not there")
    frame.assign(width=np.inf).to_csv(tmp_path / "infinite.csv", index=False)
    refused(mixupmp("predict", "run", "--input", "infinite.csv"), "column 'width' has infinity", "row 0")


def test_a_table_without_values_and_one_of_two_rows_are_refused(tmp_path: Path) -> None:
    pandas.DataFrame({"a": [None] * 40, "y": [0, 1] * 20}).to_csv(tmp_path / "empty.csv", index=False)
    with pytest.warns(ColumnWarning, match="'a' is missing in every row"):
        refused(mixupmp("fit", "--data", "empty.csv", "--out", "run"), "empty.csv", "no value in any column but y")
    pandas.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}).to_csv(tmp_path / "two.csv", index=False)
    refused(mixupmp("fit", "--data", "two.csv", "--out", "run"), "two.csv has 2 rows of 2 classes: too few")


def test_a_thousand_classes_and_a_class_of_one_row(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(1400, 2))
    labels = [f"k{number % 999}" for number in range(1399)] + ["alone"]
    frame = pandas.DataFrame({"a": inputs[:, 0], "b": inputs[:, 1], "label": labels})
    frame.to_csv(tmp_path / "many.csv", index=False)
    words = ("--members", "2", "--epochs", "1", "--ratio", "1", "--out", "run")
    assert mixupmp("fit", "--data", "many.csv", *words).code == 0
    assert len(load(tmp_path / "run").task.classes) == 1000
