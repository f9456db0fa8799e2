"""The metrics of one run on its test rows, and of two runs row by row, with standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.decide import abstain
from mixupmp.metrics import METRICS, Metric, Result, Scores, Summary
from mixupmp.metrics.catalog import confidence_gaps
from mixupmp.web.report.evaluation import Evaluation

Floats = NDArray[np.float64]
RESAMPLES = 200
HIDDEN = ("gini", "gini_rescaled")  # nearly what the entropy says


def shown_metrics() -> list[Metric]:
    """The metrics of the catalog that predictions on labeled rows have."""
    return [metric for metric in METRICS.values() if (metric.per_row or metric.binned) and metric.name not in HIDDEN]


@dataclass(frozen=True, eq=False)
class RunMetrics:
    """The metrics of one run, with standard errors over test rows.

    Those of means over rows are exact; those of other metrics, such as ECE, come from resampled rows. The resamples
    depend on the number of rows alone, so that those of two runs are paired.
    """

    result: Result
    summaries: Mapping[str, Summary]
    confidence: Floats
    predicted: NDArray[np.int64]
    correct: Floats
    by_row: Mapping[str, Floats]
    resampled: Mapping[str, Floats]
    raw: Mapping[str, float] | None = None  # before calibration, where there is one

    def value(self, name: str) -> float:
        return self.summaries[name].mean


def compute_metrics(evaluation: Evaluation, bins: int = 15) -> RunMetrics:
    """Every metric that is shown."""
    members, labels = evaluation.members.double(), evaluation.labels
    mean = evaluation.probabilities
    result = raw = Scores(mean.shape[1], bins).update(members, labels).result()
    if evaluation.calibrator is not None:  # what members disagree about stays as it is
        calibrated = Scores(mean.shape[1], bins).update(mean, labels).result()
        result = replace(calibrated, values={**raw.values, **calibrated.values})
    confidence, predicted = mean.max(1)
    correct = (predicted == labels).double()
    gaps = torch.stack([confidence_gaps(confidence[rows], correct[rows], bins) for rows in _resamples(len(labels))])
    by_row, resampled = {}, {}
    for metric in shown_metrics():
        if metric.per_row is not None:
            values = metric.per_row(members if metric.needs_members else mean, labels)
            if metric.of_mean is None:
                by_row[metric.name] = values.numpy()
            else:
                means = torch.stack([values[rows].mean(0) for rows in _resamples(len(labels))])
                resampled[metric.name] = metric.of_mean(means).numpy()
        elif metric.binned is not None:
            resampled[metric.name] = metric.binned(gaps).numpy()
    errors = {name: _standard_error(values) for name, values in by_row.items()}
    errors |= {name: float(values.std(ddof=1)) for name, values in resampled.items()}
    summaries = {name: Summary(result.values[name], error, 1) for name, error in errors.items()}
    return RunMetrics(
        result,
        summaries,
        confidence.numpy(),
        predicted.numpy(),
        correct.numpy(),
        by_row,
        resampled,
        None if result is raw else raw.values,
    )


def _resamples(rows: int) -> Iterator[Tensor]:
    """The indices of bootstrapped test rows, the same for all runs with as many."""
    draws = np.random.default_rng(0)
    return (torch.from_numpy(draws.integers(0, rows, rows)) for _ in range(RESAMPLES))


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else 0.0


def paired_difference(name: str, ours: RunMetrics, theirs: RunMetrics) -> Summary:
    """A metric of one run minus that of another on the same rows: what rows have in common cancels out."""
    if name in ours.by_row:
        change = ours.by_row[name] - theirs.by_row[name]
        return Summary(float(change.mean()), _standard_error(change), 1)
    spread = float((ours.resampled[name] - theirs.resampled[name]).std(ddof=1))
    return Summary(ours.value(name) - theirs.value(name), spread, 1)


def is_clear(difference: Summary) -> bool:
    """Whether a difference is more than two standard errors from zero."""
    return abs(difference.mean) > 2 * (difference.standard_error or 0.0)


@dataclass(frozen=True)
class RejectionCurve:
    """Accuracy by coverage, the share of rows that is answered, and the confidence threshold of each."""

    coverage: Floats
    threshold: Floats
    accuracy: Floats
    aurc: float

    def accuracy_at(self, coverage: float) -> float:
        return float(np.interp(coverage, self.coverage, self.accuracy))


def rejection_curve(metrics: RunMetrics, points: int = 100) -> RejectionCurve:
    """The accuracy-rejection curve: rows are answered from the most confident down."""
    confidence = torch.from_numpy(metrics.confidence)
    found = abstain.rejection(1 - confidence, torch.from_numpy(metrics.correct > 0), points)
    coverage = np.array(found.kept)
    falling = np.sort(metrics.confidence)[::-1]
    threshold = falling[np.rint(coverage * len(falling)).astype(np.int64) - 1]
    return RejectionCurve(coverage, threshold, np.array(found.accuracy), found.aurc)


@dataclass(frozen=True)
class ConfidenceGroup:
    """The rows of about one confidence: their mean confidence, and their accuracy with its standard error."""

    confidence: float
    accuracy: float
    standard_error: float
    rows: int


def rows_near(metrics: RunMetrics, confidence: float = 0.9, reach: float = 0.05) -> ConfidenceGroup | None:
    """The rows within `reach` of this confidence; None where there are fewer than ten."""
    near = np.abs(metrics.confidence - confidence) <= reach
    rows = int(near.sum())
    if rows < 10:
        return None
    accuracy = float(metrics.correct[near].mean())
    return ConfidenceGroup(float(metrics.confidence[near].mean()), accuracy, share_error(accuracy, rows), rows)


def share_error(share: float, rows: int) -> float:
    """The standard error of a share, after adding two rows of each kind (Agresti & Coull 1998).

    20 right out of 20 do not prove that it is always right.
    """
    added = (share * rows + 2) / (rows + 4)
    return sqrt(added * (1 - added) / (rows + 4))


def disagreement(evaluation: Evaluation) -> Floats:
    """(members, members): the share of test rows on which two members predict different classes."""
    votes = evaluation.members.argmax(-1)
    different = (votes[:, None, :] != votes[None, :, :]).double()
    return different.mean(-1).numpy()
