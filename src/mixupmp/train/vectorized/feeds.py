"""Batches for many members at once, laid out for batched matrix products: (members, features, rows).

Rows are the last, contiguous dimension: products over a few features then run along long vectors, and so does a
softmax over a few classes. Each member's draws are the ones that the reference fit would make, from the same generator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from mixupmp.core import seeds
from mixupmp.core.base_measures import AtLayer, Mixup, WarpedMixup, choose, pair_weights
from mixupmp.core.batch import Batch
from mixupmp.core.kernels import identity
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import FixedFuture, Future, ResampledFuture, simulate
from mixupmp.core.recipe import batches_of
from mixupmp.core.rows import Rows

BLOCK = 32  # steps whose uniforms are drawn at once


class Stacked(NamedTuple):
    """A batch for each member."""

    inputs: Tensor  # (members, features, rows)
    targets: Tensor  # (members, columns, rows)
    shares: Tensor  # (members, 1, rows): of each row in the loss, its weight over the number of rows


class Feed(Protocol):
    """Hands out the batches of all members, step by step, and knows where its generators are."""

    steps_an_epoch: int
    draws: list[Generator]

    def next(self, step: int) -> Stacked: ...

    def generator_states(self) -> list[Tensor]: ...


def feed_for(plan: Plan, members: tuple[int, ...], states: list[Tensor] | None) -> Feed:
    """The fastest feed that serves this plan; `states` puts the members' generators where they were."""
    draws = [seeds.generator(plan.seed, member, "draws") for member in members]
    futures = [simulate(plan.method.predictive, plan.training_data(), plan.recipe.pseudo_batch_size, g) for g in draws]
    if states is not None:
        for generator, state in zip(draws, states, strict=True):
            generator.set_state(state)
    first, size = futures[0], plan.recipe.batch_size
    if plan.method.predictive.kernel is identity and isinstance(first.data.rows, Rows):
        whole = size is None or size >= len(first)
        if whole and (isinstance(first, FixedFuture) or _seen_alone(first)):
            return Constant(futures, draws)
        blends = _seen_alone(first) or type(first.predictive.base) in (Mixup, WarpedMixup)
        if isinstance(first, ResampledFuture) and blends:
            return WholeMixup(first, draws) if whole else Shuffled(plan, members, first, draws)
    return OneByOne(plan, members, futures, draws)


def _seen_alone(future: Future) -> bool:
    """Whether batches are of seen rows alone: there are no pseudo rows, or they enter inside the network."""
    return future.predictive.ratio == 0 or isinstance(future.predictive.base, AtLayer)


class OneByOne:
    """Any plan: each member's batch as the reference makes it, stacked."""

    def __init__(self, plan: Plan, members: tuple[int, ...], futures: list[Future], draws: list[Generator]) -> None:
        self.plan, self.members, self.futures, self.draws = plan, members, futures, draws
        self.rows = len(futures[0])
        self.steps_an_epoch = len(batches_of(self.rows, plan.recipe.batch_size, torch.arange(self.rows)))
        self.batches: list[Iterator[Batch]] = []

    def next(self, step: int) -> Stacked:
        epoch, done = divmod(step, self.steps_an_epoch)
        if done == 0 or not self.batches:
            self.batches = [
                future.batches(_chunks(self.plan, member, epoch, self.rows)[done:], generator)
                for member, future, generator in zip(self.members, self.futures, self.draws, strict=True)
            ]
        return stacked([next(batches) for batches in self.batches])

    def generator_states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self.draws]


class Constant:
    """All rows in every batch, and nothing drawn after the start: one batch for the whole fit."""

    steps_an_epoch = 1

    def __init__(self, futures: list[Future], draws: list[Generator]) -> None:
        self.draws = draws
        batches = [
            future.batches([torch.arange(len(future))], generator)
            for future, generator in zip(futures, draws, strict=True)
        ]
        self.batch = stacked([next(iter(batch)) for batch in batches])

    def next(self, step: int) -> Stacked:
        return self.batch

    def generator_states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self.draws]


