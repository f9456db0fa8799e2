"""A run's predictions on test rows, which a report is made from.

They are kept in the finished run, as ``evaluation.safetensors``, so that they are computed once. The file is sealed by
the run's manifest, and read only where its hash is the one in there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from mixupmp.core.errors import BadData, BadRun
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset
from mixupmp.data import corrupted
from mixupmp.decide.calibrators import Calibrator, pool
from mixupmp.metrics import Scores
from mixupmp.store.folder import EVALUATION
from mixupmp.store.manifest import Sealed, update
from mixupmp.store.tensors import parse_tensors

FORMAT = 3
LIMIT = 64 * 2**20  # bytes: a larger evaluation is not kept, but computed for each report
TENSORS = ("members", "labels", "shown", "inputs")
SHOWN = 24  # inputs kept for each gallery


@dataclass(frozen=True)
class ShiftPoint:
    """The scores on one corruption of the test set at one severity."""

    corruption: str
    severity: int
    scores: dict[str, float | None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A posterior's answers on the test rows."""

    dataset: str
    classes: tuple[str, ...]
    members: Tensor  # (members, rows, classes) probabilities
    labels: Tensor  # (rows,)
    shown: Tensor  # the numbers of the rows whose inputs are kept
    inputs: Tensor  # their inputs, raw
    fingerprint: str  # of the test rows: only runs on the same ones can be compared row by row
    shifts: tuple[ShiftPoint, ...] = ()  # calibrated
    calibrator: Calibrator | None = None  # of the averaged probabilities; part of the run, not of what is kept here

    @property
    def probabilities(self) -> Tensor:
        """(rows, classes): the posterior predictive, calibrated."""
        return pool(self.members, self.calibrator)

    def input_of(self, row: int) -> Tensor | None:
        """The raw input of a row, where it was kept."""
        place = (self.shown == row).nonzero()
        return self.inputs[int(place[0])] if len(place) else None


def evaluate(
    posterior: Posterior, dataset: Dataset, shifts: Sequence[tuple[str, int]] = (), calibrator: Calibrator | None = None
) -> Evaluation:
    """Predictions of a posterior for a dataset's test rows and for corrupted copies of them: (corruption, severity)."""
    posterior.task.require_classes("for a report")
    test = dataset.test.checked(len(dataset.classes), "test")
    members = posterior.member_probabilities(test.inputs).cpu()
    classes = posterior.task.classes or dataset.classes
    if members.shape[-1] != len(dataset.classes):
        raise BadData(f"the run knows {members.shape[-1]} classes, the test data {len(dataset.classes)}.")
    shown = most_telling(pool(members, calibrator), test.labels)
    return Evaluation(
        dataset.name,
        tuple(classes),
        members,
        test.labels,
        shown,
        test.inputs[shown],
        test.fingerprint(),
        tuple(_shifted(posterior, dataset, name, severity, calibrator) for name, severity in shifts),
        calibrator,
    )


def most_uncertain(probabilities: Tensor, count: int = SHOWN) -> Tensor:
    """The rows with the largest predictive entropy, the largest first."""
    return torch.special.entr(probabilities).sum(-1).argsort(descending=True, stable=True)[:count]


def confidently_wrong(probabilities: Tensor, labels: Tensor, count: int = SHOWN) -> Tensor:
    """The misclassified rows, the most confident first."""
    confidence, predicted = probabilities.max(-1)
    order = confidence.argsort(descending=True, stable=True)
    return order[predicted[order] != labels[order]][:count]


def most_telling(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The rows that the report shows."""
    rows: Tensor = torch.cat([most_uncertain(probabilities), confidently_wrong(probabilities, labels)])
    return torch.tensor(sorted(set(rows.tolist())), dtype=torch.int64)


def _shifted(
    posterior: Posterior, dataset: Dataset, name: str, severity: int, calibrator: Calibrator | None
) -> ShiftPoint:
    rows = corrupted(dataset, name, severity)
    scores, done = Scores(len(dataset.classes)), 0
    for outputs in posterior.stream_outputs(rows.inputs, 1024):
        following = done + outputs.shape[1]
        scores.update(pool(outputs.softmax(-1).cpu(), calibrator), rows.labels[done:following])
        done = following
    return ShiftPoint(name, severity, scores.result().to_dict())


def keep(evaluation: Evaluation, folder: Path, members: Sequence[str | None]) -> None:
    """Write an evaluation into the finished run whose members have these hashes, and seal it."""
    record = {
        "format": FORMAT,
        "dataset": evaluation.dataset,
        "classes": evaluation.classes,
        "fingerprint": evaluation.fingerprint,
        "members": members,
        "shifts": [asdict(point) for point in evaluation.shifts],
    }
    tensors = {name: getattr(evaluation, name).contiguous() for name in TENSORS}
    content = save(tensors, {"record": json.dumps(record)})
    if len(content) <= LIMIT:
        update(folder, {EVALUATION: content})


def kept(sealed: Sealed, members: Sequence[str | None], calibrator: Calibrator | None = None) -> Evaluation | None:
    """The sealed evaluation of exactly these members, or None where there is none, or one of others."""
    if EVALUATION not in sealed.hashes:
        return None
    path = sealed.path / EVALUATION
    tensors, text = parse_tensors(sealed.read(EVALUATION, LIMIT), path)
    try:
        record = json.loads(text["record"])
        if record["format"] != FORMAT or record["members"] != list(members):
            return None
        points = tuple(ShiftPoint(**point) for point in record["shifts"])
        return Evaluation(
            dataset=record["dataset"],
            classes=tuple(record["classes"]),
            fingerprint=record["fingerprint"],
            shifts=points,
            calibrator=calibrator,
            **{name: tensors[name] for name in TENSORS},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRun(f"{path} is not an evaluation: {error!r}. Fit or copy the run again.") from error
