"""SIGINT and SIGTERM as a request: finish the step, write a checkpoint, say how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mixupmp.core.errors import MixupMPError


class FitInterrupted(MixupMPError):
    """A fit stopped on a signal; its checkpoints are in the run folder. `code` is the exit code that says so."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.code = folder, 128 + number
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name}; the work so far is kept. Go on with: mixupmp fit --resume {folder}")


class StopRequest:
    """Whether a signal has come, and which."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self) -> bool:
        return self.number is not None


@contextmanager
def stop_on_signals(active: bool) -> Iterator[StopRequest]:
    """Catch the two signals inside. A second one acts at once, as it would have without us."""
    request = StopRequest()
    if not active or threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        request.number = number
        for caught, handler in before.items():
            signal.signal(caught, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
