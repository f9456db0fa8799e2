"""Calibration of a classifier's probabilities on held-out rows: temperature, vector scaling, isotonic regression.

A calibrator acts on probabilities, so it serves a single network and a pooled ensemble alike: pool, then calibrate.
`fit_member_calibrators` gives every member its own instead. All of them are values: frozen, callable on tensors
(..., classes), and plain numbers in `to_dict`, which `calibrator_from_dict` reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.errors import BadData, UnknownName, check
from mixupmp.metrics.checks import TINY, as_floats, checked_labels, checked_probabilities

# The temperatures that are looked at. Rows that are all correct ask for zero, labels at random for infinity: both
# say more about the number of rows than about the network.
TEMPERATURES = (0.05, 100.0)
# The pull of vector scaling towards doing nothing, per squared step: it keeps the answer finite when a class can be
# told apart perfectly, and is too weak to be seen otherwise.
VECTOR_PULL = 1e-5


class Calibrator(Protocol):
    """Probabilities (..., classes) in, calibrated ones of their shape and type out; half precision becomes float32."""

    def __call__(self, probabilities: Tensor) -> Tensor: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Temperature:
    """softmax(log p / T): above one it spreads the probabilities, below one it sharpens them.

    The predicted class of no row changes, not even by rounding or among equal probabilities.
    """

    temperature: float

    def __post_init__(self) -> None:
        check(0 < self.temperature < float("inf"), "temperature", self.temperature, "positive and finite")

    @torch.no_grad()
    def __call__(self, probabilities: Tensor) -> Tensor:
        values = _wide(probabilities)
        result = torch.softmax(values.clamp_min(TINY).log() / self.temperature, -1)
        result = result.to(as_floats(probabilities, "probabilities").dtype)
        return _keep_prediction(result, probabilities.argmax(-1, keepdim=True))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "temperature", "temperature": self.temperature}


@dataclass(frozen=True)
class VectorScaling:
    """softmax(a * log p + b) with a scale and a shift for each class. It may change predictions."""

    scales: tuple[float, ...]
    shifts: tuple[float, ...]

    def __post_init__(self) -> None:
        check(len(self.scales) >= 2, "scales", self.scales, "one number for each of at least two classes")
        check(len(self.shifts) == len(self.scales), "shifts", self.shifts, f"{len(self.scales)} numbers, like scales")
        check(bool(np.isfinite(self.scales + self.shifts).all()), "scales", self.scales, "finite, and shifts too")

    @torch.no_grad()
    def __call__(self, probabilities: Tensor) -> Tensor:
        values = _wide(probabilities, len(self.scales))
        scales, shifts = values.new_tensor(self.scales), values.new_tensor(self.shifts)
        result = torch.softmax(values.clamp_min(TINY).log() * scales + shifts, -1)
        return result.to(as_floats(probabilities, "probabilities").dtype)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "vector", "scales": list(self.scales), "shifts": list(self.shifts)}


@dataclass(frozen=True)
class Isotonic:
    """Each class's probability through its own rising curve, then all divided by their sum. It may change predictions.

    A curve is a line through points (inputs, outputs), constant beyond its ends. No output is below `floor`,
    which the fit sets to 1/(rows + 2), what Laplace's rule gives for an event never seen in so many rows: so no
    class becomes impossible because none of its rows were there, and no row is left with nothing to divide.
    """

    inputs: tuple[tuple[float, ...], ...]
    outputs: tuple[tuple[float, ...], ...]
    floor: float

    def __post_init__(self) -> None:
        same = [len(x) for x in self.inputs] == [len(y) for y in self.outputs]
        check(len(self.inputs) >= 2 and same, "outputs", self.outputs, "for each class as many numbers as inputs")
        rising = all(bool((np.diff(line) >= 0).all()) for line in (*self.inputs, *self.outputs))
        check(rising and all(self.inputs), "inputs", self.inputs, "at least one number for each class, in rising order")
        check(0 < self.floor <= 0.5, "floor", self.floor, "above 0 and at most .5")

    @torch.no_grad()
    def __call__(self, probabilities: Tensor) -> Tensor:
        values = _wide(probabilities, len(self.inputs)).cpu().numpy()
        curves = zip(self.inputs, self.outputs, strict=True)
        raised = [np.interp(values[..., k], x, y) for k, (x, y) in enumerate(curves)]
        stacked = np.maximum(np.stack(raised, -1), self.floor)
        result = torch.from_numpy(stacked / stacked.sum(-1, keepdims=True))
        return result.to(probabilities.device, as_floats(probabilities, "probabilities").dtype)

    def to_dict(self) -> dict[str, Any]:
        inputs, outputs = [list(x) for x in self.inputs], [list(y) for y in self.outputs]
        return {"kind": "isotonic", "inputs": inputs, "outputs": outputs, "floor": self.floor}


@dataclass(frozen=True)
class MemberCalibrators:
    """A calibrator for each member: takes and gives (members, ..., classes), to be pooled afterwards."""

    members: tuple[Calibrator, ...]

    def __call__(self, probabilities: Tensor) -> Tensor:
        shape = tuple(probabilities.shape)
        must = f"of shape ({len(self.members)}, rows, classes), the members that were calibrated"
        check(len(shape) >= 2 and shape[0] == len(self.members), "probabilities", shape, must)
        return torch.stack([calibrate(p) for calibrate, p in zip(self.members, probabilities, strict=True)])

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "members", "members": [calibrator.to_dict() for calibrator in self.members]}


def fit_calibrator(kind: str, probabilities: Tensor, labels: Tensor) -> Calibrator:
    """Fit a calibrator on held-out rows: probabilities (rows, classes), or of members, which are pooled first.

    kind is "temperature" (one number, needs few rows), "vector" (two for each class) or "isotonic" (curves, needs
    many rows). On the rows it was fitted on, temperature and vector scaling never raise the NLL.
    """
    if kind not in FITS:
        raise UnknownName("calibration", kind, FITS)
    values = checked_probabilities(probabilities, members=None).cpu().double()
    pooled = values.mean(0) if values.ndim == 3 else values
    return FITS[kind](pooled, checked_labels(labels, *pooled.shape).cpu())


def fit_member_calibrators(kind: str, member_probabilities: Tensor, labels: Tensor) -> MemberCalibrators:
    """Fit one calibrator for each member of (members, rows, classes)."""
    values = checked_probabilities(member_probabilities, members=True, name="member_probabilities")
    return MemberCalibrators(tuple(fit_calibrator(kind, member, labels) for member in values))


def calibrator_from_dict(state: Mapping[str, Any]) -> Calibrator:
    """The calibrator that `to_dict` described."""
    try:
        kind = state["kind"]
        if kind == "temperature":
            return Temperature(float(state["temperature"]))
        if kind == "vector":
            return VectorScaling(_floats(state["scales"]), _floats(state["shifts"]))
        if kind == "isotonic":
            inputs, outputs = (tuple(_floats(line) for line in state[name]) for name in ("inputs", "outputs"))
            return Isotonic(inputs, outputs, float(state["floor"]))
        if kind == "members":
            return MemberCalibrators(tuple(calibrator_from_dict(member) for member in state["members"]))
    except (KeyError, TypeError) as error:
        raise BadData(f"this is not a calibrator: {error!r}. Give what to_dict() returned.") from error
    raise UnknownName("calibration", str(kind), (*FITS, "members"))


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _wide(probabilities: Tensor, classes: int | None = None) -> Tensor:
    values = as_floats(probabilities, "probabilities").double()
    shape = tuple(values.shape)
    fits = len(shape) >= 1 and shape[-1] == (classes or max(2, shape[-1]))
    check(
        fits, "probabilities", shape, f"over the {classes} classes of the fit" if classes else "over 2 classes or more"
    )
    return values


def _keep_prediction(result: Tensor, predicted: Tensor) -> Tensor:
    """Lift the predicted class by one float where rounding has made another class equal to it or larger."""
    top = result.amax(-1, keepdim=True)
    lost = result.argmax(-1, keepdim=True) != predicted
    lifted = torch.nextafter(top, torch.full_like(top, 2.0))
    return result.scatter(-1, predicted, torch.where(lost, lifted, result.gather(-1, predicted)))


def _fit_temperature(probabilities: Tensor, labels: Tensor) -> Temperature:
    """The root of the NLL's slope in beta = 1/T, in which the NLL is convex: bracketed, then Brent's method."""
    from scipy.optimize import brentq

    logs = probabilities.clamp_min(TINY).log()
    # Taken from the top, the exponentials below never overflow, and the slope does not change.
    logs = logs - logs.amax(1, keepdim=True)
    true = logs.gather(1, labels[:, None]).mean()

    def slope(log_beta: float) -> float:
        shares = torch.softmax(logs * float(np.exp(log_beta)), 1)
        return float((shares * logs).sum(1).mean() - true)

    low, high = (-float(np.log(bound)) for bound in reversed(TEMPERATURES))
    if slope(low) >= 0:
        found = low
    elif slope(high) <= 0:
        found = high
    else:
        found = brentq(slope, low, high, xtol=1e-9)
    fitted = Temperature(float(np.exp(-found)))
    # Equal to one within rounding, or a NLL that is flat there: then nothing is the better change.
    return (
        fitted
        if _nll(fitted, probabilities, labels) < _nll(Temperature(1.0), probabilities, labels)
        else Temperature(1.0)
    )


def _nll(calibrator: Calibrator, probabilities: Tensor, labels: Tensor) -> float:
    true = calibrator(probabilities).gather(1, labels[:, None])
    return -float(true.clamp_min(TINY).log().mean())


def _fit_vector(probabilities: Tensor, labels: Tensor) -> VectorScaling:
    """Convex in scales and shifts; L-BFGS from doing nothing, with a weak pull back to it."""
    from scipy.optimize import minimize

    rows, classes = probabilities.shape
    logs = probabilities.clamp_min(TINY).log()
    ones = torch.zeros_like(logs).scatter_(1, labels[:, None], 1.0)
    start = np.r_[np.ones(classes), np.zeros(classes)]

    def objective(point: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]]]:
        scales, shifts = torch.from_numpy(point[:classes]), torch.from_numpy(point[classes:])
        scores = torch.log_softmax(logs * scales + shifts, 1)
        residual = (scores.exp() - ones) / rows
        gradient = torch.cat([(residual * logs).sum(0), residual.sum(0)]).numpy()
        away = point - start
        loss = -float((scores * ones).sum()) / rows + VECTOR_PULL * float(away @ away)
        return loss, gradient + 2 * VECTOR_PULL * away

    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-8}).x
    return VectorScaling(_floats(found[:classes]), _floats(found[classes:]))


def _fit_isotonic(probabilities: Tensor, labels: Tensor) -> Isotonic:
    """One class against the rest, by scikit-learn; only the corners of the curves are kept."""
    from sklearn.isotonic import IsotonicRegression

    curves = []
    for k, column in enumerate(probabilities.numpy().T):
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        model.fit(column, (labels == k).numpy().astype(np.float64))
        curves.append((_floats(model.X_thresholds_), _floats(model.y_thresholds_)))
    inputs, outputs = zip(*curves, strict=True)
    return Isotonic(inputs, outputs, floor=1 / (len(labels) + 2))


FITS: dict[str, Callable[[Tensor, Tensor], Calibrator]] = {
    "temperature": _fit_temperature,
    "vector": _fit_vector,
    "isotonic": _fit_isotonic,
}
