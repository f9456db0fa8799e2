"""TorchScript is deprecated; its users need not hear of it from us."""

from __future__ import annotations

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from mixupmp.core.fast.script import scripted


@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning])
def test_a_deprecated_torchscript_is_used_in_silence(monkeypatch: pytest.MonkeyPatch, category: type[Warning]) -> None:
    def script(function: Any) -> Any:
        warnings.warn("torch.jit.script is deprecated", category, stacklevel=2)
        return function

    monkeypatch.setattr(torch.jit, "script", script)

    def double(values: torch.Tensor) -> torch.Tensor:
        return 2 * values

    assert scripted(double) is double


def test_threads_that_ask_at_a_time_get_one_script_made_by_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11's parser raised SystemError (AST constructor recursion depth mismatch) in two threads at a time."""
    parsing, made = threading.Lock(), []

    def script(function: Any) -> Any:
        assert parsing.acquire(blocking=False), "two threads parse at a time"
        time.sleep(0.01)
        parsing.release()
        made.append(function)
        return lambda values: function(values)

    def double(values: torch.Tensor) -> torch.Tensor:
        return 2 * values

    def triple(values: torch.Tensor) -> torch.Tensor:
        return 3 * values

    monkeypatch.setattr(torch.jit, "script", script)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(scripted, [double, triple] * 8))
    assert len(set(found)) == len(made) == 2
