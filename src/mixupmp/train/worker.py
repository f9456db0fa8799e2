"""The program of a worker process: makes the calls that its parent sends, until the parent goes away.

Started as `python -P -m mixupmp.train.worker FD NICENESS`, with one end of a socket pair, without the current folder on
its path: a file there is not imported in place of an installed module. The parent's path is the first message, for the
modules that pickles refer to. It is a plain program rather than a `multiprocessing` child, so that the user's script is
not imported a second time and needs no `__main__` guard.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from mixupmp.core.errors import MixupMPError
from mixupmp.core.member_summary import EpochRecord, MemberSummary
from mixupmp.train import processes  # noqa: F401 - what nearly every call needs, imported before there is one
from mixupmp.train.member import StopTraining
from mixupmp.train.progress import Callback


class RemoteCallback(Callback):
    """Forwards everything to the parent's callback."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        self.connection.send(("callback", "on_step", member, step, total, loss))

    def on_epoch_end(self, record: EpochRecord) -> None:
        self.connection.send(("callback", "on_epoch_end", record))

    def on_member_end(self, summary: MemberSummary) -> None:
        self.connection.send(("callback", "on_member_end", summary))

    def on_message(self, text: str) -> None:
        self.connection.send(("callback", "on_message", text))

    def should_stop(self) -> bool:
        # A parent that is gone closes the socket; going on would write into a run that someone else may have resumed.
        try:
            return self.connection.poll() and pickle.loads(self.connection.recv_bytes()) == "stop"
        except (EOFError, ConnectionError):
            os._exit(1)


def serve(connection: Connection) -> None:
    """Make the parent's calls, one at a time."""
    callback = RemoteCallback(connection)
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, ConnectionError):
            return
        answer = _answer(message, callback)
        if answer is not None:
            connection.send(answer)
            _trim_memory()


def _answer(message: bytes, callback: Callback) -> tuple[Any, ...] | None:
    try:
        content = pickle.loads(message)
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything, or not be found here
        return "unreadable", f"{type(error).__name__}: {error}."
    if content == "stop":  # meant for a call that had just ended
        return None
    function, arguments = content
    try:
        return "result", function(callback, *arguments)
    except StopTraining:
        return ("stopped",)
    except MixupMPError as error:
        return "error", error
    except Exception:  # noqa: BLE001 - whatever it was, the parent reports it
        return "crashed", traceback.format_exc()


def _trim_memory() -> None:
    """Give freed memory back to the system while waiting for the next call."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # glibc's
        library.malloc_trim(0)


def main(descriptor: int) -> None:
    connection = Connection(descriptor)
    try:
        sys.path[:] = connection.recv()
    except (EOFError, ConnectionError):
        return
    serve(connection)


if __name__ == "__main__":
    main(int(sys.argv[1]))
