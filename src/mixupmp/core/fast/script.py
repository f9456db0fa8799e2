"""TorchScript, which runs a function of many small operations as one call without the interpreter's lock.

Programs in two threads would otherwise wait for it, and for each other, forty times a step.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., object])


# The parser of Python 3.11 ends in a SystemError where two threads parse at a time, and the filters of warnings are
# those of the whole process.
_ONE_AT_A_TIME = threading.Lock()


@cache
def scripted(function: Function) -> Function:
    """The same function as TorchScript; itself, in a torch that has none."""
    with _ONE_AT_A_TIME:
        return _scripted_once(function)


@cache
def _scripted_once(function: Function) -> Function:
    """Made once, also for threads that ask for it while it is made."""
    if not hasattr(torch.jit, "script"):
        return function
    with warnings.catch_warnings():
        # Deprecated, a FutureWarning from torch 2.15 on; nothing else leaves the lock alone without a compiler.
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        return torch.jit.script(function)
