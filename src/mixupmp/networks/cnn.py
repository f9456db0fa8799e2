"""The paper's convolutional network for Fashion-MNIST."""

from __future__ import annotations

from torch import Tensor, nn

from mixupmp.core.errors import check, check_dropout
from mixupmp.core.fast.pooled_convolution import PooledConvolution
from mixupmp.networks.mlp import linear_layers


class CNN(nn.Module):
    """Convolutions of 6 and 16 channels with ReLU and 2x2 max-pooling, then linear layers of 120 and 84 units.

    Filters are 5x5 as in the paper for images of at least 20 pixels; on smaller ones, which 5x5 would shrink to
    nothing, 3x3 with padding.

    Parameters
    ----------
    channels, size
        Of the images; size is (height, width).
    outputs
        One for each class, or two (mean and log-variance) in regression.
    dropout
        Rate after each hidden linear layer.
    bias
        False makes the network homogeneous, which the margins of appendix A need.
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
        widths = (16 * shrunk[0] * shrunk[1], 120, 84, outputs)
        self.head = nn.Sequential(*linear_layers(widths, dropout, bias))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.second(self.first(inputs)).flatten(1))

    def layers(self) -> list[nn.Module]:
        """The network as a sequence of layers, for the stacked forward pass."""
        return [self.first, self.second, nn.Flatten(), *self.head]


def _pooled(pixels: int, side: int, padding: int) -> int:
    return (pixels + 2 * padding - side + 1) // 2
