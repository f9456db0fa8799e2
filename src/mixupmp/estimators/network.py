"""What users call a network, as the factory that gives every member weights of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.posterior import logits_of
from mixupmp.core.rows import Standardize
from mixupmp.estimators.inputs import Layout
from mixupmp.networks import Network, NetworkFactory, named

TABLE_HIDDEN = (128, 128)  # chosen with the recipes, on validation rows: see defaults.py


@dataclass(frozen=True)
class Given:
    """A user's own network as a factory: a copy with its weights, or with new ones where they are not frozen.

    Frozen parameters (requires_grad=False) always keep their values, and so do the statistics of normalization layers
    that are frozen: a pretrained body with a fresh head for each member.
    """

    network: nn.Module
    keep_weights: bool

    def __call__(self) -> nn.Module:
        built = copy.deepcopy(self.network)
        if not self.keep_weights:
            _start_afresh(built)
        return built


@dataclass(frozen=True)
class Sized:
    """A user's factory that wants to know the shape of a row and the number of outputs."""

    build: Callable[..., nn.Module]
    shape: tuple[int, ...]
    outputs: int

    def __call__(self) -> nn.Module:
        return self.build(self.shape, self.outputs)


def factory_for(network: Any, fine_tune: bool, layout: Layout, outputs: int, dropout: float) -> NetworkFactory:
    """The factory for `network=`: None (sized to the data), a name, a module, or a factory of none or two arguments.

    A factory of two required arguments is called with the shape of a row and the number of outputs.
    """
    if isinstance(network, nn.Module):
        return Given(network, fine_tune)
    if fine_tune:
        raise InvalidArgument("fine_tune", True, "False unless network is an nn.Module whose weights are the start")
    if network is None:
        return _default(layout, outputs, dropout)
    if isinstance(network, str):
        return named(network, layout.shape, outputs, dropout)
    if not callable(network):
        raise InvalidArgument("network", network, "None, a name, an nn.Module, or a callable that builds one")
    if _required(network) == 2:
        return Sized(network, layout.shape, outputs)
    factory: NetworkFactory = network
    return factory


def check_outputs(factory: NetworkFactory, layout: Layout, outputs: int, standardize: Standardize) -> None:
    """Try the network on two rows, so that a wrong last layer is named before training."""
    with torch.random.fork_rng():
        network = factory()
    if not isinstance(network, nn.Module):
        raise InvalidArgument("network", network, "a factory that returns an nn.Module")
    rows = torch.zeros(2, *layout.shape, dtype=torch.uint8 if layout.pixels else torch.float32)
    with torch.no_grad():
        found = tuple(logits_of(network.eval()(standardize(rows))).shape)
    if found != (2, outputs):
        hint = "Replace its last layer."
        raise InvalidArgument("network", found, f"a network that answers 2 rows with shape (2, {outputs})", hint)


def _default(layout: Layout, outputs: int, dropout: float) -> Network:
    if layout.kind == "images" and len(layout.shape) == 3 and min(layout.shape[1:]) >= 4:
        return named("cnn", layout.shape, outputs, dropout)
    features = int(torch.Size(layout.shape).numel())
    arguments = {"features": features, "outputs": outputs, "hidden": TABLE_HIDDEN, "dropout": dropout}
    return Network("mixupmp.networks.MLP", arguments)


def _required(factory: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # a builtin tells nothing of its arguments
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


def _start_afresh(network: nn.Module) -> None:
    """New weights from torch's global generator, except where they are frozen."""
    kept = {name: p.detach().clone() for name, p in network.named_parameters() if not p.requires_grad}
    for name, module in network.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not own or all(not p.requires_grad for p in own.values()):
            continue
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if reset is None:
            raise InvalidArgument(
                "network", type(module).__name__, f"one whose part {name or 'network'!r} has reset_parameters()",
                "Pass a factory that builds it afresh, freeze that part, or start from its weights: fine_tune=True.",
            )  # fmt: skip
        reset()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in kept:
                parameter.copy_(kept[name])
