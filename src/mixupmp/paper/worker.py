"""Fitting the pieces of an experiment in worker processes, on one device or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mixupmp.core.errors import MixupMPError
from mixupmp.core.plan import Plan
from mixupmp.paper.members import Cache, Piece
from mixupmp.store.lock import RunLocked
from mixupmp.train import pool
from mixupmp.train.job import FitInterrupted, stop_on_signals
from mixupmp.train.member import StopTraining
from mixupmp.train.pool import Call, WorkerFailed
from mixupmp.train.progress import Callback
from mixupmp.train.run import Engine, fit

ELSEWHERE = "elsewhere"
STOPPED = "stopped by a signal; run the same command again to go on where it was."


class PieceFailed(MixupMPError):
    """A member could not be fitted."""


class Stopped(MixupMPError):
    """Training was interrupted; what is finished is kept, and what was begun has its checkpoint."""


def fit_piece(callback: Callback, plan: Plan, members: tuple[int, ...], engine: Engine, folder: Path) -> str:
    """Fit one piece from wherever it stands; returns "done", "diverged" or "elsewhere" (another process has it)."""
    try:
        fit(plan, run=folder, resume=True, members=members, engine=engine, progress=callback)
    except FitInterrupted:
        raise StopTraining from None
    except RunLocked:
        return ELSEWHERE
    except ArithmeticError:
        return "diverged"  # kept in the run folder: a diverged member is a result
    return "done"


def train_all(
    pieces: Sequence[Piece], cache: Cache, devices: Sequence[str], workers: int, on_result: Callable[[Piece, str], None]
) -> None:
    """Fit these pieces, so many at a time; `on_result` is called as each ends."""
    calls = [partial(_call, piece, cache) for piece in pieces]  # each plan is made when its turn comes
    with stop_on_signals() as stop:
        try:
            run_on(devices, workers, calls, lambda index, result: on_result(pieces[index], result), stop)
        except StopTraining:
            raise Stopped(STOPPED) from None
        except WorkerFailed as error:
            raise PieceFailed(f"{error} Run the same command again to go on.") from error


def run_on(
    devices: Sequence[str],
    workers: int,
    calls: Sequence[Callable[[str], Call]],
    on_result: Callable[[int, Any], None],
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Make these calls, so many at a time, each for the device of the worker that is free for it.

    Workers have the devices in turn. So as many as there are devices have one each, whatever the calls take. A single
    worker or call takes the first device, in this process.
    """
    if workers == 1 or len(calls) < 2:
        for index, make in enumerate(calls):
            call = make(devices[0])
            on_result(index, call.function(Callback(), *call.arguments))
            if stop():
                raise StopTraining
        return
    free = [devices[worker % len(devices)] for worker in range(workers)]
    taken: dict[int, str] = {}

    def made() -> Iterator[Call]:
        for index, make in enumerate(calls):  # the pool takes the next one only when a worker is free
            taken[index] = free.pop(0)
            yield make(taken[index])

    def ended(index: int, result: Any) -> None:
        free.append(taken.pop(index))
        on_result(index, result)

    pool.run(made(), workers=min(workers, len(calls)), stop=stop, on_result=ended)


def _call(piece: Piece, cache: Cache, device: str) -> Call:
    label = f"member {', '.join(map(str, piece.members))} of {piece.plan.method.name}"
    return Call(fit_piece, (piece.on(device).lean_plan, piece.members, piece.engine, cache.folder(piece).path), label)
