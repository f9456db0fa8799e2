"""Bars for the members that are being trained, with the time that is left; nothing where there is no terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mixupmp.core.posterior import Summary
from mixupmp.train.job import Record


class Bars:
    """One bar for each member on the way and one for all of them."""

    def __init__(self, members: int, label: str = "fitting") -> None:
        self.members, self.done = members, 0
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self.shares: dict[int, float] = {}
        self.bars: dict[int, TaskID] = {}
        self.all = self.progress.add_task(label, total=members, note=f"{members} members")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def moved(self, member: int, step: int, total: int, loss: float) -> None:
        if member not in self.bars:
            self.bars[member] = self.progress.add_task(f"  member {member}", total=total, note="")
        self.progress.update(self.bars[member], completed=step, note=f"loss {loss:.3f}")
        self._total(member, step / total)

    def recorded(self, record: Record) -> None: ...

    def finished(self, summary: Summary) -> None:
        if summary.member in self.bars:
            self.progress.remove_task(self.bars.pop(summary.member))
        self._total(summary.member, 1.0)
        if summary.diverged_at is not None:
            self.say(f"member {summary.member} diverged at step {summary.diverged_at} and is left out")

    def say(self, text: str) -> None:
        if sys.stderr.isatty():
            self.console.print(text)

    def _total(self, member: int, share: float) -> None:
        self.shares[member] = share
        self.progress.update(self.all, completed=sum(self.shares.values()))
