"""Posteriors of untrained networks, for what they answer and not for what they know."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Standardize
from mixupmp.networks import MLP

TASK = Task(Categorical(3), Standardize(), (4,), ("a", "b", "c"))


def inputs_of(shape: tuple[int, ...], rows: int) -> Tensor:
    return torch.randn(rows, *shape, generator=Generator().manual_seed(1))


def seeded(build: Callable[[], nn.Module], count: int = 3) -> list[nn.Module]:
    """Networks with different weights and, where they normalize, statistics that are not the initial ones."""
    networks = []
    for seed in range(count):
        torch.manual_seed(seed)
        network = build()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2)
        networks.append(network)
    return networks


def ensemble(count: int = 3) -> EnsemblePosterior:
    return EnsemblePosterior(seeded(lambda: MLP(4, 3), count), TASK, count)


def dropped(network: nn.Module, members: int = 5, seed: int = 0, shape: tuple[int, ...] = (4,)) -> DropoutPosterior:
    return DropoutPosterior([network], Task(Categorical(3), Standardize(), shape), members, seed)
