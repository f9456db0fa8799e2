"""What a selection compares: ratios, alphas and training lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from mixupmp.core.base_measures import AtLayer, BaseMeasure, Mixup
from mixupmp.core.errors import check, is_whole
from mixupmp.core.foreign import Json
from mixupmp.core.methods import Method, arguments_of, method_names
from mixupmp.core.plan import Plan
from mixupmp.core.spec import encode, shown
from mixupmp.decide.held_out import CRITERIA

RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, inf)
ALPHAS = (0.2, 1.0, 2.0)


@dataclass(frozen=True)
class Search:
    """The candidates, the rows they are compared on, and the budget.

    Parameters
    ----------
    ratios, alphas : tuple of float
        r = 0 and r = infinity are always added.
    bases : tuple of BaseMeasure
        Other base measures, each tried as it is with every ratio above 0, beside the plan's own (Mixup, unless it has
        another one) with every alpha.
    pairs : tuple of (float, float or None) or None
        These pairs of r and alpha (None at r = 0) and no others, in place of every ratio with every alpha.
    epochs : tuple of int or None
        Training lengths to choose from, see `epoch_grid`. None: the recipe's own.
    patience : int or None
        End a training after so many lengths beyond the one that would be taken, or at one that is worse than the best
        by more than a standard error; None: train to the longest. Only where one training serves all lengths and all
        members (a constant learning rate, and members that share weights).
    validation : float or int
        The held-out share of the rows; a whole number from 2 is a number of folds.
    parts : int
        So many disjoint parts of that share are held out in turn, so that more rows speak; fewer where there are not
        enough rows.
    calibration_parts : int or None
        The temperature of the chosen candidate comes from so many parts in place of `parts`, where that is more: it is
        trained without each of the others too. For a share held out, and classes. None: as many as `parts`.
    members : int or None
        At most so many members are trained for a candidate, also of those that share weights; None: all of the plan's.
    criterion : {"nll", "brier", "error", "crps"}
    calibrate : bool
        Compare averaged probabilities after the temperature that will be applied, fitted on the same held-out rows: the
        criterion measures what calibration cannot repair ("refine, then calibrate", Berta et al. 2025). In regression
        it is a factor of the variance.
    halving : bool
        Successive halving over members, in which r = 0 stays unless it is worse than the best by more than two standard
        errors; False: every candidate gets all of them.
    standard_errors : float
        How many standard errors of the difference a smaller r may be worse than the best candidate and still win.
    length_errors : float
        The same for a shorter training of one candidate.
    """

    ratios: tuple[float, ...] = RATIOS
    alphas: tuple[float, ...] = ALPHAS
    validation: float | int = 0.2
    criterion: Literal["nll", "brier", "error", "crps"] = "nll"
    halving: bool = True
    standard_errors: float = 1.0
    epochs: tuple[int, ...] | None = None
    calibrate: bool = True
    pairs: tuple[tuple[float, float | None], ...] | None = None
    patience: int | None = None
    parts: int = 1
    bases: tuple[BaseMeasure, ...] = ()
    members: int | None = None
    length_errors: float = 0.0
    calibration_parts: int | None = None

    def __post_init__(self) -> None:
        check(all(r >= 0 for r in self.ratios), "ratios", self.ratios, "numbers in [0, infinity]")
        check(len(self.alphas) > 0 and all(0 < a < inf for a in self.alphas), "alphas", self.alphas, "positive numbers")
        folds = isinstance(self.validation, int) and self.validation >= 2
        must = "a share of the rows between 0 and 1, or a whole number of folds from 2"
        check(folds or 0 < self.validation < 1, "validation", self.validation, must)
        check(is_whole(self.parts), "parts", self.parts, "a whole number, at least 1")
        fine = self.calibration_parts is None or is_whole(self.calibration_parts)
        check(fine, "calibration_parts", self.calibration_parts, "a whole number, at least 1, or None")
        known = all(hasattr(base, "sample") and not isinstance(base, type) for base in self.bases)
        check(known, "bases", self.bases, "base measures, with sample(seen, count, generator)")
        check(self.criterion in CRITERIA, "criterion", self.criterion, f"one of {', '.join(CRITERIA)}")
        for name in ("standard_errors", "length_errors"):
            check(getattr(self, name) >= 0, name, getattr(self, name), "zero or more")
        check(self.members is None or is_whole(self.members), "members", self.members, "a whole number, or None")
        counted = self.epochs is None or (len(self.epochs) > 0 and all(is_whole(e) for e in self.epochs))
        check(counted, "epochs", self.epochs, "whole numbers, at least 1, or None for the recipe's own")
        patient = self.patience is None or is_whole(self.patience)
        check(patient, "patience", self.patience, "a whole number, at least 1, or None")
        if self.pairs is not None:
            known = len(self.pairs) > 0 and all(r >= 0 and (r == 0 or (a is not None and a > 0)) for r, a in self.pairs)
            check(known, "pairs", self.pairs, "pairs of a ratio in [0, infinity] and a positive alpha")

    def candidates(self, plan: Plan | None = None) -> list[Candidate]:
        """The pairs; or r = 0 once (it has no alpha), then r = infinity and the others with every alpha and base.

        Each once for a plan, whose own base measure may have no alpha.
        """
        own = None if plan is None else plan.method.predictive.base
        known = own is None or _has_alpha(own)
        if self.pairs is not None:
            return [Candidate(r, a) for r, a in dict.fromkeys((r, a if r and known else None) for r, a in self.pairs)]
        ratios = (inf, *sorted({float(r) for r in self.ratios} - {0.0, inf}))
        others = [Candidate(r, getattr(base, "alpha", None), base=base) for r in ratios for base in self.bases]
        alphas = self.alphas if known else (None,)
        return [Candidate(0.0)] + [Candidate(r, a) for r in ratios for a in alphas] + others


@dataclass(frozen=True)
class Candidate:
    """A ratio with its alpha (none at r = 0), a training length (None: the recipe's), and a base measure of its own."""

    ratio: float
    alpha: float | None = None
    epochs: int | None = None
    base: BaseMeasure | None = None

    def applied(self, plan: Plan) -> Plan:
        """The plan with this ratio, this base measure or its own with this alpha, and this training length.

        Its method is named after what it then is: the Mixup ensemble at r = 0 is a deep ensemble.
        """
        base = self.base
        if base is None and self.ratio > 0:
            base = _with_alpha(plan.method.predictive.base or Mixup(), self.alpha)
        predictive = replace(plan.method.predictive, ratio=self.ratio, base=base)
        recipe = plan.recipe if self.epochs is None else replace(plan.recipe, epochs=self.epochs)
        return plan.varied(_named(replace(plan.method, predictive=predictive), plan.method), recipe)

    def to_dict(self) -> dict[str, Json]:
        """For JSON; infinity as text."""
        base = {} if self.base is None else {"base": self.base}
        return encode({"ratio": self.ratio, "alpha": self.alpha, "epochs": self.epochs, **base})

    def __str__(self) -> str:
        alpha = "" if self.alpha is None else f", alpha={self.alpha:g}"
        alpha = alpha if self.base is None else f", {shown(encode(self.base))}"
        return f"r={self.ratio:g}{alpha}" + ("" if self.epochs is None else f", {self.epochs} epochs")


def _has_alpha(base: BaseMeasure) -> bool:
    return _has_alpha(base.base) if isinstance(base, AtLayer) else hasattr(base, "alpha")


def _with_alpha(base: BaseMeasure, alpha: float | None) -> BaseMeasure:
    """The base measure with this alpha, where it has one."""
    if alpha is None or not _has_alpha(base):
        return base
    if isinstance(base, AtLayer):
        return replace(base, base=_with_alpha(base.base, alpha))
    return replace(base, alpha=alpha)  # type: ignore[type-var]


def _named(method: Method, before: Method) -> Method:
    """The method under its name before, unless only that one was what its name says."""
    unused = replace(method.predictive, base=method.predictive.base or before.predictive.base)  # at r = 0
    if arguments_of(before) is None or arguments_of(replace(method, predictive=unused)) is not None:
        return method
    named = (replace(method, name=name) for name in method_names())
    return next((one for one in named if arguments_of(one) is not None), replace(method, name="martingale-posterior"))


def epoch_grid(longest: int, shortest: int = 1, factor: float = 2.0) -> tuple[int, ...]:
    """Training lengths in geometric progression, down from `longest`.

    >>> epoch_grid(100, 10)
    (12, 25, 50, 100)
    """
    check(is_whole(shortest) and is_whole(longest, shortest), "longest", longest, "a whole number, at least `shortest`")
    check(factor > 1, "factor", factor, "above one")
    lengths, length = set(), float(longest)
    while length >= shortest:
        lengths.add(int(length))
        length /= factor
    return tuple(sorted(lengths))
