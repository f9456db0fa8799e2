"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from mixupmp.core.errors import check_dropout


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

    def layers(self) -> list[nn.Module]:
        """Itself as a plain sequence of layers."""
        return list(self.children())
