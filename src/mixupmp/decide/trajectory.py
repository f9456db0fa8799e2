"""What members predict after each of several training lengths."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.plan import Plan
from mixupmp.core.posterior import AllDiverged
from mixupmp.core.threads import cores, pinned_threads
from mixupmp.train import pool
from mixupmp.train.generators import OwnGenerator
from mixupmp.train.member import MemberFit, StopTraining
from mixupmp.train.pool import Call
from mixupmp.train.progress import Callback
from mixupmp.train.run import Engine, choose_engine, fit
from mixupmp.train.vectorized.engine import VectorizedFit, split_members


def outputs_by_epochs(
    plan: Plan, members: Sequence[int], epochs: Sequence[int], inputs: Tensor, engine: Engine = "auto"
) -> dict[int, Tensor]:
    """{epochs: (members, rows, outputs)} on raw inputs; lengths at which every member had diverged are left out.

    At a constant learning rate a short training is the beginning of a long one: members are trained once and evaluated
    on the way, if they are trained in this process. Other schedules depend on the length: every length is a training of
    its own, which in geometric progression costs as much again as the longest.
    """
    longest = plan.varied(recipe=replace(plan.recipe, epochs=max(epochs)))
    if engine == "auto":
        engine = choose_engine(longest, len(members))  # type: ignore[assignment]
    if len(epochs) > 1 and engine in ("vectorized", "inline") and plan.recipe.schedule == "constant":
        if engine == "vectorized":
            return _vectorized(longest, members, epochs, inputs)
        return _one_by_one(longest, members, epochs, inputs)
    found = {}
    for length in epochs:
        try:
            trained = fit(plan.varied(recipe=replace(plan.recipe, epochs=length)), engine=engine, members=members)
        except AllDiverged:
            continue
        found[length] = trained.member_outputs(inputs, check_finite=False).cpu()
    return found


def outputs_in_workers(
    fits: Sequence[tuple[Plan, int, Tensor]], epochs: Sequence[int], threads: int
) -> list[dict[int, Tensor]]:
    """`outputs_by_epochs` of single members, as (plan, member, inputs), side by side in worker processes."""
    calls = (Call(_in_worker, (plan, member, epochs, inputs), f"member {member}") for plan, member, inputs in fits)
    found = pool.run(calls, workers=max(1, cores() // threads), threads=threads)
    return [{length: torch.from_numpy(array) for length, array in arrays.items()} for arrays in found]


def _in_worker(
    _: Callback, plan: Plan, member: int, epochs: Sequence[int], inputs: Tensor
) -> dict[int, NDArray[np.float32]]:
    """As arrays: torch would send a tensor by a file descriptor, for which workers have no key."""
    found = outputs_by_epochs(plan, [member], epochs, inputs, "inline")
    return {length: outputs.numpy() for length, outputs in found.items()}


def _vectorized(plan: Plan, members: Sequence[int], epochs: Sequence[int], inputs: Tensor) -> dict[int, Tensor]:
    training = VectorizedFit(plan, split_members(tuple(members), cores()))
    threads = torch.get_num_threads()
    found = {}
    try:
        with pinned_threads(plan.recipe.threads):
            for length in sorted(epochs):
                training.advance(length * training.steps_an_epoch - training.step)
                sound = [m not in training.diverged_at for m in training.members]
                if not any(sound):
                    break
                found[length] = training.outputs(plan.task.standardize(inputs))[torch.tensor(sound)]
    finally:
        training.close()
        torch.set_num_threads(threads)  # the worker threads of a vectorized fit set the default for new threads
    return found


def _one_by_one(plan: Plan, members: Sequence[int], epochs: Sequence[int], inputs: Tensor) -> dict[int, Tensor]:
    found: dict[int, list[Tensor]] = {length: [] for length in sorted(epochs)}
    for training in (Training(plan, member, inputs) for member in members):
        for length, outputs in found.items():
            reached = training.advance(length)
            outputs += [] if reached is None else [reached]
    return {length: torch.cat(outputs) for length, outputs in found.items() if outputs}


class Training:
    """One network in training, that is evaluated on the way."""

    def __init__(self, plan: Plan, member: int, inputs: Tensor) -> None:
        self.fit, self.inputs, self.epochs = MemberFit(plan, member), inputs, 0

    @property
    def isolated(self) -> bool:
        """Whether it can run in a thread beside others: it draws from generators of its own."""
        return isinstance(self.fit.generator, OwnGenerator)

    def advance(self, epochs: int) -> Tensor | None:
        """Train to this length; (members, rows, outputs) on the raw inputs, or None where it has diverged."""
        self.epochs = epochs
        with suppress(StopTraining):
            self.fit.run(self)
        if self.fit.diverged_at is not None:
            return None
        plan, network = self.fit.plan, copy.deepcopy(self.fit.network)  # a posterior freezes its networks
        posterior = plan.method.sampler.posterior([network], plan.task, plan.training_data(), plan.seed)
        return posterior.member_outputs(self.inputs, check_finite=False).cpu()

    def on_step(self, fit: MemberFit) -> None:
        """Stop at the length that was asked for."""
        if fit.step >= self.epochs * fit.steps_an_epoch:
            raise StopTraining
