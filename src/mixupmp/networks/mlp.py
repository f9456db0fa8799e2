"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from torch import nn

from mixupmp.core.errors import check_dropout


def linear_layers(widths: Sequence[int], dropout: float, bias: bool) -> Iterator[nn.Module]:
    """Linear layers between these widths, with ReLU and dropout between them."""
    for width, following in pairwise(widths[:-1]):
        yield nn.Linear(width, following, bias=bias)
        yield nn.ReLU()
        if dropout:
            yield nn.Dropout(dropout)
    yield nn.Linear(widths[-2], widths[-1], bias=bias)


class MLP(nn.Sequential):
    """Fully connected layers with ReLU; [16, 32, 16] hidden units as in the paper's 2-D example."""

    def __init__(
        self, features: int, outputs: int, hidden: Sequence[int] = (16, 32, 16), dropout: float = 0.0, bias: bool = True
    ) -> None:
        check_dropout(dropout)
        super().__init__(nn.Flatten(), *linear_layers((features, *hidden, outputs), dropout, bias))

    def layers(self) -> list[nn.Module]:
        """The network as a sequence of layers, for the stacked forward pass."""
        return list(self.children())
