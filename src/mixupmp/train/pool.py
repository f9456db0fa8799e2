"""Worker processes for fits and for the reproduction of the paper; they stay for the next call.

This is not loky or `concurrent.futures` because a call here reports progress and can be stopped with a checkpoint while
it runs, because a worker starts without the current folder on its path and with its own threads and malloc settings,
and because a waiting worker is replaced when the user has edited a module that it imported, as happens in notebooks.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pickle import PicklingError
from typing import Any

import cloudpickle

from mixupmp.core.errors import InvalidArgument, MixupMPError
from mixupmp.train.environment import import_state, last_edit, malloc_settings, start_path
from mixupmp.train.member import StopTraining
from mixupmp.train.progress import Callback

log = logging.getLogger("mixupmp")
PATIENCE = 5.0  # seconds after which a worker that was asked to stop, and has not, is named
STOP_TIMEOUT = 60.0  # seconds after which it is killed


class WorkerFailed(MixupMPError, RuntimeError):
    """A worker process died, or an error that is not ours was raised in it."""


class NotPicklable(InvalidArgument):
    """Something of a plan cannot be sent to another process, not even by value."""


@dataclass(frozen=True)
class Call:
    """A function to be called in a worker, with a callback and then these arguments; `label` names it in errors."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    label: str


class Worker:
    """One worker process and the connection to it."""

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        self.threads = threads
        own = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(start_path())}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mixupmp.train.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**malloc_settings(), **os.environ, **own},
            start_new_session=True,  # a Ctrl-C is for the parent, which then asks the workers to stop
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.connection.send(sys.path)
        self.call: tuple[int, str] | None = None  # index and label of the call it is working on
        self.started, self.import_state = time.time(), import_state()

    def submit(self, index: int, call: Call) -> None:
        content = _pickled(call)
        self.call = (index, call.label)
        self.connection.send_bytes(content)

    def ask_to_stop(self) -> None:
        if self.call is not None:
            with contextlib.suppress(OSError):  # it is dead, which the next read shows
                self.connection.send_bytes(cloudpickle.dumps("stop"))

    def reusable(self, threads: int) -> bool:
        """Whether it is as a new one would be: alive, with as many threads, and no module was edited since."""
        if self.threads != threads or self.process.poll() is not None:
            return False
        return self.import_state == import_state() and last_edit() < self.started

    def close(self) -> None:
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:  # stopped by a signal: only SIGKILL reaches it
            self.process.kill()
            self.process.wait()


_idle: list[Worker] = []  # starting one costs seconds


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()


def idle_workers() -> int:
    """How many workers of one thread are waiting."""
    return sum(worker.reusable(threads=1) for worker in _idle)


def run(
    calls: Iterable[Call],
    *,
    workers: int,
    threads: int = 1,
    callback: Callback | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_result: Callable[[int, Any], None] = lambda index, result: None,
) -> list[Any]:
    """Make these calls in worker processes; returns what they return.

    Parameters
    ----------
    calls
        Taken one by one, as workers are free for them: what they hold need not fit into memory at once.
    workers
        How many processes.
    callback
        Receives what the functions report to theirs.
    stop
        Polled: when it returns True, every call is asked to stop and `StopTraining` is raised when all have ended.
    on_result
        Called with the index and the result of each call as it ends.

    Raises
    ------
    WorkerFailed
        When a worker dies, or an error that is not ours is raised in it. Our own errors are raised as they are.
    """
    team = _team(workers, threads)
    try:
        return _Dispatch(iter(calls), team, callback or Callback(), stop, on_result).run()
    finally:
        for worker in team:
            if worker.call is None and worker.process.poll() is None:
                _idle.append(worker)
            else:  # dead, or in the middle of a call: of no further use
                worker.close()


