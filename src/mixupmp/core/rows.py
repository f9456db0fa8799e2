"""Labeled rows in memory, and how their inputs are scaled; see `core.streams` for rows that are not in memory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn

from mixupmp.core.arrays import as_tensor
from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import BadData, InvalidArgument, check

if TYPE_CHECKING:
    from mixupmp.core.fields import Fields


TINY = torch.finfo(torch.float32).tiny


class RowSource(Protocol):
    """Labeled rows that are fetched by index, a batch at a time: `Rows`, or streamed (`core.streams`)."""

    @property
    def sequential(self) -> bool:
        """Whether rows can only be read in their own order: then indices must ascend."""

    def __len__(self) -> int: ...

    def batches(self, chunks: Sequence[Tensor], epoch: int = 0) -> Iterator[Rows]:
        """The rows of each chunk of indices, in order; random transforms of streamed rows are drawn for an epoch."""


@dataclass(frozen=True, eq=False)  # tensors have no single truth value: compare by identity, or by fingerprint
class Rows:
    """Labeled rows in memory.

    Parameters
    ----------
    inputs
        (rows, channels, height, width) uint8 for images, which become float only in a batch; (rows, features) float32
        for tables.
    labels
        (rows,) int64 class numbers, or float values in regression.
    weights
        (rows,) float32: how often each row counts; None: once.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor | None = None
    sequential: ClassVar[bool] = False

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def read(self) -> Rows:
        """Themselves: they are in memory."""
        return self

    def take(self, indices: Tensor) -> Rows:
        """The rows at these indices, in their order."""
        # index_select copies whole rows; indexing goes element by element, and takes ten times as long.
        weights = None if self.weights is None else self.weights.index_select(0, indices)
        return Rows(self.inputs.index_select(0, indices), self.labels.index_select(0, indices), weights)

    def batches(self, chunks: Sequence[Tensor], epoch: int = 0) -> Iterator[Rows]:
        for chunk in chunks:
            yield self.take(chunk.to(self.inputs.device))

    def to(self, device: torch.device | str) -> Rows:
        """These rows on a device: themselves if they are there, else one copy that lives as long as it is in use.

        All who ask for the same device share that copy, so a fit that asks after each epoch copies nothing.
        """
        device = torch.empty(0, device=device).device  # "cuda" is the current one, such as cuda:0
        if self.inputs.device == device:
            return self
        copies = _COPIES.setdefault(self, WeakValueDictionary())
        copy = copies.get(device)
        if copy is None:
            weights = None if self.weights is None else self.weights.to(device)
            copy = copies[device] = Rows(self.inputs.to(device), self.labels.to(device), weights)
        return copy

    def versions(self) -> tuple[int, ...]:
        """torch's counters of changes in place: what was found of these rows holds while they stay the same."""
        tensors = [tensor for tensor in (self.inputs, self.labels, self.weights) if tensor is not None]
        return tuple(0 if tensor.is_inference() else tensor._version for tensor in tensors)

    def fingerprint(self) -> str:
        """SHA-256 of all values, types and shapes, computed once; a run is not resumed on data with another one."""
        versions, found = self.__dict__.get("_fingerprint", (None, ""))
        if versions != self.versions():
            found = self._hash()
            object.__setattr__(self, "_fingerprint", (self.versions(), found))
        return str(found)

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for tensor in (self.inputs, self.labels, self.weights):
            if tensor is not None:
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()

    def checked(self, classes: int | None, name: str = "training") -> Rows:
        """These rows, if a fit or an evaluation can use them.

        Parameters
        ----------
        classes
            How many classes the labels are of; None in regression.
        name
            What the data is called in an error.

        Raises
        ------
        BadData
            Naming the first thing that is wrong.
        """
        if len(self) == 0:
            raise BadData(f"{name} data is empty: it needs at least one row.")
        if self.inputs.ndim < 2 or self.inputs[0].numel() == 0:
            raise BadData(f"{name} inputs must be (rows, features...) with a feature, got {tuple(self.inputs.shape)}.")
        if self.labels.shape != (len(self),):
            found = len(self.labels) if self.labels.ndim == 1 else tuple(self.labels.shape)
            raise BadData(f"{name} data has {len(self)} rows of inputs but {found} labels.")
        if self.weights is not None:
            _check_weights(self.weights, len(self), name)
        if self.inputs.is_floating_point() and (row := first_not_finite(self.inputs)) is not None:
            raise BadData(f"{name} inputs hold NaN or infinity (first in row {row}): remove or impute those rows.")
        if classes is not None:
            _check_class_numbers(self.labels, classes, name)
        elif (row := first_not_finite(self.labels[:, None])) is not None:
            raise BadData(f"{name} labels hold NaN or infinity (first in row {row}): remove or impute those rows.")
        return self


# Weak on both sides: a copy goes when nobody uses it, and all of them with the rows they are of.
_COPIES: WeakKeyDictionary[Rows, WeakValueDictionary[torch.device, Rows]] = WeakKeyDictionary()


def first_not_finite(values: Tensor) -> int | None:
    """The first row with NaN or infinity in it, if there is one."""
    finite = torch.isfinite(values)
    return None if bool(finite.all()) else int((~finite.flatten(1).all(1)).nonzero()[0])


