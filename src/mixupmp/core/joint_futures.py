"""The futures of members that share weights: every batch holds one equal block of rows for each member."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mixupmp.core.batch import Batch
from mixupmp.core.predictive import Future, Predictive, ResampledFuture, TrainingData


@dataclass
class ResampledJointFuture(ResampledFuture):
    """Algorithm 2 for all members at once. A batch holds one equal block of rows for each.

    Member b visits the rows in the order of the epoch, permuted by its own fixed permutation `orders[b]`: its batches
    are random subsets, different from the others', and a function of the epoch alone, so that a fit can be resumed.
    Pseudo rows are drawn for all members in one call, given the seen rows of all of them.
    """

    orders: Tensor  # (members, rows)

    def batches(self, chunks: Sequence[Tensor], generator: Generator, epoch: int = 0) -> Iterator[Batch]:
        """For each chunk of row indices, the blocks of all members, one after another."""
        members = len(self.orders)
        for chunk, batch in zip(
            chunks, super().batches([self.orders[:, c].flatten() for c in chunks], generator, epoch), strict=True
        ):
            seen = 0 if self.predictive.ratio == math.inf else members * len(chunk)
            if seen in (0, len(batch.inputs)):
                yield batch  # of one kind of rows, in equal shares
                continue
            blocks = [
                [part[:seen].unflatten(0, (members, -1)), part[seen:].unflatten(0, (members, -1))] for part in batch
            ]
            yield Batch(*(torch.cat(pair, 1).flatten(0, 1) for pair in blocks))


class JointFuture:
    """The futures of all members with weights and atoms of their own, as Algorithm 1 draws them."""

    def __init__(self, futures: list[Future], orders: list[Tensor]) -> None:
        self.futures, self.orders = futures, orders

    @property
    def predictive(self) -> Predictive:
        return self.futures[0].predictive

    @predictive.setter
    def predictive(self, value: Predictive) -> None:
        for future in self.futures:
            future.predictive = value

    @property
    def data(self) -> TrainingData:
        return self.futures[0].data

    def __len__(self) -> int:
        return len(self.futures[0])

    def batches(self, chunks: Sequence[Tensor], generator: Generator, epoch: int = 0) -> Iterator[Batch]:
        """For each chunk of row indices, the blocks of all members, one after another."""
        streams = [
            future.batches([order[chunk] for chunk in chunks], generator, epoch)
            for future, order in zip(self.futures, self.orders, strict=True)
        ]
        for blocks in zip(*streams, strict=True):
            yield Batch(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))
