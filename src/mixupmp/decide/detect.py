"""Out-of-distribution detection: flag rows unlike those of the fit, with a bounded rate of false alarms.

A score says how strange a row is; larger is stranger. A new row's p-value compares its score with those of n rows that
no member was trained on,

    p(x) = (1 + #{i : s(x_i) >= s(x)}) / (n + 1),

and the row is flagged where p(x) <= false_alarm: where its score exceeds the ceil((n+1)(1 - false_alarm))-th smallest
of theirs. If the row is exchangeable with the held-out ones, that happens with probability at most `false_alarm`,
whatever the network and the score are worth (Bates et al. 2023, Testing for outliers with conformal p-values). How many
strange rows are found has no such bound: it depends on the score. Rows count alike: sample weights are not used.

    entropy             of the averaged probabilities: all uncertainty there is
    mutual_information  H(mean_b p_b) - mean_b H(p_b): what members disagree about
    max_probability     1 - max_k p_k (Hendrycks & Gimpel 2017)
    energy              -mean_b log sum_k exp f_bk(x) (Liu et al. 2020)
    nearest             distance to the nearest training row in feature space (Sun et al. 2022)
    mahalanobis         distance to the nearest class in feature space (Lee et al. 2018)

Scores are of the members as they are, before calibration: a calibrator can be replaced without changing them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData, BadRun, InvalidArgument, UnknownName, check, is_number
from mixupmp.core.posterior import Posterior
from mixupmp.core.user_line import warn_at_user_line
from mixupmp.decide.features import FeatureReference
from mixupmp.metrics.checks import GuaranteeWarning
from mixupmp.metrics.uncertainty import entropy, information_gain
from mixupmp.store.folder import DETECTOR
from mixupmp.store.manifest import Sealed
from mixupmp.store.tensors import parse_tensors

AUTO = "auto"  # the first of these that the held-out rows have; results/detection has the measurement behind it
PREFERRED = ("nearest", "entropy")
FALSE_ALARM = 0.05
LIMIT = 128 * 2**20  # bytes of that file
BLOCK_ROWS = 256

# Scores of probabilities (members, rows, classes), which servers and reports have; the others need more.
PROBABILITY_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": lambda members: entropy(members.mean(0)),
    "mutual_information": information_gain,
    "max_probability": lambda members: 1 - members.mean(0).amax(-1),
}
OUTPUT_SCORES: dict[str, Callable[[Tensor], Tensor]] = {"energy": lambda outputs: -outputs.logsumexp(-1).mean(0)}
FEATURE_SCORES = ("nearest", "mahalanobis")  # see `mixupmp.decide.features`
SCORES = (*PROBABILITY_SCORES, *OUTPUT_SCORES, *FEATURE_SCORES)


def score_outputs(score: str, outputs: Tensor) -> Tensor:
    """This score of each row, from the members' logits (members, rows, classes); not for distances of features."""
    if score in PROBABILITY_SCORES:
        return PROBABILITY_SCORES[score](outputs.softmax(-1))
    return OUTPUT_SCORES[score](outputs)


