"""What a checkpoint holds: tensors by name, as copies that stay as they are while a fit goes on, and text.

A run folder may come from anybody, so a state that is put back is checked before the fit goes on with it.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mixupmp.core.errors import number, whole
from mixupmp.store.folder import is_history


def copied(value: Tensor) -> Tensor:
    """A copy on the CPU, contiguous."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's buffers as "optimizer/<parameter's index>/<name>"."""
    return {
        f"optimizer/{index}/{name}": copied(torch.as_tensor(value))
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the buffers "<parameter's index>/<name>"."""
    state = optimizer.state_dict()
    state["state"] = {}
    for key, value in tensors.items():
        index, _, name = key.partition("/")
        state["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(state)
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.ndim > 0:
                # The fused step walks raw memory: the buffers must have the form of the weights, and lie as they do.
                if value.shape != parameter.shape:
                    raise ValueError(f"{name} has the shape {tuple(value.shape)}, its weights {tuple(parameter.shape)}")
                values[name] = torch.empty_like(parameter).copy_(value)


def parse_progress(text: dict[str, str], total_steps: int) -> dict[str, Any]:
    """The text of a state: step, seconds, history, and what an engine adds; ValueError where it cannot be a fit's."""
    saved = json.loads(text["fit"])
    if not isinstance(saved, dict):
        raise ValueError("its text is not an object")
    counts = [saved.get(name) for name in ("interpolated_at", "diverged_at")]
    right = (
        whole(saved["step"], 0)
        and saved["step"] <= total_steps
        and number(saved["seconds"])
        and 0 <= saved["seconds"] < float("inf")
        and all(count is None or whole(count, 0) for count in counts)
        and is_history(saved["history"])
    )
    if not right:
        raise ValueError("step, seconds or history are not those of a fit")
    return saved
