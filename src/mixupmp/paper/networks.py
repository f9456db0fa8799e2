"""Networks of the reproduction alone: one that two cores can afford, and the paper's as the authors start them."""

from __future__ import annotations

from math import sqrt

from torch import Tensor, nn

from mixupmp.core.errors import check_dropout
from mixupmp.core.fast.dropout import FeatureDropout
from mixupmp.networks import CNN, ResNet18, WideResNet

LAST_NORM_MOMENTUM = 0.9  # of the running moments of the authors' last BatchNorm


class PooledResNet(nn.Sequential):
    """The small-image ResNet on images of half the resolution: a residual network that two cores can afford."""

    def __init__(self, channels: int, outputs: int, width: int = 16, dropout: float = 0.0) -> None:
        check_dropout(dropout)
        super().__init__(nn.AvgPool2d(2), ResNet18(channels, outputs, width, dropout))


class AuthorsWideResNet(WideResNet):
    """The Wide-ResNet with the authors' initialization, and momentum .9 in its last BatchNorm."""

    def __init__(self, channels: int, outputs: int, depth: int = 28, widen: int = 10, dropout: float = 0.0) -> None:
        super().__init__(channels, outputs, depth, widen, dropout)
        self.norm.momentum = LAST_NORM_MOMENTUM
        initialize_convolutions(self)


class AuthorsResNet18(ResNet18):
    """The ResNet18 with the initialization of the code that the authors took it from."""

    def __init__(self, channels: int, outputs: int, width: int = 64, dropout: float = 0.0) -> None:
        super().__init__(channels, outputs, width, dropout)
        initialize_by_fan_out(self)


class AuthorsPooledResNet(PooledResNet):
    """The residual network for two cores, which the authors do not have, initialized as their ResNet18."""

    def __init__(self, channels: int, outputs: int, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__(channels, outputs, width, dropout)
        initialize_by_fan_out(self)


class AuthorsCNN(CNN):
    """The CNN with the authors' initialization, and dropout after each convolution as well."""

    def __init__(
        self, channels: int, size: tuple[int, int], outputs: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(channels, size, outputs, dropout, bias)
        self.dropout_first, self.dropout_second = FeatureDropout(dropout), FeatureDropout(dropout)
        initialize_convolutions(self)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.dropout_first(self.first(inputs))
        return self.head(self.dropout_second(self.second(hidden)).flatten(1))

    def layers(self) -> list[nn.Module]:
        head = super().layers()[2:]
        return [self.first, self.dropout_first, self.second, self.dropout_second, *head]


def initialize_convolutions(network: nn.Module) -> None:
    """Xavier uniform with gain sqrt(2) for the weights of convolutions, zero for their biases."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.xavier_uniform_(module.weight, gain=sqrt(2))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def initialize_by_fan_out(network: nn.Module) -> None:
    """He normal for the weights of convolutions, N(0, 2 / fan-out)."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


AUTHORS_NETWORKS: dict[str, type[nn.Module]] = {
    "CNN": AuthorsCNN,
    "PooledResNet": AuthorsPooledResNet,
    "ResNet18": AuthorsResNet18,
    "WideResNet": AuthorsWideResNet,
}
"""The authors' version of a network, by the name of its class."""
