"""A network for sentences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mixupmp.core.errors import check, check_dropout, is_whole


class TextCNN(nn.Module):
    """Embedded words, convolutions over spans of them, and the maximum over the sentence (Kim 2014).

    Blends of embeddings are Mixup at its layer "embedding".

    Parameters
    ----------
    words
        How many token numbers there are; 0 is the padding, whose embedding stays zero.
    width
        Of an embedding.
    filters
        For each length of a span.
    spans
        How many words a convolution sees.
    dropout
        Rate before the last layer.
    """

    def __init__(
        self,
        words: int,
        outputs: int,
        width: int = 64,
        filters: int = 64,
        spans: Sequence[int] = (1, 2, 3),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        check(is_whole(words, 2), "words", words, "at least 2, the padding and a word")
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        # Without biases, and with ReLU, the padding changes nothing, however much of it there is.
        layers = (nn.Conv1d(width, filters, span, padding=span - 1, bias=False) for span in spans)
        self.convolutions = nn.ModuleList(layers)
        features = filters * len(spans)
        head: list[nn.Module] = [nn.Dropout(dropout)] if dropout else []
        self.head = nn.Sequential(*head, nn.Linear(features, outputs))

    def forward(self, tokens: Tensor) -> Tensor:
        # One copy here is faster than one in each convolution, forward and backward, and gives the same bits.
        embedded = self.embedding(tokens.long()).transpose(1, 2).contiguous()
        # ReLU after the maximum is the same function for less; max has a cheaper backward pass than amax.
        return self.head(torch.cat([layer(embedded).max(2).values for layer in self.convolutions], 1).relu())
