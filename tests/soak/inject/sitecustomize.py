"""Kills the process before its n-th file operation.

Worker processes import this module at their start, as its folder is on their path; the number comes from the variable
SOAK_KILL_BEFORE. Files that the import system writes do not pass through `os`, so the count is the same in every run.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

OPERATIONS = ("mkdir", "write", "ftruncate", "fsync", "replace", "unlink", "rmdir")

_count = 0
_guard = threading.Lock()


def _step(last: int) -> None:
    global _count
    with _guard:
        _count += 1
        if _count == last:
            os.kill(os.getpid(), signal.SIGKILL)


def _counted(original: Callable[..., Any], last: int) -> Callable[..., Any]:
    def operation(*arguments: Any, **options: Any) -> Any:
        _step(last)
        return original(*arguments, **options)

    return operation


def _counted_open(original: Callable[..., int], last: int) -> Callable[..., int]:
    def operation(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            _step(last)
        return original(path, flags, *arguments, **options)

    return operation


def install(last: int) -> None:
    """Count file operations from now on, and kill the process before the last of them."""
    for name in (*OPERATIONS, "open"):
        original = getattr(os, name)
        counted = (_counted_open if name == "open" else _counted)(original, last)
        setattr(os, name, counted)
        if original in os.supports_dir_fd:
            os.supports_dir_fd.add(counted)


if "SOAK_KILL_BEFORE" in os.environ:
    install(int(os.environ["SOAK_KILL_BEFORE"]))
