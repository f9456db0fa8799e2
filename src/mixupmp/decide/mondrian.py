"""Conformal sets whose coverage holds in each class, or in each group of rows, and not only over all rows together.

The held-out rows are divided into parts, and each part has a threshold of its own (Vovk 2012, Conditional validity of
inductive conformal predictors; the division is called a Mondrian taxonomy):

    by class   k is in the set where s(x, k) is at most the threshold of class k:  P(y in C(x) | y = k) >= coverage
    by group   the thresholds are those of the row's own group g(x):               P(y in C(x) | g(x) = g) >= coverage

A part needs coverage / (1 - coverage) held-out rows, 9 for .9; with fewer its threshold is infinite, and a warning
names it: such a class is in every set, and such a group's sets hold all classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from mixupmp.core.errors import UnknownName, check
from mixupmp.core.spec import register
from mixupmp.core.user_line import warn_at_user_line
from mixupmp.decide.conformal import Conformal, fit_conformal
from mixupmp.metrics.checks import GuaranteeWarning, checked_labels, checked_probabilities, pooled


@register
@dataclass(frozen=True)
class Mondrian:
    """A fitted set predictor for each class, in their order, or for each group, by name."""

    by: Literal["class", "group"]
    parts: dict[str, Conformal]

    def __post_init__(self) -> None:
        alike = {replace(part, scores=()) for part in self.parts.values()}
        whole = len(alike) == 1 and (self.by == "group" or len(self.parts) == next(iter(alike)).classes)
        check(whole, "parts", list(self.parts), "a Mondrian predictor's: one for each class or group, all of one kind")

    def attainable(self, coverage: float) -> bool:
        """Whether every part had enough rows."""
        return all(part.attainable(coverage) for part in self.parts.values())

    @torch.no_grad()
    def predict_set(
        self,
        probabilities: Tensor,
        coverage: float = 0.9,
        allow_empty: bool = True,
        groups: Sequence[object] | None = None,
    ) -> Tensor:
        """Prediction sets: bool (rows, classes); see `Conformal.predict_set` for empty ones.

        `groups` names the group of each row, and is needed where the predictor was fitted by groups.
        """
        values = pooled(checked_probabilities(probabilities, members=None))
        first = next(iter(self.parts.values()))
        check(values.shape[1] == first.classes, "probabilities", tuple(values.shape), f"over {first.classes} classes")
        few = [name for name, part in self.parts.items() if not part.attainable(coverage)]
        if few:
            everything = "is in every set" if self.by == "class" else "has sets of all classes"
            message = f"too few held-out rows for coverage {coverage}: the {self.by} {{}} {everything}."
            warn_at_user_line(message.format(", ".join(few[:10])), GuaranteeWarning)
        limits = torch.tensor([part.threshold(coverage) for part in self.parts.values()], dtype=torch.float64)
        if self.by == "group":
            limits = limits[self._numbers(groups, len(values))][:, None]
        return first.inside(values, limits.to(values.device), allow_empty)

    def _numbers(self, groups: Sequence[object] | None, rows: int) -> Tensor:
        names = _names(groups, rows)
        places = {name: number for number, name in enumerate(self.parts)}
        strange = next((name for name in names if name not in places), None)
        if strange is not None:
            raise UnknownName("group of the held-out rows", strange, self.parts)
        return torch.tensor([places[name] for name in names])


def fit_mondrian(
    kind: str,
    probabilities: Tensor,
    labels: Tensor,
    groups: Sequence[object] | None = None,
    classes: Sequence[str] = (),
    seed: int = 0,
    randomized: bool = True,
) -> Mondrian:
    """Fit on held-out rows that were used neither for training nor for calibration; by class, or by these groups.

    Parameters
    ----------
    kind, probabilities, seed, randomized
        As for `fit_conformal`.
    groups
        The group of each row; anything with a text. None: the groups are the classes.
    classes
        Their names, for warnings.
    """
    values = pooled(checked_probabilities(probabilities, members=None))
    true = checked_labels(labels, *values.shape)
    empty = replace(fit_conformal(kind, values, true, seed, randomized), scores=())
    if groups is None:
        names = [str(name) for name in classes] or [str(k) for k in range(values.shape[1])]
        check(len(names) == values.shape[1], "classes", names, f"{values.shape[1]} names")
        members = {name: true == k for k, name in enumerate(names)}
    else:
        each = _names(groups, len(values))
        members = {name: torch.tensor([one == name for one in each]) for name in sorted(set(each))}
    parts = {
        name: fit_conformal(kind, values[rows], true[rows], seed, randomized) if bool(rows.any()) else empty
        for name, rows in members.items()
    }
    return Mondrian("class" if groups is None else "group", parts)


def _names(groups: Sequence[object] | None, rows: int) -> list[str]:
    count = None if groups is None else len(groups)
    check(count == rows, "groups", count, f"the group of each of the {rows} rows")
    assert groups is not None
    return [str(group) for group in groups]
