"""A worker process: waits for members to train, one at a time, until its parent goes away.

Started as `python -P -m mixupmp.train.worker FD`, with one end of a socket pair, without the current folder on its
path: a file there is not imported in the place of an installed module. The parent's path comes as the first message,
for the modules that a plan refers to. The worker is a plain program rather than a
`multiprocessing` child, so the user's script is not imported a second time and needs no `__main__` guard, and it
stays for the next fit, so that starting Python and importing torch are paid for once.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from mixupmp.core.errors import MixupMPError
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Summary
from mixupmp.store.folder import RunFolder
from mixupmp.train import inline
from mixupmp.train.job import Job, Order, Record
from mixupmp.train.member import Interrupted
from mixupmp.train.stored_plan import fetch
from mixupmp.train.vectorized import engine as vectorized


class Reporter:
    """Sends progress to the parent, and hears from it whether to stop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def moved(self, member: int, step: int, total: int, loss: float) -> None:
        self.connection.send(("moved", member, step, total, loss))

    def recorded(self, record: Record) -> None:
        self.connection.send(("recorded", record))

    def finished(self, summary: Summary) -> None:
        self.connection.send(("finished", summary.member))

    def say(self, text: str) -> None:
        self.connection.send(("say", text))

    def stop(self) -> bool:
        # A parent that is gone closes the socket; going on would write into a run that someone else may have resumed.
        try:
            return self.connection.poll() and self.connection.recv() == "stop"
        except (EOFError, ConnectionError):
            os._exit(1)


def serve(connection: Connection) -> None:
    """Train what the parent asks for."""
    reporter = Reporter(connection)
    while True:
        try:
            order: Order | str = connection.recv()
        except (EOFError, ConnectionError):
            return
        if isinstance(order, str):  # a "stop" that came when what it was meant for had just ended
            continue
        try:
            plan = fetch(order.plan)
        except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything, or not be found here
            connection.send(("unreadable", f"{type(error).__name__}: {error}."))
            continue
        try:
            _train(reporter, order, plan)
            connection.send(("done",))
        except Interrupted:
            connection.send(("interrupted",))
        except MixupMPError as error:
            connection.send(("failed", error))
        except Exception:  # noqa: BLE001 - whatever it was, the parent must hear of it
            connection.send(("crashed", traceback.format_exc()))
        _give_memory_back()


def _train(reporter: Reporter, order: Order, plan: Plan) -> None:
    job = Job(plan, order.members, RunFolder(order.folder), order.every, reporter, reporter.stop)
    if order.group is None:
        inline.run(job)
    else:
        vectorized.train(job, [order.group])


def _give_memory_back() -> None:
    """A worker that waits for its next member need not hold what the last one used."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # glibc's
        library.malloc_trim(0)


def main(arguments: list[str]) -> None:
    connection: Any = Connection(int(arguments[1]))
    try:
        sys.path[:] = connection.recv()
    except (EOFError, ConnectionError):
        return
    serve(connection)


if __name__ == "__main__":
    main(sys.argv)
