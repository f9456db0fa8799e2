"""Heads on a frozen body: members that share all of a trained network but its last layers.

The body's features of every row are computed once; a member is a head fitted to its own future *in feature space*,
where blends are blends of features. So a posterior costs as much as its heads, in training and in prediction.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from mixupmp.core.cut import Cut, features_at, head_of
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import check, is_whole
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import TrainingData
from mixupmp.core.rows import Standardize
from mixupmp.core.samplers import check_members


@dataclass(frozen=True)
class Heads:
    """`members` heads on one frozen body, each fitted to its own simulated future of features.

    Parameters
    ----------
    members
        How many heads.
    layer, at
        Where the network is cut, see `Cut`: before a layer, which is then the first of the heads, or after it.
    repeats
        How many augmented repeats of each row have their features computed, where the predictive has a kernel.
    """

    members: int = 4
    layer: str = ""
    at: Literal["input", "output"] = "input"
    repeats: int = 8

    def __post_init__(self) -> None:
        check_members(self.members)
        check(self.at in ("input", "output"), "at", self.at, "'input' or 'output'")
        check(is_whole(self.repeats), "repeats", self.repeats, "a whole number, at least 1")

    @property
    def networks(self) -> int:
        return self.members

    @property
    def cut(self) -> Cut:
        return Cut(self.layer, self.at)

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        return HeadsPosterior(networks, task, self.members, self.cut)


class HeadsPosterior(EnsemblePosterior):
    """Networks that differ in their heads alone: the body is computed once for all of them."""

    def __init__(self, networks: Sequence[nn.Module], task: Task, wanted: int, cut: Cut) -> None:
        super().__init__(networks, task, wanted)
        self.cut = cut
        heads = [head_of(network, cut) for network in self.networks]
        for network, head in zip(self.networks[1:], heads[1:], strict=True):
            _share_body(self.networks[0], network, head, cut)
        # Heads take features, which may be as wide as packed rows: no hook may take them apart.
        self._heads = EnsemblePosterior(heads, replace(task, standardize=Standardize()), wanted)

    def to(self, device: torch.device | str) -> Posterior:
        super().to(device)
        self._heads.to(device)
        return self

    def _outputs(self, inputs: Tensor) -> Tensor:
        (features,) = features_at(self.networks[0], [self.cut], inputs)
        return self._heads._outputs(features)


def frozen_before(cut: Cut, network: nn.Module) -> nn.Module:
    """A copy of the network with its head to be trained, and everything before the cut frozen."""
    frozen = copy.deepcopy(network).requires_grad_(False)
    head_of(frozen, cut).requires_grad_(True)
    return frozen


def same_body(first: nn.Module, other: nn.Module, cut: Cut) -> bool:
    """Whether two networks are equal in all that comes before the cut."""
    return _are_equal(_bodies(first, other, head_of(other, cut)))


def _share_body(first: nn.Module, other: nn.Module, head: nn.Module, cut: Cut) -> None:
    """Let the other network, of which this is the head, use the memory of the first's body."""
    bodies = _bodies(first, other, head)
    check(_are_equal(bodies), "networks", type(other).__name__, f"networks that differ only after {cut}")
    for ours, theirs in bodies:
        theirs.data = ours.data


def _are_equal(pairs: Sequence[tuple[Tensor, Tensor]]) -> bool:
    return all(torch.equal(ours, theirs) for ours, theirs in pairs)


def _bodies(first: nn.Module, other: nn.Module, head: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Pairs of the two networks' parameters and buffers that are not those of the other's head."""
    in_head = {id(value) for value in _tensors(head).values()}
    ours = _tensors(first)
    return [(ours[name], value) for name, value in _tensors(other).items() if id(value) not in in_head]


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}
