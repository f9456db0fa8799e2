"""The networks by name, and how one is named and built.

Any `nn.Module` factory of your own serves as well: it only has to map inputs to (rows, outputs).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.plan import NetworkFactory as NetworkFactory


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


NAMES = ("mlp", "cnn", "resnet18", "wrn-<depth>-<widen>")


def named(name: str, shape: Sequence[int], outputs: int, dropout: float = 0.0) -> Network:
    """The network of this name for inputs of this shape (without the rows): mlp, cnn, resnet18, wrn-28-10, ..."""
    here = "mixupmp.networks."
    common: dict[str, Any] = {"outputs": outputs, "dropout": dropout}
    if name == "mlp":
        return Network(here + "MLP", {"features": int(torch.Size(shape).numel()), **common})
    wide = re.fullmatch(r"wrn-(\d+)-(\d+)", name)
    if name not in ("cnn", "resnet18") and not wide:
        raise UnknownName("network", name, NAMES)
    if len(shape) != 3:
        raise InvalidArgument("network", name, f"'mlp' for inputs of shape {tuple(shape)}", "The others take images.")
    images: dict[str, Any] = {"channels": shape[0], **common}
    if wide:
        return Network(here + "WideResNet", {**images, "depth": int(wide[1]), "widen": int(wide[2])})
    if name == "resnet18":
        return Network(here + "ResNet18", images)
    return Network(here + "CNN", {**images, "size": (shape[1], shape[2])})
