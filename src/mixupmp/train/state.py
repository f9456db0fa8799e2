"""The tensors of a checkpoint, by name: copies that stay as they are while a fit goes on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer


def copied(value: Tensor) -> Tensor:
    """A copy on the CPU, contiguous."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's buffers as "optimizer/<parameter's index>/<name>"."""
    return {
        f"optimizer/{number}/{name}": copied(torch.as_tensor(value))
        for number, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the buffers "<parameter's index>/<name>"."""
    state = optimizer.state_dict()
    state["state"] = {}
    for key, value in tensors.items():
        number, _, name = key.partition("/")
        state["state"].setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(state)
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # The fused step walks raw memory: the buffers must lie as the weights do.
                values[name] = torch.empty_like(parameter).copy_(value)
