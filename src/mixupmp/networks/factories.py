"""What `network=` may be, as a factory that gives every member weights of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from mixupmp.core import spec
from mixupmp.core.arrays import ArrayLayout
from mixupmp.core.columns import Columns
from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.foreign import Json
from mixupmp.core.given_network import logits_of, tried
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.plan import NetworkFactory
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.networks.catalog import Network, named, own_classes

TABLE_HIDDEN = (128, 128)  # chosen with the default recipes, on validation rows: see `train.plans`
NetworkChoice = None | str | Mapping[str, Json] | nn.Module | Callable[..., nn.Module]


@dataclass(frozen=True)
class Given:
    """A user's own network as a factory: a copy with its weights, or with new ones where they are not frozen.

    Frozen parameters (requires_grad=False) always keep their values, and so do the statistics of normalization layers
    that are frozen: a pretrained body with a fresh head for each member.
    """

    network: nn.Module
    keep_weights: bool
    same_structure: ClassVar[bool] = True

    def __call__(self) -> nn.Module:
        built = copy.deepcopy(self.network)
        if not self.keep_weights:
            _start_afresh(built)
        return built


@dataclass(frozen=True)
class Sized:
    """A user's factory that takes the shape of a row and the number of outputs."""

    build: Callable[..., nn.Module]
    shape: tuple[int, ...]
    outputs: int

    def __call__(self) -> nn.Module:
        return self.build(self.shape, self.outputs)


def factory_for(
    network: NetworkChoice, shape: tuple[int, ...], outputs: int, dropout: float = 0.0, *, fine_tune: bool = False
) -> NetworkFactory:
    """The factory that `network=` stands for, sized to the data.

    Parameters
    ----------
    network
        None: the default for this shape. A name of the catalog; a table of settings, {"name": "mlp", "hidden": [8]};
        a module, copied for each member; a factory without arguments; or one of two required arguments, which is
        called with the shape of a row and the number of outputs.
    fine_tune
        Let every member start from the weights of the given module.
    """
    if isinstance(network, nn.Module):
        return Given(network, fine_tune)
    if fine_tune:
        raise InvalidArgument("fine_tune", True, "False unless network is an nn.Module whose weights are the start")
    if network is None or isinstance(network, Mapping):
        return sized_network(network or {}, shape, outputs, dropout)
    if isinstance(network, str):
        return named(network, shape, outputs, dropout)
    if not callable(network):
        raise InvalidArgument("network", network, "None, a name, an nn.Module, or a callable that builds one")
    if required_arguments(network) == 2:
        return Sized(network, shape, outputs)
    return network


def for_encoder(network: NetworkChoice, encoder: Encoder | None) -> NetworkChoice:
    """The default network for text or sound, and the size of a vocabulary for one of text."""
    if encoder is None or isinstance(encoder, Columns | ArrayLayout):
        return network
    name = {"name": "text-cnn" if isinstance(encoder, Vocabulary) else "audio-cnn"}
    settings = {"name": network} if isinstance(network, str) else network
    if settings is None or (isinstance(settings, Mapping) and not settings.keys() & {"name", "type"}):
        settings = {**name, **(settings or {})}
    if isinstance(encoder, Vocabulary) and isinstance(settings, Mapping) and settings.get("name") == "text-cnn":
        return {"words": encoder.size, **settings}
    return settings if isinstance(settings, Mapping) else network


def sized_network(settings: Mapping[str, Json], shape: tuple[int, ...], outputs: int, dropout: float = 0.0) -> Network:
    """The network of a settings table: in full, as `encode` writes it, or a name with some arguments.

    Without a name it is the CNN for images and an MLP of two layers of 128 units for everything else.
    """
    if settings.get("type") == "Network":
        return spec.decode(settings, Network, "network")
    default = "cnn" if len(shape) == 3 and min(shape[1:]) >= 4 else "mlp"
    name = spec.decode(settings.get("name"), str | None, "network.name") or default  # type: ignore[arg-type]
    network = named(name, shape, outputs, dropout)
    given = {key: value for key, value in settings.items() if key != "name" and value is not None}
    arguments = spec.decode_arguments(own_classes()[network.path], given, "network")
    hidden = {"hidden": TABLE_HIDDEN} if settings.get("name") is None and name == "mlp" else {}
    return Network(network.path, {**network.arguments, **hidden, **arguments})


def check_outputs(
    network: nn.Module, rows: torch.Tensor, likelihood: Categorical | Gaussian, more: torch.Tensor | None = None
) -> None:
    """Try a network on two scaled rows, so that a wrong last layer is named before training.

    Whether it returns probabilities is decided by `more` scaled rows of the data, where there are any: what it makes of
    two rows that are alike may sum to one by chance, or be NaN.
    """
    outputs = logits_of(tried(network, rows))
    found, wanted = tuple(outputs.shape), (len(rows), likelihood.outputs)
    if found != wanted:
        hint = "Replace its last layer"
        if likelihood.classes and found[1:] > wanted[1:]:
            hint += "; or, where y lacks some of the network's classes, name them all: posterior_of(..., classes=)"
        raise InvalidArgument("network", found, f"one that returns (rows, {likelihood.outputs})", f"{hint}.")
    if likelihood.classes:
        check_logits(outputs if more is None else logits_of(tried(network, more)), "network")


def check_logits(outputs: torch.Tensor, name: str) -> None:
    """Raise if these outputs are probabilities: a second softmax would make them all but equal.

    Logarithms of probabilities are logits like any others.
    """
    if bool((outputs >= 0).all()) and bool(((outputs.sum(-1) - 1).abs() < 1e-4).all()):
        must = "without a softmax at the end, to return logits as torch.nn.CrossEntropyLoss expects them"
        hint = "Return what goes into nn.Softmax or functional.softmax; a log-softmax may stay."
        raise InvalidArgument(name, "probabilities", must, hint)


def required_arguments(factory: Callable[..., nn.Module]) -> int:
    """How many arguments without a default it takes by position."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # a builtin has no signature
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
                "network",
                type(module).__name__,
                f"one whose part {name or 'network'!r} has reset_parameters()",
                "Pass a factory that builds it afresh, freeze that part, or start from its weights: fine_tune=True.",
            )
        reset()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in kept:
                parameter.copy_(kept[name])
