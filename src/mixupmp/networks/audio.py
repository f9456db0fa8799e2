"""A network for spectrograms."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from mixupmp.core.errors import check, check_dropout
from mixupmp.core.fast.pooled_convolution import PooledConvolution


class AudioCNN(nn.Module):
    """Convolutions over frequency and time, the mean over time, then a linear layer for what is left of frequency.

    Each of the layers has 3x3 filters, ReLU and 2x2 max-pooling; so a sound may be of any length.

    Parameters
    ----------
    channels, bands
        Of the spectrograms (channels, bands, time).
    widths
        Channels of the convolutions.
    dropout
        Rate before the last layer.
    """

    def __init__(
        self, channels: int, bands: int, outputs: int, widths: tuple[int, ...] = (8, 16, 32), dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        shrunk = bands // 2 ** len(widths)
        check(shrunk >= 1, "bands", bands, f"at least {2 ** len(widths)} for {len(widths)} layers of pooling")
        pairs = pairwise((channels, *widths))
        self.features = nn.Sequential(*(PooledConvolution(before, after, 3, padding=1) for before, after in pairs))
        head: list[nn.Module] = [nn.Dropout(dropout)] if dropout else []
        self.head = nn.Sequential(*head, nn.Linear(widths[-1] * shrunk, outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.features(inputs).mean(3).flatten(1))
