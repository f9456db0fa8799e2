"""Training pieces side by side, in processes that wait for work and go when their parent does."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from mixupmp.core.errors import MixupMPError
from mixupmp.paper.members import Cache, Piece
from mixupmp.store.lock import RunLocked
from mixupmp.train.run import Every, FitInterrupted, fit

EVERY = Every(seconds=30.0)
STOPPED = "stopped by a signal; run the same command again to go on where it was."


class PieceFailed(MixupMPError):
    """A member could not be trained."""


class Stopped(MixupMPError):
    """Training was interrupted; what is finished is kept, and what was begun has its checkpoint."""


@dataclass(frozen=True)
class Order:
    """One piece to train, as it is sent to a worker."""

    plan: Any
    members: tuple[int, ...]
    engine: Any
    folder: Path


def train(piece: Order) -> str:
    """Train one piece from wherever it stands; says how that went."""
    try:
        fit(piece.plan, run=piece.folder, resume=True, members=piece.members, engine=piece.engine, every=EVERY)
    except FitInterrupted:
        return "stopped"
    except RunLocked:
        return "elsewhere"
    except ArithmeticError:
        return "diverged"  # kept in the run folder: a diverged member is a result
    return "done"


def order_of(piece: Piece, cache: Cache) -> Order:
    return Order(piece.lean_plan, piece.members, piece.engine, cache.folder(piece).path)


def serve(connection: Connection, niceness: int) -> None:
    """Train what comes through the pipe until it closes."""
    os.setsid()  # a Ctrl-C is for the parent, who then tells us
    os.nice(niceness)
    torch.set_num_threads(1)
    while True:
        try:
            number, order = cloudpickle.loads(connection.recv_bytes())
        except (EOFError, KeyboardInterrupt):
            return
        try:
            said = train(order)
        except Exception as error:  # noqa: BLE001 - whatever it was, the parent must hear of it
            said = f"failed: {type(error).__name__}: {error}"
        try:
            connection.send((number, said))
        except OSError:
            return


class Team:
    """Worker processes, and what each is doing."""

    def __init__(self, size: int, niceness: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self.workers: dict[Connection, Any] = {}
        self.busy: dict[Connection, int] = {}
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, niceness), daemon=True)
            process.start()
            theirs.close()
            self.workers[ours] = process

    def close(self) -> None:
        """Ask those that are in the middle of something to write a checkpoint, and wait for them."""
        for line, process in self.workers.items():
            if line in self.busy and process.is_alive():
                os.kill(process.pid, signal.SIGTERM)
        for line, process in self.workers.items():
            line.close()
            process.join(timeout=60)
            if process.is_alive():
                process.kill()


def train_all(
    pieces: list[Piece], cache: Cache, workers: int, heard: Callable[[Piece, str], None], niceness: int = 0
) -> None:
    """Train these pieces, so many at a time; `heard` is told of each as it ends."""
    if workers <= 1 or len(pieces) == 1:
        with _signals_noticed() as noticed:
            for piece in pieces:
                _report(piece, train(order_of(piece, cache)), heard)
                if noticed():
                    raise Stopped(STOPPED)
        return
    team = Team(min(workers, len(pieces)), niceness)
    try:
        _direct(team, pieces, cache, heard)
    finally:
        team.close()


@contextmanager
def _signals_noticed() -> Iterator[Callable[[], bool]]:
    """Whether a signal has come, even one that a fit took for its own when it had just done its last step."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno()) if _in_main_thread() else None
        try:
            yield lambda: bool(select.select([ours], [], [], 0)[0])
        finally:
            if before is not None:
                signal.set_wakeup_fd(before)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _direct(team: Team, pieces: list[Piece], cache: Cache, heard: Callable[[Piece, str], None]) -> None:
    waiting = list(enumerate(pieces))
    lines = list(team.workers)
    for line in lines:
        _send(team, line, waiting, cache)
    while team.busy:
        ready = wait(list(team.busy))
        for line in [line for line in team.busy if line in ready]:
            try:
                number, said = line.recv()
            except (EOFError, ConnectionError):
                raise PieceFailed(f"a worker died; run the same command again to go on ({sys.argv[0]}).") from None
            del team.busy[line]
            _report(pieces[number], said, heard)
            _send(team, line, waiting, cache)


def _send(team: Team, line: Connection, waiting: list[tuple[int, Piece]], cache: Cache) -> None:
    if waiting:
        number, piece = waiting.pop(0)
        line.send_bytes(cloudpickle.dumps((number, order_of(piece, cache))))
        team.busy[line] = number


def _report(piece: Piece, said: str, heard: Callable[[Piece, str], None]) -> None:
    if said == "stopped":
        raise Stopped(STOPPED)
    if said.startswith("failed"):
        raise PieceFailed(f"member {piece.members} of {piece.plan.method.name}: {said.removeprefix('failed: ')}")
    heard(piece, said)
