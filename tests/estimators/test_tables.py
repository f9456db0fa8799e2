"""Tables as people have them: categories, missing values, and what is wrong with them said by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from sklearn.pipeline import make_pipeline
from torch import nn

from mixupmp import Recipe
from mixupmp.core.column_warnings import ColumnWarning
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.shared import SharedEnsemble
from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier, MixupMPRegressor

QUICK = Recipe(epochs=25, batch_size=32, optimizer="adamw", learning_rate=1e-2, weight_decay=1e-3, schedule="constant")


@pytest.fixture(scope="module")
def frame() -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    color = generator.choice(["red", "green", "blue"], 120)
    size = generator.normal(size=120)
    labels = np.where((color == "red") ^ (size > 0), "yes", "no")
    size[::10] = np.nan
    data = {
        "color": pd.Categorical(color),
        "size": size,
        "shape": np.where(np.arange(120) % 7 == 0, None, "round"),
        "count": pd.array(np.arange(120) % 5, dtype="Int64"),
    }
    return pd.DataFrame(data), labels


@pytest.fixture(scope="module")
def model(frame: Any) -> MixupMPClassifier:
    return MixupMPClassifier(ratio=0.1, alpha=0.4, recipe=QUICK, random_state=0).fit(*frame)


def test_categories_and_missing_values_are_learned_from(model: MixupMPClassifier, frame: Any) -> None:
    assert isinstance(model.method_.sampler, SharedEnsemble)
    assert model.score(*frame) > 0.85
    # color: three, size: itself and where it is missing, shape: round and where it is missing, count: itself
    assert model.layout_.shape == (8,)
    assert model.n_features_in_ == 4
    assert list(model.feature_names_in_) == ["color", "size", "shape", "count"]


def test_a_fit_on_a_frame_comes_back_from_disk(model: MixupMPClassifier, frame: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    back = MixupMPClassifier.load(tmp_path / "model")
    assert np.array_equal(back.predict_proba(frame[0]), model.predict_proba(frame[0]))
    assert (back.epochs_, back.temperature_) == (model.epochs_, model.temperature_)


def test_a_new_category_is_named_and_is_none_of_the_known(model: MixupMPClassifier, frame: Any) -> None:
    new = frame[0].assign(color="pink")
    with pytest.warns(ColumnWarning, match="column 'color' has the new category 'pink'"):
        probabilities = model.predict_proba(new)
    assert np.allclose(probabilities.sum(1), 1)


def test_values_missing_only_in_prediction_are_named(model: MixupMPClassifier, frame: Any) -> None:
    with pytest.warns(ColumnWarning, match=r"column 'count' has missing values.* 2, the median"):
        model.predict(frame[0].assign(count=pd.array([None] * 120, dtype="Int64")))


def test_columns_that_are_missing_or_in_another_order_are_refused(model: MixupMPClassifier, frame: Any) -> None:
    with pytest.raises(ValueError, match=r"(?s)missing.*size"):
        model.predict(frame[0].drop(columns="size"))
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[0][["size", "color", "shape", "count"]])


def test_text_where_the_fit_had_numbers_is_refused_by_name(model: MixupMPClassifier, frame: Any) -> None:
    with pytest.raises(BadData, match="column 'size' must be numbers"):
        model.predict(frame[0].assign(size="large"))


def test_a_column_without_values_is_left_out_and_named(frame: Any) -> None:
    empty = frame[0].assign(empty=np.nan)
    with pytest.warns(ColumnWarning, match="column 'empty' is missing in every row, and is left out"):
        fitted = MixupMPClassifier(1.0, 0.4, recipe=QUICK, calibrate=False, random_state=0).fit(empty, frame[1])
    assert fitted.layout_.shape == (8,)
    fitted.predict(empty.assign(empty=1.0))
    with (
        pytest.raises(InvalidArgument, match="at least one value"),
        pytest.warns(ColumnWarning),
    ):
        MixupMPClassifier().fit(empty[["empty"]], frame[1])


def test_infinity_is_refused_by_column_and_row(frame: Any) -> None:
    infinite = frame[0].assign(size=np.inf)
    with pytest.raises(BadData, match=r"column 'size' has infinity.*row 0"):
        MixupMPClassifier().fit(infinite, frame[1])
    with pytest.raises(ValueError, match="infinity"):
        MixupMPClassifier().fit(np.full((30, 2), np.inf), np.arange(30) % 2)


def test_arrays_with_missing_values(frame: Any) -> None:
    X = frame[0][["size"]].to_numpy()
    fitted = DeepEnsembleClassifier(2, recipe=QUICK, random_state=0).fit(X, frame[1])
    assert fitted.layout_.shape == (2,)
    assert np.isfinite(fitted.predict_proba(X)).all()
    numbers = MixupMPRegressor(0.1, 1.0, 2, recipe=QUICK, random_state=0).fit(X, np.arange(120.0))
    assert np.isfinite(numbers.predict(X)).all()


DAYS = pd.date_range("2024-01-01", periods=120)


@pytest.mark.parametrize(
    ("days", "kind"),
    [
        (DAYS, "datetime64"),
        (DAYS - DAYS[0], "timedelta64"),
        (DAYS.to_period("D"), r"period\[D\]"),
        (pd.Series(DAYS, dtype=object), "datetime"),
        (pd.Series([None, *DAYS.date[1:]], dtype=object), "date"),
    ],
)
def test_dates_are_refused(frame: Any, days: Any, kind: str) -> None:
    with pytest.raises(BadData, match=rf"column 'day' is of type {kind}.*: turn it into real numbers"):
        MixupMPClassifier().fit(frame[0].assign(day=days), frame[1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (DAYS.strftime("%d/%m/%Y"), "column 'x' has dates as text"),
        ([f"row {number}" for number in range(120)], "column 'x' has 120 different categories in 120 rows"),
    ],
)
def test_text_of_which_nothing_is_learned_is_named_at_the_user_s_line(frame: Any, values: Any, message: str) -> None:
    model = DeepEnsembleClassifier(1, recipe=QUICK, calibrate=False, random_state=0)
    with pytest.warns(ColumnWarning, match=message) as said:
        make_pipeline(model).fit(frame[0].assign(x=values), frame[1])
    assert [warning.filename for warning in said] == [__file__]
    with pytest.warns(ColumnWarning, match="missing values") as said:
        model.predict(frame[0].assign(x=values, count=np.nan))
    assert [warning.filename for warning in said] == [__file__]


def test_truth_values_may_be_written_as_numbers(frame: Any) -> None:
    flags = np.arange(120) % 2 == 0
    X = frame[0].assign(flag=pd.Categorical(flags))
    fitted = DeepEnsembleClassifier(1, recipe=QUICK, random_state=0).fit(X, flags)
    expected = fitted.predict_proba(X)
    for other in (flags.astype(int), flags.astype(float), pd.Categorical(flags.astype(int))):
        assert np.array_equal(fitted.predict_proba(X.assign(flag=other)), expected)
    fitted.fit(X.assign(flag=pd.Categorical(flags.astype(int))), flags)
    assert np.array_equal(fitted.predict_proba(X), expected)


def test_other_data_frames_are_read_through_pandas(model: MixupMPClassifier, frame: Any) -> None:
    table = pyarrow.Table.from_pandas(frame[0])  # like those of polars it has to_pandas
    assert np.array_equal(model.predict_proba(table), model.predict_proba(frame[0]))
    again = MixupMPClassifier(ratio=0.1, alpha=0.4, recipe=QUICK, random_state=0).fit(table, frame[1])
    assert np.array_equal(again.predict_proba(table), model.predict_proba(frame[0]))


def test_text_in_an_array_is_refused_with_what_to_do(frame: Any) -> None:
    with pytest.raises(BadData, match=r"X has text, .*'(red|green|blue)'.*pandas.DataFrame\(X\)"):
        MixupMPClassifier().fit(frame[0].to_numpy(object), frame[1])


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_missing_labels_are_named_by_row(frame: Any, missing: Any) -> None:
    labels = np.asarray(frame[1], object).copy()
    labels[3] = missing
    with pytest.raises(BadData, match=r"y has no label in row 3, .*\bdrop\b"):
        MixupMPClassifier(recipe=QUICK).fit(frame[0], labels)


def test_classes_of_one_row_and_tables_of_two_rows() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.array([0] * 20 + [1] * 19 + [2])
    fitted = MixupMPClassifier(1.0, 0.4, recipe=QUICK, random_state=0).fit(X, y)
    assert fitted.predict_proba(X).shape == (40, 3)
    two = MixupMPClassifier(random_state=0).fit(X[:2], [0, 1])
    assert (two.ratio_, two.alpha_, two.temperature_, two.selection_) == (1.0, 0.4, 1.0, None)


def test_many_categories_share_an_indicator() -> None:
    X = pd.DataFrame({"code": [f"c{number % 150}" for number in range(300)]})
    fitted = DeepEnsembleClassifier(1, recipe=QUICK, random_state=0).fit(X, np.arange(300) % 2)
    assert fitted.layout_.shape == (101,)
    fitted.predict(pd.DataFrame({"code": ["unknown"]}))


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 1e8), (60.0, 1.7e9), (1e-30, 0.0), (1.0, -1e12)])
def test_numbers_far_from_zero_or_tiny_are_learned_from(scale: float, shift: float, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    plain = MixupMPClassifier(1.0, 0.4, recipe=QUICK, calibrate=False, random_state=0).fit(X, y)
    fitted = MixupMPClassifier(1.0, 0.4, recipe=QUICK, calibrate=False, random_state=0).fit(X * scale + shift, y)
    assert fitted.score(X * scale + shift, y) > 0.95
    assert np.abs(fitted.predict_proba(X * scale + shift) - plain.predict_proba(X)).max() < 0.05
    fitted.save(tmp_path / "model")
    back = MixupMPClassifier.load(tmp_path / "model").predict_proba(X * scale + shift)
    assert np.array_equal(back, fitted.predict_proba(X * scale + shift))


def test_numbers_near_zero_stay_as_they_are() -> None:
    X = np.random.default_rng(0).normal(20.0, 0.1, size=(60, 2))
    fitted = DeepEnsembleClassifier(1, recipe=QUICK, random_state=0).fit(X, np.arange(60) % 2)
    assert [column.offset for column in fitted.layout_.columns] == [0.0, 0.0]
    assert fitted.posterior_.task.encoder is None


def test_a_large_identifier_is_told_apart_from_the_next(frame: Any) -> None:
    X = pd.DataFrame({"id": 123_456_789 + np.arange(120) % 2, "size": frame[0]["size"]})
    fitted = MixupMPClassifier(1.0, 0.4, recipe=QUICK, calibrate=False, random_state=0).fit(X, np.arange(120) % 2)
    assert fitted.score(X, np.arange(120) % 2) == 1.0


def test_values_that_single_precision_merges_are_named() -> None:
    X = np.random.default_rng(0).normal(size=(120, 2)) * [1.0, 1e-46]
    with pytest.warns(ColumnWarning, match="column '1' has 120 distinct values, of which 1 are left"):
        DeepEnsembleClassifier(1, recipe=QUICK, random_state=0).fit(X, np.arange(120) % 2)
    two_far = np.where(np.arange(120) % 2, 1e10, 2e10) + np.arange(120)  # no one offset is near both
    with pytest.warns(ColumnWarning, match="column '0' has 120 distinct values"):
        DeepEnsembleClassifier(1, recipe=QUICK, random_state=0).fit(two_far[:, None], np.arange(120) % 2)


def test_a_trained_network_takes_rows_as_they_are() -> None:
    X = (np.random.default_rng(0).normal(size=(60, 2)) + 1e5).astype(np.float32)
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    fitted = MixupMPClassifier(1.0, 0.4, 2, network=network, body="1", random_state=0).fit(X, np.arange(60) % 2)
    assert [column.offset for column in fitted.layout_.columns] == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore:The number of unique classes", "ignore:the temperature ended")
def test_rows_are_held_out_of_the_classes_that_have_two() -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.r_[np.arange(50), np.arange(10)]
    model = MixupMPClassifier(ratio=1.0, alpha=0.4, members=1, recipe=QUICK, random_state=0).fit(X, y)
    assert model.selection_ is not None
    assert model.selection_.rows == 10
    few = MixupMPClassifier(ratio=1.0, alpha=0.4, members=1, recipe=QUICK, random_state=0).fit(X[:53], y[:53])
    assert few.selection_ is None
