"""Networks that look like ones with a fast path, and compute something else."""

from __future__ import annotations

from torch import Tensor, nn

from mixupmp.networks import MLP


class Tempered(nn.Sequential):
    """A sequence with a forward pass of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) / 3


class Doubling(nn.Linear):
    """A layer with a forward pass of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


def hooked() -> nn.Module:
    """An MLP that a hook changes."""
    network = MLP(4, 3)
    network[1].register_forward_hook(lambda module, inputs, output: output.abs() + 1)
    return network
