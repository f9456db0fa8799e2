"""Posterior samples that are separate networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mixupmp.core.fast.stacked import StackedForward, can_stack
from mixupmp.core.given_network import logits_of
from mixupmp.core.posterior import Posterior, Task


class EnsemblePosterior(Posterior):
    """One network for each member."""

    def __init__(self, networks: Sequence[nn.Module], task: Task, wanted: int, notes: Sequence[str] = ()) -> None:
        super().__init__([task.standardize.prepare(network) for network in networks], task, wanted, notes)
        self._stackable = len(self.networks) > 1 and can_stack(self.networks)
        self._stacked: StackedForward | None = None  # made at first use; the networks do not change any more

    @property
    def members(self) -> int:
        return len(self.networks)

    def to(self, device: torch.device | str) -> Posterior:
        self._stacked = None
        return super().to(device)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_stacked": None}  # its closures cannot be pickled

    def _outputs(self, inputs: Tensor) -> Tensor:
        if not self._stackable:
            return torch.stack([logits_of(network(inputs)) for network in self.networks])
        if self._stacked is None:
            self._stacked = StackedForward(self.networks)
        return self._stacked(inputs)
