"""The catalog of networks: those that are built by name, sized to the inputs.

To add one, write its class in a file of its own and add one line to `_LISTED`. It is then an argument of ``--network``,
in its help, and a saved run that holds it, as ``mixupmp.networks.<class>``, loads again. Any other `nn.Module` factory
serves as well in Python: it only has to map inputs to (rows, outputs).
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mixupmp.core import spec
from mixupmp.core.errors import InvalidArgument, UnknownName, check
from mixupmp.core.foreign import Json
from mixupmp.networks.audio import AudioCNN
from mixupmp.networks.cnn import CNN
from mixupmp.networks.mlp import MLP
from mixupmp.networks.resnet import ResNet18, WideResNet
from mixupmp.networks.tabular import TabularMLP, normal_edges
from mixupmp.networks.text import TextCNN

LAYERS_LIMIT = 1000  # of a network that a file describes: a hostile depth must not keep us building
WORDS = 20_000  # token numbers of a text network, where the vocabulary is not known


@dataclass(frozen=True)
class Network:
    """A factory of networks that can be written to a file, unlike a function.

    Parameters
    ----------
    path
        Import path of a class or function that returns an `nn.Module`, as "mixupmp.networks.MLP".
    arguments
        What it is called with.
    """

    path: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", {name: _frozen(value) for name, value in self.arguments.items()})

    @property
    def same_structure(self) -> bool:
        """Whether all that it builds differ in their state_dict alone: known of this package's own."""
        return self.path.startswith("mixupmp.networks.")

    def __call__(self) -> nn.Module:
        """Build one, with weights from torch's global generator."""
        built = (own_classes().get(self.path) or _imported(self.path))(**self.arguments)
        if not isinstance(built, nn.Module):
            raise InvalidArgument("network", built, f"an nn.Module, built by {self.path}")
        return built

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.path}({arguments})"


@dataclass(frozen=True)
class NetworkEntry:
    """A network by name.

    Parameters
    ----------
    name
        A word between angle brackets stands for an integer, which is the class's argument of that name.
    cls
        Takes ``outputs`` and ``dropout``, and what `size` returns.
    size
        From the shape of one input to the class's arguments.
    images
        Whether it takes images, (channels, height, width), and nothing else.
    """

    name: str
    cls: type[nn.Module]
    size: Callable[[Sequence[int]], dict[str, Any]]
    images: bool = True

    @property
    def path(self) -> str:
        """The import path that a run folder keeps."""
        module = self.cls.__module__
        return f"{'mixupmp.networks' if module.startswith('mixupmp.networks.') else module}.{self.cls.__qualname__}"

    def numbers_in(self, name: str) -> dict[str, int] | None:
        """The integers in a name of this form, or None if it has another."""
        found = re.fullmatch(re.sub(r"<(\w+)>", r"(?P<\1>\\d+)", self.name), name)
        return None if found is None else {key: int(value) for key, value in found.groupdict().items()}


_LISTED = (
    NetworkEntry("mlp", MLP, lambda shape: {"features": math.prod(shape)}, images=False),
    NetworkEntry("tabular", TabularMLP, lambda shape: {"edges": normal_edges(math.prod(shape))}, images=False),
    NetworkEntry("cnn", CNN, lambda shape: {"channels": shape[0], "size": (shape[1], shape[2])}),
    NetworkEntry("resnet18", ResNet18, lambda shape: {"channels": shape[0]}),
    NetworkEntry("audio-cnn", AudioCNN, lambda shape: {"channels": shape[0], "bands": shape[1]}),
    NetworkEntry("text-cnn", TextCNN, lambda shape: {"words": WORDS}, images=False),
    NetworkEntry("wrn-<depth>-<widen>", WideResNet, lambda shape: {"channels": shape[0]}),
)
NETWORKS: dict[str, NetworkEntry] = {entry.name: entry for entry in _LISTED}
"""Every network by its name."""


def named(name: str, shape: Sequence[int], outputs: int, dropout: float = 0.0) -> Network:
    """The network of this name for inputs of this shape (without the rows): mlp, cnn, resnet18, wrn-28-10, ..."""
    for entry in NETWORKS.values():
        numbers = entry.numbers_in(name)
        if numbers is None:
            continue
        if entry.images and len(shape) != 3:
            must = f"'mlp' for inputs of shape {tuple(shape)}"
            raise InvalidArgument("network", name, must, f"{name} takes images.")
        return Network(entry.path, {**entry.size(shape), "outputs": outputs, "dropout": dropout, **numbers})
    raise UnknownName("network", name, NETWORKS)


def own_classes() -> dict[str, type[nn.Module]]:
    """The classes that a run folder may name, by import path: those of the catalog and no others."""
    return {entry.path: entry.cls for entry in NETWORKS.values()}


def _imported(path: str) -> Callable[..., nn.Module]:
    module, _, name = path.rpartition(".")
    try:
        factory: Callable[..., nn.Module] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument("network", path, "the import path of a network", f"{error}.") from error
    return factory


def _frozen(value: object) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def read_network(document: Mapping[str, Json]) -> Network:
    """A described network of this package's own; an import path of anything else is never followed."""
    path, arguments = document.get("path"), document.get("arguments", {})
    own = own_classes()
    check(path in own, "path", path, f"one of {', '.join(own)}", "Pass a network of your own in Python.")
    check(isinstance(arguments, Mapping), "arguments", arguments, "a table of arguments")
    for name, value in arguments.items():
        small = len(value) <= LAYERS_LIMIT if isinstance(value, list) else name != "depth" or value <= LAYERS_LIMIT
        check(small, name, value, f"at most {LAYERS_LIMIT}")
    return Network(str(path), spec.decode_arguments(own[str(path)], arguments, ""))


spec.register(Network, read_network)