@dataclass(frozen=True, eq=False)
class Detected:
    """What a detector says of each row."""

    score: str
    false_alarm: float
    threshold: float  # a row is flagged where its score is larger; infinity: too few held-out rows for this rate
    scores: NDArray[np.float64]
    p_values: NDArray[np.float64]  # uniform or larger for rows like the held-out ones
    flagged: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Detector:
    """Scores of held-out rows, against which those of new rows are compared.

    Parameters
    ----------
    held_out
        By the score's name, in rising order; empty: no rows were held out yet.
    refitted
        Whether these are rows that a classifier held out and then fitted its members again with: the comparison then
        is with other members, of four fifths of the rows, and the rate of false alarms has no bound. Of 5% asked for,
        it was 2.5% by entropy and 8.2% by mutual information in one measurement (docs/guides/detect.md).
    reference
        Of the posterior that it is used with, for distances in feature space.
    """

    held_out: Mapping[str, Tensor]
    refitted: bool = False
    reference: FeatureReference | None = None

    @property
    def rows(self) -> int:
        """Held-out rows."""
        return max((len(scores) for scores in self.held_out.values()), default=0)

    def attainable(self, false_alarm: float) -> bool:
        """Whether there were enough rows; if not, no row is flagged."""
        return _rank(self.rows, false_alarm) <= self.rows

    def threshold(self, false_alarm: float = FALSE_ALARM, score: str = AUTO) -> float:
        """The largest score that is not flagged: infinity where the rate is not attainable."""
        scores, rank = self.held_out[self.score_named(score)], _rank(self.rows, false_alarm)
        return float(scores[rank - 1]) if rank <= len(scores) else math.inf

    def p_values(self, scores: Tensor, score: str = AUTO) -> Tensor:
        """The conformal p-value of each of these scores, float64."""
        known = self.held_out[self.score_named(score)]
        as_strange = len(known) - torch.searchsorted(known, scores.double().cpu().contiguous())
        return (1 + as_strange).double() / (len(known) + 1)

    def judge(self, scores: Tensor, score: str = AUTO, false_alarm: float = FALSE_ALARM) -> Detected:
        """p-values and flags of rows with these scores; a `GuaranteeWarning` where no row can be flagged."""
        score = self.score_named(score)
        threshold = self.threshold(false_alarm, score)
        if math.isinf(threshold):
            needed = math.ceil(1 / false_alarm - 1 - 1e-9)
            message = (
                f"a false-alarm rate of {false_alarm:g} needs at least {needed} held-out rows and there were "
                f"{self.rows}: no row is flagged. Hold out more rows or allow more false alarms."
            )
            warn_at_user_line(message, GuaranteeWarning)
        values = scores.double().cpu()
        p_values = self.p_values(values, score)  # NaN is stranger than any number, and so it is flagged
        flagged = torch.where(values.isnan(), torch.inf, values) > threshold
        return Detected(score, false_alarm, threshold, values.numpy(), p_values.numpy(), flagged.numpy())

    def detect(
        self, posterior: Posterior, inputs: Tensor, score: str = AUTO, false_alarm: float = FALSE_ALARM
    ) -> Detected:
        """Scores, p-values and flags of raw inputs, for the posterior that this was fitted to."""
        score = self.score_named(score)
        return self.judge(row_scores(posterior, inputs, (score,), self.reference)[score], score, false_alarm)

    def guarantee(self, false_alarm: float = FALSE_ALARM) -> str:
        """What a flag means, as a sentence."""
        if not self.attainable(false_alarm):
            return f"no row can be flagged: {self.rows} held-out rows are too few for a rate of {false_alarm:g}"
        rate = f"{false_alarm:.1%} of rows like the {self.rows} held-out ones"
        return f"the aim is to flag {rate}, without a guarantee" if self.refitted else f"at most {rate} are flagged"

    def score_named(self, score: str = AUTO) -> str:
        """The name of a score that the held-out rows have; "auto" is "nearest" where they have it, else "entropy"."""
        if score == AUTO:
            score = next((name for name in PREFERRED if name in self.held_out), PREFERRED[-1])
        if score not in SCORES:
            raise UnknownName("score", str(score), (AUTO, *SCORES))
        if score not in self.held_out:
            must = f"one that the held-out rows have: {', '.join(self.held_out) or 'there are none'}"
            hint = "Give rows that the fit has not seen: calibrate_on(X_val, y_val), or --held-out DATA."
            if score in FEATURE_SCORES and self.reference is None:
                hint = "Distances need a network whose last layer is linear, and its training rows."
            raise InvalidArgument("score", score, must, hint)
        return score

    def tensors(self) -> dict[str, Tensor]:
        """All of it as tensors, to be saved."""
        found = {f"held_out.{name}": scores for name, scores in self.held_out.items()}
        found["refitted"] = torch.tensor([int(self.refitted)])
        if self.reference is not None:
            found |= {f"reference.{name}": value for name, value in self.reference.tensors().items()}
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Detector:
        """The detector that `tensors` gave; `BadData` where they are not of one."""
        held_out = {name.removeprefix("held_out."): t for name, t in tensors.items() if name.startswith("held_out.")}
        rising = all(
            t.dtype == torch.float64 and t.ndim == 1 and bool((t.diff() >= 0).all()) for t in held_out.values()
        )
        sizes = {len(t) for t in held_out.values() if t.ndim == 1}
        if not rising or len(sizes) > 1 or 0 in sizes or not held_out.keys() <= set(SCORES):
            raise BadData("a detector holds rising scores by their names, as many of each kind.")
        if not all(bool(t.isfinite().all()) for t in held_out.values()) or tensors["refitted"].shape != (1,):
            raise BadData("the scores of a detector must be finite, and 'refitted' one number.")
        parts = {name.removeprefix("reference."): t for name, t in tensors.items() if name.startswith("reference.")}
        return cls(held_out, bool(tensors["refitted"]), FeatureReference.from_tensors(parts) if parts else None)


