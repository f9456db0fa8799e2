"""Calibrators against what theory says they do."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixupmp.core.errors import BadData, BadRun, InvalidArgument, UnknownName
from mixupmp.core.spec import encode
from mixupmp.decide.calibrate import CalibrationWarning, fit_calibrator, fit_member_calibrators, fit_temperature
from mixupmp.decide.calibrators import Isotonic, Temperature, VectorScaling, calibrator_of, read_calibrator
from mixupmp.metrics import evaluate

KINDS = ("temperature", "vector", "isotonic")


def skewed(rows: int, temperature: float, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Labels drawn from softmax(logits), and the probabilities softmax(logits * temperature) that need this T."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    return torch.softmax(logits * temperature, 1), labels


def nll(probabilities: Tensor, labels: Tensor) -> float:
    return -float(probabilities.double().gather(1, labels[:, None]).log().mean())


@pytest.mark.parametrize("truth", [0.4, 1.0, 2.5])
def test_temperature_recovers_the_one_that_was_used(truth: float) -> None:
    p, y = skewed(40_000, truth)
    fitted = fit_calibrator("temperature", p, y)
    assert isinstance(fitted, Temperature)
    assert fitted.temperature == pytest.approx(truth, rel=0.02)
    assert evaluate(fitted(p), y)["ece"] < 0.012


@pytest.mark.parametrize("deviation", [math.inf, 0.5, 0.1])
def test_temperature_is_the_minimum_of_the_penalized_nll_to_six_digits(deviation: float) -> None:
    from scipy.optimize import minimize_scalar

    p, y = skewed(500, 3.0)
    fitted = fit_temperature(p, y, prior_deviation=deviation)
    logs = p.log()
    best = minimize_scalar(
        lambda beta: 500 * nll(torch.softmax(logs * beta, 1), y) + (beta - 1 - math.log(beta)) / deviation**2,
        bounds=(0.13, 3.9),
        method="bounded",
        options={"xatol": 1e-10},
    )
    # The minimum of a smooth function is found by its values only to the root of their precision.
    assert fitted.temperature == pytest.approx(1 / best.x, rel=1e-6)


@pytest.mark.filterwarnings("ignore::mixupmp.decide.calibrate.CalibrationWarning")
@pytest.mark.parametrize("kind", ["temperature", "vector"])
@pytest.mark.parametrize("seed", range(6))
def test_never_worse_than_doing_nothing_on_the_rows_of_the_fit(kind: str, seed: int) -> None:
    for rows, truth in ((3, 1.0), (40, 0.3), (200, 1.0), (200, 6.0)):
        p, y = skewed(rows, truth, seed=seed)
        fitted = fit_calibrator(kind, p, y)
        assert nll(fitted(p).clamp_min(1e-38), y) <= nll(p, y) + 1e-12


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 100.0), st.integers(2, 12), st.sampled_from(["float32", "float64"]))
def test_temperature_never_changes_the_prediction(seed: int, temperature: float, classes: int, dtype: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(64, classes, generator=generator, dtype=getattr(torch, dtype)).pow(3) + 1e-3
    p = p / p.sum(1, keepdim=True)
    # Ties, neighbors one float apart, certainty and its opposite.
    p[0] = 1 / classes
    p[1, -1] = p[1, 0] = p[1].max()
    p[2] = 1 / classes
    p[2, -1] = torch.nextafter(p[2, -1], torch.tensor(1.0, dtype=p.dtype))
    p[3] = 0
    p[3, classes // 2] = 1
    calibrated = Temperature(temperature)(p)
    assert torch.equal(calibrated.argmax(1), p.argmax(1))
    assert calibrated.dtype == p.dtype
    assert calibrated.sum(1).numpy() == pytest.approx(np.ones(64), abs=1e-5)


def test_temperature_without_prior_stops_at_its_bounds_and_says_so() -> None:
    right = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).repeat(10, 1)
    labels = torch.tensor([0, 1]).repeat(10)
    with pytest.warns(CalibrationWarning, match="bound 0.25"):
        sharp = fit_temperature(right, labels, prior_deviation=math.inf)
    with pytest.warns(CalibrationWarning, match="bound 8"):
        flat = fit_temperature(right, 1 - labels, prior_deviation=math.inf)
    assert (sharp, flat) == (Temperature(0.25), Temperature(8.0))
    assert sharp.at_bound
    assert flat.at_bound
    assert not Temperature(1.0).at_bound


@pytest.mark.parametrize("deviation", [math.inf, 0.5])
def test_whole_number_weights_are_repeated_rows_and_a_weight_of_zero_is_no_row(deviation: float) -> None:
    p, y = skewed(300, 3.0)
    other, flipped = skewed(300, 0.3, seed=1)
    weights = torch.arange(300) % 3
    repeated = fit_temperature(p.repeat_interleave(weights, 0), y.repeat_interleave(weights), prior_deviation=deviation)
    weighted = fit_temperature(p, y, prior_deviation=deviation, weights=weights)
    assert weighted.temperature == pytest.approx(repeated.temperature, rel=1e-9)
    both, labels = torch.cat([p, other]), torch.cat([y, flipped])
    shares = torch.cat([torch.ones(300), torch.full((300,), 1e-12)])
    alone = fit_temperature(p, y, prior_deviation=deviation)
    assert fit_temperature(both, labels, prior_deviation=deviation, weights=shares).temperature == pytest.approx(
        alone.temperature, rel=1e-6
    )
    with pytest.raises(InvalidArgument, match="weights"):
        fit_temperature(p, y, weights=-shares[:300])


def test_few_rows_leave_the_temperature_near_one() -> None:
    right = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    assert fit_temperature(right[:1], torch.tensor([0])) == Temperature(1.0), "one row has no standard error"
    separated = [fit_temperature(right.repeat(n, 1), torch.tensor([0, 1]).repeat(n)).temperature for n in (1, 5, 50)]
    assert 1 > separated[0] > separated[1] > separated[2] > 0.25
    assert separated[0] > 0.85
    wrong = [fit_temperature(right.repeat(n, 1), torch.tensor([1, 0]).repeat(n)).temperature for n in (1, 5)]
    assert 1 < wrong[0] < wrong[1] < 8
    with pytest.warns(CalibrationWarning, match="bound 8"):
        assert fit_temperature(right.repeat(50, 1), torch.tensor([1, 0]).repeat(50)) == Temperature(8.0)


def test_certain_probabilities() -> None:
    certain = torch.eye(3)
    assert fit_temperature(certain, torch.arange(3)) == Temperature(1.0), "nothing to gain, no change"
    mistaken = fit_temperature(certain, torch.tensor([1, 1, 2]))
    assert torch.isfinite(mistaken(certain)).all()


def test_a_gain_within_its_standard_error_changes_nothing() -> None:
    p, y = skewed(60, 1.0, seed=5)
    free = fit_temperature(p, y, prior_deviation=math.inf, standard_errors=None)
    assert free != Temperature(1.0)
    assert fit_temperature(p, y) == Temperature(1.0)
    assert fit_calibrator("vector", p, y) == VectorScaling((1.0,) * 5, (0.0,) * 5)


def test_one_confident_error_does_not_hide_what_all_other_rows_say() -> None:
    # 79 rows are right and 80% sure; one is wrong and 97% sure. Its loss alone makes the standard error of the gain
    # larger than the gain.
    probabilities = torch.tensor([[0.979, 0.01, 0.01, 0.001]] + [[0.8, 0.2 / 3, 0.2 / 3, 0.2 / 3]] * 79).double()
    labels = torch.tensor([3] + [0] * 79)
    assert fit_temperature(probabilities, labels).temperature == pytest.approx(0.59, abs=0.01)
    # With two more such rows there is no gain.
    probabilities[:3], labels[:3] = probabilities[0], 3
    assert fit_temperature(probabilities, labels) == Temperature(1.0)


@pytest.mark.parametrize("truth", [1.0, 1.2])
def test_on_fresh_rows_the_guarded_fit_does_less_harm_than_maximum_likelihood(truth: float) -> None:
    guarded, likelihood, nothing = [], [], []
    for seed in range(60):
        p, y = skewed(4030, truth, seed=seed)
        held, known, fresh, unknown = p[:30], y[:30], p[30:], y[30:]
        guarded.append(nll(fit_temperature(held, known)(fresh), unknown))
        free = fit_temperature(held, known, prior_deviation=math.inf, standard_errors=None)
        likelihood.append(nll(free(fresh), unknown))
        nothing.append(nll(fresh, unknown))
    assert np.mean(guarded) < np.mean(likelihood)
    assert np.mean(guarded) < np.mean(nothing) + 0.005


def test_vector_scaling_recovers_scales_and_shifts() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = VectorScaling((0.5, 1.0, 1.5), (0.4, 0.0, -0.4))
    p = torch.softmax(2 * torch.randn(60_000, 3, generator=generator, dtype=torch.float64), 1)
    y = torch.multinomial(truth(p), 1, generator=generator)[:, 0]
    fitted = fit_calibrator("vector", p, y)
    assert isinstance(fitted, VectorScaling)
    # Scales and shifts of all classes may move together without changing a softmax of known inputs; probabilities not.
    assert float((fitted(p) - truth(p)).abs().mean()) < 0.005
    assert nll(fitted(p), y) <= nll(truth(p), y)


@pytest.mark.filterwarnings("ignore::mixupmp.decide.calibrate.CalibrationWarning")
def test_vector_scaling_stays_finite_where_classes_part_perfectly() -> None:
    p = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]).repeat(5, 1)
    fitted = fit_calibrator("vector", p, torch.arange(3).repeat(5))
    assert isinstance(fitted, VectorScaling)
    assert max(map(abs, fitted.scales + fitted.shifts)) < 100


@pytest.mark.filterwarnings("ignore::mixupmp.decide.calibrate.CalibrationWarning")
def test_vector_scaling_has_no_negative_scales() -> None:
    p, y = skewed(400, 1.0, classes=3)
    fitted = fit_calibrator("vector", p, (y + 1) % 3)  # labels that contradict the probabilities
    assert isinstance(fitted, VectorScaling)
    assert min(fitted.scales) >= 1 / 8
    with pytest.raises(InvalidArgument, match="zero or more"):
        VectorScaling((1.0, -0.1), (0.0, 0.0))


def test_vector_scaling_at_its_bounds_says_so() -> None:
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.softmax(10 * torch.randn(500, 3, generator=generator), -1)
    with pytest.warns(CalibrationWarning, match=r"scales of classes 0, 1, 2 ended at a bound \(0.125 to 4\): .*rows"):
        found = fit_calibrator("vector", probabilities, 2 - probabilities.argmax(1))
    assert isinstance(found, VectorScaling)
    assert found.at_bound
    assert not VectorScaling((1.0, 2.0), (0.0, 0.0)).at_bound


def test_isotonic_finds_a_curve_that_is_no_temperature() -> None:
    generator = torch.Generator().manual_seed(2)
    truth = torch.rand(20_000, generator=generator, dtype=torch.float64)
    shown = truth**3 / (truth**3 + (1 - truth) * 0.3)
    y = (torch.rand(20_000, generator=generator, dtype=torch.float64) < truth).long()
    p = torch.stack([1 - shown, shown], 1)
    fitted = fit_calibrator("isotonic", p, y)
    assert float((fitted(p)[:, 1] - truth).abs().mean()) < 0.02
    assert evaluate(fitted(p), y)["ece"] < 0.2 * evaluate(p, y)["ece"]
    order = shown.argsort()
    assert bool((fitted(p)[order, 1].diff() >= -1e-12).all()), "one class against another rises"


def test_isotonic_makes_nothing_impossible() -> None:
    p, y = skewed(30, 1.0, classes=4)
    y[y == 3] = 0  # the fit never sees class 3
    fitted = fit_calibrator("isotonic", p, y)
    calibrated = fitted(p)
    assert bool((calibrated >= 1 / 32 / 4).all())
    assert calibrated.sum(1).numpy() == pytest.approx(np.ones(30))
    nothing = Isotonic(((0.0, 1.0),) * 2, ((0.0, 0.0),) * 2, floor=0.01)
    assert nothing(torch.tensor([0.7, 0.3])).tolist() == [0.5, 0.5], "nowhere anything: no class is preferred"


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_helps_on_fresh_rows(kind: str) -> None:
    p, y = skewed(8000, 3.0)
    fitted = fit_calibrator(kind, p[:4000], y[:4000])
    before, after = evaluate(p[4000:], y[4000:]), evaluate(fitted(p[4000:]), y[4000:])
    assert after["ece"] < 0.25 * before["ece"]  # type: ignore[operator]
    assert after["nll"] < before["nll"]  # type: ignore[operator]


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_read_back_it_is_the_same(kind: str) -> None:
    p, y = skewed(200, 2.0)
    fitted = fit_calibrator(kind, p, y)
    again = read_calibrator(json.loads(json.dumps(encode(fitted))))
    assert again == fitted
    assert torch.equal(again(p), fitted(p))
    with pytest.raises(dataclasses.FrozenInstanceError):
        fitted.kind = "other"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_any_leading_shape_and_half_precision(kind: str) -> None:
    p, y = skewed(60, 2.0)
    fitted = fit_calibrator(kind, p, y)
    assert torch.equal(fitted(p.view(3, 4, 5, 5)), fitted(p).view(3, 4, 5, 5))
    assert torch.equal(fitted(p[0]), fitted(p)[0])
    half = fitted(p.half())
    assert half.dtype == torch.float32
    assert half.numpy() == pytest.approx(fitted(p).numpy(), abs=0.05)


def test_pooled_members_and_each_member_apart() -> None:
    first, y = skewed(3000, 2.0, seed=3)
    members = torch.stack([first, torch.softmax(first.log() * 2, 1)])
    pooled = fit_calibrator("temperature", members, y)
    assert pooled == fit_calibrator("temperature", members.mean(0), y)
    each = fit_member_calibrators("temperature", members, y)
    one, other = each.members
    assert one == fit_calibrator("temperature", members[0], y)
    assert other == fit_calibrator("temperature", members[1], y)
    assert each(members)[0].numpy() == pytest.approx(one(members[0]).numpy(), abs=1e-12)
    plain = [fit_temperature(member, y, prior_deviation=math.inf) for member in members]
    assert plain[1].temperature == pytest.approx(2 * plain[0].temperature, rel=1e-6)
    assert plain[0](members[0]).numpy() == pytest.approx(plain[1](members[1]).numpy(), abs=1e-6)
    assert read_calibrator(json.loads(json.dumps(encode(each)))) == each
    with pytest.raises(InvalidArgument, match="members that were calibrated"):
        each(members[:1])


def test_bad_input_is_named() -> None:
    p, y = skewed(20, 1.0)
    with pytest.raises(UnknownName, match="Did you mean 'temperature'"):
        fit_calibrator("temperatur", p, y)
    with pytest.raises(BadData, match="sum to one"):
        fit_calibrator("temperature", p * 2, y)
    with pytest.raises(BadData, match="empty"):
        fit_calibrator("temperature", p[:0], y[:0])
    with pytest.raises(BadData, match="found 5"):
        fit_calibrator("vector", p, torch.full((20,), 5))
    with pytest.raises(InvalidArgument, match="5 classes of the fit"):
        fit_calibrator("vector", p, y)(p[:, :3])
    with pytest.raises(InvalidArgument, match="temperature"):
        Temperature(0.0)
    with pytest.raises(InvalidArgument, match="shifts"):
        read_calibrator({"type": "VectorScaling", "scales": [1.0, 1.0]})
    with pytest.raises(UnknownName, match="Platt"):
        read_calibrator({"type": "Platt"})
    with pytest.raises(InvalidArgument, match="rising"):
        Isotonic(((1.0, 0.0),) * 2, ((0.0, 1.0),) * 2, floor=0.1)


@pytest.mark.parametrize("estimator", [[1], {"state": 3}, {"other": 1}])
def test_a_run_with_an_odd_estimator_is_refused(estimator: object) -> None:
    with pytest.raises(BadRun, match="does not describe a saved estimator"):
        calibrator_of({"spec": {}, "estimator": estimator})


@pytest.mark.parametrize("temperature", ["x", 10**400, float("nan"), None])
def test_an_odd_temperature_is_refused(temperature: object) -> None:
    with pytest.raises(InvalidArgument, match="temperature"):
        read_calibrator({"type": "Temperature", "temperature": temperature})
