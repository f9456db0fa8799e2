"""Members side by side, each in a worker process of its own with its own threads."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import mixupmp
from mixupmp.core.errors import MixupMPError
from mixupmp.core.threads import cores
from mixupmp.store.folder import RunFolder
from mixupmp.train.job import Every, Finished, Job, Order
from mixupmp.train.member import Interrupted
from mixupmp.train.stored_plan import CannotBeSent, store


def _keep_memory() -> dict[str, str]:
    """What tells glibc, when a process starts, to keep memory that is freed until the member is done.

    A freed block of some megabytes goes back to the system otherwise, and is taken again page by page at the next step:
    up to a seventh of a Wide-ResNet's time. Older versions refuse so high a threshold and are slower with the other
    setting alone; other libraries have no use for either.
    """
    name, _, version = (
        (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ") if hasattr(os, "confstr") else ("", "", "")
    )
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < (2, 36):
        return {}
    return {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}


class WorkerFailed(MixupMPError, RuntimeError):
    """A worker process died, or met an error that is not ours."""


class Worker:
    """One worker process and the line to it."""

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        self.threads = threads
        own = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(_start_path())}
        environment = {**_keep_memory(), **os.environ, **own}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mixupmp.train.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a Ctrl-C is for the parent, who then tells us
        )
        theirs.close()
        self.connection: Any = Connection(ours.detach())
        self.connection.send(sys.path)
        self.order: Order | None = None  # what it is doing
        self.started, self.surroundings = time.time(), _surroundings()

    def ask(self, order: Order) -> None:
        self.order = order
        self.connection.send(order)

    def fits(self, threads: int) -> bool:
        """Whether it is as a new one would be: it has imported nothing that was changed since, from nowhere else."""
        if self.threads != threads or self.process.poll() is not None:
            return False
        return self.surroundings == _surroundings() and _edited() < self.started

    def close(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


_idle: list[Worker] = []  # kept between fits: starting one costs seconds


@atexit.register
def _dismiss() -> None:
    while _idle:
        _idle.pop().close()


def run(job: Job) -> list[Finished]:
    """Train the members one by one, as many at a time as there are cores for."""
    return _run(job, [((member,), None) for member in job.members], job.plan.recipe.threads)


def run_groups(job: Job, groups: list[tuple[int, ...]]) -> list[Finished]:
    """Train each group of members as one program, in a worker of its own."""
    return _run(job, [(tuple(member for member in group if member in job.members), group) for group in groups], 1)


def waiting(count: int) -> bool:
    """Whether there are so many workers of one thread to which nothing more than an order has to be sent."""
    return sum(worker.fits(threads=1) for worker in _idle) >= count


def _surroundings() -> tuple[str, ...]:
    """Where a process started now would find modules, and files by their relative names."""
    return (*sys.path, _current_folder())


def _start_path() -> list[str]:
    """Where a worker finds the modules it starts with: never in the current folder, whatever lies there.

    The parent may have that folder on its own path (a notebook, `python -c`, a script in it), and then classes of
    modules there have to be found when a plan is read: the parent's whole path is sent for that, after the start.
    """
    home = str(Path(mixupmp.__file__).parents[1])
    return [home, *(entry for entry in sys.path if os.path.isabs(entry) and entry not in (home, _current_folder()))]


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return ""


def _edited() -> float:
    """When the latest change was made to a module that is not installed but the user's own."""
    installed = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    own = [file for file in files if isinstance(file, str) and not file.startswith(installed)]
    return max((os.path.getmtime(file) for file in own if os.path.exists(file)), default=0.0)


def _run(job: Job, pieces: list[tuple[tuple[int, ...], tuple[int, ...] | None]], threads: int) -> list[Finished]:
    with _workplace(job) as (folder, scratch):
        plan = store(job.plan, scratch)
        every = job.every if job.folder is not None else Every(None, None)  # nothing to come back to: no checkpoints
        orders = [Order(plan, members, folder.path.resolve(), every, group) for members, group in pieces]
        team = _team(min(len(orders), max(1, cores() // threads)), threads)
        try:
            _direct(job, folder, team, orders)
        finally:
            for worker in team:
                if worker.order is None and worker.process.poll() is None:
                    _idle.append(worker)
                else:  # dead, or in the middle of something: it cannot be used again
                    worker.close()
        return [_collect(folder, member) for member in job.members]


def _direct(job: Job, folder: RunFolder, team: list[Worker], orders: list[Order]) -> None:
    """Hand out the orders and listen until all are done, or until everyone has stopped."""
    unasked = list(orders)
    stopping = failure = None
    for worker in team:
        worker.ask(unasked.pop(0))
    while any(worker.order is not None for worker in team):
        if stopping is None and job.stop():
            stopping = Interrupted()
            _tell_to_stop(team)
        busy = {worker.connection: worker for worker in team if worker.order is not None}
        for line in wait(busy, timeout=0.1):
            worker = busy[line]
            try:
                message = worker.connection.recv()
            except (EOFError, ConnectionError):
                message = ("died",)
            problem = _heard(job, folder, worker, message)
            if problem is not None and failure is None:
                failure = problem
                _tell_to_stop(team)
            if worker.order is None and unasked and stopping is None and failure is None:
                worker.ask(unasked.pop(0))
    if failure or stopping:
        raise failure or stopping  # type: ignore[misc]


def _heard(job: Job, folder: RunFolder, worker: Worker, message: tuple[Any, ...]) -> Exception | None:
    """Act on what a worker said; an error to be raised when everyone has stopped."""
    kind, *rest = message
    if kind in ("moved", "recorded", "say"):
        getattr(job.progress, kind)(*rest)
        return None
    if kind == "finished":
        summary = folder.summary(rest[0])
        assert summary is not None
        job.progress.finished(summary)
        return None
    assert worker.order is not None
    whose = "member " + ", ".join(map(str, worker.order.members))
    worker.order = None
    if kind == "failed":
        return rest[0]
    if kind == "unreadable":
        must = "one that another process can read"
        return CannotBeSent("plan", job.plan.method.name, must, f"{rest[0]} The engine 'inline' needs no other.")
    if kind == "crashed":
        return WorkerFailed(f"the worker that trained {whose} met an error:\n{rest[0]}")
    if kind == "died":
        code = worker.process.wait()
        cause = " (killed by signal 9: most often for lack of memory)" if code == -9 else ""
        return WorkerFailed(f"the worker that trained {whose} died with exit code {code}{cause}.")
    return None  # done, or interrupted


def _tell_to_stop(team: list[Worker]) -> None:
    for worker in team:
        if worker.order is not None:
            with contextlib.suppress(OSError):  # one that is dead is heard of next
                worker.connection.send("stop")


def _team(count: int, threads: int) -> list[Worker]:
    team = [worker for worker in _idle if worker.fits(threads)][:count]
    for worker in team:
        _idle.remove(worker)
    for worker in [worker for worker in _idle if not worker.fits(worker.threads)]:
        _idle.remove(worker)
        worker.close()
    return team + [Worker(threads) for _ in range(count - len(team))]


@contextmanager
def _workplace(job: Job) -> Iterator[tuple[RunFolder, Path]]:
    with tempfile.TemporaryDirectory(prefix="mixupmp-") as scratch:
        folder = job.folder or RunFolder(Path(scratch) / "run")
        yield folder, Path(scratch)


def _collect(folder: RunFolder, member: int) -> Finished:
    summary = folder.summary(member)
    assert summary is not None
    return summary, folder.weights(member) if summary.diverged_at is None else {}
