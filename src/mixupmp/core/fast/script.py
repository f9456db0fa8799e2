"""TorchScript, which runs a function of many small operations as one call without the interpreter's lock.

Programs in two threads would otherwise wait for it, and for each other, forty times a step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., object])


@cache
def scripted(function: Function) -> Function:
    """The same function as TorchScript; itself, in a torch that has none."""
    if not hasattr(torch.jit, "script"):
        return function
    with warnings.catch_warnings():
        # Deprecated, a FutureWarning from torch 2.15 on; nothing else leaves the lock alone without a compiler.
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        return torch.jit.script(function)
