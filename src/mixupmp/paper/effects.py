"""Effects: differences of measures, with the errors that repeats and test rows leave, and their p values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, fsum, log, sqrt

from scipy.optimize import brentq
from scipy.stats import t as student

from mixupmp.core.foreign import Json
from mixupmp.metrics.comparison import summary_of
from mixupmp.paper.resampling import RESAMPLES, UNIT

LEVEL = 0.05  # of each one-sided test
SMALLEST = 1e-12  # p value that is told apart from smaller ones


@dataclass(frozen=True)
class Sample:
    """A measure of one line over its runs; `values` by repeat, where they can be paired.

    `resampled` has, by repeat, how much the value changes on each resample of the test rows: the resamples are the
    same for all lines. `comparable` says whether the networks of the line are in the paper's regime.
    """

    mean: float
    error: float | None
    count: int
    values: dict[int, float] | None = None
    resampled: dict[int, list[float]] = field(default_factory=dict)
    comparable: bool = True

    @classmethod
    def of(cls, values: dict[int, float], resampled: dict[int, list[float]] | None = None) -> Sample:
        found = summary_of(list(values.values()))
        return cls(found.mean, found.standard_error, found.repeats, values, resampled or {})

    @classmethod
    def of_runs(cls, runs: Iterable[tuple[int, Mapping[str, Json]]], measure: str) -> Sample | None:
        """Of (seed, evaluation): runs of one seed, as two single models of a repeat are, count as their mean."""
        values: dict[int, list[float]] = {}
        moved: dict[int, list[list[int]]] = {}
        for seed, run in runs:
            if run.get(measure) is not None:
                values.setdefault(seed, []).append(run[measure])
                moved.setdefault(seed, []).append(run.get("resampled", {}).get(measure, []))
        means = {seed: fsum(many) / len(many) for seed, many in values.items()}
        resampled = {
            seed: [UNIT * sum(column) / len(many) for column in zip(*many, strict=True)]
            for seed, many in moved.items()
            if all(many)
        }
        return cls.of(means, resampled) if means else None


@dataclass(frozen=True)
class Effect:
    """An estimate with its standard error and degrees of freedom; neither from a single run.

    Of the squared error, `test_rows` is the variance over test rows, and the rest that over repeats, which has
    `freedom` degrees of freedom. `p` has the p values for a case and against it, where these are not those of a t test.
    """

    mean: float
    error: float | None
    freedom: float = 0.0
    what: str = ""
    test_rows: float = 0.0
    p: tuple[float, float] | None = None

    @property
    def reach(self) -> float:
        """Half the width of the two one-sided intervals."""
        return self._width(LEVEL) if self.error else 0.0

    @property
    def beyond_chance(self) -> bool:
        """Whether it differs from zero, by a two-sided test at 5%; a single run does not show that."""
        if not self.error:
            return self.error is not None and self.mean != 0
        return 2 * self.tail(abs(self.mean)) <= LEVEL

    def tail(self, distance: float) -> float:
        """The one-sided p value of lying this far on the right side: where the interval's half width is the distance.

        Each of the two variances has its own t quantile. One quantile with Satterthwaite's degrees of freedom rejects
        too often when a few repeats agree by chance: of 3 repeats and at p = .0016, up to seven times as often.
        """
        if not self.test_rows:
            return float(student.sf(distance / (self.error or 0.0), self.freedom))
        if distance < 0:
            return 1 - self.tail(-distance)
        if self._width(SMALLEST) <= distance:
            return SMALLEST
        return float(exp(brentq(lambda log_p: self._width(exp(log_p)) - distance, log(SMALLEST), log(0.5))))

    def _width(self, p: float) -> float:
        repeats = max(0.0, (self.error or 0.0) ** 2 - self.test_rows)
        width = student.isf(p, self.freedom) ** 2 * repeats + student.isf(p, RESAMPLES - 1) ** 2 * self.test_rows
        return float(sqrt(width))


Term = tuple[float, Sample]


def combine(terms: Sequence[Term], what: str = "") -> Effect:
    """sum_k c_k x_k: over the repeats that all samples share, or else as of independent samples (Welch).

    Repeats share their test rows, so their spread does not show how much depends on these. The paired bootstrap over
    test rows does, and its variance is added where the samples have it.
    """
    paired = [sample.values for _, sample in terms]
    if all(values is not None for values in paired):
        shared = set.intersection(*(set(values) for values in paired if values is not None))
        if shared:
            sums = [fsum(c * (s.values or {})[key] for c, s in terms) for key in sorted(shared)]
            found, tested = summary_of(sums), _variance_over_test_rows(terms, sorted(shared))
            mean, error = found.mean, found.standard_error
            if error is None or not tested:
                return Effect(mean, error, len(sums) - 1, what)
            return Effect(mean, sqrt(error**2 + tested), len(sums) - 1, what, tested)
    mean = fsum(c * sample.mean for c, sample in terms)
    variances = [(c * (sample.error or 0.0)) ** 2 for c, sample in terms]
    if any(sample.error is None for _, sample in terms) or not sum(variances):
        return Effect(mean, None, 0.0, what)
    weights = [v * v / max(1, sample.count - 1) for v, (_, sample) in zip(variances, terms, strict=True)]
    return Effect(mean, sqrt(sum(variances)), sum(variances) ** 2 / sum(weights), what)


def _variance_over_test_rows(terms: Sequence[Term], repeats: Sequence[int]) -> float:
    """Of the mean over repeats of sum_k c_k x_k, by the resamples; 0 where a sample has none."""
    if not all(repeat in sample.resampled for _, sample in terms for repeat in repeats):
        return 0.0
    columns = [(c / len(repeats), sample.resampled[repeat]) for c, sample in terms for repeat in repeats]
    moved = [fsum(c * values[k] for c, values in columns) for k in range(RESAMPLES)]
    center = fsum(moved) / RESAMPLES
    return fsum((value - center) ** 2 for value in moved) / (RESAMPLES - 1)
