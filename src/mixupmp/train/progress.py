"""Callbacks: what a fit reports while it runs, and progress bars on a terminal."""

from __future__ import annotations

import sys
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mixupmp.core.member_summary import EpochRecord, MemberSummary, fault


class Callback:
    """Methods that a fit calls while it runs. These do nothing: override what is needed."""

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        """A member has done this many of its steps. Called a few times a second."""

    def on_epoch_end(self, record: EpochRecord) -> None:
        """An epoch of a member is over.

        Parameters
        ----------
        record
            The entry of the member's history, its `step`, and `votes`: predicted classes of some validation rows.
        """

    def on_member_end(self, summary: MemberSummary) -> None:
        """A member's fit is over."""

    def on_message(self, text: str) -> None:
        """A line for the user, as which engine was chosen."""

    def should_stop(self) -> bool:
        """Return True to stop the fit after the current step, with a checkpoint if there is a run folder."""
        return False


class ProgressBars(Callback):
    """A bar for each member in training and one for all members; nothing where stderr is not a terminal."""

    def __init__(self, members: int, label: str = "fitting") -> None:
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
        self.shares: dict[int, float] = {}  # of each member's steps that are done
        self.bars: dict[int, TaskID] = {}
        self.all = self.progress.add_task(label, total=members, note=f"{members} members")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        if member not in self.bars:
            self.bars[member] = self.progress.add_task(f"  member {member}", total=total, note="")
        self.progress.update(self.bars[member], completed=step, note=f"loss {loss:.3f}")
        self._update_all(member, step / total)

    def on_member_end(self, summary: MemberSummary) -> None:
        if summary.member in self.bars:
            self.progress.remove_task(self.bars.pop(summary.member))
        self._update_all(summary.member, 1.0)
        if reason := fault(summary):
            self.on_message(f"member {summary.member} {reason}")

    def on_message(self, text: str) -> None:
        if sys.stderr.isatty():
            self.console.print(text)

    def _update_all(self, member: int, share: float) -> None:
        self.shares[member] = share
        self.progress.update(self.all, completed=sum(self.shares.values()))
