"""Where the seen rows of a batch come from: tensors in memory, or a torch Dataset too big for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from mixupmp.core.rows import Rows


class Source(Protocol):
    """Labeled rows that can be fetched by index, a batch at a time."""

    def __len__(self) -> int: ...

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Rows]:
        """The rows of each chunk of indices, in order."""
        ...


class InMemory:
    """Rows as tensors on the device: fetching is one gather, with no Python for each row."""

    def __init__(self, rows: Rows, device: torch.device | str = "cpu") -> None:
        weights = None if rows.weights is None else rows.weights.to(device)
        self.rows = Rows(rows.inputs.to(device), rows.labels.to(device), weights)

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Rows]:
        for chunk in chunks:
            yield self.rows.take(chunk.to(self.rows.inputs.device))


class Loaded:
    """A map-style torch Dataset of (input, label) pairs, read ahead by worker processes.

    The order of rows is ours, so it is the same on every engine and after a resume. What the Dataset draws at random
    by itself in its workers is not: leave augmentation to the kernel where exact repetition matters.
    """

    def __init__(self, dataset: TorchDataset[Any], device: torch.device | str = "cpu", workers: int = 2) -> None:
        self.dataset, self.device, self.workers = dataset, device, workers

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Rows]:
        loader = DataLoader(
            self.dataset,
            batch_sampler=[chunk.tolist() for chunk in chunks],
            num_workers=self.workers,
            prefetch_factor=4 if self.workers else None,
            pin_memory=str(self.device) != "cpu",
            # Without one of its own, each loader takes a number from the global generator, and a fit that is resumed
            # in the middle of an epoch, with a second loader, would have other dropout from there on.
            generator=torch.Generator().manual_seed(0),
        )
        for inputs, labels in loader:
            yield Rows(inputs.to(self.device, non_blocking=True), torch.as_tensor(labels).to(self.device))
