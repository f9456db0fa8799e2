"""TorchScript is deprecated; its users need not hear of it from us."""

from __future__ import annotations

import warnings
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