def _check_weights(weights: Tensor, rows: int, name: str) -> None:
    if weights.shape != (rows,):
        raise BadData(f"{name} data has {rows} rows of inputs but weights of shape {tuple(weights.shape)}.")
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()) or float(weights.sum()) <= 0:
        raise BadData(f"{name} weights must be finite and at least 0, and not all 0.")


def _check_class_numbers(labels: Tensor, classes: int, name: str) -> None:
    if labels.dtype != torch.int64:
        raise BadData(f"{name} labels must be int64 class numbers, got {labels.dtype}.")
    if classes < 2:
        raise BadData(f"{name} data has {classes} class: a classifier needs at least two.")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise BadData(f"{name} labels must lie in 0..{classes - 1} for {classes} classes, found {wrong}.")


@dataclass(frozen=True)
class Standardize:
    """(inputs - mean) / deviation as float32; uint8 is divided by 255 first.

    One mean and deviation per channel of images, per column of tables. Without any it only converts to float.

    Parameters
    ----------
    mean, deviation
        One number for each channel or column; empty: none.
    """

    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        must = f"{len(self.mean)} numbers, like mean"
        check(len(self.mean) == len(self.deviation), "deviation", self.deviation, must)
        check(all(map(math.isfinite, self.mean)), "mean", self.mean, "finite everywhere")
        positive = all(d > 0 and math.isfinite(d) for d in self.deviation)
        check(positive, "deviation", self.deviation, "positive and finite everywhere")

    def __call__(self, inputs: Tensor, out: Tensor | None = None) -> Tensor:
        """A scaled copy, in `out` if given."""
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

    blendable: ClassVar[bool] = True

    def pack(self, inputs: object) -> Tensor:
        """The inputs as a tensor, of a tensor, an array or lists: see `Fields` for networks that take several."""
        inputs = as_tensor(inputs)
        if inputs.ndim > 2 and not inputs.is_floating_point() and inputs.dtype not in (torch.uint8, torch.bool):
            hint = "Pass 8 bits as uint8, 16 bits as floats divided by 65535, and other numbers as floats."
            raise InvalidArgument("inputs", inputs.dtype, "uint8 pixels or floats, where rows have several axes", hint)
        return inputs

    def prepare(self, network: nn.Module) -> nn.Module:
        """The network as it is: it takes one tensor."""
        return network

    @classmethod
    def of(cls, inputs: Tensor) -> Standardize:
        """Of these inputs' own mean and deviation; a constant column keeps its scale, and so do all without rows."""
        if len(inputs) == 0:
            return cls()
        moments = [_moments(column) for column in inputs.transpose(0, 1).flatten(1)]
        return cls.from_moments([m for m, _ in moments], [d for _, d in moments])

    @classmethod
    def from_moments(cls, mean: Sequence[float], deviation: Sequence[float]) -> Standardize:
        """Of these means and deviations; a deviation that is only rounding, or below float32's range, becomes one."""
        least = [max(1e-12 * abs(m), TINY) for m in mean]
        return cls(tuple(mean), tuple(d if d > low else 1.0 for d, low in zip(deviation, least, strict=True)))


def _moments(column: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of one channel or column, in the scale of `Standardize`."""
    if column.dtype == torch.uint8:  # through the 256 counts: exact, and all of CIFAR takes a tenth of a second
        levels = torch.arange(256, dtype=torch.float64) / 255
        share = torch.bincount(column, minlength=256).double().cpu() / column.numel()
        mean = (levels * share).sum()
        return float(mean), float(((levels - mean).square() * share).sum().sqrt())
    spread, mean = torch.std_mean(column.double(), correction=0)
    return float(mean), float(spread)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset: training and test rows as published, names of the classes, scaling of the inputs.

    Parameters
    ----------
    encoder
        How sentences, sounds, or columns of categories and missing values became rows.
    outside
        Test inputs that are of none of the classes, where the dataset has such.
    name, train, test, classes, standardize
        Its name; rows; names of the classes; what scales raw inputs for a network.
    """

    name: str
    train: Rows
    test: Rows
    classes: tuple[str, ...]
    standardize: Standardize | Fields = field(default_factory=Standardize)
    encoder: Encoder | None = None
    outside: Tensor | None = None

    def with_train(self, train: Rows) -> Dataset:
        """The same dataset with other training rows, such as a subset."""
        return replace(self, train=train)

    def checked(self) -> Dataset:
        """This dataset, if a classifier can be fitted to it and tested; else `BadData` names what is wrong.

        Without training rows it is for tests alone, and may have a single class.
        """
        if len(self.train) == 0:
            self.test.checked(max(2, len(self.classes)), f"{self.name} test")
            return self
        self.train.checked(len(self.classes), f"{self.name} training")
        self.test.checked(len(self.classes), f"{self.name} test")
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            ours, theirs = tuple(self.train.inputs.shape[1:]), tuple(self.test.inputs.shape[1:])
            raise BadData(f"{self.name} training rows have shape {ours} but test rows {theirs}: they must agree.")
        if bool((self.train.labels == self.train.labels[0]).all()):
            only = self.classes[int(self.train.labels[0])]
            raise BadData(f"{self.name} training labels are all of one class ({only}): a classifier needs two.")
        return self
