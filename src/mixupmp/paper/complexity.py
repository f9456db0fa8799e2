"""What a training step costs: its time, and the memory of what it keeps for the backward pass."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from mixupmp.core.batch import Batch
from mixupmp.core.likelihoods import weighted_loss
from mixupmp.core.plan import Plan
from mixupmp.train.member import MemberFit


@dataclass(frozen=True)
class Cost:
    """A step of one method, and its ratios to a step of the first method, which is the deep ensemble."""

    seconds: float
    time_ratio: float
    time_error: float  # standard error of the ratio over rounds
    megabytes: float
    memory_ratio: float


def measure_all(plans: dict[str, Plan], rounds: int, steps: int = 4) -> dict[str, Cost]:
    """Time the methods in turn, round after round, so that whatever else the machine does falls on all alike."""
    torch.set_num_threads(1)  # CPU time of one thread, which another process's load does not lengthen
    clocks = {name: _Steps(plan) for name, plan in plans.items()}
    for clock in clocks.values():
        clock.run(2)  # to warm up
    times: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(rounds):
        for name, clock in clocks.items():
            times[name].append(min(clock.run(1) for _ in range(steps)))
    memory = {name: clock.saved_bytes() for name, clock in clocks.items()}
    first = next(iter(plans))
    found = {}
    for name in plans:
        ratios = [mine / base for mine, base in zip(times[name], times[first], strict=True)]
        spread = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
        found[name] = Cost(
            statistics.median(times[name]), statistics.median(ratios), spread / sqrt(len(ratios)),
            memory[name] / 1e6, memory[name] / memory[first],
        )  # fmt: skip
    return found


class _Steps:
    """Steps of one member's fit, taken when asked for."""

    def __init__(self, plan: Plan) -> None:
        self.fit = MemberFit(plan, 0)
        self.fit.network.train()
        self.batches = self._endless()

    def _endless(self) -> Iterator[Batch]:
        while True:
            chunks = self.fit._chunks(0)
            # Whole batches only: the last one of an epoch is shorter, and would be the fastest.
            yield from self.fit.future.batches([c for c in chunks if len(c) == len(chunks[0])], self.fit.draws)

    def run(self, count: int) -> float:
        """CPU seconds for so many steps, the making of their batches included."""
        started = time.process_time()
        for _ in range(count):
            self.fit._step(next(self.batches))
        return time.process_time() - started

    def saved_bytes(self) -> int:
        """Bytes of all distinct tensors that one step keeps for its backward pass, weights left out."""
        weights = {parameter.untyped_storage().data_ptr() for parameter in self.fit.network.parameters()}
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        batch = next(self.batches)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            outputs = self.fit.network(batch.inputs)
            weighted_loss(self.fit.plan.task.likelihood, outputs, batch)
        return sum(kept.values())
