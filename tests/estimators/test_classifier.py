"""The classifiers beyond scikit-learn's checks: what they take, and what they say."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mixupmp import Recipe, Rows, mc_dropout, mixup_mp
from mixupmp.core.errors import BadData, InvalidArgument, MixupMPError
from mixupmp.decide.calibrate import CalibrationWarning
from mixupmp.decide.calibrators import MemberCalibrators, Temperature
from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier, PosteriorClassifier
from mixupmp.estimators.base import UnderTrained
from mixupmp.metrics import predictive_entropy


@pytest.fixture(scope="module")
def fitted(iris: Any, quick: Recipe) -> MixupMPClassifier:
    features, labels = iris
    return MixupMPClassifier(ratio=0.3, alpha=1.0, members=3, recipe=quick, random_state=0).fit(
        features[::2], labels[::2]
    )


def test_mixup_ensembles_learn_iris_and_report_what_was_fitted(fitted: MixupMPClassifier, iris: Any) -> None:
    features, labels = iris
    assert fitted.score(features[1::2], labels[1::2]) > 0.9
    assert (fitted.ratio_, fitted.alpha_, fitted.n_features_in_) == (0.3, 1.0, 4)
    assert fitted.predict_members(features[:5]).shape == (3, 5, 3)


def test_log_probabilities_are_finite(fitted: MixupMPClassifier, iris: Any) -> None:
    logs = fitted.predict_log_proba(iris[0])
    assert np.allclose(np.exp(logs), fitted.predict_proba(iris[0]))
    assert np.isfinite(fitted.predict_log_proba(1e6 * iris[0])).all()


def test_the_paper_s_name_for_the_ratio_is_taken(iris: Any, quick: Recipe, fitted: MixupMPClassifier) -> None:
    other = MixupMPClassifier(r=0.3, alpha=1.0, members=3, recipe=quick, random_state=0).fit(iris[0][::2], iris[1][::2])
    assert np.array_equal(other.predict_proba(iris[0]), fitted.predict_proba(iris[0]))


def test_ratio_zero_is_the_deep_ensemble_bit_for_bit(iris: Any, quick: Recipe) -> None:
    shared = {"members": 2, "recipe": quick, "random_state": 3}
    zero = MixupMPClassifier(ratio=0, **shared).fit(*iris)
    assert np.array_equal(
        zero.predict_proba(iris[0]), DeepEnsembleClassifier(**shared).fit(*iris).predict_proba(iris[0])
    )


def test_a_row_has_the_same_answer_in_any_company(fitted: MixupMPClassifier, iris: Any) -> None:
    together = fitted.predict_proba(iris[0])
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in iris[0][:9]])
    assert np.array_equal(together[:9], alone)


def test_string_labels_clone_and_pickle(iris: Any, quick: Recipe) -> None:
    names = np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    model = DeepEnsembleClassifier(members=2, recipe=quick, random_state=0).fit(iris[0], names)
    assert set(model.predict(iris[0])) <= set(names)
    assert model.evaluate(iris[0], names)["acc"] == model.score(iris[0], names)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(iris[0]), model.predict_proba(iris[0]))
    refitted = clone(model).fit(iris[0], names)
    assert np.array_equal(refitted.predict_proba(iris[0]), model.predict_proba(iris[0]))
    with pytest.raises(MixupMPError, match="unknown class 'rose'"):
        model.evaluate(iris[0][:1], ["rose"])


def test_grid_search_over_ratio_in_a_pipeline(iris: Any, quick: Recipe) -> None:
    pipeline = make_pipeline(StandardScaler(), MixupMPClassifier(members=2, recipe=quick, random_state=0))
    grid = {"mixupmpclassifier__ratio": [0, 1, float("inf")]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(*iris)
    assert len(search.cv_results_["mean_test_score"]) == 3
    # Two folds of iris are learned by the deep ensemble; blends alone are much less sure of it.
    assert search.best_params_["mixupmpclassifier__ratio"] != float("inf")
    assert search.score(*iris) > -0.3


def test_scikit_learn_s_calibration_takes_it(iris: Any, quick: Recipe) -> None:
    model = CalibratedClassifierCV(DeepEnsembleClassifier(members=1, recipe=quick, random_state=0), cv=2)
    assert model.fit(*iris).predict_proba(iris[0]).shape == (150, 3)


def test_class_weight_moves_predictions_to_the_heavy_class(iris: Any, quick: Recipe) -> None:
    features, labels = iris[0][50:, :1], iris[1][50:]
    shares = [
        (DeepEnsembleClassifier(1, recipe=quick, class_weight=weights, random_state=0).fit(features, labels)
         .predict(features) == 2).mean()
        for weights in ({1: 10, 2: 1}, None, {1: 1, 2: 10})
    ]  # fmt: skip
    assert shares[0] < shares[1] < shares[2]


def test_frames_give_names(iris: Any, quick: Recipe) -> None:
    frame = pd.DataFrame(iris[0], columns=["a", "b", "c", "d"])
    model = DeepEnsembleClassifier(1, recipe=quick).fit(frame, iris[1])
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]


def test_tensors_datasets_and_loaders_are_the_same_rows(iris: Any, quick: Recipe) -> None:
    features, labels = torch.from_numpy(iris[0]).float(), torch.from_numpy(iris[1])
    dataset = TensorDataset(features, labels)
    model = DeepEnsembleClassifier(1, recipe=quick, random_state=0)
    expected = model.fit(features.numpy(), labels.numpy()).predict_proba(features.numpy())
    for X, y in ((features, labels), (dataset, None), (DataLoader(dataset, 50), None), (Rows(features, labels), None)):
        assert np.array_equal(model.fit(X, y).predict_proba(X), expected)
    with pytest.raises(InvalidArgument, match="shuffle=False"):
        model.predict(DataLoader(dataset, 50, shuffle=True))
    with pytest.raises(InvalidArgument, match="brings its own labels"):
        model.fit(dataset, labels)


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    data = load_digits()
    return (data.images[:300] * 15).astype(np.uint8), data.target[:300]


def test_images_in_every_layout_are_the_same_images(digits: tuple[Any, Any]) -> None:
    images, labels = digits
    recipe = Recipe(epochs=3, learning_rate=0.05)
    model = DeepEnsembleClassifier(2, recipe=recipe, random_state=0, engine="inline")
    expected = model.fit(images, labels).predict_proba(images)
    for same in (images[:, None], images[..., None], torch.from_numpy(images), images.astype(np.int64)):
        assert np.allclose(model.fit(same, labels).predict_proba(same), expected, atol=1e-6)
    assert model.n_features_in_ == 64
    with pytest.raises(InvalidArgument, match="whole numbers from 0 to 255"):
        model.predict(images / 255)
    with pytest.raises(InvalidArgument, match="8, 8"):
        model.predict(images[:, :, :7])
    with pytest.raises(InvalidArgument, match="pixels from 0 to 255"):
        model.fit(images.astype(np.int64) * 300, labels)


def test_color_images_and_floats(digits: tuple[Any, Any]) -> None:
    images, labels = digits
    color = np.repeat(images[..., None], 3, axis=3) / 255
    with pytest.warns(UnderTrained, match=r"training accuracy in 3 steps; about 345 are usual for 300 rows: train"):
        model = DeepEnsembleClassifier(1, epochs=1, random_state=0, engine="inline").fit(color, labels)
    assert model.layout_.shape == (3, 8, 8)
    assert model.predict_members(color[:4]).shape == (1, 4, 10)


def test_a_fine_tuned_network_is_compared_with_the_default_for_fine_tuning(digits: tuple[Any, Any]) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model = DeepEnsembleClassifier(1, network=network, fine_tune=True, epochs=1, calibrate=False, random_state=0)
    with pytest.warns(UnderTrained, match=r"training accuracy in 5 steps; about 300 are usual for 300 rows"):
        model.fit(*digits)


def test_any_method_serves(iris: Any, quick: Recipe) -> None:
    model = PosteriorClassifier(mc_dropout(5), recipe=quick, random_state=0).fit(*iris)
    assert model.predict_members(iris[0]).shape == (5, 150, 3)
    assert PosteriorClassifier("bayesian-bootstrap", recipe=quick).fit(*iris).score(*iris) > 0.9
    with pytest.raises(MixupMPError, match=r"unknown method 'mixupmp'.*mixup-mp"):
        PosteriorClassifier("mixupmp").fit(*iris)


def test_uncertainties_are_those_of_the_members(fitted: MixupMPClassifier, iris: Any) -> None:
    members = fitted.predict_members(iris[0])
    entropy = predictive_entropy(torch.from_numpy(fitted.predict_proba(iris[0]))).numpy()
    assert np.allclose(fitted.uncertainty(iris[0]), entropy, atol=1e-6)
    each = -(members * np.log(members + 1e-38)).sum(-1).mean(0)
    pooled = predictive_entropy(torch.from_numpy(members.mean(0))).numpy()  # before the temperature, as members are
    assert np.allclose(fitted.uncertainty(iris[0], "mutual_information"), pooled - each, atol=1e-5)
    votes = np.stack([(members.argmax(-1) == k).sum(0) for k in range(3)]).max(0)
    assert np.allclose(fitted.uncertainty(iris[0], "variation"), 1 - votes / 3)
    gini = 1 - (fitted.predict_proba(iris[0]) ** 2).sum(1)
    assert np.allclose(fitted.uncertainty(iris[0], "gini"), gini, atol=1e-6)
    with pytest.raises(MixupMPError, match="unknown uncertainty"):
        fitted.uncertainty(iris[0], "doubt")


def test_calibration_keeps_predictions_and_serves_every_answer(iris: Any, quick: Recipe) -> None:
    model = MixupMPClassifier(ratio=float("inf"), alpha=1.0, members=2, recipe=quick, calibrate=False, random_state=0)
    model.fit(iris[0][::2], iris[1][::2])
    held = iris[0][1::2], iris[1][1::2]
    before, nll = model.predict_proba(iris[0]), model.evaluate(*held)["nll"]
    model.calibrate_on(*held, kept=0)
    assert isinstance(model.calibrator_, Temperature)
    assert model.calibrator_.temperature < 1  # blends alone make a network too unsure
    assert np.array_equal(model.predict_proba(iris[0]).argmax(1), before.argmax(1))
    assert model.evaluate(*held)["nll"] < nll
    model.calibrate_on(*held, each_member=True, kept=0)
    assert isinstance(model.calibrator_, MemberCalibrators)
    assert np.allclose(model.predict_members(iris[0]).mean(0), model.predict_proba(iris[0]), atol=1e-6)
    model.calibrate_on(*held, kind=None)
    assert np.array_equal(model.predict_proba(iris[0]), before)


def test_promises_need_rows_that_nothing_was_fitted_to(fitted: MixupMPClassifier, iris: Any) -> None:
    fresh = clone(fitted).fit(iris[0][::2], iris[1][::2])
    with pytest.raises(MixupMPError, match="predict_set needs held-out rows"):
        fresh.predict_set(iris[0])
    fresh.calibrate_on(iris[0][1::2], iris[1][1::2], kept=0)
    with pytest.raises(MixupMPError, match="predict_or_abstain needs held-out rows"):
        fresh.predict_or_abstain(iris[0])
    fresh.calibrate_on(iris[0][1::2], iris[1][1::2], kept=0.6)
    assert fresh.held_out_ is not None
    assert len(fresh.held_out_[1]) == 45


def test_a_class_that_the_fit_did_not_see_is_refused_everywhere(fitted: MixupMPClassifier, iris: Any) -> None:
    features, labels = iris
    unseen = np.where(labels == 2, 7, labels)
    for measure in (fitted.score, fitted.evaluate, clone(fitted).fit(features[::2], labels[::2]).calibrate_on):
        with pytest.raises(MixupMPError, match="unknown class '7'"):
            measure(features, unseen)


def test_sets_and_abstention(fitted: MixupMPClassifier, iris: Any) -> None:
    fresh = clone(fitted).fit(iris[0][::2], iris[1][::2])
    fresh.calibrate_on(iris[0][1::2], iris[1][1::2], kind=None)
    sets = fresh.predict_set(iris[0], coverage=0.9)
    assert sets.dtype == bool
    assert sets.shape == (150, 3)
    assert sets[np.arange(150), iris[1]].mean() > 0.8
    answers = fresh.predict_or_abstain(iris[0], risk=0.3, confidence=0.8)
    answered = ~np.ma.getmaskarray(answers)
    assert answered.sum() > 0
    assert np.array_equal(answers[answered].data, fresh.predict(iris[0])[answered])


def test_zero_weights_are_rows_left_out(iris: Any, quick: Recipe) -> None:
    weights = (np.arange(150) % 2 == 0).astype(float) * 3
    model = MixupMPClassifier(ratio=1, members=1, recipe=quick, random_state=0)
    weighted = model.fit(*iris, sample_weight=weights).predict_proba(iris[0])
    assert np.array_equal(model.fit(iris[0][::2], iris[1][::2]).predict_proba(iris[0]), weighted)
    with pytest.raises(BadData, match="1 class"):
        model.fit(*iris, sample_weight=(iris[1] == 0).astype(float))


@pytest.mark.parametrize("weight", [1e308, 1e-320])
def test_only_ratios_of_weights_count(iris: Any, quick: Recipe, weight: float) -> None:
    model = MixupMPClassifier(ratio=1, members=1, recipe=quick, random_state=0)
    weighted = model.fit(*iris, sample_weight=np.full(150, weight)).predict_proba(iris[0])
    assert np.array_equal(model.fit(*iris).predict_proba(iris[0]), weighted)


def test_a_temperature_at_its_bound_is_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    X = np.random.default_rng(0).normal(size=(400, 2))
    model = MixupMPClassifier(ratio=float("inf"), alpha=0.4, epochs=1, random_state=0)
    warnings.simplefilter("always")
    model.fit(X, (X[:, 0] > 0).astype(int))
    found = [warning for warning in recwarn if warning.category is CalibrationWarning]
    assert len(found) == 1
    assert "bound 0.25" in str(found[0].message)
    assert found[0].filename == __file__


@pytest.mark.parametrize("kind", [MixupMPClassifier, PosteriorClassifier])
def test_the_temperature_counts_rows_by_their_weights(kind: type, quick: Recipe) -> None:
    """Where two fifths of the labels are wrong and count nothing, the others are all there is to calibrate to."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(500, 3))
    y, wrong = (X[:, 0] > 0).astype(int), generator.random(500) < 0.4
    given = {"ratio": 1.0, "alpha": 0.4, "members": 1} if kind is MixupMPClassifier else {"method": mixup_mp(members=1)}
    model = kind(**given, recipe=quick, random_state=0)
    weighted = model.fit(X, np.where(wrong, 1 - y, y), sample_weight=np.where(wrong, 1e-6, 1.0)).temperature_
    dropped = model.fit(X[~wrong], y[~wrong]).temperature_
    assert weighted == pytest.approx(dropped, abs=0.25)
    assert weighted < 1


def test_weights_are_repetitions_for_the_deep_ensemble(iris: Any, quick: Recipe) -> None:
    """The check of scikit-learn's that we fail, at the precision of float32."""
    weights = np.arange(150) % 3
    recipe = Recipe(**{**vars(quick), "batch_size": None})
    model = DeepEnsembleClassifier(1, recipe=recipe, calibrate=False, random_state=0)
    weighted = model.fit(*iris, sample_weight=weights).predict_proba(iris[0])
    repeated = model.fit(np.repeat(iris[0], weights, 0), np.repeat(iris[1], weights)).predict_proba(iris[0])
    assert np.allclose(weighted, repeated, atol=1e-4)
    assert not np.allclose(model.fit(*iris).predict_proba(iris[0]), repeated, atol=1e-3)
