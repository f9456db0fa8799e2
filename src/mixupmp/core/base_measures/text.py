"""Base measures for text: rows of token numbers, (rows, length), padded with zeros at the end.

Blends of embeddings are `Mixup` at a layer of the network; those here are sentences again, with soft labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from mixupmp.core.base_measures.paper import blend, check_alpha, choose, pair_weights, symmetric_beta
from mixupmp.core.batch import Batch
from mixupmp.core.kernels.text import PADDING, check_tokens, lengths_of


@dataclass(frozen=True)
class SentenceSplice:
    """The start of one sentence followed by the end of another, each label in proportion to its tokens.

    About lambda of the first one's tokens and 1 - lambda of the second's, lambda ~ Beta(alpha, alpha): CutMix in one
    dimension, as SSMix exchanges a span (Yoon et al. 2021).

    Parameters
    ----------
    alpha
        Of Beta(alpha, alpha), which lambda is drawn from.
    """

    takes_tokens: ClassVar[bool] = True

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        check_tokens(seen.inputs, "SentenceSplice")
        draws = torch.rand(4, count, generator=generator).to(seen.inputs.device)
        first, second = choose(draws[:2], len(seen.inputs))
        share = symmetric_beta(self.alpha, draws[2], draws[3])
        lengths = lengths_of(seen.inputs)
        head = (share * lengths[first]).round().long()
        tail = lengths[second] - (share * lengths[second]).round().long()
        head = torch.where(head + tail == 0, lengths[first], head)
        return _joined(seen, first, second, head, tail)


@dataclass(frozen=True)
class SentencePair:
    """Two sentences one after the other, each label in proportion to its tokens (after Kondo et al. 2021).

    What exceeds the length is cut off from the second one's start.
    """

    takes_tokens: ClassVar[bool] = True

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        check_tokens(seen.inputs, "SentencePair")
        draws = torch.rand(2, count, generator=generator).to(seen.inputs.device)
        first, second = choose(draws, len(seen.inputs))
        lengths = lengths_of(seen.inputs)
        return _joined(seen, first, second, lengths[first], lengths[second])


def _joined(seen: Batch, first: Tensor, second: Tensor, head: Tensor, tail: Tensor) -> Batch:
    """The first `head` tokens of one sentence, then the last `tail` of another, as many as there is room for."""
    room = seen.inputs.shape[1]
    tail = torch.minimum(tail, room - head)
    end = (head + tail).unsqueeze(1)
    position = torch.arange(room, device=head.device).expand(len(head), room)
    skipped = (lengths_of(seen.inputs)[second] - tail - head).unsqueeze(1)
    later = seen.inputs[second].gather(1, (position + skipped).clamp(0, room - 1))
    inputs = torch.where(position < head.unsqueeze(1), seen.inputs[first], later)
    inputs = inputs.masked_fill(position >= end, PADDING)
    share = head / (head + tail).clamp(min=1)
    targets = blend(seen.targets[first], seen.targets[second], share)
    return Batch(inputs, targets, pair_weights(seen.weights, first, second))
