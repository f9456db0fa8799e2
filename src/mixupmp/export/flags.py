"""Detection of strange rows as a part of an ONNX graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mixupmp.core.errors import check
from mixupmp.core.posterior import Posterior
from mixupmp.decide.detect import AUTO, FALSE_ALARM, FEATURE_SCORES, Detector, score_outputs
from mixupmp.decide.features import FeatureReference, network_features


class Flags(nn.Module):
    """Score, p_value and flagged, each (rows,), as `Detector.detect` has them, from what a graph computes.

    Scores of the members' logits are computed in float32. Distances in feature space take the members' features, whose
    networks `prepare` gives it, and the features of training rows, which the graph then holds.
    """

    outputs = ("score", "p_value", "flagged")

    def __init__(self, detector: Detector, score: str = AUTO, false_alarm: float = FALSE_ALARM) -> None:
        super().__init__()
        self.score = detector.score_named(score)
        self.threshold, self.false_alarm = detector.threshold(false_alarm, self.score), false_alarm
        self.held_out = nn.Buffer(detector.held_out[self.score].float())
        self.distance: Distance | None = None
        self.networks = nn.ModuleList()
        if self.score in FEATURE_SCORES:
            reference = detector.reference
            check(reference is not None, "detector", detector, f"one with a reference, for the score {self.score}")
            assert reference is not None
            self.distance = Distance(reference, self.score)

    def prepare(self, posterior: Posterior) -> None:
        """Take the networks whose features are measured."""
        if self.distance is not None:
            self.networks = nn.ModuleList(posterior.networks[: self.distance.members])

    def forward(self, outputs: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the members' logits (members, rows, classes) and of scaled inputs."""
        if self.distance is None:
            score = score_outputs(self.score, outputs)
        else:
            found = torch.cat([network_features(network, inputs) for network in self.networks])
            score = self.distance(found[: self.distance.members])
        as_strange = (self.held_out >= score[:, None]).sum(1)
        return score, (1 + as_strange) / (len(self.held_out) + 1), score > self.threshold

    def metadata(self) -> dict[str, str]:
        """The score's name, its threshold and the rate, for programs to read."""
        found = {"score": self.score, "threshold": str(self.threshold), "false_alarm": str(self.false_alarm)}
        return {f"mixupmp.{name}": value for name, value in found.items()}

    def constants(self) -> list[str]:
        """What is constant in the graph."""
        found = [
            f"the {self.score} of {len(self.held_out)} held-out rows, for p-values",
            f"the threshold {self.threshold:.6g} of flags, for a false-alarm rate of {self.false_alarm:g}",
        ]
        return found if self.distance is None else [*found, f"what {self.score} is measured from, of training rows"]


class Distance(nn.Module):
    """`FeatureReference.distances` in operations that ONNX has: features (members, rows, features) to (rows,)."""

    def __init__(self, reference: FeatureReference, score: str) -> None:
        super().__init__()
        self.members, self.score = reference.features.shape[0], score
        points, whitening = (reference.directions, None) if score == "nearest" else reference.whitened_classes
        self.points, self.lengths = nn.Buffer(points), nn.Buffer(points.square().sum(-1)[:, None])
        self.whitening = None if whitening is None else nn.Buffer(whitening)

    def forward(self, features: Tensor) -> Tensor:
        features = features.double()
        whitening = self.whitening
        there = nn.functional.normalize(features, dim=-1) if whitening is None else features @ whitening
        # |a - b|^2 = |a|^2 + |b|^2 - 2 a b: one product, where ONNX has no matrix of distances.
        products = there @ self.points.transpose(1, 2)
        squared = (there.square().sum(-1) + (self.lengths - 2 * products).amin(-1)).clamp(min=0)
        return (squared.sqrt() if whitening is None else squared).mean(0).float()
