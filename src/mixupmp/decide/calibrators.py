"""Calibrators of class probabilities: temperature scaling, vector scaling, isotonic regression.

Calibrators act on probabilities, so one class serves a single network and an ensemble: average the members, then
calibrate the average (Rahaman & Thiery 2021). They are frozen dataclasses, callable on tensors (..., classes);
`core.spec` writes and reads them. `mixupmp.decide.calibrate` fits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.errors import BadRun, check
from mixupmp.core.foreign import Json
from mixupmp.core.spec import decode, register_family
from mixupmp.metrics.checks import TINY, as_floats

# Rows that are all classified correctly drive T to zero, random labels to infinity: both reflect the number of rows
# more than the network. Ensembles measured in results/ need temperatures between .6 and 2.5.
TEMPERATURE_BOUNDS = (0.25, 8.0)
VARIANCE_BOUNDS = (1 / 16, 1024.0)  # a member that has memorized its targets predicts hardly any variance


class Calibrator(Protocol):
    """Maps probabilities (..., classes) to calibrated ones of the same shape; half precision becomes float32."""

    def __call__(self, probabilities: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Temperature:
    """Temperature scaling, softmax(log p / T) (Guo et al. 2017). Never changes the predicted class."""

    temperature: float

    def __post_init__(self) -> None:
        check(0 < self.temperature < float("inf"), "temperature", self.temperature, "positive and finite")

    @property
    def at_bound(self) -> bool:
        """Whether the fit ran into `TEMPERATURE_BOUNDS`: the rows did not determine the temperature."""
        return not TEMPERATURE_BOUNDS[0] < self.temperature < TEMPERATURE_BOUNDS[1]

    @torch.no_grad()
    def __call__(self, probabilities: Tensor) -> Tensor:
        values = _as_double(probabilities)
        result = torch.softmax(values.clamp_min(TINY).log() / self.temperature, -1)
        result = result.to(as_floats(probabilities, "probabilities").dtype)
        return _keep_prediction(result, probabilities.argmax(-1, keepdim=True))


@dataclass(frozen=True)
class VectorScaling:
    """softmax(a * log p + b) with a scale a_k >= 0 and a shift b_k for each class. It may change predictions."""

    scales: tuple[float, ...]
    shifts: tuple[float, ...]

    def __post_init__(self) -> None:
        check(len(self.scales) >= 2, "scales", self.scales, "one number for each of at least two classes")
        check(len(self.shifts) == len(self.scales), "shifts", self.shifts, f"{len(self.scales)} numbers, like scales")
        check(bool(np.isfinite(self.scales + self.shifts).all()), "scales", self.scales, "finite, and shifts too")
        must = "zero or more: a negative scale would turn evidence for a class into evidence against it"
        check(min(self.scales) >= 0, "scales", self.scales, must)

    @property
    def at_bound(self) -> bool:
        """Whether a scale of the fit ran into those of `TEMPERATURE_BOUNDS`: the rows did not determine it."""
        return len(self._bounded) > 0

    @property
    def _bounded(self) -> list[int]:
        low, high = (1 / bound for bound in reversed(TEMPERATURE_BOUNDS))
        return [number for number, scale in enumerate(self.scales) if not low < scale < high]

    @torch.no_grad()
    def __call__(self, probabilities: Tensor) -> Tensor:
        values = _as_double(probabilities, len(self.scales))
        scales, shifts = values.new_tensor(self.scales), values.new_tensor(self.shifts)
        result = torch.softmax(values.clamp_min(TINY).log() * scales + shifts, -1)
        return result.to(as_floats(probabilities, "probabilities").dtype)


@dataclass(frozen=True)
class Isotonic:
    """One isotonic regression per class, normalized to sum to one (Zadrozny & Elkan 2002). It may change predictions.

    Each class is a piecewise linear function through the points (inputs, outputs). Outputs are at least `floor`, which
    the fit sets to 1/(rows + 2), Laplace's rule for an event not seen in that many rows: no class becomes impossible.
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
        values = _as_double(probabilities, len(self.inputs)).cpu().numpy()
        curves = zip(self.inputs, self.outputs, strict=True)
        mapped = np.stack([np.interp(values[..., k], x, y) for k, (x, y) in enumerate(curves)], -1)
        mapped = np.maximum(mapped, self.floor)
        result = torch.from_numpy(mapped / mapped.sum(-1, keepdims=True))
        return result.to(probabilities.device, as_floats(probabilities, "probabilities").dtype)