def row_scores(
    posterior: Posterior, inputs: Tensor, scores: tuple[str, ...], reference: FeatureReference | None = None
) -> dict[str, Tensor]:
    """These scores of raw inputs, float64 (rows,)."""
    found: dict[str, Tensor] = {}
    if wanted := [score for score in scores if score not in FEATURE_SCORES]:
        posterior.task.require_classes("for detection")
        # A padded block, so that the bits of a table's row do not depend on the rows it comes with.
        blocks = posterior.stream_outputs(inputs, BLOCK_ROWS, pad=len(posterior.task.input_shape) == 1)
        parts = [[score_outputs(score, block.cpu().double()) for score in wanted] for block in blocks]
        found = dict(zip(wanted, map(torch.cat, zip(*parts, strict=True)), strict=True))
    if reference is not None:
        found |= {score: reference.distances(posterior, inputs, score) for score in scores if score in FEATURE_SCORES}
    return found


def fit_detector(posterior: Posterior, inputs: Tensor, reference: FeatureReference | None = None) -> Detector:
    """A detector from rows that no member was trained on; their labels are not needed.

    With a `reference` (`mixupmp.decide.features.fit_reference`) it has the distances in feature space too.
    """
    scores = SCORES if reference is not None else (*PROBABILITY_SCORES, *OUTPUT_SCORES)
    found = row_scores(posterior, inputs, scores, reference)
    return Detector({score: values.sort().values for score, values in found.items()}, reference=reference)


def refitted_detector(outputs: Sequence[Tensor]) -> Detector:
    """A detector from the logits (members, rows, classes) of fits without these rows, for a fit to all rows."""
    names = (*PROBABILITY_SCORES, *OUTPUT_SCORES)
    scores = {name: torch.cat([score_outputs(name, part.cpu().double()) for part in outputs]) for name in names}
    return Detector({name: values.sort().values for name, values in scores.items()}, refitted=True)


def read_detector(sealed: Sealed) -> Detector | None:
    """The detector in a run or a saved estimator, where it has one."""
    if DETECTOR not in sealed.hashes:
        return None
    path = sealed.path / DETECTOR
    tensors, _ = parse_tensors(sealed.read(DETECTOR, LIMIT), path)
    try:
        return Detector.from_tensors(tensors)
    except (BadData, KeyError, RuntimeError) as error:
        raise BadRun(f"{path} is not a detector: {error}. Fit or copy the run again.") from error


def _rank(rows: int, false_alarm: float) -> int:
    known = is_number(false_alarm) and 0 < false_alarm < 1
    check(known, "false_alarm", false_alarm, "between 0 and 1, both excluded")
    # .95 * 20 must be 19 although .95 is not nineteen twentieths.
    return max(1, math.ceil((rows + 1) * (1 - false_alarm) - 1e-9))
