"""The regressor beyond scikit-learn's checks: its two kinds of doubt, and whether its intervals hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_diabetes

from mixupmp import Recipe
from mixupmp.core.errors import InvalidArgument, MixupMPError
from mixupmp.core.shared import SharedEnsemble
from mixupmp.decide.calibrators import VarianceFactor
from mixupmp.estimators import MixupMPRegressor
from mixupmp.estimators.base import UnderTrained, WorseThanConstant

NOISE = 0.5


@pytest.fixture(scope="module")
def line() -> tuple[Any, Any]:
    """y = 100 + 10 x + noise that grows with x: the right deviation is known for every row."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (600, 1))
    return x, 100 + 10 * x[:, 0] + generator.normal(size=600) * NOISE * (1 + x[:, 0])


@pytest.fixture(scope="module")
def fitted(line: tuple[Any, Any]) -> MixupMPRegressor:
    recipe = Recipe(epochs=120, batch_size=128, optimizer="adamw", learning_rate=1e-2, weight_decay=1e-3)
    return MixupMPRegressor(ratio=0.1, alpha=1.0, members=3, recipe=recipe, random_state=0).fit(
        line[0][:400], line[1][:400]
    )


def test_means_deviations_and_intervals(fitted: MixupMPRegressor, line: tuple[Any, Any]) -> None:
    found = fitted.evaluate(line[0][400:], line[1][400:])
    assert found["r2"] > 0.98
    assert 0.8 < found["coverage"] < 0.97
    mean, deviation = fitted.predict(line[0], return_std=True)
    assert np.array_equal(mean, fitted.predict(line[0]))
    quiet, loud = line[0][:, 0] < -0.7, line[0][:, 0] > 0.7
    assert deviation[loud].mean() > 2.5 * deviation[quiet].mean()
    lower, upper = fitted.predict_interval(line[0], 0.8)
    assert (lower < mean).all()
    assert (mean < upper).all()


def test_doubt_is_noise_and_disagreement(fitted: MixupMPRegressor, line: tuple[Any, Any]) -> None:
    total, noise, disagreement = (fitted.uncertainty(line[0], kind) for kind in ("total", "noise", "disagreement"))
    assert np.allclose(total**2, noise**2 + disagreement**2)
    assert np.allclose(total, fitted.predict(line[0], return_std=True)[1])
    # Far from the data the members disagree.
    far = fitted.uncertainty(np.array([[6.0], [-6.0]]), "disagreement")
    assert far.min() > 3 * disagreement.mean()
    means, deviations = fitted.predict_members(line[0][:7])
    assert means.shape == deviations.shape == (3, 7)
    with pytest.raises(MixupMPError, match="unknown uncertainty"):
        fitted.uncertainty(line[0], "entropy")


