"""Fit calibrators on held-out rows: average the members, then calibrate the average (Rahaman & Thiery 2021).

Fitted on few rows, a calibrator can do harm. So temperature and vector scaling are penalized toward the identity,
bounded, and kept only if their cross-validated gain in NLL exceeds its standard error. The loss of one confident error
can hide a clear gain of all other rows in that standard error, so a temperature is also kept where the gain is positive
and its derivative at T = 1, which has no such tail, is beyond two of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import check, check_known
from mixupmp.core.user_line import warn_at_user_line
from mixupmp.decide.calibrators import (
    TEMPERATURE_BOUNDS,
    Calibrator,
    Isotonic,
    MemberCalibrators,
    Temperature,
    VectorScaling,
    bound_message,
)
from mixupmp.metrics.checks import TINY, checked_labels, checked_probabilities, pooled

# Standard deviation (to second order) of the Gamma prior on 1/T, whose mode is T = 1.
PRIOR_DEVIATION = 0.5
FOLDS = 5
# Ridge penalty of vector scaling per squared distance from the identity: keeps separable classes finite.
VECTOR_PENALTY = 1e-5


class CalibrationWarning(UserWarning):
    """A fitted calibrator stopped at the bound of its parameters."""


def fit_calibrator(kind: str, probabilities: Tensor, labels: Tensor) -> Calibrator:
    """Fit a calibrator on rows that no member was trained on.

    Parameters
    ----------
    kind : {"temperature", "vector", "isotonic"}
        One parameter, two per class, or a curve per class. The more parameters, the more rows are needed.
    probabilities : Tensor of shape (rows, classes) or (members, rows, classes)
        Members are averaged first.

    Notes
    -----
    Temperature and vector scaling never raise the NLL of these rows, and are the identity unless their cross-validated
    gain exceeds its standard error. `CalibrationWarning` is issued where a parameter ends at its bound.
    """
    check_known("calibration", kind, FITS)
    values = pooled(checked_probabilities(probabilities, members=None).cpu().double())
    return FITS[kind](values, checked_labels(labels, *values.shape).cpu())


def fit_member_calibrators(kind: str, member_probabilities: Tensor, labels: Tensor) -> MemberCalibrators:
    """Fit one calibrator for each member of (members, rows, classes)."""
    values = checked_probabilities(member_probabilities, members=True, name="member_probabilities")
    return MemberCalibrators(tuple(fit_calibrator(kind, member, labels) for member in values))


def fit_temperature(
    probabilities: Tensor,
    labels: Tensor,
    *,
    prior_deviation: float = PRIOR_DEVIATION,
    standard_errors: float | None = 1.0,
    warn: bool = True,
    weights: Tensor | None = None,
) -> Temperature:
    r"""The temperature of averaged probabilities (rows, classes), fitted on held-out rows so that it does no harm.

    With beta = 1/T, the minimum over `TEMPERATURE_BOUNDS` of the convex

        sum_i -w_i log softmax(beta log p_i)[y_i]  +  (beta - 1 - log beta) / s^2,

    whose second term is the Gamma(1 + 1/s^2, 1/s^2) prior of beta with its mode at one: with few rows T stays near one,
    with many the prior is negligible. T = 1 is returned unless the gain in NLL, cross-validated and compared row by
    row, exceeds `standard_errors` of its standard errors; or is positive, and the derivative of the first term at
    beta = 1 differs from zero by twice as many of its own (Rao's score test).

    Parameters
    ----------
    prior_deviation : float
        s; infinity gives the maximum-likelihood temperature.
    standard_errors : float or None
        None: no comparison with T = 1.
    warn : bool
        Whether to issue `CalibrationWarning` at a bound; `Temperature.at_bound` says so in any case.
    weights : Tensor of shape (rows,) or None
        How much each row counts, w_i, zero or more: a weight of 2 is a row that is there twice. None: 1.

    References
    ----------
    Guo et al. (2017), On calibration of modern neural networks. Ashukha et al. (2020), Pitfalls of in-domain
    uncertainty estimation. Rahaman & Thiery (2021), Uncertainty quantification and deep ensembles.
    """
    check(prior_deviation > 0, "prior_deviation", prior_deviation, "positive, or infinity for no prior")
    values = pooled(checked_probabilities(probabilities, members=None).cpu().double())
    true = checked_labels(labels, *values.shape).cpu()
    counts = checked_weights(weights, len(true))

    def estimate(kept: Tensor) -> Temperature:
        return _estimate_temperature(values[kept], true[kept], counts[kept], prior_deviation)

    fitted = estimate(torch.ones_like(true, dtype=torch.bool))
    if standard_errors is not None:
        gains = _gains(estimate, values, true)
        clear = beyond(gains, counts, standard_errors) or beyond(_scores(values, true), counts, 2 * standard_errors)
        if not (clear and float(gains @ counts) > 0):
            return Temperature(1.0)
    if warn and fitted.at_bound and standard_errors is not None:
        warn_at_user_line(f"{bound_message(fitted)}.", CalibrationWarning)
    return fitted


def checked_weights(weights: Tensor | None, rows: int) -> Tensor:
    """Weights in double precision, ones for None; refused where they are not one for each row, zero or more."""
    if weights is None:
        return torch.ones(rows, dtype=torch.float64)
    found = weights.detach().cpu().double()
    check(tuple(found.shape) == (rows,), "weights", tuple(found.shape), f"one number for each of the {rows} rows")
    counted = bool(((found >= 0) & found.isfinite()).all()) and float(found.sum()) > 0
    check(counted, "weights", found.tolist()[:5], "finite numbers, zero or more, and not all zero")
    return found


def _estimate_temperature(probabilities: Tensor, labels: Tensor, counts: Tensor, prior_deviation: float) -> Temperature:
    """Root of the derivative of the penalized NLL in beta, which increases, between the bounds of the temperature."""
    logs = probabilities.clamp_min(TINY).log()
    logs = logs - logs.amax(1, keepdim=True)  # leaves the derivative alone, and keeps the exponentials from overflowing
    true = logs.gather(1, labels[:, None]).squeeze(1)
    precision = prior_deviation**-2

    def derivatives(beta: float) -> tuple[float, float]:
        """The first and the second."""
        weights = torch.softmax(logs * beta, 1)
        means = (weights * logs).sum(1)
        variances = (weights * logs.square()).sum(1) - means.square()
        first = float(counts @ (means - true)) + precision * (1 - 1 / beta)
        return first, float(counts @ variances) + precision / beta**2

    low, high = (1 / bound for bound in reversed(TEMPERATURE_BOUNDS))
    if derivatives(1.0)[0] == 0:  # flat: every row is certain and correct
        beta = 1.0
    elif derivatives(low)[0] >= 0:
        beta = low
    elif derivatives(high)[0] <= 0:
        beta = high
    else:
        beta = _root(derivatives, low, high)
    fitted = Temperature(1 / beta)
    gains = _nlls(Temperature(1.0), probabilities, labels) - _nlls(fitted, probabilities, labels)
    return fitted if float(counts @ gains) > 0 else Temperature(1.0)


def _root(derivatives: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Newton's method from 1, by bisection where it would leave the bracket; importing scipy.optimize takes longer."""
    place = 1.0
    for _ in range(200):
        value, slope = derivatives(place)
        low, high = (place, high) if value < 0 else (low, place)
        step = place - value / slope if slope > 0 else low
        after = step if low < step < high else (low + high) / 2
        if abs(after - place) <= 1e-10:
            return after
        place = after
    return place


def _gains(estimate: Callable[[Tensor], Calibrator], probabilities: Tensor, labels: Tensor) -> Tensor:
    """How much less the NLL of each row is by a calibrator that was fitted without it, to the rows of a mask."""
    rows = len(labels)
    gains = -probabilities.gather(1, labels[:, None]).squeeze(1).clamp_min(TINY).log()
    if rows < 2:
        return torch.zeros_like(gains)
    fold = fold_numbers(rows)
    for number in range(int(fold.max()) + 1):
        left_out = fold == number
        calibrator = estimate(~left_out)
        gains[left_out] -= _nlls(calibrator, probabilities[left_out], labels[left_out])
    return gains


def fold_numbers(rows: int) -> Tensor:
    """The fold of each row, at random and always the same."""
    fold = torch.empty(rows, dtype=torch.int64)
    fold[torch.randperm(rows, generator=torch.Generator().manual_seed(0))] = torch.arange(rows) % min(FOLDS, rows)
    return fold


def _scores(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The derivative of each row's NLL in 1/T, at T = 1: its expected log-probability less that of its label."""
    logs = probabilities.clamp_min(TINY).log()
    return (probabilities * logs).sum(1) - logs.gather(1, labels[:, None]).squeeze(1)


def beyond(values: Tensor, counts: Tensor, standard_errors: float) -> bool:
    """Whether a weighted mean differs from zero by so many of its standard errors."""
    share = counts / counts.sum()
    spread = float(share.square().sum())  # one over the effective number of rows (Kish 1965)
    if spread >= 1:
        return False
    mean = share @ values
    error = math.sqrt(float((share * (values - mean)).square().sum()) / (1 - spread))
    return abs(float(mean)) > standard_errors * error


def _nlls(calibrator: Calibrator, probabilities: Tensor, labels: Tensor) -> Tensor:
    return -calibrator(probabilities).gather(1, labels[:, None]).squeeze(1).clamp_min(TINY).log()


def _fit_vector(probabilities: Tensor, labels: Tensor) -> VectorScaling:
    classes = probabilities.shape[1]
    identity = VectorScaling((1.0,) * classes, (0.0,) * classes)
    gains = _gains(lambda kept: _estimate_vector(probabilities[kept], labels[kept]), probabilities, labels)
    if not (gains.mean() > 0 and beyond(gains, torch.ones_like(gains), 1.0)):
        return identity
    fitted = _estimate_vector(probabilities, labels)
    if fitted.at_bound:
        warn_at_user_line(f"{bound_message(fitted)}.", CalibrationWarning)
    return fitted


def _estimate_vector(probabilities: Tensor, labels: Tensor) -> VectorScaling:
    """Convex in scales and shifts: L-BFGS-B from the identity, scales within those of `TEMPERATURE_BOUNDS`."""
    from scipy.optimize import minimize

    rows, classes = probabilities.shape
    logs = probabilities.clamp_min(TINY).log()
    targets = torch.zeros_like(logs).scatter_(1, labels[:, None], 1.0)
    start = np.r_[np.ones(classes), np.zeros(classes)]

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scales, shifts = torch.from_numpy(point[:classes]), torch.from_numpy(point[classes:])
        scores = torch.log_softmax(logs * scales + shifts, 1)
        residual = (scores.exp() - targets) / rows
        gradient = torch.cat([(residual * logs).sum(0), residual.sum(0)]).numpy()
        distance = point - start
        loss = -float((scores * targets).sum()) / rows + VECTOR_PENALTY * float(distance @ distance)
        return loss, gradient + 2 * VECTOR_PENALTY * distance

    low, high = (1 / bound for bound in reversed(TEMPERATURE_BOUNDS))
    bounds = [(low, high)] * classes + [(None, None)] * classes
    options = {"maxiter": 1000, "gtol": 1e-8}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return VectorScaling(tuple(found[:classes].tolist()), tuple(found[classes:].tolist()))


def _fit_isotonic(probabilities: Tensor, labels: Tensor) -> Isotonic:
    from sklearn.isotonic import IsotonicRegression

    curves = []
    for k, column in enumerate(probabilities.numpy().T):
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        model.fit(column, (labels == k).numpy().astype(np.float64))
        curves.append((tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist())))
    inputs, outputs = zip(*curves, strict=True)
    return Isotonic(inputs, outputs, floor=1 / (len(labels) + 2))


FITS: dict[str, Callable[[Tensor, Tensor], Calibrator]] = {
    "temperature": fit_temperature,
    "vector": _fit_vector,
    "isotonic": _fit_isotonic,
}
