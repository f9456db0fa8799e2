"""Kernels for text: rows of token numbers, (rows, length), padded with zeros at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mixupmp.core.errors import InvalidArgument, check, is_number, is_whole

PADDING = 0  # the token number after the end of a sentence


@dataclass(frozen=True)
class TokenDropout:
    """Delete each token with this probability, at least one stays (Iyyer et al. 2015; Wei & Zou 2019).

    Parameters
    ----------
    rate
        Probability of each token to be deleted.
    """

    rate: float = 0.1

    def __post_init__(self) -> None:
        check(is_number(self.rate) and 0 <= self.rate < 1, "rate", self.rate, "a probability in [0, 1)")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        check_tokens(inputs, "TokenDropout")
        uniform = torch.rand(inputs.shape, generator=generator).to(inputs.device)
        uniform = uniform.masked_fill(inputs == PADDING, -1)
        keep = (uniform >= self.rate) | (uniform == uniform.amax(1, keepdim=True))
        return _compacted(inputs, keep)


@dataclass(frozen=True)
class TokenSwap:
    """Exchange two random tokens of a sentence, so many times (Wei & Zou 2019).

    Parameters
    ----------
    swaps
        How many pairs.
    """

    swaps: int = 1

    def __post_init__(self) -> None:
        check(is_whole(self.swaps), "swaps", self.swaps, "a whole number, at least 1")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        check_tokens(inputs, "TokenSwap")
        result = inputs.clone()
        lengths = lengths_of(inputs).cpu()
        for pair in torch.rand(self.swaps, len(inputs), 2, generator=generator):
            places = (pair * lengths.unsqueeze(1)).long().to(inputs.device)
            result.scatter_(1, places, result.gather(1, places.flip(1)))
        return result


@dataclass(frozen=True)
class SpanCut:
    """Delete a span of up to this share of a sentence's tokens (span cutoff, Shen et al. 2020).

    Parameters
    ----------
    share
        Of the sentence's tokens, the longest span.
    """

    share: float = 0.2

    def __post_init__(self) -> None:
        check(is_number(self.share) and 0 <= self.share < 1, "share", self.share, "a share in [0, 1)")

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        check_tokens(inputs, "SpanCut")
        length, place = torch.rand(2, len(inputs), generator=generator).to(inputs.device)
        lengths = lengths_of(inputs)
        most = (self.share * lengths).floor()
        span = torch.minimum((length * (most + 1)).floor(), most)
        start = (place * (lengths - span + 1)).floor().unsqueeze(1)
        position = torch.arange(inputs.shape[1], device=inputs.device)
        return _compacted(inputs, (position < start) | (position >= start + span.unsqueeze(1)))


def lengths_of(tokens: Tensor) -> Tensor:
    """How many tokens each sentence has."""
    return (tokens != PADDING).sum(1)


def check_tokens(inputs: Tensor, name: str) -> None:
    """Raise `InvalidArgument` unless these are sentences as rows of token numbers."""
    if inputs.ndim != 2 or inputs.is_floating_point():
        must = f"whole token numbers (rows, length) for {name}, with {PADDING} after a sentence's end"
        raise InvalidArgument("inputs", (tuple(inputs.shape), inputs.dtype), must)


def _compacted(tokens: Tensor, keep: Tensor) -> Tensor:
    """The tokens to keep, moved together; padding is never kept."""
    keep = keep & (tokens != PADDING)
    order = keep.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    return (tokens * keep).gather(1, order)