def test_scale_and_shift_of_targets_do_not_matter(line: tuple[Any, Any]) -> None:
    recipe = Recipe(epochs=5, optimizer="adamw", learning_rate=1e-2)
    model = MixupMPRegressor(ratio=1, alpha=1.0, members=1, calibrate=False, recipe=recipe, random_state=0)
    plain = model.fit(*line).predict(line[0])
    assert np.allclose(model.fit(line[0], 1e3 * line[1] - 5).predict(line[0]), 1e3 * plain - 5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of the exporter
@pytest.mark.parametrize(("scale", "shift"), [(1e-30, 0.0), (1e60, 0.0), (1.0, 1e9)])
def test_targets_that_are_tiny_huge_or_far_from_zero(
    line: tuple[Any, Any], tmp_path: Path, scale: float, shift: float
) -> None:
    recipe = Recipe(epochs=5, optimizer="adamw", learning_rate=1e-2)
    model = MixupMPRegressor(ratio=1, alpha=1.0, members=1, calibrate=False, recipe=recipe, random_state=0)
    plain, deviation = model.fit(*line).predict(line[0], return_std=True)
    mean, found = model.fit(line[0], scale * line[1] + shift).predict(line[0], return_std=True)
    assert np.allclose((mean - shift) / scale, plain, atol=1e-4)
    assert np.allclose(found / scale, deviation, rtol=1e-4)
    if shift:
        model.export_onnx(tmp_path / "model.onnx")
        rows = {"inputs": line[0].astype(np.float32)}
        (exported,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["predicted_mean"], rows)
        assert np.allclose(exported - shift, mean - shift, atol=1e-4)


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_targets_whose_squares_have_no_number_are_refused(line: tuple[Any, Any], scale: float) -> None:
    with pytest.raises(InvalidArgument, match=r"y must be .*1e100 from its mean.*Rescale"):
        MixupMPRegressor().fit(line[0], scale * line[1])


def test_auto_chooses_by_the_mixture_s_likelihood(line: tuple[Any, Any]) -> None:
    recipe = Recipe(epochs=10, optimizer="adamw", learning_rate=1e-2)
    model = MixupMPRegressor(members=2, recipe=recipe, random_state=0).fit(line[0][:100], line[1][:100])
    assert model.selection_ is not None
    assert {result.candidate.ratio for result in model.selection_.results} >= {0.0, float("inf")}


def test_the_default_is_calibrated_on_few_noisy_rows() -> None:
    """A constant Gaussian has NLL 5.80 on these rows, and ridge regression with a constant variance 5.44."""
    X, y = load_diabetes(return_X_y=True)
    model = MixupMPRegressor(random_state=0).fit(X[:200], y[:200])
    assert isinstance(model.method_.sampler, SharedEnsemble)
    assert model.selection_ is not None
    assert model.selection_.chosen.epochs == model.epochs_
    assert model.selection_.to_dict()["variance_factor"] == model.variance_factor_ > 1
    found = model.evaluate(X[200:], y[200:])
    assert found["nll"] < 5.5
    assert 0.82 < found["coverage"] < 0.97


def test_the_variance_factor_scales_every_answer_and_can_be_switched_off(line: tuple[Any, Any]) -> None:
    recipe = Recipe(epochs=60, batch_size=16, optimizer="adamw", learning_rate=1e-2, weight_decay=0.0)
    given = {"ratio": 0.0, "members": 2, "recipe": recipe, "random_state": 0}
    rows = line[0][:60], line[1][:60]
    model = MixupMPRegressor(**given).fit(*rows)
    plain = MixupMPRegressor(**given, calibrate=False).fit(*rows)
    assert (plain.calibrator_, plain.variance_factor_, plain.selection_) == (None, 1.0, None)
    model.calibrator_ = VarianceFactor(4.0)
    (mean, deviation), (same, half) = (m.predict(line[0], return_std=True) for m in (model, plain))
    assert np.allclose(mean, same)
    assert np.allclose(deviation, 2 * half)
    for kind in ("total", "noise", "disagreement"):
        assert np.allclose(model.uncertainty(line[0], kind), 2 * plain.uncertainty(line[0], kind))
    (low, high), (near, far) = (m.predict_interval(line[0]) for m in (model, plain))
    assert np.allclose(high - low, 2 * (far - near))


def test_a_fit_that_is_worse_than_a_constant_is_a_warning() -> None:
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(100, 20)), generator.normal(size=100)
    recipe = Recipe(epochs=30, batch_size=32, optimizer="adamw", learning_rate=3e-3, weight_decay=0.1)
    with pytest.warns(WorseThanConstant, match="above that of one Gaussian"):
        MixupMPRegressor(ratio=0.0, members=1, recipe=recipe, random_state=0).fit(X, y)


def test_too_short_a_training_is_a_warning() -> None:
    X = np.random.default_rng(0).normal(size=(200, 5))
    with pytest.warns(UnderTrained, match="of their targets' variance in 4 steps"):
        MixupMPRegressor(ratio=1.0, alpha=0.4, epochs=1, calibrate=False, random_state=0).fit(X, X[:, 0] * X[:, 1])
