"""A fault at the n-th file operation of a process: it is killed there, or the disk is full or fails.

Worker processes import this module at their start, as its folder is on their path; the fault comes from the variable
SOAK_FAULT, as in "kill 12". What the import system writes does not pass through `os`, so the count is the same in every
run. Of Ray's processes only workers count, from when they have the code of a fit. With SOAK_ONCE, the path of a file
that is made then, the fault meets one process alone, and not the one that is started in its place.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

VARIABLE, ONCE = "SOAK_FAULT", "SOAK_ONCE"
TAKING_SPACE = {"mkdir", "open", "write"}
OPERATIONS = ("mkdir", "write", "ftruncate", "fsync", "replace", "unlink", "rmdir")

_plain_fdopen, _plain_open = os.fdopen, os.open
_on_ray = any(argument.endswith("default_worker.py") for argument in sys.orig_argv)
_count = 0
_guard = threading.Lock()


def _step(name: str, kind: str, place: int) -> None:
    """Count an operation; at its place the fault happens."""
    global _count
    if _on_ray and "mixupmp.train.job" not in sys.modules:
        return
    with _guard:
        _count += 1
        if kind == "kill" and _count == place and _first():
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "full disk" and _count >= place and name in TAKING_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if kind == "failing disk" and _count == place:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _first() -> bool:
    """Whether no other process has met the fault, where it is to happen once."""
    if ONCE not in os.environ:
        return True
    try:
        os.close(_plain_open(os.environ[ONCE], os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _counted(name: str, kind: str, place: int) -> Callable[..., Any]:
    original = getattr(os, name)

    def operation(*arguments: Any, **options: Any) -> Any:
        if name != "open" or arguments[1] & os.O_CREAT:
            _step(name, kind, place)
        return original(*arguments, **options)

    if original in os.supports_dir_fd:
        os.supports_dir_fd.add(operation)
    return operation


def install(kind: str, place: int) -> None:
    """Count file operations from now on; `kind` of fault happens at the one of number `place`."""

    class File(io.FileIO):
        """A file whose fault comes between the two halves of what is written to it."""

        def write(self, content: Any, /) -> int:
            whole = memoryview(content).cast("B")
            first = super().write(whole[: len(whole) // 2])
            _step("write", kind, place)
            return first + super().write(whole[first:])

    def fdopen(descriptor: int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode not in ("w+b", "r+b"):
            return _plain_fdopen(descriptor, mode, *arguments, **options)
        return io.BufferedRandom(File(descriptor, "r+"))

    for name in (*OPERATIONS, "open"):
        setattr(os, name, _counted(name, kind, place))
    os.fdopen = fdopen


if VARIABLE in os.environ and (_on_ray or "ray" not in " ".join(sys.orig_argv)):
    _kind, _, _place = os.environ[VARIABLE].rpartition(" ")
    install(_kind, int(_place))
