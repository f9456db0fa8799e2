"""Estimators on disk: everything that predictions need comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

from mixupmp import MixupMPClassifier, MixupMPRegressor, PosteriorClassifier, Recipe, load, save
from mixupmp.core.errors import BadRun, InvalidArgument
from mixupmp.decide.calibrators import VarianceFactor
from mixupmp.decide.search import Search
from mixupmp.estimators.inputs import decode_labels, encode_labels
from mixupmp.store.manifest import write_manifest

LABELS = {
    "text": np.array(["setosa", "versi-color", "virginica"]),
    "whole numbers": np.array([3, 1, 7]),
    "numbers": np.array([0.0, 2.0, 5.0]),
    "objects": np.array(["a", "b", "c"], dtype=object),
    "dates": np.array(["2024-01-01", "2024-01-02", "2025-01-01"], dtype="datetime64[D]"),
}


def answers(model: Any, X: Any) -> list[Any]:
    abstained = model.predict_or_abstain(X, risk=0.5)
    return [model.predict_proba(X), model.predict(X), model.predict_set(X), abstained.mask, abstained.data]


@pytest.mark.parametrize("kind", ["text", "whole numbers", "numbers", "objects"])
@pytest.mark.parametrize("each_member", [False, True])
def test_a_calibrated_classifier_comes_back(
    kind: str, each_member: bool, iris: Any, quick: Recipe, tmp_path: Path
) -> None:
    X, y = iris[0], LABELS[kind][iris[1]]
    model = MixupMPClassifier(0.5, 1.0, members=2, recipe=quick, random_state=0).fit(X[::2], y[::2])
    model.calibrate_on(X[1::2], y[1::2], each_member=each_member).save(tmp_path / "model", {"acc": 0.9})
    back = MixupMPClassifier.load(tmp_path / "model")
    assert back.classes_.dtype == model.classes_.dtype
    assert back.get_params() == model.get_params()
    assert (back.ratio_, back.alpha_, back.n_features_in_) == (0.5, 1.0, 4)
    for one, other in zip(answers(model, X), answers(back, X), strict=True):
        assert np.array_equal(one, other)
    assert load(tmp_path / "model").members == 2
    with pytest.raises(InvalidArgument, match="one with a MixupMPRegressor"):
        MixupMPRegressor.load(tmp_path / "model")


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_type_come_back(kind: str) -> None:
    back = decode_labels(encode_labels(LABELS[kind]))
    assert back.dtype == LABELS[kind].dtype
    assert np.array_equal(back, LABELS[kind])


def test_column_names_come_back_and_are_checked(iris: Any, quick: Recipe, tmp_path: Path) -> None:
    frame = pd.DataFrame(iris[0], columns=["a", "b", "c", "d"])
    model = PosteriorClassifier("deep-ensemble", recipe=quick, random_state=0).fit(frame, iris[1])
    model.save(tmp_path / "model")
    back = PosteriorClassifier.load(tmp_path / "model")
    assert list(back.feature_names_in_) == ["a", "b", "c", "d"]
    assert np.array_equal(back.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        back.predict(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="needs held-out rows"):
        back.predict_set(frame)


def test_a_regressor_comes_back_with_the_scale_of_its_targets(iris: Any, quick: Recipe, tmp_path: Path) -> None:
    X, y = iris[0][:, :3], 100 + 7 * iris[0][:, 3]
    model = MixupMPRegressor(0.1, 1.0, members=2, recipe=quick, search=Search(), random_state=0).fit(X, y)
    model.calibrator_ = VarianceFactor(2.5)
    model.save(tmp_path / "model")
    back = MixupMPRegressor.load(tmp_path / "model")
    assert back.variance_factor_ == 2.5
    for one, other in zip(model.predict(X, return_std=True), back.predict(X, return_std=True), strict=True):
        assert np.array_equal(one, other)


def own_network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_network_of_the_users_has_to_be_passed(iris: Any, quick: Recipe, tmp_path: Path) -> None:
    model = PosteriorClassifier("deep-ensemble", network=own_network, recipe=quick, random_state=0).fit(*iris)
    model.save(tmp_path / "model")
    with pytest.raises(BadRun, match="network=MyNetwork"):
        PosteriorClassifier.load(tmp_path / "model")
    back = PosteriorClassifier.load(tmp_path / "model", network=own_network)
    assert np.array_equal(back.predict_proba(iris[0]), model.predict_proba(iris[0]))


def test_a_posterior_alone_is_no_estimator(iris: Any, quick: Recipe, tmp_path: Path) -> None:
    model = PosteriorClassifier("single-network", recipe=quick, random_state=0).fit(*iris)
    save(model.posterior_, tmp_path / "posterior")
    with pytest.raises(BadRun, match="a posterior without an estimator"):
        PosteriorClassifier.load(tmp_path / "posterior")


@pytest.mark.parametrize(
    "classes",
    [
        {"dtype": "<U1", "values": ["a", "b"]},  # three outputs: predictions would fail, or name another class
        {"dtype": "<U1", "values": [["a", "b", "c"]]},
        {"dtype": "<U900000000", "values": ["a", "b", "c"]},  # 10 GB
        {"dtype": "(2,", "values": ["a", "b", "c"]},  # numpy evaluates text like this
        {"dtype": "V8", "values": ["a", "b", "c"]},
    ],
    ids=lambda classes: classes["dtype"],
)
def test_classes_that_are_not_those_of_the_outputs_are_refused(
    classes: dict[str, Any], iris: Any, quick: Recipe, tmp_path: Path
) -> None:
    PosteriorClassifier("single-network", recipe=quick, random_state=0).fit(*iris).save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["estimator"]["state"]["classes"] = classes
    path.write_text(json.dumps(config))
    write_manifest(path.parent)
    with pytest.raises(BadRun, match=r"config\.json does not describe"):
        PosteriorClassifier.load(path.parent)
