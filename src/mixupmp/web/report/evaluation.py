"""What a report needs of a run's test predictions, kept in the run's folder so that it is worked out once.

run/.evaluation.safetensors   each member's probabilities on the test rows, their labels, and the inputs to be shown
run/.evaluation.json          of what they are: the members' hashes, the data's, the classes, the shifted scores

They are hidden files because they are no part of what the run's manifest seals: they can be lost and made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mixupmp.core.errors import BadData, BadRun, check
from mixupmp.core.files import read_json, write_atomically, write_json
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset
from mixupmp.data import corrupted
from mixupmp.metrics import Scores

FORMAT = 1
DATA, RECORD = ".evaluation.safetensors", ".evaluation.json"
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
    shifts: tuple[ShiftPoint, ...] = ()

    @property
    def probabilities(self) -> Tensor:
        """(rows, classes): the posterior predictive."""
        return self.members.mean(0)

    def input_of(self, row: int) -> Tensor | None:
        """The raw input of a row, where it was kept."""
        place = (self.shown == row).nonzero()
        return self.inputs[int(place[0])] if len(place) else None


def evaluate(posterior: Posterior, dataset: Dataset, shifts: Sequence[tuple[str, int]] = ()) -> Evaluation:
    """Ask a posterior about a dataset's test rows, and about corrupted copies of them: (corruption, severity)."""
    likelihood = posterior.task.likelihood
    check(isinstance(likelihood, Categorical), "posterior", type(likelihood).__name__, "a classifier's, for a report")
    test = dataset.test.checked(len(dataset.classes), "test")
    members = posterior.member_probabilities(test.inputs).cpu()
    classes = posterior.task.classes or dataset.classes
    if members.shape[-1] != len(dataset.classes):
        raise BadData(f"the run knows {members.shape[-1]} classes, the test data {len(dataset.classes)}.")
    shown = most_telling(members, test.labels)
    points = tuple(_shifted(posterior, dataset, name, severity) for name, severity in shifts)
    return Evaluation(
        dataset.name, tuple(classes), members, test.labels, shown, test.inputs[shown], test.fingerprint(), points
    )


def most_uncertain(members: Tensor, count: int = SHOWN) -> Tensor:
    """The rows with the largest predictive entropy, the largest first."""
    mean = members.mean(0)
    return torch.special.entr(mean).sum(-1).argsort(descending=True, stable=True)[:count]


def confidently_wrong(members: Tensor, labels: Tensor, count: int = SHOWN) -> Tensor:
    """The misclassified rows, the most confident first."""
    confidence, predicted = members.mean(0).max(-1)
    order = confidence.argsort(descending=True, stable=True)
    return order[predicted[order] != labels[order]][:count]


def most_telling(members: Tensor, labels: Tensor) -> Tensor:
    """The rows that the report shows."""
    rows: Tensor = torch.cat([most_uncertain(members), confidently_wrong(members, labels)])
    return torch.tensor(sorted(set(rows.tolist())), dtype=torch.int64)


def _shifted(posterior: Posterior, dataset: Dataset, name: str, severity: int) -> ShiftPoint:
    rows = corrupted(dataset, name, severity)
    scores, done = Scores(len(dataset.classes)), 0
    for outputs in posterior.stream_outputs(rows.inputs, 1024):
        following = done + outputs.shape[1]
        scores.update(outputs.softmax(-1).cpu(), rows.labels[done:following])
        done = following
    return ShiftPoint(name, severity, scores.result().to_dict())


def keep(evaluation: Evaluation, folder: Path, members: Sequence[str]) -> None:
    """Write an evaluation beside the run whose members have these hashes. The JSON comes last: with it, it is whole."""
    tensors = {name: getattr(evaluation, name).contiguous() for name in ("members", "labels", "shown", "inputs")}
    content = save(tensors)
    write_atomically(folder / DATA, content)
    write_json(
        folder / RECORD,
        {
            "format": FORMAT,
            "dataset": evaluation.dataset,
            "classes": list(evaluation.classes),
            "fingerprint": evaluation.fingerprint,
            "members": list(members),
            "sha256": hashlib.sha256(content).hexdigest(),
            "shifts": [asdict(point) for point in evaluation.shifts],
        },
    )


def kept(folder: Path, members: Sequence[str]) -> Evaluation | None:
    """The evaluation that was kept for exactly these members, or None where there is none or it is of others."""
    path = folder / RECORD
    if not path.exists():
        return None
    record: dict[str, Any] = read_json(path)
    if record.get("format") != FORMAT or record.get("members") != list(members):
        return None
    data = folder / DATA
    content = data.read_bytes() if data.exists() else b""
    if hashlib.sha256(content).hexdigest() != record["sha256"]:
        # Tensors are written before the JSON, so after a crash between the two these are newer, not damaged.
        return None
    try:
        tensors = load(content)
        points = tuple(ShiftPoint(**point) for point in record["shifts"])
        return Evaluation(
            record["dataset"], tuple(record["classes"]), tensors["members"], tensors["labels"], tensors["shown"],
            tensors["inputs"], record["fingerprint"], points,
        )  # fmt: skip
    except (KeyError, TypeError, SafetensorError) as error:
        raise BadRun(f"{path} is damaged ({error!r}): delete it, and the report works it out again.") from error
