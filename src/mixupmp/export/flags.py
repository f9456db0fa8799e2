"""Detection of strange rows as a part of an ONNX graph."""

from __future__ import annotations

from torch import Tensor, nn

from mixupmp.core.errors import check
from mixupmp.decide.detect import (
    FALSE_ALARM,
    FEATURE_SCORES,
    OUTPUT_SCORES,
    PROBABILITY_SCORES,
    Detector,
    score_outputs,
)


class Flags(nn.Module):
    """(members, rows, classes) logits to score, p_value and flagged, each (rows,), as `Detector.detect` has them.

    Scores are computed in float32 here. Distances in feature space are not among them: a graph ends in the members'
    outputs, and has no training rows to measure from.
    """

    outputs = ("score", "p_value", "flagged")

    def __init__(self, detector: Detector, score: str = "entropy", false_alarm: float = FALSE_ALARM) -> None:
        super().__init__()
        must = f"{', '.join((*PROBABILITY_SCORES, *OUTPUT_SCORES))} for ONNX, which has no distances in feature space"
        check(score not in FEATURE_SCORES, "score", score, must)
        self.score = detector.score_named(score)
        self.threshold, self.false_alarm = detector.threshold(false_alarm, self.score), false_alarm
        self.held_out = nn.Buffer(detector.held_out[self.score].float())

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        score = score_outputs(self.score, outputs)
        as_strange = (self.held_out >= score[:, None]).sum(1)
        return score, (1 + as_strange) / (len(self.held_out) + 1), score > self.threshold

    def constants(self) -> list[str]:
        """What is constant in the graph."""
        return [
            f"the {self.score} of {len(self.held_out)} held-out rows, for p-values",
            f"the threshold {self.threshold:.6g} of flags, for a false-alarm rate of {self.false_alarm:g}",
        ]
