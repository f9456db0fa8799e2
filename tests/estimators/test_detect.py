"""`detect` and sets by class and group, from the rows that a fit holds out by itself and from rows given later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixupmp import MixupMPClassifier, Recipe
from mixupmp.core.errors import InvalidArgument
from mixupmp.decide.detect import SCORES
from mixupmp.estimators.decisions import NotCalibrated
from mixupmp.metrics import GuaranteeWarning


@pytest.fixture(scope="module")
def shuffled(iris: Any) -> Any:
    order = np.random.default_rng(0).permutation(150)
    return iris[0][order], iris[1][order]


@pytest.fixture(scope="module")
def model(shuffled: Any, quick: Recipe) -> MixupMPClassifier:
    X, y = shuffled
    return MixupMPClassifier(ratio=1.0, alpha=1.0, members=2, recipe=quick, random_state=0).fit(X[:100], y[:100])


def test_a_fitted_classifier_detects_without_more_rows(model: MixupMPClassifier, shuffled: Any) -> None:
    assert model.detector_.refitted
    assert model.selection_ is not None
    assert model.detector_.rows == model.selection_.calibration_rows, "those that the temperature was fitted to"
    found = model.detect(shuffled[0][100:], false_alarm=0.1)
    assert found.score == "entropy"
    assert found.scores.shape == found.p_values.shape == found.flagged.shape == (50,)
    assert found.flagged.mean() < 0.4
    with pytest.raises(InvalidArgument, match="calibrate_on"):
        model.detect(shuffled[0], score="nearest")
    with pytest.warns(GuaranteeWarning, match="at least 99 held-out rows and there were"):
        assert not model.detect(shuffled[0], false_alarm=0.01).flagged.any()


def test_given_rows_make_it_exact_and_are_saved(
    model: MixupMPClassifier, shuffled: Any, tmp_path: Path, quick: Recipe
) -> None:
    X, y = shuffled
    model = MixupMPClassifier(ratio=1.0, alpha=1.0, members=2, recipe=quick, calibrate=False, random_state=0)
    model.fit(X[:70], y[:70])
    with pytest.raises(NotCalibrated, match="detect needs held-out rows"):
        model.detect(X)
    groups = np.where(np.arange(80) % 2, "odd", "even")
    model.calibrate_on(X[70:], y[70:], kind=None, groups=groups)
    assert not model.detector_.refitted
    assert model.detector_.rows == 80
    far = np.array([[50.0, -50.0, 50.0, -50.0], [-9.0, 9.0, -9.0, 9.0]])
    assert model.detect(far).score == "nearest"
    assert (model.detect(far, score="mahalanobis").p_values == 1 / 81).all()
    model.save(tmp_path / "model")
    again = MixupMPClassifier.load(tmp_path / "model")
    for score in SCORES:
        ours, theirs = model.detect(X, score=score), again.detect(X, score=score)
        assert np.array_equal(ours.p_values, theirs.p_values)
        assert np.array_equal(ours.flagged, ours.p_values <= 0.05)
    for options in ({"by_class": True}, {"groups": ["odd"] * 150}):
        assert np.array_equal(model.predict_set(X, 0.8, **options), again.predict_set(X, 0.8, **options))  # type: ignore[arg-type]


def test_sets_by_class_and_group(model: MixupMPClassifier, shuffled: Any) -> None:
    X, y = shuffled
    model.calibrate_on(X[100:], y[100:], kind=None)
    by_class = model.predict_set(X[100:], 0.8, by_class=True)
    for k in range(3):
        assert by_class[y[100:] == k, k].mean() >= 0.8, "on the held-out rows themselves it is at least that"
    filled = model.predict_set(X, 0.1, by_class=True, allow_empty=False)
    assert filled[np.arange(150), model.predict_proba(X).argmax(1)].all()
    with pytest.raises(NotCalibrated, match="groups of held-out rows"):
        model.predict_set(X, groups=["a"] * 150)
    with pytest.raises(InvalidArgument, match="by_class"):
        model.predict_set(X, by_class=True, groups=["a"] * 150)
    with pytest.raises(InvalidArgument, match="each of the 50 rows"):
        model.calibrate_on(X[100:], y[100:], groups=["a"])
