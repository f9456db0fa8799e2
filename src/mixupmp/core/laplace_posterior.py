"""Posterior samples of a Laplace approximation."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, jvp, vmap

from mixupmp.core.given_network import logits_of
from mixupmp.core.posterior import Posterior, Task

_FORWARD = threading.Lock()  # torch has one forward-derivative level for all threads


class LaplacePosterior(Posterior):
    """Samples of a Gaussian around one trained network's weights, with the network linearized there.

    Member b has outputs f(x) + J(x) (theta_b - theta), the predictive that Immer et al. (2021) recommend for Laplace.
    For a last-layer Gaussian that is exactly the network with the sampled last layer.
    """

    def __init__(self, networks: Sequence[nn.Module], task: Task, changes: dict[str, Tensor]) -> None:
        super().__init__(networks, task, 1)
        self.changes = changes  # theta_b - theta for each parameter that varies: (members, *shape)
        with warnings.catch_warnings(), forward_ad.dual_level():
            # torch loads forward derivatives at their first use, through a deprecated part of its own.
            for category in (DeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))

    @property
    def members(self) -> int:
        return len(next(iter(self.changes.values())))

    def tensors(self) -> dict[str, Tensor]:
        return self.changes

    def to(self, device: torch.device | str) -> Posterior:
        self.changes = {name: change.to(device) for name, change in self.changes.items()}
        return super().to(device)

    def _outputs(self, inputs: Tensor) -> Tensor:
        network = self.networks[0]
        varying = {name: dict(network.named_parameters())[name].detach() for name in self.changes}

        def outputs(parameters: dict[str, Tensor]) -> Tensor:
            return logits_of(functional_call(network, parameters, (inputs,)))

        def member(change: dict[str, Tensor]) -> Tensor:
            value, slope = jvp(outputs, (varying,), (change,))  # type: ignore[misc]
            return value + slope

        with _FORWARD:
            if self._of_one_layer():  # what lies before it is the same for all draws: one forward pass for all of them
                return vmap(member, randomness="different")(self.changes)
            changes = ({name: change[m] for name, change in self.changes.items()} for m in range(self.members))
            return torch.stack([member(change) for change in changes])

    def _of_one_layer(self) -> bool:
        """Whether the parameters that vary are of one layer, as in a Gaussian of the last layer."""
        return len({name.rpartition(".")[0] for name in self.changes}) == 1
