"""What every reader returns and everything downstream takes: rows in memory, as tensors."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check


@dataclass(frozen=True, eq=False)  # tensors have no single truth value: compare by identity, or by fingerprint
class Rows:
    """Labeled rows. Images stay uint8 (rows, channels, height, width) until the last moment; tables are float32."""

    inputs: Tensor
    labels: Tensor  # (rows,) int64
    weights: Tensor | None = None  # (rows,) float32: how often each row counts, one if None

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def take(self, indices: Tensor) -> Rows:
        """The rows at these indices, in their order."""
        # index_select copies whole rows; indexing goes element by element, and takes ten times as long.
        weights = None if self.weights is None else self.weights.index_select(0, indices)
        return Rows(self.inputs.index_select(0, indices), self.labels.index_select(0, indices), weights)

    def fingerprint(self) -> str:
        """SHA-256 of everything in here: resuming on other data is refused by it."""
        digest = hashlib.sha256()
        for tensor in (self.inputs, self.labels, self.weights):
            if tensor is not None:
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()

    def checked(self, classes: int, name: str = "training") -> Rows:
        """Itself, or an error that names what a fit or an evaluation could not use."""
        if len(self) == 0:
            raise BadData(f"{name} data is empty: it needs at least one row.")
        if self.inputs.ndim < 2 or self.inputs[0].numel() == 0:
            raise BadData(f"{name} inputs must be (rows, features...) with a feature, got {tuple(self.inputs.shape)}.")
        if self.labels.shape != (len(self),):
            found = len(self.labels) if self.labels.ndim == 1 else tuple(self.labels.shape)
            raise BadData(f"{name} data has {len(self)} rows of inputs but {found} labels.")
        if self.labels.dtype != torch.int64:
            raise BadData(f"{name} labels must be int64 class numbers, got {self.labels.dtype}.")
        if self.weights is not None:
            _check_weights(self.weights, len(self), name)
        if self.inputs.is_floating_point() and not bool(torch.isfinite(self.inputs).all()):
            row = int((~torch.isfinite(self.inputs).flatten(1).all(1)).nonzero()[0])
            raise BadData(f"{name} inputs hold NaN or infinity (first in row {row}): remove or impute those rows.")
        if classes < 2:
            raise BadData(f"{name} data has {classes} class: a classifier needs at least two.")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= classes:
            wrong = low if low < 0 else high
            raise BadData(f"{name} labels must lie in 0..{classes - 1} for {classes} classes, found {wrong}.")
        return self


def _check_weights(weights: Tensor, rows: int, name: str) -> None:
    if weights.shape != (rows,):
        raise BadData(f"{name} data has {rows} rows of inputs but weights of shape {tuple(weights.shape)}.")
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()) or float(weights.sum()) <= 0:
        raise BadData(f"{name} weights must be finite and at least 0, and not all 0.")


@dataclass(frozen=True)
class Standardize:
    """inputs -> (inputs - mean) / deviation as float32; uint8 is divided by 255 first.

    One mean per channel for images, per column for tables. The empty default only converts to float.
    """

    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check(
            len(self.mean) == len(self.deviation), "deviation", self.deviation, f"{len(self.mean)} numbers, like mean"
        )
        check(all(map(math.isfinite, self.mean)), "mean", self.mean, "finite everywhere")
        positive = all(d > 0 and math.isfinite(d) for d in self.deviation)
        check(positive, "deviation", self.deviation, "positive and finite everywhere")

    def __call__(self, inputs: Tensor, out: Tensor | None = None) -> Tensor:
        """A scaled copy, written into `out` if there is one."""
        scale = 1 / 255 if inputs.dtype == torch.uint8 else 1.0
        result = (torch.empty(inputs.shape, device=inputs.device) if out is None else out).copy_(inputs)
        if not self.mean:
            return result.mul_(scale) if scale != 1 else result
        expected = f"{len(self.mean)} channels or columns on axis 1, as this Standardize has means"
        check(inputs.ndim > 1 and inputs.shape[1] == len(self.mean), "inputs", tuple(inputs.shape), expected)
        shape = (1, -1) + (1,) * (inputs.ndim - 2)
        slope = torch.tensor([scale / d for d in self.deviation], device=inputs.device).view(shape)
        shift = torch.tensor([-m / d for m, d in zip(self.mean, self.deviation, strict=True)], device=inputs.device)
        return result.mul_(slope).add_(shift.view(shape))  # a fused call has no fast kernel for one number a channel

    @classmethod
    def of(cls, inputs: Tensor) -> Standardize:
        """The mean and deviation of these inputs; a constant column keeps its scale."""
        moments = [_moments(column) for column in inputs.transpose(0, 1).flatten(1)]
        deviation = tuple(d if d > 1e-12 else 1.0 for _, d in moments)
        return cls(tuple(m for m, _ in moments), deviation)


def _moments(column: Tensor) -> tuple[float, float]:
    """The mean and deviation of one channel or column, as `Standardize` sees it."""
    if column.dtype == torch.uint8:  # through the 256 counts: exact, and all of CIFAR takes a tenth of a second
        levels = torch.arange(256, dtype=torch.float64) / 255
        share = torch.bincount(column, minlength=256).double().cpu() / column.numel()
        mean = (levels * share).sum()
        return float(mean), float(((levels - mean).square() * share).sum().sqrt())
    spread, mean = torch.std_mean(column.double(), correction=0)
    return float(mean), float(spread)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset: its publisher's split, the names of its classes and how its inputs are scaled."""

    name: str
    train: Rows
    test: Rows
    classes: tuple[str, ...]
    standardize: Standardize = field(default_factory=Standardize)

    def with_train(self, train: Rows) -> Dataset:
        """The same dataset with other training rows (a subset, a split)."""
        return replace(self, train=train)

    def checked(self) -> Dataset:
        """Itself, or an error that names what a fit on it would trip over."""
        self.train.checked(len(self.classes), f"{self.name} training")
        self.test.checked(len(self.classes), f"{self.name} test")
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            ours, theirs = tuple(self.train.inputs.shape[1:]), tuple(self.test.inputs.shape[1:])
            raise BadData(f"{self.name} training rows have shape {ours} but test rows {theirs}: they must agree.")
        if bool((self.train.labels == self.train.labels[0]).all()):
            only = self.classes[int(self.train.labels[0])]
            raise BadData(f"{self.name} training labels are all of one class ({only}): a classifier needs two.")
        return self


