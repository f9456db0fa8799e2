"""What `fit`, `evaluate` and `predict` share: rows of a run's data, and predictions a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from mixupmp.cli.output import remark, with_progress
from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.spec import decode
from mixupmp.core.split import split
from mixupmp.core.streams import has_labels
from mixupmp.data.table_files import ENDINGS as TABLES
from mixupmp.decide.calibrators import Calibrator, Temperature, pool
from mixupmp.decide.detect import Detector, read_detector
from mixupmp.decide.features import fit_reference
from mixupmp.metrics import MetricRow, Result, Scores, single
from mixupmp.store.folder import DETECTOR, RunFolder
from mixupmp.store.manifest import Sealed, update
from mixupmp.train.settings import DataSettings, absolute, is_path, load_data, training_part

BLOCK = 1024


def data_of_run(run: Path, name: str | None, root: str | None) -> DataSettings:
    """The data a run was fitted to, or other data that is named here instead."""
    spec = RunFolder(run).config()["spec"]
    if "data" not in spec and name is None:
        raise InvalidArgument("--data", None, f"given: {run} does not say by name what data it was fitted to")
    known = decode(spec.get("data") or {}, DataSettings, "data")
    if name is not None and known.name not in (name, absolute(name)):
        # As the run's own file was read, where it is of the same kind: all rows, unless it has a test part.
        folder = is_path(name) and Path(name).expanduser().is_dir()
        file = is_path(name) and not folder
        known = DataSettings(
            name=name,
            root=known.root,
            seed=known.seed,
            label=known.label if file and (known.text or name.lower().endswith(TABLES)) else None,
            text=known.text if file else None,
            size=known.size if folder else None,
            test_fraction=1.0,
        )
    return replace(known, root=root or known.root, download=False)  # reading a run fetches nothing


def dataset_for(run: Path, name: str | None, root: str | None, encoder: Encoder | None) -> Dataset:
    """The data a run was fitted to, or other data: without training rows, if all of a file are for a test."""
    dataset = load_data(data_of_run(run, name, root), encoder)
    if len(dataset.train):
        return dataset
    config = RunFolder(run).config()
    known = decode(config["spec"].get("data") or {}, DataSettings, "data")
    try:
        train, test = split(dataset.test, known.test_fraction, known.seed)
        fitted, _ = training_part(known, replace(dataset, train=train))
    except InvalidArgument:  # fewer rows than the run was fitted to
        return dataset
    if fitted.train.fingerprint() != config["fingerprints"].get("sha256"):
        return dataset
    remark(f"note: {name} holds the training rows of the run: its {len(test)} test rows are used.")
    return replace(dataset, train=train, test=test)


def classes_of(posterior: Posterior) -> int:
    """How many classes a posterior predicts; the command line serves classifiers only."""
    return posterior.task.require_classes("for the command line", "Use Python for regression.")


def rows_of(dataset: Dataset, part: str) -> Rows:
    """The test rows, the training rows, or all of them."""
    if part == "train" and len(dataset.train) == 0:
        raise InvalidArgument("--split", part, f"test or all, as {dataset.name} has no training rows of its own")
    if part == "all":
        inputs = torch.cat([dataset.train.inputs, dataset.test.inputs])
        return Rows(inputs, torch.cat([dataset.train.labels, dataset.test.labels]))
    return {"test": dataset.test, "train": dataset.train}[part]


def labels_for(task: Task, dataset: Dataset, rows: Rows) -> Rows:
    """The rows with the posterior's class numbers: other data may have fewer classes, and number them otherwise."""
    if dataset.classes == task.classes or not task.classes:
        return rows
    unknown = [name for name in dataset.classes if name not in task.classes]
    if unknown:
        known = ", ".join(task.classes[:12])
        raise BadData(f"{dataset.name} has the class {unknown[0]!r}, which the run does not know: it knows {known}.")
    numbers = torch.tensor([task.classes.index(name) for name in dataset.classes])
    return Rows(rows.inputs, numbers[rows.labels], rows.weights)


def predictions(posterior: Posterior, inputs: Tensor, label: str) -> Iterator[Tensor]:
    """(members, rows, classes) for each block of inputs."""
    blocks = posterior.stream_outputs(inputs, BLOCK)
    for outputs in with_progress(blocks, ceil(len(inputs) / BLOCK), label):
        yield outputs.softmax(-1).cpu()


@dataclass(frozen=True)
class Results:
    """Every measure on some rows, of the averaged probabilities as they are and after calibration."""

    raw: Result
    calibrated: Result
    calibrator: Calibrator | None = None

    def to_dict(self) -> dict[str, object]:
        """For --json; `temperature` is None where the calibrator is of another kind."""
        return {
            "metrics": self.raw.to_dict(),
            "temperature": 1.0 if self.calibrator is None else getattr(self.calibrator, "temperature", None),
            "calibrator": None if self.calibrator is None else type(self.calibrator).__name__,
            "calibrated_metrics": self.calibrated.to_dict(),
        }

    @property
    def differ(self) -> bool:
        """Whether there is a calibrator that changes probabilities."""
        return self.calibrator not in (None, Temperature(1.0))

    def lines(self, name: str) -> tuple[MetricRow, ...]:
        """A line of a table for each; one where they are the same."""
        raw = MetricRow(name, single(self.raw.to_dict()))
        if not self.differ:
            return (raw,)
        fitted = self.calibrator
        how = f"T = {fitted.temperature:.2f}" if isinstance(fitted, Temperature) else type(fitted).__name__
        return raw, MetricRow(f"{name}, calibrated ({how})", single(self.calibrated.to_dict()))


def score(posterior: Posterior, rows: Rows, bins: int = 15, calibrator: Calibrator | None = None) -> Results:
    """Every measure on these rows."""
    raw, scaled = Scores(classes_of(posterior), bins), Scores(classes_of(posterior), bins)
    done = 0
    for block in predictions(posterior, rows.inputs, "evaluating"):
        labels = rows.labels[done : done + block.shape[1]]
        raw.update(block, labels)
        if calibrator is not None:
            scaled.update(pool(block, calibrator).float(), labels)
        done += block.shape[1]
    result = raw.result()
    return Results(result, result if calibrator is None else scaled.result(), calibrator)


def add_reference(run: RunFolder, posterior: Posterior, plan: Plan) -> None:
    """Keep with a finished run what distances in feature space are measured from."""
    reference = fit_reference(posterior, plan.train) if has_labels(plan.train) and classes_of(posterior) else None
    if reference is not None:
        detector = read_detector(Sealed(run.path)) or Detector({})
        update(run.path, {DETECTOR: save(replace(detector, reference=reference).tensors())})


def evaluated(run: RunFolder, posterior: Posterior, dataset: Dataset, calibrator: Calibrator | None = None) -> Results:
    """Evaluate a fit on the test rows, and keep the results with its run."""
    results = score(posterior, dataset.test, calibrator=calibrator)
    run.add_evaluation(f"{dataset.name}, test rows", results.raw.to_dict())
    if results.differ:
        run.add_evaluation(f"{dataset.name}, test rows, calibrated", results.calibrated.to_dict())
    return results
