"""A row about streamed rows: a Dataset with live random crops against the same crops of rows in memory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset as TorchDataset

from benchmarks.timing import Row, interleaved
from mixupmp import Dataset, DatasetRows, PadCrop, Plan, Posterior, Recipe, Rows, Standardize, fit, mixup_mp, plan_for
from mixupmp.data import load

PADDING = 2


class Crops(TorchDataset[tuple[Tensor, int]]):
    """Items as a user's Dataset gives them: one image at a time, padded and cropped at random."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = functional.pad(self.rows.inputs[index], (PADDING,) * 4)
        down, across = torch.randint(2 * PADDING + 1, (2,)).tolist()
        return image[:, down : down + 28, across : across + 28], int(self.rows.labels[index])


def streamed(quick: bool) -> Iterator[Row]:
    """MixupMP r=1, one CNN, 4,495 digits of 28x28 with random crops: streamed by two workers, and in memory."""
    data = _digits()
    recipe = Recipe(epochs=2 if quick else 6, batch_size=64, learning_rate=0.05)
    in_memory = plan_for(data, mixup_mp(1.0, 1.0, 1, kernel=PadCrop(PADDING)), "cnn", recipe)
    plain = plan_for(data, mixup_mp(1.0, 1.0, 1), "cnn", recipe)
    live = dataclasses.replace(plain, train=DatasetRows(Crops(data.train), workers=2))
    accuracy: dict[str, float] = {}
    processor: dict[str, float] = {}  # seconds of the training process, without its loader's workers

    def run(name: str, plan: Plan) -> None:
        started = time.process_time()
        posterior = fit(plan, engine="inline")
        processor[name] = min(processor.get(name, float("inf")), time.process_time() - started)
        accuracy[name] = _accuracy(posterior, data.test)

    fit(dataclasses.replace(in_memory, recipe=dataclasses.replace(recipe, epochs=1)), engine="inline")  # warm

    ours, theirs = interleaved(1 if quick else 2, lambda: run("streamed", live), lambda: run("in memory", in_memory))
    yield Row(
        "CNN with random crops, streamed from a Dataset by two workers",
        "the same crops of rows in memory",
        ours,
        theirs,
        "at most 1.3x",
        at_most=1.3,
        details={"epochs": recipe.epochs, "rows": len(data.train), "accuracy": accuracy, "CPU seconds": processor},
    )


def _digits() -> Dataset:
    """Digits, enlarged to 28x28; the training rows five times over, so that an epoch has 71 steps."""

    def enlarged(rows: Rows) -> Rows:
        return Rows(functional.interpolate(rows.inputs.float(), (28, 28)).round().to(torch.uint8), rows.labels)

    data = load("digits")
    train, test = enlarged(data.train), enlarged(data.test)
    train = train.take(torch.arange(5 * len(train)) % len(train))
    return Dataset("digits", train, test, data.classes, Standardize.of(train.inputs))


def _accuracy(posterior: Posterior, test: Rows) -> float:
    return float((posterior.probabilities(test.inputs).argmax(1) == test.labels).float().mean())
