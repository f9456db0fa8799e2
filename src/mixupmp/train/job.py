"""What every engine is given: which members to fit, and where their checkpoints and reports go."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from torch import Tensor

from mixupmp.core.errors import MixupMPError, check
from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.plan import Plan
from mixupmp.core.threads import cores
from mixupmp.store.folder import RunFolder
from mixupmp.train.member import MemberFit, StopTraining
from mixupmp.train.progress import Callback
from mixupmp.train.state import size_limit

log = logging.getLogger("mixupmp")
ORPHAN_TIMEOUT = 60.0  # seconds to wait for a process of an earlier run that still holds a member

Finished = tuple[MemberSummary, dict[str, Tensor]]
State = tuple[dict[str, Tensor], dict[str, str]]


@dataclass(frozen=True)
class CheckpointInterval:
    """How often checkpoints are written: after this many epochs or seconds, whichever comes first.

    Parameters
    ----------
    epochs, seconds
        None: not counted. Both None: a checkpoint is written only when the fit is stopped.
    """

    epochs: int | None = None
    seconds: float | None = 30.0

    def __post_init__(self) -> None:
        check(self.epochs is None or self.epochs >= 1, "epochs", self.epochs, "at least 1, or None")
        check(self.seconds is None or self.seconds > 0, "seconds", self.seconds, "positive, or None")


NO_CHECKPOINTS = CheckpointInterval(None, None)


@dataclass
class Job:
    """Members to fit.

    Parameters
    ----------
    members
        Those to fit now.
    all_members
        Those of the whole run, finished ones too: vectorized groups are formed from these.
    cores
        Of the machine on which the run was started: the number of vectorized groups.
    address
        Of a Ray cluster.
    """

    plan: Plan
    members: tuple[int, ...]
    folder: RunFolder | None = None
    checkpoints: CheckpointInterval = field(default_factory=CheckpointInterval)
    callback: Callback = field(default_factory=Callback)
    stop: Callable[[], bool] = lambda: False
    address: str | None = None
    all_members: tuple[int, ...] = ()
    cores: int = field(default_factory=cores)
    keep_collapsed: bool = False

    def __post_init__(self) -> None:
        self.all_members = self.all_members or self.members

    def finish(self, summary: MemberSummary, weights: dict[str, Tensor]) -> Finished:
        """Write a member's weights and report its end."""
        if self.keep_collapsed:
            summary = replace(summary, keep=True)
        if self.folder is not None:
            self.folder.finish_member(summary, weights)
        self.callback.on_member_end(summary)
        return summary, weights


class CheckpointWriter:
    """Writes checkpoints in a thread while training goes on; also calls the callback, and stops the fit.

    The tensors are copied first; most of the time of writing is waiting for the disk. A checkpoint is complete before
    the next is begun, and the last before the fit ends.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.saved_at = self.reported_at = time.monotonic()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self.thread.shutdown()

    def wait(self) -> None:
        """Wait for the checkpoint that is being written; an error in writing it is raised here."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()

    def on_step(self, fit: MemberFit) -> None:
        """Called by a member's fit after each step."""
        now = time.monotonic()
        if now - self.reported_at > 0.2:
            self.reported_at = now
            self.job.callback.on_step(fit.member, fit.step, fit.total_steps, fit.last_loss)
        if fit.new_record is not None:
            self.job.callback.on_epoch_end(fit.new_record)
            fit.new_record = None
        due = self.due(fit.step, fit.steps_an_epoch) and not fit.finished  # its weights are about to be written
        self.save_or_stop(due, lambda: {fit.member: fit.state()})

    def save_or_stop(self, due: bool, states: Callable[[], dict[int, State]]) -> None:
        """Write a checkpoint of these members if one is due; if the fit is to stop, write it and raise."""
        stop = self.job.stop()
        if self.job.folder is not None and (stop or due):
            self.wait()
            self.pending = self.thread.submit(_write, self.job.folder, states())
            self.saved_at = time.monotonic()
        if stop:
            self.wait()
            raise StopTraining

    def due(self, step: int, steps_an_epoch: int) -> bool:
        """Whether it is time for a checkpoint."""
        interval = self.job.checkpoints
        if interval.seconds is not None and time.monotonic() - self.saved_at >= interval.seconds:
            return True
        return interval.epochs is not None and step % (interval.epochs * steps_an_epoch) == 0


def _write(folder: RunFolder, states: dict[int, State]) -> None:
    for member, (tensors, text) in states.items():
        folder.checkpoints(member).write(json.loads(text["fit"])["step"], tensors, text)


def fit_member(job: Job, member: int) -> Finished:
    """Fit one member, from its newest checkpoint if it has one."""
    with members_locked(job.folder, (member,)):
        fit = MemberFit(job.plan, member)
        checkpoints = (
            None if job.folder is None else job.folder.checkpoints(member, size_limit(fit.network.state_dict()))
        )
        if checkpoints is not None and (saved := checkpoints.read()) is not None:
            with checkpoints.restoring():
                fit.restore(*saved)
        with CheckpointWriter(job) as writer:
            summary = fit.run(writer)
        return job.finish(summary, job.plan.completed(fit.weights()))


@contextmanager
def members_locked(folder: RunFolder | None, members: tuple[int, ...]) -> Iterator[None]:
    """Let no other process fit these members of a run meanwhile.

    A worker whose parent was killed may still be in its last step. One that does not end (it may have been stopped)
    is named, and after a minute `RunLocked` is raised.
    """

    def on_wait(holder: str) -> None:
        log.warning("waiting up to %.0f s for %s, which still holds a member of this run.", ORPHAN_TIMEOUT, holder)

    with ExitStack() as stack:
        if folder is not None:
            for member in members:
                stack.enter_context(folder.member_locked(member, ORPHAN_TIMEOUT, on_wait))
        yield


class FitInterrupted(MixupMPError):
    """A fit was stopped by a signal or a callback. `code` is the exit code of a program that ends by that signal."""

    def __init__(self, folder: Path | None, number: int | None) -> None:
        self.folder, self.code = folder, 128 + (number or signal.SIGTERM)
        cause = "a callback" if number is None else signal.Signals(number).name
        kept = "nothing is kept: give `run` a folder to be able to resume."
        if folder is not None:
            kept = f"the work so far is kept. Go on with: mixupmp fit --resume {folder}"
        super().__init__(f"stopped by {cause}; {kept}")


class StopRequest:
    """Whether SIGINT or SIGTERM was received, and which."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.previous: dict[int, signal._HANDLER] = {}

    def __call__(self) -> bool:
        return self.number is not None

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.restore()  # a second signal acts at once

    def restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request to stop after the current step. Inner uses share the outer's."""
    outer = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    request = outer if isinstance(outer, StopRequest) else StopRequest()
    if request is outer or threading.current_thread() is not threading.main_thread():
        yield request
        return
    request.previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in request.previous:
        signal.signal(number, request.handle)
    try:
        yield request
    finally:
        request.restore()
