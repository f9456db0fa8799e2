"""Small posteriors to serve, with weights that were never trained."""

from __future__ import annotations

import torch
from torch import nn

from mixupmp import Categorical, Rows, Standardize, Task
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.networks import CNN, MLP
from mixupmp.web.serve import ServedModel, served_model

IMAGE = (1, 8, 8)


def image_posterior(members: int = 3, channels: int = 1, classes: int = 4) -> EnsemblePosterior:
    torch.manual_seed(0)
    networks: list[nn.Module] = [CNN(channels, (8, 8), classes) for _ in range(members)]
    standardize = Standardize((0.5,) * channels, (0.25,) * channels)
    names = tuple(f"kind {k}" for k in range(classes))
    return EnsemblePosterior(networks, Task(Categorical(classes), standardize, (channels, 8, 8), names), members)


def table_posterior(members: int = 3) -> EnsemblePosterior:
    torch.manual_seed(1)
    networks: list[nn.Module] = [MLP(5, 3) for _ in range(members)]
    return EnsemblePosterior(networks, Task(Categorical(3), Standardize(), (5,), ("a", "b", "c")), members)


def images(count: int, seed: int = 0, channels: int = 1) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, 8, 8), generator=draws, dtype=torch.uint8)


def image_model(held_out: bool = True) -> ServedModel:
    """A model whose labels are its own answers, so that it has nothing to abstain from."""
    posterior = image_posterior()
    inputs = images(200)
    rows = Rows(inputs, posterior.probabilities(inputs).argmax(1))
    return served_model(posterior, rows if held_out else None, title="kinds")
