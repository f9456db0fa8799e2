"""Concordance of our tables with the paper's, and its error.

The error is that of our runs alone: the paper's numbers stay as they are, and so do the pairs that count. Its variance
is the jackknife's over repeats (Efron & Tibshirani 1993, chapter 11), plus the bootstrap's over test rows, which all
repeats share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from mixupmp.paper.effects import combine
from mixupmp.paper.evidence import PAPER_NAMES, PAPER_TABLES, RunEvidence
from mixupmp.paper.reference import Concordance, concordance
from mixupmp.paper.resampling import RESAMPLES

SHARE = "share"  # of pairs with the same sign, beside the rank correlation of each measure


@dataclass(frozen=True)
class Agreement:
    """Concordance of one table with the paper's.

    Parameters
    ----------
    all_lines
        Of all lines.
    comparable
        Of those that are in the paper's regime.
    decided
        (how many have the same sign, of how many): of the pairs of all lines, those that differ here too, by a
        two-sided test at 5%. If chance made pairs reverse, fewer of these would.
    errors, comparable_errors
        Standard errors of the share of pairs and of each rank correlation; none of fewer than three repeats.
    """

    all_lines: Concordance
    comparable: Concordance
    decided: tuple[int, int]
    errors: dict[str, float]
    comparable_errors: dict[str, float]

    def to_dict(self) -> dict[str, object]:
        """As plain JSON."""
        return {
            "all lines": {**self.all_lines.to_dict(), "standard errors": self.errors},
            "comparable lines": {**self.comparable.to_dict(), "standard errors": self.comparable_errors},
            "beyond chance here": {"pairs": self.decided[1], "same": self.decided[0]},
        }


def agreements(runs: RunEvidence) -> dict[str, Agreement]:
    """Of each experiment and dataset that the paper has a table of, by the name of the results."""
    found = {}
    for experiment in ("comparison", "ablation", "shift"):
        for dataset in PAPER_NAMES:
            every, errors = _with_errors(runs, experiment, dataset, comparable_only=False)
            if every.pairs:
                comparable = _with_errors(runs, experiment, dataset, comparable_only=True)
                decided = _decided(runs, experiment, dataset, every)
                found[f"{experiment}/{dataset}"] = Agreement(every, comparable[0], decided, errors, comparable[1])
    return found


def _with_errors(
    runs: RunEvidence, experiment: str, dataset: str, comparable_only: bool
) -> tuple[Concordance, dict[str, float]]:
    """The concordance, and the standard errors of its share and of its rank correlations."""

    def of(without: int | None = None, resample: int | None = None) -> Concordance:
        means = runs.means(experiment, dataset, comparable_only, without, resample)
        return concordance(means, PAPER_TABLES[experiment], _paper_name(experiment, dataset))

    whole = of()
    repeats = runs.shared_seeds(experiment, dataset)
    if not whole.pairs or len(repeats) < 3:  # the jackknife of a step function over two says nothing
        return whole, {}
    left_out = [_numbers(of(without=seed)) for seed in repeats]
    resampled = [_numbers(of(resample=number)) for number in range(RESAMPLES)]
    errors = {}
    for name in _numbers(whole):
        over_repeats = (len(repeats) - 1) / len(repeats) * _squares([one[name] for one in left_out])
        over_test_rows = _squares([one[name] for one in resampled]) / (RESAMPLES - 1)
        errors[name] = sqrt(over_repeats + over_test_rows)
    return whole, errors


def _numbers(found: Concordance) -> dict[str, float]:
    return {SHARE: found.share or 0.0, **found.rank}


def _squares(values: Sequence[float]) -> float:
    """Sum of the squared deviations from the mean."""
    mean = fsum(values) / len(values)
    return fsum((value - mean) ** 2 for value in values)


def _paper_name(experiment: str, dataset: str) -> str:
    return PAPER_NAMES[dataset] + ("-C" if experiment == "shift" else "")


def _decided(runs: RunEvidence, experiment: str, dataset: str, found: Concordance) -> tuple[int, int]:
    """(how many have the paper's sign, of how many) pairs whose difference here is beyond chance."""
    same = total = 0
    for measure, pairs in found.pairs.items():
        labels = {label for pair in pairs for label in pair}
        samples = {label: runs.sample(experiment, dataset, label, measure, None) for label in labels}
        for larger, smaller in pairs:
            one, other = samples[larger], samples[smaller]
            if one is None or other is None:
                continue
            effect = combine([(1.0, one), (-1.0, other)])
            if effect.beyond_chance:
                same, total = same + (effect.mean > 0), total + 1
    return same, total
