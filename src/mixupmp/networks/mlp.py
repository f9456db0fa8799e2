"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from mixupmp.core.errors import check_dropout


class MLP(nn.Sequential):
    """Fully connected layers with ReLU; [16, 32, 16] hidden units as in the paper's 2-D example."""

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

    def layers(self) -> list[nn.Module]:
        """The network as a sequence of layers, for the stacked forward pass."""
        return list(self.children())
