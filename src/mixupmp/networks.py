"""The paper's networks, each with an optional dropout rate, and how one is named and built.

Any `nn.Module` factory of your own serves as well: everything here only has to map inputs to (rows, outputs).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.errors import InvalidArgument, UnknownName, check, number
from mixupmp.pooled_convolution import PooledConvolution


class MLP(nn.Sequential):
    """Fully connected ReLU layers; [16, 32, 16] hidden units are the paper's for its 2-D example."""

    def __init__(
        self,
        features: int,
        outputs: int,
        hidden: Sequence[int] = (16, 32, 16),
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        check_dropout(dropout)
        widths = [features, *hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for width, following in pairwise(widths):
            layers += [nn.Linear(width, following, bias=bias), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        super().__init__(*layers, nn.Linear(widths[-1], outputs, bias=bias))


class CNN(nn.Module):
    """Two convolutions of 6 and 16 channels with ReLU and 2x2 max-pooling, then linear layers of 120 and 84.

    5x5 kernels as in the paper, for images of 20 pixels and up; 3x3 with padding on smaller ones, which 5x5 would
    shrink to nothing. `bias=False` makes it homogeneous, which the margins of appendix A need.
    """

    def __init__(
        self, channels: int, size: tuple[int, int], outputs: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        check(min(size) >= 4, "size", size, "images of at least 4x4 pixels for the CNN", "Use the MLP.")
        side, padding = (5, 0) if min(size) >= 20 else (3, 1)
        self.first = PooledConvolution(channels, 6, side, padding=padding, bias=bias)
        self.second = PooledConvolution(6, 16, side, padding=padding, bias=bias)
        shrunk = [_pooled(_pooled(pixels, side, padding), side, padding) for pixels in size]
        widths = (16 * shrunk[0] * shrunk[1], 120, 84)
        layers: list[nn.Module] = []
        for width, following in pairwise(widths):
            layers += [nn.Linear(width, following, bias=bias), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.head = nn.Sequential(*layers, nn.Linear(84, outputs, bias=bias))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.second(self.first(inputs)).flatten(1))

    def layers(self) -> list[nn.Module]:
        """Itself as a plain sequence of layers."""
        return [self.first, self.second, nn.Flatten(), *self.head]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a shortcut; dropout, if any, between the two."""

    def __init__(self, channels: int, following: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, following, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(following)
        self.second = nn.Conv2d(following, following, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(following)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != following:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, following, 1, stride, bias=False), nn.BatchNorm2d(following)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.dropout(functional.relu(self.first_norm(self.first(inputs)), inplace=True))
        return functional.relu(self.second_norm(self.second(inner)) + self.shortcut(inputs), inplace=True)


class ResNet18(nn.Module):
    """The small-image ResNet of the paper's Fashion-MNIST runs.

    A 3x3 stem at full resolution, no max-pool, three stages of `width`, 2 and 4 times that, two basic blocks each,
    and a global average pool.
    """

    def __init__(self, channels: int, outputs: int, width: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout(dropout)
        self.stem = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        current = width
        for stage, following in enumerate((width, 2 * width, 4 * width)):
            for block in range(2):
                stride = 2 if stage and not block else 1
                blocks.append(BasicBlock(current, following, stride, dropout))
                current = following
        self.stages = nn.Sequential(*blocks)
        self.head = nn.Linear(current, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.stem_norm(self.stem(inputs)), inplace=True)
        return self.head(self.stages(hidden).mean((2, 3)))


class WideBlock(nn.Module):
    """Pre-activation block of a Wide-ResNet, with biases in its convolutions and dropout between them."""

    def __init__(self, channels: int, following: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(channels)
        self.first = nn.Conv2d(channels, following, 3, 1, 1)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.second_norm = nn.BatchNorm2d(following)
        self.second = nn.Conv2d(following, following, 3, stride, 1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != following:
            self.shortcut = nn.Conv2d(channels, following, 1, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.first(functional.relu(self.first_norm(inputs), inplace=True))
        inner = self.second(functional.relu(self.second_norm(self.dropout(inner)), inplace=True))
        return inner + self.shortcut(inputs)


class WideResNet(nn.Module):
    """Wide-ResNet depth-widen (Zagoruyko & Komodakis 2016); 28-10 has 36.5 million weights."""

    def __init__(self, channels: int, outputs: int, depth: int = 28, widen: int = 10, dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout(dropout)
        check(depth >= 10 and (depth - 4) % 6 == 0, "depth", depth, "6 k + 4: 10, 16, 22, 28, ...")
        check(widen >= 1, "widen", widen, "at least 1")
        self.stem = nn.Conv2d(channels, 16, 3, 1, 1)
        blocks: list[nn.Module] = []
        current = 16
        for stage, following in enumerate((16 * widen, 32 * widen, 64 * widen)):
            for block in range((depth - 4) // 6):
                stride = 2 if stage and not block else 1
                blocks.append(WideBlock(current, following, stride, dropout))
                current = following
        self.stages = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(current)
        self.head = nn.Linear(current, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.norm(self.stages(self.stem(inputs))), inplace=True)
        return self.head(hidden.mean((2, 3)))


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


NetworkFactory = Callable[[], nn.Module]
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


def check_dropout(rate: float) -> None:
    check(number(rate) and 0 <= rate < 1, "dropout", rate, "a rate in [0, 1)")


def _pooled(pixels: int, side: int, padding: int) -> int:
    return (pixels + 2 * padding - side + 1) // 2
