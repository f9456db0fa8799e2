"""Rows that are streamed from a torch Dataset in each epoch: live random transforms, and data larger than memory.

Items are read and transformed by a DataLoader's worker processes. Before item i is read for epoch e of member b, the
generators of torch, NumPy and `random` are seeded by (seed, b, e, i), so a transform draws the same numbers in any
worker, engine or order, and after a resume. The fit's own draws are not touched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeGuard

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data.dataloader import _InfiniteConstantSampler

from mixupmp.core import seeds
from mixupmp.core.arrays import as_tensor
from mixupmp.core.errors import InvalidArgument, check, is_whole
from mixupmp.core.fields import parted
from mixupmp.core.rows import Rows, RowSource
from mixupmp.core.stream_items import Collate, Collated, EpochKeys, IteratedItems, SeededItems

PREFETCHED = 4  # batches that a worker reads ahead
WORTH_WORKERS = 8  # batches below which starting worker processes gains nothing


@dataclass(eq=False)
class _Stream(ABC):
    """What both kinds of streams have.

    Parameters
    ----------
    dataset
        Of items (input, label), (a, b, ..., label) for networks of several inputs, or dicts with a key "label".
    workers
        Processes that read and transform; 0: in this process.
    collate
        Items to a batch; by default torch's `default_collate`.
    """

    dataset: TorchDataset[object]
    workers: int = 2
    collate: Collate = default_collate
    device: str = "cpu"
    seed: int = 0  # of the random transforms: a number of its own for each member
    pack: Callable[[Any], Tensor] = as_tensor  # a batch's inputs to rows
    encode: Callable[[Any], Tensor] = torch.as_tensor  # a batch's labels to class numbers

    def __post_init__(self) -> None:
        check(is_whole(self.workers, 0), "workers", self.workers, "a whole number, zero or more")

    @abstractmethod
    def raw(self, chunks: Sequence[Tensor], epoch: int = 0) -> Iterator[object]:
        """The collated items of each chunk, as they come from the Dataset."""

    def batches(self, chunks: Sequence[Tensor], epoch: int = 0) -> Iterator[Rows]:
        """The rows of each chunk of indices, on the device, transformed as in this epoch."""
        for chunk, batch in zip(chunks, self.raw(chunks, epoch), strict=True):
            inputs, labels = parted(batch)
            yield self._rows(chunk, self.pack(inputs).to(self.device, non_blocking=True), labels)

    def _rows(self, chunk: Tensor, inputs: Tensor, labels: object) -> Rows:
        return Rows(inputs, self.encode(labels).to(self.device))

    def to(self, device: torch.device | str) -> Self:
        """The same rows, which come to this device."""
        return replace(self, device=str(device))

    def versions(self) -> tuple[int, ...]:
        """Nothing is known of changes to a Dataset."""
        return ()


@dataclass(eq=False)
class DatasetRows(_Stream):
    """Rows of a map-style torch Dataset, read again in every epoch.

    Parameters
    ----------
    labels
        The label of every item, where they are known beforehand: rows can then be held out from the fit.
    indices
        Only these items; None: all.
    weights
        How often each row counts; None: once.
    dataset, workers, collate
        As `torch.utils.data.DataLoader` takes them; `workers` is its `num_workers`.
    device, seed, pack, encode
        Set by the fit: where batches go, what seeds the items, how inputs and labels become tensors.
    """

    labels: Tensor | None = None
    indices: Tensor | None = None
    weights: Tensor | None = None
    sequential: ClassVar[bool] = False
    # Whose workers wait for the next epoch; a copy of these rows has none.
    _idle: DataLoader[object] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.dataset) if self.indices is None else len(self.indices)  # type: ignore[arg-type]

    def take(self, indices: Tensor) -> DatasetRows:
        """The rows at these indices, in their order; nothing is read."""
        labels, weights = (None if part is None else part[indices] for part in (self.labels, self.weights))
        kept = indices if self.indices is None else self.indices[indices]
        return replace(self, labels=labels, weights=weights, indices=kept)

    def read(self) -> Rows:
        """All of them in memory, as epoch 0 draws them."""
        batches = list(self.batches(torch.arange(len(self)).split(256)))
        inputs, labels = torch.cat([b.inputs for b in batches]), torch.cat([b.labels for b in batches])
        return Rows(inputs, labels, self.weights)

    def raw(self, chunks: Sequence[Tensor], epoch: int = 0) -> Iterator[object]:
        chosen = chunks if self.indices is None else [self.indices[chunk] for chunk in chunks]
        loader, self._idle = self._idle or self._loader(len(chunks)), None
        loader.batch_sampler.keys = [[(epoch, index) for index in chunk.tolist()] for chunk in chosen]  # type: ignore[union-attr]
        yield from loader
        if loader.persistent_workers:  # where the batches were not all taken, its workers end with it
            self._idle = loader

    def _rows(self, chunk: Tensor, inputs: Tensor, labels: object) -> Rows:
        known = self.encode(labels) if self.labels is None else self.labels[chunk]
        weights = None if self.weights is None else self.weights[chunk].to(self.device)
        return Rows(inputs, known.to(self.device), weights)

    def _loader(self, batches: int) -> DataLoader[object]:
        workers = self.workers if batches >= WORTH_WORKERS else 0
        return DataLoader(
            SeededItems(self.dataset, self.seed),
            batch_sampler=EpochKeys(),
            num_workers=workers,
            collate_fn=Collated(self.collate),
            prefetch_factor=PREFETCHED if workers else None,
            persistent_workers=workers > 0,
            pin_memory=self.device != "cpu",
            # Without one of its own, each loader takes a number from the global generator, and a fit that is resumed
            # in the middle of an epoch, with a second loader, would have other dropout from there on.
            generator=torch.Generator().manual_seed(0),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_idle": None}


@dataclass(eq=False)
class IterableRows(_Stream):
    """Rows of an IterableDataset, which is iterated anew in every epoch, in its own order.

    An epoch is the first `rows` rows of one iteration, read by one worker process whose generators are seeded by
    (seed, member, epoch): a Dataset that shuffles or transforms by them does so alike after a resume. A batch is
    consecutive rows, and pairs for Mixup come from it: shuffle in the Dataset. A fit that is resumed in the middle of
    an epoch reads its first rows again and leaves them out. Rows cannot be held out from it.

    Parameters
    ----------
    rows
        Of an epoch; None: the Dataset's length.
    dataset, workers, collate, device, seed, pack, encode
        As for `DatasetRows`.
    """

    rows: int | None = None
    sequential: ClassVar[bool] = True
    labels: ClassVar[None] = None
    weights: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is None:
            must = "the rows of an epoch, for a Dataset without a length"
            check(hasattr(self.dataset, "__len__"), "rows", None, must, "Pass IterableRows(dataset, rows=50_000).")
            self.rows = len(self.dataset)  # type: ignore[arg-type]
        check(is_whole(self.rows), "rows", self.rows, "a whole number, at least 1")

    def __len__(self) -> int:
        return self.rows or 0

    def raw(self, chunks: Sequence[Tensor], epoch: int = 0) -> Iterator[object]:
        order = torch.cat(list(chunks))
        check(bool((order.diff() > 0).all()), "chunks", "shuffled", "ascending, for rows of an IterableDataset")
        stream = IteratedItems(self.dataset, [c.tolist() for c in chunks], seeds.derive(self.seed, epoch), self.collate)
        # Its own process, also for workers=0: the Dataset's draws must not mix with the fit's.
        loader: DataLoader[object] = DataLoader(
            stream, None, num_workers=1, prefetch_factor=PREFETCHED, generator=torch.Generator().manual_seed(0)
        )
        yield from loader


def has_labels(rows: RowSource) -> TypeGuard[Rows | DatasetRows]:
    """Whether the label of every row is known beforehand, so that some can be held out."""
    return getattr(rows, "labels", None) is not None


def stream_of(dataset: Any) -> DatasetRows | IterableRows:
    """A torch Dataset, or a DataLoader with its workers and `collate_fn`, as rows that are streamed."""
    if isinstance(dataset, DatasetRows | IterableRows):
        return dataset
    more: dict[str, Any] = {}
    if isinstance(dataset, DataLoader):
        usual = isinstance(dataset.sampler, SequentialSampler | RandomSampler | _InfiniteConstantSampler)
        hint = "Give the rows of a sampler as a Subset of the Dataset."
        check(usual, "train", type(dataset.sampler).__name__, "a DataLoader without a sampler of its own", hint)
        more = {"workers": dataset.num_workers, "collate": dataset.collate_fn}
        dataset = dataset.dataset
    if isinstance(dataset, IterableDataset):
        return IterableRows(dataset, **more)
    mapped = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not mapped or isinstance(dataset, Tensor | list | tuple | dict):
        must = "Rows or a torch Dataset with a length and items by number, or an IterableDataset"
        raise InvalidArgument("train", dataset, must)
    return DatasetRows(dataset, **more)
