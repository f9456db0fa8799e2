"""Torch Datasets and DataLoaders as an estimator's X: streamed, or read once into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from mixupmp.core.arrays import Array
from mixupmp.core.errors import BadData
from mixupmp.core.fields import LABELS, parted
from mixupmp.core.recipe import some_rows
from mixupmp.core.streams import DatasetRows, IterableRows, stream_of

SAMPLE = 2048  # rows of a stream from which the scaling of its inputs is computed
BLOCK = 256


def stream_for(X: object) -> DatasetRows | IterableRows | None:
    """A stream of its own for a Dataset, a DataLoader or a stream; None for anything else."""
    if not isinstance(X, TorchDataset | DataLoader | DatasetRows | IterableRows):
        return None
    return replace(stream_of(X))


def is_in_memory(stream: DatasetRows | IterableRows) -> bool:
    """Whether the Dataset only holds tensors, so that reading them again gives nothing new."""
    dataset: object = stream.dataset
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return isinstance(dataset, TensorDataset)


def _chunks(count: int) -> list[Tensor]:
    return list(torch.arange(count).split(BLOCK))


def read_all(stream: DatasetRows | IterableRows) -> tuple[Any, Array]:
    """All inputs, joined, and all labels."""
    if len(stream) == 0:
        raise BadData("the Dataset is empty: it needs at least one row.")
    return _joined(list(stream.raw(_chunks(len(stream)))))


def probe(stream: DatasetRows | IterableRows) -> tuple[Any, Array]:
    """Some rows of a stream, evenly spaced, or the first ones where it has no order of ours."""
    if len(stream) == 0:
        raise BadData("the Dataset is empty: it needs at least one row.")
    return _joined(list(stream.raw(list(some_rows(stream, SAMPLE).split(BLOCK)))))


def _joined(batches: list[object]) -> tuple[Any, Array]:
    parts = [parted(batch) for batch in batches]
    return _cat([inputs for inputs, _ in parts]), np.concatenate([np.asarray(labels) for _, labels in parts])


def _cat(parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: _cat([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(_cat([part[place] for part in parts]) for place in range(len(first)))
    if not isinstance(first, Tensor):
        raise BadData(f"a Dataset must give tensors, arrays or PIL images as inputs, got {type(first).__name__}.")
    return torch.cat(parts)


def labels_of(stream: DatasetRows | IterableRows) -> Array:
    """The label of every row: as the Dataset knows them (`targets`, as torchvision's have), or read in one pass."""
    known = _known_labels(stream.dataset)
    if known is not None and len(known) == len(stream):
        return known
    return np.concatenate([np.asarray(parted(batch)[1]) for batch in stream.raw(_chunks(len(stream)))])


def _known_labels(dataset: object) -> Array | None:
    if isinstance(dataset, Subset):
        known = _known_labels(dataset.dataset)
        return None if known is None else known[np.asarray(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        each = [_known_labels(part) for part in dataset.datasets]
        return None if any(part is None for part in each) else np.concatenate([p for p in each if p is not None])
    if getattr(dataset, "target_transform", None) is not None:
        return None
    targets = dataset.tensors[-1] if isinstance(dataset, TensorDataset) else getattr(dataset, "targets", None)
    return None if targets is None else np.asarray(targets)


def stream_inputs(stream: DatasetRows | IterableRows, inputs: int) -> Iterator[Any]:
    """The inputs of each block of rows, without labels if there are any; a network takes so many inputs."""
    loader: Any = stream.raw(_chunks(len(stream)))
    for batch in loader:
        yield inputs_alone(batch, inputs)


def inputs_alone(batch: object, inputs: int) -> Any:
    """The inputs of a collated batch of items with or without labels."""
    if isinstance(batch, Mapping):
        return {name: value for name, value in batch.items() if name not in LABELS}
    if not isinstance(batch, list | tuple):
        return batch
    return batch[0] if inputs == 1 else tuple(batch[:inputs])
