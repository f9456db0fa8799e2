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
from mixupmp.core.errors import InvalidArgument, check, number, whole
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import TrainingData
from mixupmp.core.samplers import check_members


@dataclass(frozen=True)
class LoRA:
    """`members` networks that share a frozen pretrained body and differ in low-rank adapters and the last layer.

    Use it with a pretrained module and `fine_tune=True`. All linear layers but the last get an adapter; the inner
    projections of `nn.MultiheadAttention`, which are no modules that can be called, and layers of other types, as
    `Conv1D` of GPT-2 in transformers, stay as they are.

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
        check(whole(self.rank), "rank", self.rank, "a whole number, at least 1")
        check(number(self.scale) and self.scale > 0, "scale", self.scale, "positive")

    @property
    def networks(self) -> int:
        return self.members

    def adapt(self, network: nn.Module, rows: Tensor | None = None) -> nn.Module:
        """The network, frozen, with adapters and a new last layer, drawn from torch's global generator.

        The last layer is the one that it calls last for these scaled rows; without them, the last that it has.
        """
        layers = {name: module for name, module in network.named_modules() if type(module) is nn.Linear and name}
        if len(layers) < 2:
            must = "a network with two nn.Linear layers or more, for adapters and a head"
            hint = "Other layers, as the Conv1D of GPT-2 in transformers, get no adapter."
            raise InvalidArgument("network", type(network).__name__, must, hint)
        last = in_order(network, list(layers), rows)[-1]
        network.requires_grad_(False)
        for name in [name for name in layers if name != last]:
            parent, _, child = name.rpartition(".")
            setattr(network.get_submodule(parent), child, LoRALinear(layers[name], self.rank, self.scale))
        layers[last].reset_parameters()
        layers[last].requires_grad_(True)
        return plain_attention(network)

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        return LoRAPosterior(networks, task, self.members)


class LoRALinear(nn.Linear):
    """A frozen linear layer with a low-rank adapter."""

    def __init__(self, layer: nn.Linear, rank: int, scale: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        bound = layer.in_features**-0.5
        made = layer.weight.new_empty
        self.down = nn.Parameter(made(rank, layer.in_features).uniform_(-bound, bound))
        self.up = nn.Parameter(made(layer.out_features, rank).zero_())
        self.scale = scale / rank

    def forward(self, inputs: Tensor) -> Tensor:
        adapted = functional.linear(functional.linear(inputs, self.down), self.up)
        return functional.linear(inputs, self.weight, self.bias) + self.scale * adapted


class LoRAPosterior(EnsemblePosterior):
    """Networks that share the memory of all that was frozen."""

    def __init__(self, networks: Sequence[nn.Module], task: Task, wanted: int, notes: Sequence[str] = ()) -> None:
        super().__init__(networks, task, wanted, notes)
        first, *others = self.networks
        ours = first.state_dict(keep_vars=True)
        for network in others:
            for name, value in network.state_dict(keep_vars=True).items():
                if torch.equal(value, ours[name]):
                    value.data = ours[name].data
