"""The ONNX graph of a table takes the columns of the data frame, and answers as the estimator does."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from mixupmp import Recipe
from mixupmp.core.column_warnings import ColumnWarning
from mixupmp.core.errors import InvalidArgument
from mixupmp.estimators import MixupMPClassifier, MixupMPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
QUICK = Recipe(epochs=3, batch_size=32, optimizer="adamw", learning_rate=1e-2, weight_decay=1e-3, schedule="constant")
ROWS = 60


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    size = generator.normal(size=ROWS)
    size[::10] = np.nan
    data = {
        "color": pd.Categorical(generator.choice(["red", "green", "blue"], ROWS)),
        "size": size,
        "inputs": np.where(np.arange(ROWS) % 7 == 0, None, "round"),  # the name of the graph's own input
        "count": pd.array(np.arange(ROWS) % 5, dtype="Int64"),
        "code": [f"c{number % 30}" for number in range(ROWS)],
        "grade": np.where(np.arange(ROWS) % 2, 1.0, 2.0),
        "flag": np.arange(ROWS) % 3 == 0,
        "sold": np.where(np.arange(ROWS) % 4 == 0, True, False),
    }
    return pd.DataFrame(data).astype({"grade": "category", "sold": "category"})


def classifier() -> MixupMPClassifier:
    return MixupMPClassifier(0.1, 0.4, share_weights=True, members=3, recipe=QUICK, random_state=0)


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> MixupMPClassifier:
    with pytest.warns(ColumnWarning, match="'nothing' is missing in every row"):
        return classifier().fit(frame.assign(nothing=np.nan), np.arange(ROWS) % 3)


def feed(frame: pd.DataFrame, path: Path) -> dict[str, Any]:
    """As the metadata of a file says: text, "" where it is missing; float32, NaN where it is missing."""
    found = {}
    for column in json.loads(stored(path)["mixupmp.columns"])["columns"]:
        name = column["name"]
        if column["kind"] == "category":
            text = frame[name].astype(object).map(lambda v: str(int(v)) if isinstance(v, float) and v == v else v)
            found[name] = text.where(frame[name].notna(), "").astype(str).to_numpy(object)
        elif column["kind"] == "number":
            found[name] = frame[name].to_numpy(np.float32, na_value=np.nan)
    return found


def stored(path: Path) -> dict[str, str]:
    found: dict[str, str] = onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    return found


def test_a_graph_takes_the_columns_of_a_data_frame(
    model: MixupMPClassifier, frame: pd.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    metadata = model.export_onnx(path, false_alarm=0.1)
    assert "color: text (rows), '' where missing; size: float32 (rows), NaN where missing" in metadata["mixupmp.inputs"]
    session = onnxruntime.InferenceSession(str(path))
    assert [given.name for given in session.get_inputs()] == list(frame.columns)
    new = frame.assign(
        color=pd.Categorical(["pink"] * ROWS),  # unseen
        inputs=None,  # missing everywhere
        count=pd.array([None] * ROWS, dtype="Int64"),  # never missing in the fit
        sold=frame["sold"].astype(int),  # True and False in the fit
    )
    for rows in (frame, frame[:1], new):
        (found, flagged) = session.run(["probabilities", "flagged"], feed(rows, path))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ColumnWarning)
            expected = model.predict_proba(rows.assign(nothing=np.nan))
        assert len(said) == (2 if rows is new else 0)  # 'color' has a new category, 'count' missing values
        assert np.abs(found - expected).max() < 1e-5
        assert flagged.shape == (len(rows),)


def test_numbers_with_missing_values_are_one_input(frame: pd.DataFrame, tmp_path: Path) -> None:
    X = np.column_stack([frame["size"], np.arange(ROWS), np.full(ROWS, np.nan), np.arange(ROWS) % 4])
    y = np.where(X[:, 1] > 30, 1.0, 2.0)
    with pytest.warns(ColumnWarning, match="'2' is missing in every row"):
        fitted = MixupMPRegressor(0.1, 1.0, 2, recipe=QUICK, random_state=0).fit(X, y)
    path = tmp_path / "model.onnx"
    assert fitted.export_onnx(path)["mixupmp.inputs"] == "inputs: float32 (rows, 4), NaN where a value is missing"
    session = onnxruntime.InferenceSession(str(path))
    (found,) = session.run(["predicted_mean"], {"inputs": X.astype(np.float32)})
    assert np.abs(found - fitted.predict(X)).max() < 1e-4
    missing = X.copy()
    missing[0, 1] = np.nan  # never missing in the fit: its median
    with pytest.warns(ColumnWarning, match="taken as 29.5, the median"):
        expected = fitted.predict(missing)
    (found,) = session.run(["predicted_mean"], {"inputs": missing.astype(np.float32)})
    assert np.abs(found - expected).max() < 1e-4


def test_plain_numbers_are_filled_as_by_the_estimator(frame: pd.DataFrame, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    fitted = classifier().fit(X, np.arange(ROWS) % 2)
    fitted.export_onnx(tmp_path / "model.onnx")
    X[0, 1] = np.nan
    (found,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["probabilities"], {"inputs": X})
    with pytest.warns(ColumnWarning, match="the median"):
        assert np.abs(found - fitted.predict_proba(X)).max() < 1e-5


def test_rare_categories_share_an_indicator_in_the_graph_too(tmp_path: Path) -> None:
    codes = pd.DataFrame({"code": [f"c{number % 150}" for number in range(300)]})
    fitted = classifier().fit(codes, np.arange(300) % 2)
    fitted.export_onnx(tmp_path / "model.onnx")
    asked = pd.DataFrame({"code": ["c0", "c149", "never seen"]})
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(["probabilities"], {"code": asked["code"].to_numpy(object)})
    assert np.abs(found - fitted.predict_proba(asked)).max() < 1e-5


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"entropy": ["a", "b"] * 15}, r"columns must be other than .*outputs.*got 'entropy'.*Rename it"),
        ({"color": ["red", ""] * 15}, r"column 'color' must be text.*got the category ''|the category ''"),
    ],
    ids=["the name of an output", "an empty category"],
)
def test_what_a_graph_could_not_tell_apart_is_refused(column: Any, message: str, tmp_path: Path) -> None:
    fitted = classifier().fit(pd.DataFrame(column), np.arange(30) % 2)
    with pytest.raises(InvalidArgument, match=message):
        fitted.export_onnx(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_columns_far_from_zero_are_float64_inputs(frame: pd.DataFrame, tmp_path: Path) -> None:
    path, X = tmp_path / "model.onnx", np.random.default_rng(0).normal([1.7e9, 0.0], size=(ROWS, 2))
    y = (X[:, 0] > 1.7e9).astype(int)
    fitted = classifier().fit(X, y)
    assert fitted.export_onnx(path)["mixupmp.inputs"] == "inputs: float64 (rows, 2), NaN where a value is missing"
    X[0, 0] = np.nan
    with pytest.warns(ColumnWarning, match="the median"):
        expected = fitted.predict_proba(X)
    (found,) = onnxruntime.InferenceSession(str(path)).run(["probabilities"], {"inputs": X})
    assert np.abs(found - expected).max() < 1e-5
    named = frame[["color", "size"]].assign(time=np.nan_to_num(X[:, 0], nan=1.7e9))
    fitted = classifier().fit(named, y)
    described = fitted.export_onnx(path)["mixupmp.inputs"]
    assert "size: float32 (rows), NaN where missing; time: float64 (rows), NaN where missing" in described
    given = {**feed(named, path), "time": named["time"].to_numpy()}
    (found,) = onnxruntime.InferenceSession(str(path)).run(["probabilities"], given)
    assert np.abs(found - fitted.predict_proba(named)).max() < 1e-5
