"""Fitting the pieces of an experiment in worker processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
        return "elsewhere"
    except ArithmeticError:
        return "diverged"  # kept in the run folder: a diverged member is a result
    return "done"


def train_all(pieces: list[Piece], cache: Cache, workers: int, on_result: Callable[[Piece, str], None]) -> None:
    """Fit these pieces, so many at a time; `on_result` is called as each ends."""
    calls = (_call(piece, cache) for piece in pieces)  # each plan is made when its turn comes
    with stop_on_signals() as stop:
        try:
            if workers > 1 and len(pieces) > 1:
                pool.run(
                    calls,
                    workers=min(workers, len(pieces)),
                    stop=stop,
                    on_result=lambda index, result: on_result(pieces[index], result),
                )
                return
            for piece, call in zip(pieces, calls, strict=True):
                on_result(piece, call.function(Callback(), *call.arguments))
                if stop():
                    raise StopTraining
        except StopTraining:
            raise Stopped(STOPPED) from None
        except WorkerFailed as error:
            raise PieceFailed(f"{error} Run the same command again to go on.") from error


def _call(piece: Piece, cache: Cache) -> Call:
    label = f"member {', '.join(map(str, piece.members))} of {piece.plan.method.name}"
    return Call(fit_piece, (piece.lean_plan, piece.members, piece.engine, cache.folder(piece).path), label)