class Shuffled:
    """Batches of seen rows in each member's own order, with or without Mixup blends: gathered for all at once.

    Inputs and targets lie together, row by row, so that a blend is gathered in two runs of memory, and made at once.
    """

    def __init__(self, plan: Plan, members: tuple[int, ...], future: ResampledFuture, draws: list[Generator]) -> None:
        self.plan, self.members, self.future, self.draws = plan, members, future, draws
        self.steps_an_epoch = len(batches_of(len(future), plan.recipe.batch_size, torch.arange(len(future))))
        whole = next(iter(future.data.batches([torch.arange(len(future))], identity, draws[0])))
        inputs, self.weights = whole.inputs.flatten(1), whole.weights
        self.table, self.sizes = torch.cat([inputs, whole.targets], 1), (inputs.shape[1], whole.targets.shape[1])
        self.alike = bool((self.weights == 1).all())
        self.epoch, self.orders = -1, [torch.empty(0)]

    def next(self, step: int) -> Stacked:
        epoch, done = divmod(step, self.steps_an_epoch)
        if epoch != self.epoch:
            each = [_chunks(self.plan, member, epoch, len(self.future)) for member in self.members]
            self.epoch, self.orders = epoch, [torch.stack(chunks) for chunks in zip(*each, strict=True)]
        order = self.orders[done]  # (members, rows)
        if _seen_alone(self.future):
            return self._stacked(self._rows(order), self.weights[order])
        count = self.future.pseudo_rows or order.shape[1]
        for_seen, for_pseudo = self.future.factors(order.shape[1], count)
        blends, weights = self._blends(order, count)
        weights.mul_(for_pseudo)
        if for_seen == 0:
            return self._stacked(blends, weights)
        rows = torch.cat([self._rows(order), blends], 1)
        return self._stacked(rows, torch.cat([self.weights[order].mul_(for_seen), weights], 1))

    def _rows(self, indices: Tensor) -> Tensor:
        """Inputs and targets of each member's rows, (members, rows, columns)."""
        return self.table.index_select(0, indices.flatten()).view(*indices.shape, -1)

    def _blends(self, order: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Blends of each member's rows, and their weights."""
        base = self.future.predictive.base
        assert isinstance(base, Mixup | WarpedMixup)
        uniforms = torch.stack([base.draw(count, generator) for generator in self.draws], 1)  # (4, members, rows)
        pairs = choose(uniforms[:2], order.shape[1])
        first, second = (self._rows(order.gather(1, pair)) for pair in pairs)
        if isinstance(base, Mixup):
            share = base.share(uniforms)
        else:
            parts = [rows.transpose(1, 2).split(self.sizes, 1) for rows in (first, second)]
            share = warped_share(base, uniforms, *parts)
        weights = torch.ones(share.shape) if self.alike else pair_weights(self.weights[order], *pairs)
        return second.lerp_(first, share.unsqueeze(2)), weights

    def _stacked(self, rows: Tensor, weights: Tensor) -> Stacked:
        inputs, targets = rows.transpose(1, 2).split(self.sizes, 1)
        return _stacked(inputs, targets, weights.unsqueeze(1))

    def generator_states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self.draws]


