"""What every engine is handed, and what it must do with a member that is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from mixupmp.core.errors import check
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Summary
from mixupmp.core.threads import cores
from mixupmp.store.folder import RunFolder
from mixupmp.train.member import Interrupted, MemberFit


@dataclass(frozen=True)
class Every:
    """How often checkpoints are written: after so many epochs, or so many seconds, whichever comes first."""

    epochs: int | None = None
    seconds: float | None = 30.0

    def __post_init__(self) -> None:
        check(self.epochs is None or self.epochs >= 1, "epochs", self.epochs, "at least 1, or None")
        check(self.seconds is None or self.seconds > 0, "seconds", self.seconds, "positive, or None")


class Progress(Protocol):
    """Where a fit shows how it goes."""

    def moved(self, member: int, step: int, total: int, loss: float) -> None: ...

    def recorded(self, record: Record) -> None:
        """A member's epoch is over: what goes into its history, its `step`, and its `votes` on validation rows."""
        ...

    def finished(self, summary: Summary) -> None: ...

    def say(self, text: str) -> None: ...


Record = dict[str, Any]


class Quiet:
    """Shows nothing."""

    def moved(self, member: int, step: int, total: int, loss: float) -> None: ...

    def recorded(self, record: Record) -> None: ...

    def finished(self, summary: Summary) -> None: ...

    def say(self, text: str) -> None: ...


class Order(NamedTuple):
    """What a worker process is asked to do: train these members of a stored plan.

    `group` is those that share a program, these among them; None: they are trained one by one.
    """

    plan: Path
    members: tuple[int, ...]
    folder: Path
    every: Every
    group: tuple[int, ...] | None = None


@dataclass
class Job:
    """Which members to train, and where their work is kept."""

    plan: Plan
    members: tuple[int, ...]
    folder: RunFolder | None = None
    every: Every = field(default_factory=Every)
    progress: Progress = field(default_factory=Quiet)
    stop: Callable[[], bool] = lambda: False
    address: str | None = None  # of a Ray cluster
    everyone: tuple[int, ...] = ()  # of the run: these members, and those that are finished
    cores: int = field(default_factory=cores)  # of the machine that the run was started on

    def __post_init__(self) -> None:
        self.everyone = self.everyone or self.members

    def finish(self, summary: Summary, weights: dict[str, Tensor]) -> None:
        if self.folder is not None:
            self.folder.finish_member(summary, weights)
        self.progress.finished(summary)


Finished = tuple[Summary, dict[str, Tensor]]
State = tuple[dict[str, Tensor], dict[str, str]]


class Keeper:
    """Watches one member's fit: shows its progress, writes its checkpoints, stops it when asked to.

    A checkpoint's tensors are copied at once and written by a thread while the fit goes on: most of the time it takes
    is waiting for the disk. One is whole before the next is begun, and the last before the fit ends.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.saved = self.shown = time.monotonic()
        self.pen = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.writing: Future[None] | None = None

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.written()
        finally:
            self.pen.shutdown()

    def written(self) -> None:
        """Wait until the checkpoint that is being written is whole; an error in writing it is raised here."""
        if self.writing is not None:
            writing, self.writing = self.writing, None
            writing.result()

    def stepped(self, fit: MemberFit) -> None:
        now = time.monotonic()
        if now - self.shown > 0.2:
            self.shown = now
            self.job.progress.moved(fit.member, fit.step, fit.total_steps, fit.last_loss)
        if fit.news is not None:
            self.job.progress.recorded(fit.news)
            fit.news = None
        stop = self.job.stop()
        due = self.due(fit.step, fit.steps_an_epoch) and not fit.finished  # its weights are about to be written
        if self.job.folder is not None and (stop or due):
            self.save(self.job.folder, fit.step, {fit.member: fit.state()})
        if stop:
            self.written()
            raise Interrupted

    def save(self, folder: RunFolder, step: int, states: dict[int, State]) -> None:
        """Write these members' checkpoints, after those that are being written."""
        self.written()
        self.writing = self.pen.submit(_write, folder, step, states)
        self.saved = time.monotonic()

    def due(self, step: int, steps_an_epoch: int) -> bool:
        """Whether it is time for a checkpoint."""
        every = self.job.every
        if every.seconds is not None and time.monotonic() - self.saved >= every.seconds:
            return True
        return every.epochs is not None and step % (every.epochs * steps_an_epoch) == 0


def _write(folder: RunFolder, step: int, states: dict[int, State]) -> None:
    for member, state in states.items():
        folder.checkpoints(member).write(step, *state)


def fit_member(job: Job, member: int) -> Finished:
    """Train one member to its end, from its newest checkpoint if it has one."""
    with members_held(job.folder, (member,)):
        fit = MemberFit(job.plan, member)
        if job.folder is not None and (saved := job.folder.checkpoints(member).read()) is not None:
            fit.restore(*saved)
        with Keeper(job) as keeper:
            summary = fit.run(keeper)
        weights = fit.weights()
        job.finish(summary, weights)
        return summary, weights


@contextmanager
def members_held(folder: RunFolder | None, members: tuple[int, ...]) -> Iterator[None]:
    """Nobody else trains these members of a run meanwhile.

    The orphan of a killed parent, or of a lost node, may be in its last step: this waits until it is gone.
    """
    with ExitStack() as stack:
        if folder is not None:
            for member in members:
                stack.enter_context(folder.member_locked(member))
        yield
