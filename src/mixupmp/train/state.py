"""What a checkpoint holds: tensors by name, as copies that stay as they are while a fit goes on, and text.

A run folder may come from anybody, so a state that is put back is checked before the fit goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mixupmp.core.errors import is_number, is_whole
from mixupmp.store.folder import is_history


def size_limit(weights: Mapping[str, Tensor]) -> int:
    """Bytes that a file with these weights, or a checkpoint of them, can have: checked before it is read.

    A checkpoint has up to two buffers of the optimizer for each weight, and generators, losses and the history.
    """
    return 4 * sum(value.numel() * value.element_size() for value in weights.values()) + 64 * 2**20


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
    check_buffers(optimizer)
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.ndim > 0:
                # The fused step walks raw memory: the buffers must lie as the weights do.
                values[name] = torch.empty_like(parameter).copy_(value)


def check_buffers(optimizer: Optimizer) -> None:
    """Raise ValueError unless loaded buffers have the names and shapes that the fused step takes for granted."""
    loaded = False
    expected = {"momentum_buffer"} if isinstance(optimizer, torch.optim.SGD) else {"step", "exp_avg", "exp_avg_sq"}
    for parameter, values in optimizer.state.items():
        found = {name for name, value in values.items() if value is not None}
        if found and found != expected:
            raise ValueError(f"the optimizer has {', '.join(sorted(found))} instead of {', '.join(sorted(expected))}")
        loaded = loaded or bool(found)
        for name, value in values.items():
            shape = torch.Size() if name == "step" else parameter.shape
            if isinstance(value, Tensor) and value.shape != shape:
                raise ValueError(f"{name} has the shape {tuple(value.shape)} instead of {tuple(shape)}")
    if isinstance(optimizer, torch.optim.SGD) and loaded:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            # Zeros are what a missing buffer means; a step does not take buffers of some parameters only.
            if optimizer.state[parameter].get("momentum_buffer") is None:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def parse_progress(text: dict[str, str], total_steps: int) -> dict[str, Any]:
    """The text of a state: step, seconds, history, and what an engine adds; ValueError where it cannot be a fit's."""
    saved = json.loads(text["fit"])
    if not isinstance(saved, dict):
        raise ValueError("its text is not an object")
    counts = [saved.get(name) for name in ("interpolated_at", "diverged_at")]
    right = (
        is_whole(saved["step"], 0)
        and saved["step"] <= total_steps
        and is_number(saved["seconds"])
        and 0 <= saved["seconds"] < float("inf")
        and all(count is None or is_whole(count, 0) for count in counts)
        and is_history(saved["history"])
    )
    if not right:
        raise ValueError("step, seconds or history are not those of a fit")
    return saved