@dataclass(frozen=True)
class VarianceFactor:
    """Regression: scales the pooled predictive about its mean, and so its variance by `factor`; the mean stays."""

    factor: float

    def __post_init__(self) -> None:
        check(0 < self.factor < float("inf"), "factor", self.factor, "positive and finite")

    @property
    def at_bound(self) -> bool:
        """Whether the fit ran into `VARIANCE_BOUNDS`."""
        return not VARIANCE_BOUNDS[0] < self.factor < VARIANCE_BOUNDS[1]

    def __call__(self, means: Tensor, deviations: Tensor) -> tuple[Tensor, Tensor]:
        """Means and deviations of the members, each (members, rows), such that their mixture is scaled."""
        center, spread = means.mean(0), self.factor**0.5
        return center + spread * (means - center), spread * deviations


@dataclass(frozen=True)
class MemberCalibrators:
    """One calibrator per member: maps (members, ..., classes) to the same shape, to be averaged afterwards."""

    members: tuple[Calibrator, ...]

    def __call__(self, probabilities: Tensor) -> Tensor:
        shape = tuple(probabilities.shape)
        must = f"of shape ({len(self.members)}, rows, classes), the members that were calibrated"
        check(len(shape) >= 2 and shape[0] == len(self.members), "probabilities", shape, must)
        return torch.stack([calibrate(p) for calibrate, p in zip(self.members, probabilities, strict=True)])


def bound_message(calibrator: Calibrator | VarianceFactor | None) -> str | None:
    """What to say of a temperature, scale or variance factor that ended at its bound; None where that is not so."""
    if isinstance(calibrator, VectorScaling) and calibrator.at_bound:
        classes = ", ".join(map(str, calibrator._bounded[:5])) + ", ..." * (len(calibrator._bounded) > 5)
        bounds = " to ".join(f"{1 / bound:g}" for bound in reversed(TEMPERATURE_BOUNDS))
        hint = "Give more rows, or fit a temperature, which needs fewer"
        return f"scales of classes {classes} ended at a bound ({bounds}): the rows do not determine them. {hint}"
    if not isinstance(calibrator, Temperature | VarianceFactor) or not calibrator.at_bound:
        return None
    if isinstance(calibrator, Temperature):
        name, value, hint = "temperature", calibrator.temperature, "Look for labels that do not belong to their inputs"
    else:
        name, value, hint = "variance factor", calibrator.factor, "Train for fewer steps: members memorize their rows"
    found = f"the {name} ended at its bound {value:g}: predictions stay"
    if value < 1:
        return f"{found} less confident than they are right. Train longer, lower r, or give more rows"
    return f"{found} more confident than they are right. {hint}"


register_family(Calibrator, Temperature, VectorScaling, Isotonic, MemberCalibrators)


def read_calibrator(document: Json) -> Calibrator | None:
    """The calibrator that `encode` described; None where there is none."""
    return None if document is None else decode(document, Calibrator, "calibrator")  # type: ignore[type-abstract]


def _as_double(probabilities: Tensor, classes: int | None = None) -> Tensor:
    values = as_floats(probabilities, "probabilities").double()
    shape = tuple(values.shape)
    valid = len(shape) >= 1 and shape[-1] == (classes or max(2, shape[-1]))
    must = f"over the {classes} classes of the fit" if classes else "over 2 classes or more"
    check(valid, "probabilities", shape, must)
    return values


def _keep_prediction(result: Tensor, predicted: Tensor) -> Tensor:
    """Raise the predicted class by one float where rounding has made another class equal to it or larger."""
    top = result.amax(-1, keepdim=True)
    lost = result.argmax(-1, keepdim=True) != predicted
    raised = torch.nextafter(top, torch.full_like(top, 2.0))
    return result.scatter(-1, predicted, torch.where(lost, raised, result.gather(-1, predicted)))


def calibrator_of(config: Mapping[str, Json]) -> Calibrator | None:
    """The calibrator in a run's config.json: that of `mixupmp fit`, or of a saved estimator."""
    try:
        estimator = config.get("estimator") or {"state": {}}
        document = config["spec"].get("calibrator") or estimator["state"].get("calibrator")
    except (LookupError, TypeError, AttributeError) as error:
        raise BadRun(f"config.json does not describe a saved estimator: {error!r}.") from error
    return read_calibrator(document)


def pool(members: Tensor, calibrator: Calibrator | None) -> Tensor:
    """(rows, classes) in double precision: the average of (members, rows, classes), calibrated."""
    if isinstance(calibrator, MemberCalibrators):
        return calibrator(members.double()).mean(0)
    mean = members.double().mean(0)
    return mean if calibrator is None else calibrator(mean)