class WholeMixup:
    """All rows in every batch, and fresh Mixup blends of them beside.

    The seen part is written once. Uniforms are drawn for many steps in one call, which leaves them the same: a
    generator fills tensors number by number.
    """

    steps_an_epoch = 1

    def __init__(self, future: ResampledFuture, draws: list[Generator]) -> None:
        assert isinstance(future.predictive.base, Mixup | WarpedMixup)
        self.draws, self.base, self.rows = draws, future.predictive.base, len(future)
        self.count = future.pseudo_rows or len(future)
        whole = next(iter(future.data.batches([torch.arange(len(future))], identity, draws[0])))
        inputs, targets, (self.weights,) = columns(whole)
        for_seen, for_pseudo = future.factors(self.rows, self.count)
        first = self.rows if for_seen else 0  # where pseudo rows start
        total = first + self.count
        # Inputs and targets lie together, so that a blend is gathered, and written, for both at once.
        self.table = torch.cat([inputs, targets])
        room = torch.empty(len(draws), len(self.table), total)
        room[:, :, :first] = self.table[:, :first]
        shares = torch.empty(len(draws), 1, total)
        shares[:, :, :first] = self.weights[:first] * (for_seen / total)
        shares[:, :, first:] = self.weights[0] * (for_pseudo / total)
        self.blends, self.shares_of_blends = room[:, :, first:], shares[:, :, first:]
        self.uneven, self.for_pseudo = bool((self.weights != self.weights[0]).any()), for_pseudo / total
        self.batch = Stacked(room[:, : len(inputs)], room[:, len(inputs) :], shares)
        self.used = self.drawn = 0

    def next(self, step: int) -> Stacked:
        if self.used == self.drawn:
            self._draw()
        self._blend(self.used)
        self.used += 1
        return self.batch

    def _draw(self) -> None:
        self.states = [generator.get_state() for generator in self.draws]
        uniforms = torch.stack([torch.rand(BLOCK, 4, self.count, generator=g) for g in self.draws], 2)
        self.pairs = choose(uniforms[:, :2], self.rows).flatten(2)  # (steps, 2, members * count)
        self.uniforms = uniforms.transpose(0, 1)
        if isinstance(self.base, Mixup):
            self.mixing = self.base.share(self.uniforms)  # (steps, members, count)
        self.used, self.drawn = 0, BLOCK

    def _blend(self, step: int) -> None:
        pairs, shape = self.pairs[step], (-1, len(self.draws), self.count)
        first, second = (self.table.index_select(1, which).view(shape).transpose(0, 1) for which in pairs)
        if isinstance(self.base, Mixup):
            share = self.mixing[step]
        else:
            sizes = (self.batch.inputs.shape[1], self.batch.targets.shape[1])
            share = warped_share(self.base, self.uniforms[:, step], first.split(sizes, 1), second.split(sizes, 1))
        torch.lerp(second, first, share.unsqueeze(1), out=self.blends)
        if self.uneven:
            weights = pair_weights(self.weights, *pairs).view(len(self.draws), 1, self.count)
            torch.mul(weights, self.for_pseudo, out=self.shares_of_blends)

    def generator_states(self) -> list[Tensor]:
        """Where the reference would be: the block's start, and as many draws on as were used."""
        if self.drawn == 0:
            return [generator.get_state() for generator in self.draws]
        states = []
        for state in self.states:
            generator = Generator()
            generator.set_state(state)
            torch.rand(self.used, 4, self.count, generator=generator)
            states.append(generator.get_state())
        return states


def warped_share(base: WarpedMixup, uniforms: Tensor, first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Shares of pairs, (members, rows), given their inputs and targets as (members, columns, rows)."""
    part = ("inputs", "targets").index(base.distance)
    return base.share(uniforms, (first[part] - second[part]).square().sum(1))


def columns(batch: Batch) -> list[Tensor]:
    """Inputs, targets and weights, each as (columns, rows)."""
    parts = (batch.inputs.flatten(1), batch.targets, batch.weights.unsqueeze(1))
    return [part.T.contiguous() for part in parts]


def stacked(batches: list[Batch]) -> Stacked:
    """One batch for each member, features first."""
    inputs = torch.stack([batch.inputs.flatten(1).T for batch in batches])
    targets = torch.stack([batch.targets.T for batch in batches])
    weights = torch.stack([batch.weights for batch in batches]).unsqueeze(1)
    return _stacked(inputs, targets, weights)


def _stacked(inputs: Tensor, targets: Tensor, weights: Tensor) -> Stacked:
    return Stacked(inputs, targets, weights / inputs.shape[2])


def _chunks(plan: Plan, member: int, epoch: int, rows: int) -> list[Tensor]:
    """This member's batches of row indices in this epoch, as the reference cuts them."""
    order = torch.arange(rows)
    if plan.recipe.batch_size is not None and plan.recipe.batch_size < rows:
        order = torch.randperm(rows, generator=seeds.generator(plan.seed, member, "order", epoch))
    return batches_of(rows, plan.recipe.batch_size, order)
