"""Time as ratios: rivals take turns in one run, and the best of several turns counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Row:
    """One line of the table: ours against another's, in seconds for the same work."""

    work: str
    against: str
    ours: float
    theirs: float
    goal: str
    at_least: float | None = None  # the ratio theirs / ours asked for
    at_most: float | None = None  # or the most that ours / theirs may be
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.at_most is not None else self.theirs / self.ours

    @property
    def reached(self) -> bool:
        return self.ratio <= self.at_most if self.at_most is not None else self.ratio >= (self.at_least or 0)


def interleaved(repeats: int, *rivals: Callable[[], Any]) -> list[float]:
    """The best time of each, taking turns so that a noisy minute is shared."""
    best = [float("inf")] * len(rivals)
    for _ in range(repeats):
        for place, rival in enumerate(rivals):
            started = time.perf_counter()
            rival()
            best[place] = min(best[place], time.perf_counter() - started)
    return best


def on_threads(count: int, work: Callable[[], Any]) -> Callable[[], Any]:
    """The same work with so many threads."""

    def pinned() -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            return work()
        finally:
            torch.set_num_threads(before)

    return pinned


def gemm_peak(threads: int, size: int = 1536, repeats: int = 12) -> float:
    """FLOP/s of a large float32 matrix product, the best that this machine does."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    work = on_threads(threads, lambda: torch.mm(a, b, out=out))
    work()
    return 2 * size**3 / interleaved(repeats, work)[0]
