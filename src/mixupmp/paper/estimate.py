"""How long the members that are still to be trained will take, and what a whole experiment costs on a GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

import torch
from torch.utils.flop_counter import FlopCounterMode

from mixupmp.networks import Network
from mixupmp.paper.lines import Line
from mixupmp.paper.members import Piece
from mixupmp.paper.settings import Setting
from mixupmp.train.run import member_seconds

# An assumption, not a measurement: an eighth of an A100's peak of 312 TFLOP/s in bfloat16.
GPU_FLOPS = 4e13
# The least that a training step takes on a GPU, for the launch of its kernels, however small the network.
STEP_SECONDS = 1e-3
GPU_HOURS = (
    "GPU-hours of an A100 in bfloat16: a rough lower bound. It counts floating-point operations, assumes 40 TFLOP/s "
    "(an eighth of the card's peak, not measured) and at least 1 ms a step. Experiments share members, so their sum is "
    "too high. bb-vs-de is without the epochs up to 100% training accuracy, whose number is not known beforehand."
)
# (training rows, input shape, classes) of the published datasets, so that an estimate needs none of their files.
PUBLISHED = {
    "mnist": (60_000, (1, 28, 28), 10),
    "fashion-mnist": (60_000, (1, 28, 28), 10),
    "cifar10": (50_000, (3, 32, 32), 10),
    "cifar100": (50_000, (3, 32, 32), 100),
    "digits": (898, (1, 8, 8), 10),
}


class Estimate:
    """Seconds left, from a few steps of each kind of fit at first and from what fits really took later."""

    def __init__(self, pieces: Sequence[Piece], workers: int) -> None:
        self.workers, self.total, self.finished = workers, len(pieces), 0
        rates: dict[tuple[object, ...], float] = {}
        self.expected = {}
        for piece in pieces:
            kind = _kind(piece)
            if kind not in rates:
                rates[kind] = member_seconds(piece.plan) / piece.steps
            self.expected[piece.key] = rates[kind] * piece.steps * len(piece.members)
        self.all = sum(self.expected.values())
        self.work_done = 0.0
        self.started = time.monotonic()

    def waits_for(self, piece: Piece) -> bool:
        """Take a piece that another process trains out of what is left to do; whether it was not out before."""
        if self.expected.pop(piece.key, None) is None:
            return False
        self.total -= 1
        return True

    def done(self, piece: Piece) -> None:
        self.finished += 1
        self.total += piece.key not in self.expected  # another process has given it up
        self.work_done += self.expected.pop(piece.key, 0.0)

    @property
    def seconds_left(self) -> float:
        left = sum(self.expected.values())
        if self.finished < 2 * self.workers:
            return left / self.workers
        return left * (time.monotonic() - self.started) / max(self.work_done, 1e-9)


def gpu_hours(setting: Setting, lines: Sequence[Line]) -> float:
    """Hours of one GPU for the different networks of these lines: a rough lower bound.

    A training step costs three forward passes, counted in operations, and never less than `STEP_SECONDS`; pseudo rows
    count as seen ones do.
    """
    rows, shape, classes = PUBLISHED[setting.source]
    rows = min(rows, setting.train_rows or rows)
    networks = {
        (repr(line.method.predictive), line.method.dropout, seed, member): line
        for line in lines
        for seed in setting.seeds[: line.repeats]
        for member in line.runs or range(line.method.sampler.networks)
    }
    steps = setting.recipe.epochs * -(-rows // (setting.recipe.batch_size or rows))
    seconds = 0.0
    for (_, dropout, _, _), line in networks.items():
        network = setting.sized_network(shape, classes, dropout)
        share = 2 if 0 < line.method.predictive.ratio < inf else 1
        operations = 3 * share * rows * setting.recipe.epochs * _forward_operations(repr(network), network, shape)
        seconds += max(operations / GPU_FLOPS, steps * STEP_SECONDS)
    return seconds / 3600


_OPERATIONS: dict[str, int] = {}


def _forward_operations(name: str, network: Network, shape: tuple[int, ...]) -> int:
    """Floating-point operations of one row's forward pass, counted without computing."""
    if name not in _OPERATIONS:
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            network().eval()(torch.empty(1, *shape))
        _OPERATIONS[name] = counter.get_total_flops()
    return _OPERATIONS[name]


def clock(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _kind(piece: Piece) -> tuple[object, ...]:
    """Fits of one kind take as long for a step: same network, same rows in it."""
    ratio = piece.plan.method.predictive.ratio
    seen, pseudo = ratio != float("inf"), ratio > 0
    return (str(piece.plan.network), piece.plan.recipe.batch_size, seen, pseudo, piece.plan.task.input_shape)
