"""A network as a value: a class by its import path, and the arguments it is called with."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mixupmp.core.errors import InvalidArgument


@dataclass(frozen=True)
class Network:
    """How to build a network: an import path and its arguments, which a run folder can keep as text."""

    path: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> nn.Module:
        """Build one, with weights from torch's global generator."""
        module, _, name = self.path.rpartition(".")
        try:
            factory = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidArgument("network", self.path, "the import path of a network", f"{error}.") from error
        built = factory(**self.arguments)
        if not isinstance(built, nn.Module):
            raise InvalidArgument("network", built, f"an nn.Module, built by {self.path}")
        return built