def split(rows: Rows, fraction: float, seed: int = 0) -> tuple[Rows, Rows]:
    """Take a stratified share of the rows off for validation: (rest, share).

    Every class keeps at least one row in the rest; the share of each class is its expected count, rounded so
    that the total is right.
    """
    check(0 < fraction < 1, "fraction", fraction, "between 0 and 1, both excluded")
    wanted = round(fraction * len(rows))
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator)
    # A row's place within its class, over the size of the class: sorting by it deals the classes out evenly.
    labels = rows.labels[order]
    _, inverse, counts = labels.unique(return_inverse=True, return_counts=True)
    must = f"such that each side gets a row and every class keeps one ({len(rows)} rows, {len(counts)} classes)"
    check(0 < wanted <= len(rows) - len(counts), "fraction", fraction, must)
    by_class = torch.argsort(inverse, stable=True)
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.empty(len(rows), dtype=torch.float64)
    place = torch.arange(len(rows)) - starts[inverse[by_class]]
    # The first of each class ranks zero, so it is the last to be taken.
    rank[by_class] = (place > 0) * (place.double() + 0.5) / counts[inverse[by_class]]
    dealt = order[torch.argsort(rank, descending=True, stable=True)]
    return rows.take(dealt[wanted:].sort().values), rows.take(dealt[:wanted].sort().values)
