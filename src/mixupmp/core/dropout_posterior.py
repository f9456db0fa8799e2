"""Posterior samples as dropout masks of one network."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mixupmp.core import seeds
from mixupmp.core.attention import plain_attention
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.given_network import logits_of
from mixupmp.core.posterior import Posterior, Task

DROPOUT_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class DropoutPosterior(Posterior):
    """One network with a fixed dropout mask for each member (Gal & Ghahramani 2016).

    A mask is drawn once for each member and use of a dropout layer, and shared by all rows. So a member is a function:
    a row has the same outputs in any batch, at any time. BatchNorm and all else is in evaluation mode.
    """

    def __init__(self, networks: Sequence[nn.Module], task: Task, members: int, seed: int) -> None:
        super().__init__([plain_attention(network) for network in networks], task, 1)
        self.masks, self.seed = members, seed
        self.layers = [module for module in self.networks[0].modules() if isinstance(module, DROPOUT_LAYERS)]
        self._drawn: dict[tuple[int, int, int, torch.Size], Tensor] = {}
        others = [m for m in self.networks[0].modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        if len(others) != len(self.layers):
            raise InvalidArgument("network", type(self.networks[0]).__name__, "without AlphaDropout for dropout masks")

    @property
    def members(self) -> int:
        return self.masks

    def _outputs(self, inputs: Tensor) -> Tensor:
        network = self.networks[0]
        outputs = []
        for member in range(self.masks):
            hooks = [
                layer.register_forward_hook(_Masked(self, member, number)) for number, layer in enumerate(self.layers)
            ]
            try:
                outputs.append(logits_of(network(inputs)))
            finally:
                for hook in hooks:
                    hook.remove()
        return torch.stack(outputs)

    def mask(self, member: int, layer: int, inputs: Tensor, use: int = 0) -> Tensor:
        """Mask of a member at the n-th use of a layer: zero with probability p, else 1/(1 - p)."""
        shape = inputs.shape[1:]
        if isinstance(self.layers[layer], nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            shape = torch.Size((shape[0], *(1,) * (len(shape) - 1)))  # whole channels
        key = (member, layer, use, shape)
        if key not in self._drawn:
            rate = float(self.layers[layer].p)
            keep = torch.rand(shape, generator=seeds.generator(self.seed, member, "mask", layer, use)) >= rate
            scale = 1 / (1 - rate) if rate < 1 else 0.0
            self._drawn[key] = keep.float().mul_(scale).to(inputs.device)
        return self._drawn[key]

    def to(self, device: torch.device | str) -> Posterior:
        self._drawn.clear()
        return super().to(device)


@dataclass
class _Masked:
    """Forward hook that applies the mask where a dropout layer in evaluation mode returns its input."""

    posterior: DropoutPosterior
    member: int
    layer: int
    uses: int = 0  # a network may call one dropout layer several times
    thread: int = field(default_factory=threading.get_ident)

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if threading.get_ident() != self.thread:  # a concurrent pass of another member
            return output
        self.uses += 1
        return inputs[0] * self.posterior.mask(self.member, self.layer, inputs[0], self.uses - 1)
