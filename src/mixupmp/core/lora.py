"""Members that share a pretrained body but for low-rank adapters, and have heads of their own, in one network each.

A linear layer W of the body, frozen, becomes for a member

    f(x) = W x + c + (scale / rank) B A x

with A (rank, in) and B (out, rank) the member's own (LoRA, Hu et al. 2022). A starts at random and B at zero, so every
member starts with the pretrained body; the last layer starts afresh. Each is fitted to its own simulated future (after
LoRA-Ensemble, Muehlematter et al. 2024). In memory, members share the frozen weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.attention import plain_attention
from mixupmp.core.cut import in_order
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import InvalidArgument, check, is_number, is_whole
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import TrainingData
from mixupmp.core.samplers import check_members


@dataclass(frozen=True)
class LoRA:
    """`members` networks that share a frozen pretrained body and differ in low-rank adapters and the last layer.

    Use it with a pretrained module and `fine_tune=True`. All linear layers but the last get an adapter, also those of
    the type `Conv1D` of GPT-2 in transformers; the inner projections of `nn.MultiheadAttention`, which are no modules
    that can be called, and layers of other types stay as they are. The last must be an `nn.Linear`.

    Parameters
    ----------
    members
        How many.
    rank
        Of each adapter.
    scale
        Adapters are multiplied by scale / rank.
    """

    members: int = 4
    rank: int = 4
    scale: float = 8.0

    def __post_init__(self) -> None:
        check_members(self.members)
        check(is_whole(self.rank), "rank", self.rank, "a whole number, at least 1")
        check(is_number(self.scale) and self.scale > 0, "scale", self.scale, "positive")

    @property
    def networks(self) -> int:
        return self.members

    def adapt(self, network: nn.Module, rows: Tensor | None = None) -> nn.Module:
        """The network, frozen, with adapters and a new last layer, drawn from torch's global generator.

        The last layer is the one that it calls last for these scaled rows; without them, the last that it has.
        """
        layers = {name: module for name, module in network.named_modules() if _is_linear(module) and name}
        last = in_order(network, list(layers), rows)[-1] if len(layers) > 1 else ""
        head = layers.get(last)
        if not isinstance(head, nn.Linear):
            must = "a network with two linear layers or more, for adapters and a head: nn.Linear, the last of them"
            found = f"{len(layers)} of them, {last or 'none'!r} last"
            raise InvalidArgument("network", type(network).__name__, must, f"It has {found}.")
        network.requires_grad_(False)
        for name in [name for name in layers if name != last]:
            parent, _, child = name.rpartition(".")
            setattr(network.get_submodule(parent), child, _adapted(layers[name], self.rank, self.scale))
        head.reset_parameters()
        head.requires_grad_(True)
        return plain_attention(network)

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        return LoRAPosterior(networks, task, self.members)


class LoRALinear(nn.Linear):
    """A frozen linear layer with a low-rank adapter."""

    def __init__(self, layer: nn.Linear, rank: int, scale: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.down, self.up = _low_rank(layer.weight, layer.in_features, layer.out_features, rank)
        self.scale = scale / rank

    def forward(self, inputs: Tensor) -> Tensor:
        adapted = functional.linear(functional.linear(inputs, self.down), self.up)
        return functional.linear(inputs, self.weight, self.bias) + self.scale * adapted


class LoRAConv1D(nn.Module):
    """A frozen `Conv1D` of GPT-2 in transformers, a linear layer whose weight is (in, out), with an adapter."""

    def __init__(self, layer: nn.Module, rank: int, scale: float) -> None:
        super().__init__()
        own = dict(layer.named_parameters())
        self.weight, self.bias = own["weight"], own["bias"]
        self.nx, self.nf = self.weight.shape  # its own names for in and out
        self.down, self.up = _low_rank(self.weight, self.nx, self.nf, rank)
        self.scale = scale / rank

    def forward(self, inputs: Tensor) -> Tensor:
        adapted = functional.linear(functional.linear(inputs, self.down), self.up)
        return _conv1d(inputs, self.weight, self.bias) + self.scale * adapted


def _low_rank(weight: Tensor, inputs: int, outputs: int, rank: int) -> tuple[nn.Parameter, nn.Parameter]:
    """An adapter of a layer, (rank, inputs) and (outputs, rank), whose product is zero at first."""
    bound = inputs**-0.5
    down, up = weight.new_empty(rank, inputs).uniform_(-bound, bound), weight.new_empty(outputs, rank).zero_()
    return nn.Parameter(down), nn.Parameter(up)


def _conv1d(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What `Conv1D` computes, by the same product, so that its bits are the same."""
    return torch.addmm(bias, inputs.reshape(-1, inputs.shape[-1]), weight).view(*inputs.shape[:-1], -1)


def _adapted(layer: nn.Module, rank: int, scale: float) -> nn.Module:
    return LoRALinear(layer, rank, scale) if isinstance(layer, nn.Linear) else LoRAConv1D(layer, rank, scale)


def _is_linear(module: nn.Module) -> bool:
    """Whether this is `nn.Linear` itself, or computes what `Conv1D` of transformers does, which is not imported."""
    if type(module) is nn.Linear:
        return True
    own = dict(module.named_parameters())
    if type(module).__name__ != "Conv1D" or own.keys() != {"weight", "bias"} or own["weight"].ndim != 2:
        return False
    weight, bias = own["weight"].detach(), own["bias"].detach()
    if tuple(bias.shape) != (weight.shape[1],) or getattr(module, "nf", None) != len(bias):
        return False
    inputs = torch.linspace(-1, 1, 2 * len(weight)).view(2, -1).to(weight)
    with torch.no_grad():
        return torch.allclose(module(inputs), _conv1d(inputs, weight, bias), rtol=1e-4, atol=1e-5)


class LoRAPosterior(EnsemblePosterior):
    """Networks that share the memory of all that was frozen."""

    def __init__(self, networks: Sequence[nn.Module], task: Task, wanted: int) -> None:
        super().__init__(networks, task, wanted)
        first, *others = self.networks
        ours = first.state_dict(keep_vars=True)
        for network in others:
            for name, value in network.state_dict(keep_vars=True).items():
                if torch.equal(value, ours[name]):
                    value.data = ours[name].data
