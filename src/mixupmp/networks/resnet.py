"""Residual networks: the paper's ResNet18 for small images, and Wide-ResNets."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.errors import check, check_dropout


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm, a shortcut, and dropout between the two (He et al. 2016)."""

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
        """(rows, following, height / stride, width / stride)."""
        inner = self.dropout(functional.relu(self.first_norm(self.first(inputs)), inplace=True))
        return functional.relu(self.second_norm(self.second(inner)) + self.shortcut(inputs), inplace=True)


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
        """(rows, outputs) for scaled images."""
        hidden = functional.relu(self.stem_norm(self.stem(inputs)), inplace=True)
        return self.head(self.stages(hidden).mean((2, 3)))


class WideBlock(nn.Module):
    """Pre-activation block of a Wide-ResNet, with biases in the convolutions and dropout between them."""

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
        """(rows, following, height / stride, width / stride)."""
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
        """(rows, outputs) for scaled images."""
        hidden = functional.relu(self.norm(self.stages(self.stem(inputs))), inplace=True)
        return self.head(hidden.mean((2, 3)))