@dataclass
class _Dispatch:
    """Sends out calls and reads messages until all calls have ended."""

    calls: Iterator[Call]
    team: list[Worker]
    callback: Callback
    stop: Callable[[], bool]
    on_result: Callable[[int, Any], None]

    def __post_init__(self) -> None:
        self.submitted = 0
        self.results: dict[int, Any] = {}
        self.failure: Exception | None = None  # raised when all workers have ended
        self.stopping_since: float | None = None
        self.named: set[Worker] = set()

    def run(self) -> list[Any]:
        for worker in self.team:
            self._submit(worker)
        while busy := {worker.connection: worker for worker in self.team if worker.call is not None}:
            if self.stopping_since is None and self.stop():
                self._fail(StopTraining())
            self._check_stopping(busy.values())
            for connection in wait(busy, timeout=0.1):
                worker = busy[connection]  # type: ignore[index]
                try:
                    kind, *content = worker.connection.recv()
                except (EOFError, ConnectionError):
                    kind, content = "died", []
                self._receive(worker, kind, content)
        if self.failure is not None:
            raise self.failure
        return [self.results[index] for index in range(self.submitted)]

    def _submit(self, worker: Worker) -> None:
        call = next(self.calls, None) if self.failure is None else None
        if call is not None:
            try:
                worker.submit(self.submitted, call)
                self.submitted += 1
            except NotPicklable as error:
                self._fail(error)

    def _receive(self, worker: Worker, kind: str, content: list[Any]) -> None:
        if kind == "callback":
            name, *arguments = content
            getattr(self.callback, name)(*arguments)
            return
        assert worker.call is not None
        (index, label), worker.call = worker.call, None
        if kind == "result":
            self.results[index] = content[0]
            self.on_result(index, content[0])
        elif kind == "error":
            self._fail(content[0])
        elif kind == "unreadable":
            must = "one that another process can read"
            self._fail(NotPicklable("plan", label, must, f"{content[0]} Use the engine 'inline'."))
        elif kind == "crashed":
            self._fail(WorkerFailed(f"an error in the worker process of {label}:\n{content[0]}"))
        elif kind == "died":
            code = worker.process.wait()
            cause = " (killed by signal 9: most often for lack of memory)" if code == -9 else ""
            self._fail(WorkerFailed(f"the worker process of {label} died with exit code {code}{cause}."))
            return
        self._submit(worker)

    def _fail(self, error: Exception) -> None:
        """Ask all workers to stop, the first time; what happens to them after that is not an error."""
        if self.failure is None:
            self.failure, self.stopping_since = error, time.monotonic()
            for worker in self.team:
                worker.ask_to_stop()

    def _check_stopping(self, busy: Iterable[Worker]) -> None:
        """Name workers that do not stop, then kill them: a stopped process (SIGSTOP) would be waited for forever."""
        if self.stopping_since is None:
            return
        waited = time.monotonic() - self.stopping_since
        for worker in busy:
            assert worker.call is not None
            what = f"worker process {worker.process.pid} ({worker.call[1]})"
            if waited > PATIENCE and worker not in self.named:
                self.named.add(worker)
                log.warning("waiting for %s to write its checkpoint; it is killed after %.0f s.", what, STOP_TIMEOUT)
            if waited > STOP_TIMEOUT:
                log.warning("%s does not stop and is killed; its last checkpoint is kept.", what)
                worker.process.kill()


def _pickled(call: Call) -> bytes:
    try:
        return cloudpickle.dumps((call.function, call.arguments))
    except (TypeError, AttributeError, RuntimeError, PicklingError) as error:
        must = "one that can be sent to another process"
        raise NotPicklable("plan", call.label, must, f"{error}. Use the engine 'inline'.") from error


def _team(count: int, threads: int) -> list[Worker]:
    team = [worker for worker in _idle if worker.reusable(threads)][:count]
    for worker in team:
        _idle.remove(worker)
    for worker in [worker for worker in _idle if not worker.reusable(worker.threads)]:
        _idle.remove(worker)
        worker.close()
    return team + [Worker(threads) for _ in range(count - len(team))]
