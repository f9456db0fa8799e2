"""Residual networks: the paper's ResNet18 for small images, and Wide-ResNets."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.errors import check, check_dropout
from mixupmp.core.fast.dropout import FeatureDropout


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm, a shortcut, and dropout between the two (He et al. 2016)."""

    def __init__(self, channels: int, following: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, following, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(following)
        self.second = nn.Conv2d(following, following, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(following)
        self.dropout = FeatureDropout(dropout) if dropout else nn.Identity()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != following:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, following, 1, stride, bias=False), nn.BatchNorm2d(following)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.dropout(functional.relu(self.first_norm(self.first(inputs)), inplace=True))
        return functional.relu(self.second_norm(self.second(inner)) + self.shortcut(inputs), inplace=True)


def _stages(
    block: type[BasicBlock | WideBlock], channels: int, widths: Sequence[int], blocks: int, dropout: float
) -> nn.Sequential:
    """Stages of so many blocks each; all but the first stage begin with stride 2."""
    layers: list[nn.Module] = []
    for stage, width in enumerate(widths):
        for number in range(blocks):
            layers.append(block(channels, width, 2 if stage and not number else 1, dropout))
            channels = width
    return nn.Sequential(*layers)


class ResNet18(nn.Module):
    """ResNet for small images, as in the paper's Fashion-MNIST runs.

    A 3x3 stem at full resolution, no max-pooling, three stages of two basic blocks with `width`, 2 `width` and
    4 `width` channels, and global average pooling.
    """

    def __init__(self, channels: int, outputs: int, width: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout(dropout)
        self.stem = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stages = _stages(BasicBlock, width, (width, 2 * width, 4 * width), 2, dropout)
        self.head = nn.Linear(4 * width, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.stem_norm(self.stem(inputs)), inplace=True)
        return self.head(self.stages(hidden).mean((2, 3)))


class WideBlock(nn.Module):
    """Pre-activation block of a Wide-ResNet, with biases in the convolutions and dropout between them."""

    def __init__(self, channels: int, following: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(channels)
        self.first = nn.Conv2d(channels, following, 3, 1, 1)
        self.dropout = FeatureDropout(dropout) if dropout else nn.Identity()
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
    """Wide-ResNet (Zagoruyko & Komodakis 2016); WRN-28-10 has 36.5 million weights.

    Parameters
    ----------
    channels
        Of the images.
    outputs
        One for each class, or two (mean and log-variance) in regression.
    depth, widen
        As in WRN-depth-widen; depth is 6 k + 4 for k blocks in each of the three stages.
    dropout
        Rate between the two convolutions of a block.
    """

    def __init__(self, channels: int, outputs: int, depth: int = 28, widen: int = 10, dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout(dropout)
        check(depth >= 10 and (depth - 4) % 6 == 0, "depth", depth, "6 k + 4: 10, 16, 22, 28, ...")
        check(widen >= 1, "widen", widen, "at least 1")
        self.stem = nn.Conv2d(channels, 16, 3, 1, 1)
        self.stages = _stages(WideBlock, 16, (16 * widen, 32 * widen, 64 * widen), (depth - 4) // 6, dropout)
        self.norm = nn.BatchNorm2d(64 * widen)
        self.head = nn.Linear(64 * widen, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.norm(self.stages(self.stem(inputs))), inplace=True)
        return self.head(hidden.mean((2, 3)))
