"""A network as a value: a class by its import path, and the arguments it is called with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mixupmp.core import spec
from mixupmp.core.errors import InvalidArgument, check
from mixupmp.core.foreign import Json

LAYERS_LIMIT = 1000  # of a network that a file describes: a hostile depth must not keep us building


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
        from mixupmp.networks.catalog import own_classes  # which names `Network` in its entries

        built = (own_classes().get(self.path) or _imported(self.path))(**self.arguments)
        if not isinstance(built, nn.Module):
            raise InvalidArgument("network", built, f"an nn.Module, built by {self.path}")
        return built

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.path}({arguments})"


def _imported(path: str) -> Callable[..., nn.Module]:
    module, _, name = path.rpartition(".")
    try:
        factory: Callable[..., nn.Module] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument("network", path, "the import path of a network", f"{error}.") from error
    return factory


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def read_network(document: Mapping[str, Json]) -> Network:
    """A described network of this package's own; an import path of anything else is never followed."""
    from mixupmp.networks.catalog import own_classes  # which names `Network` in its entries

    path, arguments = document.get("path"), document.get("arguments", {})
    own = own_classes()
    check(path in own, "path", path, f"one of {', '.join(own)}", "Pass a network of your own in Python.")
    check(isinstance(arguments, Mapping), "arguments", arguments, "a table of arguments")
    for name, value in arguments.items():
        small = len(value) <= LAYERS_LIMIT if isinstance(value, list) else name != "depth" or value <= LAYERS_LIMIT
        check(small, name, value, f"at most {LAYERS_LIMIT}")
    return Network(str(path), spec.decode_arguments(own[str(path)], arguments, ""))


spec.register(Network, read_network)
