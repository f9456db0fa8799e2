"""Items of a torch Dataset, read with generators that are seeded by epoch and index, and collated to batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, get_worker_info

from mixupmp.core import seeds
from mixupmp.core.errors import BadData

Collate = Callable[[list[object]], object]


class EpochKeys:
    """A batch sampler whose batches of (epoch, index) are set before each epoch."""

    keys: list[list[tuple[int, int]]]

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


@dataclass
class SeededItems(TorchDataset[object]):
    """A Dataset whose item (epoch, index) is read with generators that are seeded by both."""

    dataset: TorchDataset[object]
    seed: int

    def __getitems__(self, keys: list[tuple[int, int]]) -> list[object]:
        with seeds.all_restored() if get_worker_info() is None else nullcontext():
            return [self._item(*key) for key in keys]

    def _item(self, epoch: int, index: int) -> Any:
        seeds.seed_all(seeds.derive(self.seed, epoch, index))
        return self.dataset[index]


@dataclass
class IteratedItems(IterableDataset[object]):
    """The rows of ascending chunks of one iteration of a Dataset, as batches."""

    dataset: TorchDataset[object]
    chunks: list[list[int]]
    seed: int
    collate: Collate

    def __iter__(self) -> Iterator[object]:
        seeds.seed_all(self.seed)
        items = enumerate(iter(self.dataset))
        for chunk in self.chunks:
            wanted, batch = iter(chunk), []
            place = next(wanted)
            for number, item in items:
                if number == place:
                    batch.append(_plain(item))
                    place = next(wanted, -1)
                if place < 0:
                    break
            else:
                there, last = chunk[0] + len(batch), self.chunks[-1][-1] + 1
                raise BadData(f"the IterableDataset ended after about {there} rows, of {last}: set `rows` of an epoch.")
            yield self.collate(batch)


@dataclass
class Collated:
    """Items to a batch: the user's way, with PIL images as arrays."""

    collate: Collate

    def __call__(self, items: list[object]) -> Any:
        try:
            return self.collate([_plain(item) for item in items])
        except RuntimeError as error:
            if "size" not in str(error):
                raise
            hint = "Pad or resize them in the Dataset's transform, or pass a DataLoader whose collate_fn does."
            raise BadData(f"items of a Dataset differ in shape: {error}. {hint}") from None


def _plain(item: object) -> Any:
    """An item with PIL images, at its top or in a pair, as uint8 arrays with the channels first."""
    if isinstance(item, list | tuple):
        return tuple(_plain(part) for part in item)
    if hasattr(item, "getbands") and hasattr(item, "convert"):  # a PIL image, without importing Pillow
        array = np.array(item)
        return torch.from_numpy(array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1)))
    return item
