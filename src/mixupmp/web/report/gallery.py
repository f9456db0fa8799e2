"""The test rows worth looking at, each with its members' votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mixupmp.core.tokenizers import Vocabulary
from mixupmp.web.png import data_uri, is_picture, is_wave, wave_picture
from mixupmp.web.report.evaluated import EvaluatedRun
from mixupmp.web.report.evaluation import confidently_wrong, most_uncertain
from mixupmp.web.report.findings import percentage

SHOWN = 12
MOST_VOTES = 10  # members with a vote each; the votes of more are counted
FEATURES = 6


@dataclass(frozen=True)
class Vote:
    """What a member predicts, or how many members predict a class."""

    text: str
    correct: bool
    detail: str


@dataclass(frozen=True)
class GalleryRow:
    """A test row: its image, sentence or first features, the prediction, the label and the members' votes."""

    row: int
    image: str  # a data URI
    features: str
    predicted: str
    confidence: str
    label: str
    votes: Sequence[Vote]


def galleries(run: EvaluatedRun) -> list[tuple[str, list[GalleryRow]]]:
    """The most confident mistakes and the most uncertain rows, with their headings."""
    evaluation = run.evaluation
    wrong = confidently_wrong(evaluation.probabilities, evaluation.labels, SHOWN).tolist()
    uncertain = most_uncertain(evaluation.probabilities, SHOWN).tolist()
    return [
        ("Wrong, and most confident about it", [_row(run, row) for row in wrong]),
        ("Most uncertain", [_row(run, row) for row in uncertain]),
    ]


def _row(run: EvaluatedRun, row: int) -> GalleryRow:
    evaluation = run.evaluation
    mean = evaluation.probabilities[row]
    predicted, label = int(mean.argmax()), int(evaluation.labels[row])
    inputs = evaluation.input_of(row)
    image = features = ""
    encoder = run.record.task.encoder
    if inputs is not None and isinstance(encoder, Vocabulary):
        features = encoder.text(inputs)
    elif inputs is not None and (is_picture(inputs) or is_wave(inputs)):
        image = data_uri(wave_picture(inputs) if is_wave(inputs) else inputs)
    elif inputs is not None:
        values = [f"{float(value):.3g}" for value in inputs.flatten()[:FEATURES]]
        features = f"({', '.join(values)}{', …' if inputs.numel() > FEATURES else ''})"
    return GalleryRow(
        row,
        image,
        features,
        evaluation.classes[predicted],
        percentage(float(mean[predicted])),
        evaluation.classes[label],
        _votes(evaluation.members[:, row], evaluation.classes, label),
    )


def _votes(members: Tensor, classes: Sequence[str], label: int) -> list[Vote]:
    confidence, choice = members.max(-1)
    if len(members) <= MOST_VOTES:
        pairs = zip(confidence.tolist(), choice.tolist(), strict=True)
        return [
            Vote(classes[k], k == label, f"member {m} says {classes[k]}, {percentage(share)}")
            for m, (share, k) in enumerate(pairs)
        ]
    return [
        Vote(f"{count} × {classes[k]}", k == label, f"{count} of {len(members)} members say {classes[k]}")
        for k, count in Counter(choice.tolist()).most_common(4)
    ]
