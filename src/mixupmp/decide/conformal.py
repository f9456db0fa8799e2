"""Split conformal prediction: sets of classes that contain the true one with a given probability.

A nonconformity score s(x, k) is computed for the true classes of n held-out rows; the prediction set of a new row is
every class with a score of at most the ceil((n+1) coverage)-th smallest of them. If the held-out and new rows are
exchangeable, it contains the true class with probability at least `coverage`, and at most coverage + 1/(n+1) without
ties. Coverage is marginal: over all rows, not for every subgroup (for that, see `mixupmp.decide.mondrian`). Rows count
alike: sample weights are not used.

    LAC   s = 1 - p_k                                              smallest sets on average; may be empty
    APS   s = sum of p over the classes ranked before k + u p_k    adaptive sets; u uniform, or 1
    RAPS  s = APS + penalty (rank of k - free_ranks)_+             APS without long tails

(Sadinle et al. 2019; Romano et al. 2020; Angelopoulos et al. 2021.)
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mixupmp.core.errors import check, check_known
from mixupmp.core.spec import register
from mixupmp.core.user_line import warn_at_user_line
from mixupmp.metrics.checks import GuaranteeWarning, checked_labels, checked_probabilities, pooled

KINDS = ("lac", "aps", "raps")


@register
@dataclass(frozen=True)
class Conformal:
    """A fitted set predictor: the sorted scores of the held-out rows and their settings."""

    kind: str
    classes: int
    scores: tuple[float, ...]
    seed: int = 0
    randomized: bool = True
    penalty: float = 0.0
    free_ranks: int = 0

    def __post_init__(self) -> None:
        check_known("conformal score", self.kind, KINDS)
        rising = all(a <= b for a, b in itertools.pairwise(self.scores))
        check(rising, "scores", "some", "numbers in rising order")

    def attainable(self, coverage: float) -> bool:
        """Whether there were enough rows; if not, only the set of all classes has this coverage."""
        return self._rank(coverage) <= len(self.scores)

    def threshold(self, coverage: float) -> float:
        """Largest score in the sets: infinity where the coverage is not attainable."""
        rank = self._rank(coverage)
        return self.scores[rank - 1] if rank <= len(self.scores) else math.inf

    @torch.no_grad()
    def predict_set(self, probabilities: Tensor, coverage: float = 0.9, allow_empty: bool = True) -> Tensor:
        """Prediction sets: bool (rows, classes).

        An empty set is no mistake: every class of that row is stranger than `coverage` of the held-out rows' true
        classes were. Rows are so where the predictive is torn (LAC), or by their draw of u (APS, RAPS); at most a share
        1 - coverage of rows like the held-out ones, and they are among those that the sets may miss. With
        `allow_empty=False` the most probable class is in every set, which can only raise the coverage.
        """
        values = pooled(checked_probabilities(probabilities, members=None))
        check(values.shape[1] == self.classes, "probabilities", tuple(values.shape), f"over {self.classes} classes")
        if not self.attainable(coverage):
            warn_at_user_line(self._too_few(coverage), GuaranteeWarning)
        limit = torch.tensor(self.threshold(coverage), dtype=torch.float64, device=values.device)
        return self.inside(values, limit, allow_empty)

    def inside(self, probabilities: Tensor, limits: Tensor, allow_empty: bool = True) -> Tensor:
        """Which classes of each row have scores within these limits; the most probable too, unless `allow_empty`."""
        inside = self._class_scores(probabilities) <= limits
        return inside if allow_empty else inside.scatter(1, probabilities.argmax(1, keepdim=True), True)

    def _rank(self, coverage: float) -> int:
        check(0 < coverage < 1, "coverage", coverage, "between 0 and 1, both excluded")
        # .9 * 10 must be 9 although .9 is not nine tenths.
        return max(1, math.ceil((len(self.scores) + 1) * coverage - 1e-9))

    def _too_few(self, coverage: float) -> str:
        needed = math.ceil(coverage / (1 - coverage) - 1e-9)
        return (
            f"coverage {coverage} needs at least {needed} held-out rows and the fit had {len(self.scores)}: "
            "every set contains all classes. Hold out more rows or lower the coverage."
        )

    def _class_scores(self, probabilities: Tensor) -> Tensor:
        """s(x, k) for every class; shared by fit and prediction, so that they agree to the last bit."""
        values = probabilities.double()
        if self.kind == "lac":
            return 1 - values
        ordered, order = values.sort(dim=1, descending=True, stable=True)
        share = _row_uniforms(values, self.seed)[:, None] if self.randomized else 1.0
        scores = ordered.cumsum(1) - ordered + share * ordered
        if self.kind == "raps":
            ranks = torch.arange(1, self.classes + 1, dtype=values.dtype, device=values.device)
            scores = scores + self.penalty * (ranks - self.free_ranks).clamp_min(0)
        return torch.empty_like(scores).scatter_(1, order, scores)


def fit_conformal(
    kind: str,
    probabilities: Tensor,
    labels: Tensor,
    seed: int = 0,
    randomized: bool = True,
    penalty: float = 0.01,
    free_ranks: int = 5,
) -> Conformal:
    """Fit on held-out rows that were used neither for training nor for calibration.

    Parameters
    ----------
    kind : {"lac", "aps", "raps"}
    probabilities : Tensor of shape (rows, classes) or (members, rows, classes)
        Members are averaged first.
    randomized : bool
        APS and RAPS: exact coverage. Without it sets are larger and over-cover.
    penalty, free_ranks : float, int
        RAPS: the penalty of each class beyond the `free_ranks` most probable ones.
    """
    check(0 <= seed < 2**62, "seed", seed, "from 0 to 2**62 - 1")
    check(penalty >= 0, "penalty", penalty, "at least 0")
    check(free_ranks >= 0, "free_ranks", free_ranks, "at least 0")
    values = pooled(checked_probabilities(probabilities, members=None))
    rows, classes = values.shape
    true = checked_labels(labels, rows, classes).to(values.device)
    randomized = randomized and kind != "lac"
    penalty, free_ranks = (penalty, free_ranks) if kind == "raps" else (0.0, 0)
    empty = Conformal(kind, classes, (), seed, randomized, penalty, free_ranks)
    scores = empty._class_scores(values).gather(1, true[:, None]).squeeze(1)
    return Conformal(kind, classes, tuple(scores.sort().values.tolist()), seed, randomized, penalty, free_ranks)


# Constants of splitmix64 (Steele et al. 2014), as signed numbers.
GOLDEN = -7046029254386353131
FIRST = -4658895280553007687
SECOND = -7723592293110705685


def _row_uniforms(probabilities: Tensor, seed: int) -> Tensor:
    """A hash in [0, 1) of the seed and each row's probabilities.

    With a generator, a row's set would depend on its position in the batch. As a hash, the score is a fixed function of
    row and class, for which the guarantee holds as for any other.
    """
    classes = probabilities.shape[1]
    positions = torch.arange(1, classes + 1, device=probabilities.device) * GOLDEN
    bits = (probabilities + 0.0).contiguous().view(torch.int64)  # adding zero makes -0 equal to 0
    state = _mix(bits ^ _mix(positions)).sum(1) + _mix(positions[:1] * (seed + 1))
    return (_mix(state) >> 11 & (1 << 53) - 1).double() / (1 << 53)


def _mix(state: Tensor) -> Tensor:
    """The finalizer of splitmix64: every output bit depends on every input bit."""
    state = (state ^ (state >> 30 & (1 << 34) - 1)) * FIRST
    state = (state ^ (state >> 27 & (1 << 37) - 1)) * SECOND
    return state ^ (state >> 31 & (1 << 33) - 1)
