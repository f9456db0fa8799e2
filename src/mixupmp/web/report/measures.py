"""What the test rows say about one run, and about two runs row by row, with standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from mixupmp.decide import abstain as selective
from mixupmp.metrics import Result, Scores, mutual_information, predictive_entropy
from mixupmp.web.report.evaluation import Evaluation

Numbers = NDArray[np.float64]
RESAMPLES = 200
# Means over rows have an exact standard error; these are sums of absolute values over bins and have none.
BINNED = ("ece", "oe", "ue")
BY_ROW = ("acc", "nll", "brier", "entropy", "mutual_information")


@dataclass(frozen=True, eq=False)
class Measures:
    """One run on its test rows."""

    result: Result
    errors: Mapping[str, float]  # standard errors over test rows
    confidence: Numbers
    predicted: NDArray[np.int64]
    correct: Numbers
    by_row: Mapping[str, Numbers]
    resampled: Mapping[str, Numbers]  # of the binned measures, over the same resamples for every run

    def value(self, name: str) -> float:
        value = getattr(self.result, name)
        return 0.0 if value is None else float(value)


def measure(evaluation: Evaluation, bins: int = 15) -> Measures:
    """Every measure of these predictions, and how far each may be off for having so many test rows and no more."""
    members = evaluation.members.double()
    mean = members.mean(0)
    result = Scores(mean.shape[1], bins).update(members, evaluation.labels).result()
    top, predicted = mean.max(1)
    true = mean.gather(1, evaluation.labels[:, None]).squeeze(1)
    correct = (predicted == evaluation.labels).double()
    by_row = {
        "acc": correct.numpy(),
        "nll": -true.clamp_min(float(np.finfo(np.float32).tiny)).log().numpy(),
        "brier": (mean.square().sum(1) - 2 * true + 1).numpy(),
        "entropy": predictive_entropy(mean).numpy(),
        "mutual_information": mutual_information(members).numpy(),
    }
    resampled = _resample(top.numpy(), correct.numpy(), bins)
    rows = len(true)
    errors = {name: float(values.std(ddof=1)) / sqrt(rows) if rows > 1 else 0.0 for name, values in by_row.items()}
    errors |= {name: float(values.std(ddof=1)) for name, values in resampled.items()}
    return Measures(result, errors, top.numpy(), predicted.numpy(), correct.numpy(), by_row, resampled)


def _resample(confidence: Numbers, correct: Numbers, bins: int) -> dict[str, Numbers]:
    """ECE, OE and UE of resampled test rows. The resamples depend on the number of rows alone, so runs are paired."""
    rows = len(confidence)
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gap = confidence - correct
    draws = np.random.default_rng(0)
    gaps = np.empty((RESAMPLES, bins))
    for number in range(RESAMPLES):
        chosen = draws.integers(0, rows, rows)
        gaps[number] = np.bincount(place[chosen], gap[chosen], bins) / rows
    over, under = np.clip(gaps, 0, None).sum(1), np.clip(-gaps, 0, None).sum(1)
    return {"ece": over + under, "oe": over, "ue": under}


@dataclass(frozen=True)
class Difference:
    """A measure of one run minus that of another on the same rows."""

    value: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether it is more than two standard errors from none."""
        return abs(self.value) > 2 * self.error


def paired(ours: Measures, theirs: Measures) -> dict[str, Difference]:
    """Ours minus theirs. Both saw the same rows, so what those have in common does not blur the difference."""
    found = {}
    for name in BY_ROW:
        change = ours.by_row[name] - theirs.by_row[name]
        error = float(change.std(ddof=1)) / sqrt(len(change)) if len(change) > 1 else 0.0
        found[name] = Difference(float(change.mean()), error)
    for name in BINNED:
        spread = float((ours.resampled[name] - theirs.resampled[name]).std(ddof=1))
        found[name] = Difference(ours.value(name) - theirs.value(name), spread)
    return found


@dataclass(frozen=True)
class Curve:
    """What abstaining buys: the answered share, the confidence it asks for, and the accuracy on what is answered."""

    coverage: Numbers
    threshold: Numbers
    accuracy: Numbers
    area: float  # AURC: the mean error rate over all coverages, smaller is better


def rejection(measures: Measures, points: int = 100) -> Curve:
    """The accuracy-rejection curve: rows are answered from the most confident down."""
    confidence = torch.from_numpy(measures.confidence)
    found = selective.rejection(1 - confidence, torch.from_numpy(measures.correct > 0), points)
    kept = np.array(found.kept)
    falling = np.sort(measures.confidence)[::-1]
    threshold = falling[np.rint(kept * len(falling)).astype(np.int64) - 1]
    return Curve(kept, threshold, np.array(found.accuracy), found.aurc)


@dataclass(frozen=True)
class Saying:
    """When it says `said` it is right `right` of the time, on `rows` rows."""

    said: float
    right: float
    error: float
    rows: int


def saying(measures: Measures, said: float = 0.9, reach: float = 0.05) -> Saying | None:
    """How often it is right where it claims about this much; None where it hardly ever does."""
    near = np.abs(measures.confidence - said) <= reach
    rows = int(near.sum())
    if rows < 10:
        return None
    right = float(measures.correct[near].mean())
    return Saying(float(measures.confidence[near].mean()), right, share_error(right, rows), rows)


def share_error(share: float, rows: int) -> float:
    """The standard error of a share. Two rows of each kind are added first (Agresti & Coull 1998): 20 right out of 20
    do not prove that it is always right.
    """
    added = (share * rows + 2) / (rows + 4)
    return sqrt(added * (1 - added) / (rows + 4))


def disagreement(evaluation: Evaluation) -> Numbers:
    """(members, members): the share of test rows on which two members vote for different classes."""
    votes = evaluation.members.argmax(-1)
    different = (votes[:, None, :] != votes[None, :, :]).double()
    return different.mean(-1).numpy()
