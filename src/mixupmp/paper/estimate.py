"""How long the members that are still to be trained will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from mixupmp.paper.members import Piece
from mixupmp.train.member import MemberFit

PROBE_STEPS = 4


class Estimate:
    """Seconds left, from a few steps of each kind of fit at first and from what fits really took later."""

    def __init__(self, pieces: Sequence[Piece], workers: int) -> None:
        self.workers, self.total, self.finished = workers, len(pieces), 0
        rates: dict[tuple[object, ...], float] = {}
        self.expected = {}
        for piece in pieces:
            kind = _kind(piece)
            if kind not in rates:
                rates[kind] = _seconds_a_step(piece)
            self.expected[piece.key] = rates[kind] * piece.steps * len(piece.members)
        self.all = sum(self.expected.values())
        self.work_done = 0.0
        self.started = time.monotonic()

    def done(self, piece: Piece) -> None:
        self.finished += 1
        self.work_done += self.expected.pop(piece.key, 0.0)

    @property
    def seconds_left(self) -> float:
        left = sum(self.expected.values())
        if self.finished < 2 * self.workers:
            return left / self.workers
        return left * (time.monotonic() - self.started) / max(self.work_done, 1e-9)


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


class _Enough(Exception):
    pass


class _Probe:
    """Watches a fit for a few steps and ends it; the first one, which warms up, does not count."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step(self, fit: MemberFit) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) > PROBE_STEPS:
            raise _Enough


def _seconds_a_step(piece: Piece) -> float:
    probe = _Probe()
    with suppress(_Enough):
        MemberFit(piece.plan, piece.members[0]).run(probe)
    steps = max(1, len(probe.times) - 1)
    return (probe.times[-1] - probe.times[0]) / steps if len(probe.times) > 1 else 0.0
