"""H: base measures, the part of the future that does not repeat the data.

A base measure is any object with `sample(seen, count, generator) -> Batch`: `count` pseudo rows given a batch of seen
rows, augmented and scaled. Those here draw uniform numbers first and transform them, so that the vectorized engine can
draw for many steps, and transform for all members, at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, pi
from typing import Protocol, TypeGuard, runtime_checkable

import torch
from torch import Generator, Tensor

from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument, check, is_number


class BaseMeasure(Protocol):
    """H. Must be picklable and, for a run's configuration, have a repr that shows its settings."""

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        """`count` pseudo rows given a batch of seen rows."""


@runtime_checkable
class AdaptiveBaseMeasure(BaseMeasure, Protocol):
    """A base measure that adapts, after each epoch, to the network's over-confidence on validation rows."""

    def adapted(self, over_confidence: Tensor) -> BaseMeasure:
        """The measure for the next epoch; `over_confidence` is mean confidence minus accuracy, by class."""


class InPlaceBaseMeasure(BaseMeasure, Protocol):
    """A base measure that can write the inputs of its pseudo rows into memory it is given."""

    def sample_into(self, seen: Batch, count: int, generator: Generator, out: Tensor | None) -> Batch:
        """As `sample`, with the inputs in `out`."""


def samples_in_place(base: BaseMeasure) -> TypeGuard[InPlaceBaseMeasure]:
    """Whether the measure's own class has `sample_into`: a subclass may have overridden `sample` alone."""
    return "sample_into" in vars(type(base))


@dataclass(frozen=True)
class Mixup:
    """Convex combinations of random pairs of seen rows (Zhang et al. 2018).

    x' = lambda x_i + (1 - lambda) x_j and y' likewise, lambda ~ Beta(alpha, alpha), i and j independent and uniform.

    Parameters
    ----------
    alpha
        Small: blends near one of the two rows; 1: uniform between them; large: near the middle.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def draw(self, count: int, generator: Generator) -> Tensor:
        """(4, count) uniforms: two choose the pair, two make lambda."""
        return torch.rand(4, count, generator=generator)

    def share(self, draws: Tensor) -> Tensor:
        """lambda, from the last two of the four uniforms."""
        return symmetric_beta(self.alpha, draws[2], draws[3])

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        return self.sample_into(seen, count, generator, None)

    def sample_into(self, seen: Batch, count: int, generator: Generator, out: Tensor | None) -> Batch:
        return mix(seen, *self._pairs(seen, count, generator), out)

    def _pairs(self, seen: Batch, count: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """i, j and lambda of each mixed row."""
        draws = self.draw(count, generator)
        first, second = choose(draws[:2], len(seen.inputs)).to(seen.inputs.device)
        return first, second, self.share(draws).to(seen.inputs.device)


@dataclass(frozen=True)
class ClassAdjustedMixup:
    """CAMixup: Mixup only for rows of classes on which the network is over-confident (Wen et al. 2021).

    Parameters
    ----------
    alpha
        Of lambda ~ Beta(alpha, alpha).
    mixed
        Whether each class is mixed; None, before the first validation: all are. For other rows lambda is one.
    """

    alpha: float = 1.0
    mixed: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def adapted(self, over_confidence: Tensor) -> ClassAdjustedMixup:
        """With Mixup for the classes of positive over-confidence."""
        return replace(self, mixed=tuple((over_confidence > 0).tolist()))

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        first, second, share = Mixup(self.alpha)._pairs(seen, count, generator)
        if self.mixed is not None:
            mixed = torch.tensor(self.mixed, device=share.device)[seen.targets[first].argmax(1)]
            share = torch.where(mixed, share, torch.ones_like(share))
        return mix(seen, first, second, share)


@dataclass(frozen=True)
class Perturbed:
    """Seen rows with N(0, variance) noise on the inputs: x' = x_i + sqrt(variance) e, y' = y_i.

    Parameters
    ----------
    variance
        Of the noise, on the scale of the inputs that the network gets.
    """

    variance: float = 4.0

    def __post_init__(self) -> None:
        check(is_number(self.variance) and 0 < self.variance < inf, "variance", self.variance, "positive and finite")

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        rows = choose(torch.rand(count, generator=generator), len(seen.inputs)).to(seen.inputs.device)
        inputs = seen.inputs[rows]
        noise = torch.randn(inputs.shape, generator=generator).to(inputs.device)
        return Batch(inputs.add_(noise, alpha=self.variance**0.5), seen.targets[rows], seen.weights[rows])


@dataclass(frozen=True)
class Uniform:
    """Scaled inputs uniform in the box [low, high]^d, and labels uniform over the classes.

    Parameters
    ----------
    low, high
        The sides of the box.
    """

    low: float = -15.0
    high: float = 15.0

    def __post_init__(self) -> None:
        check(is_number(self.low) and self.low > -inf, "low", self.low, "a finite number")
        must = f"finite and greater than low, which is {self.low}"
        check(is_number(self.high) and self.low < self.high < inf, "high", self.high, must)

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        inputs = torch.rand(count, *seen.inputs.shape[1:], generator=generator)
        inputs.mul_(self.high - self.low).add_(self.low)
        classes = seen.targets.shape[1]
        if classes == 1:
            hint = "Uniform draws classes; use Mixup or Perturbed."
            raise InvalidArgument("base", self, "a base measure for regression", hint)
        labels = choose(torch.rand(count, generator=generator), classes)
        targets = torch.nn.functional.one_hot(labels, classes).to(seen.targets.dtype)
        device = seen.inputs.device
        return Batch(inputs.to(device), targets.to(device), seen.weights.mean().expand(count))


def symmetric_beta(alpha: float | Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Beta(alpha, alpha) from two uniforms U and V, to the resolution of their type (1e-7 in float32).

    1/2 + S / (2 sqrt(1 + 1 / ((U^(-1/alpha) - 1) cos^2(2 pi V)))) with S the sign of the cosine (Devroye 1996).
    Elementwise, where a pair of Gamma draws needs a rejection loop: ten times faster on a CPU.
    """
    cosine = torch.cos(second * (2 * pi))
    # 1 - U is uniform too and never zero. Where the power overflows, lambda is exactly zero or one: its limit.
    odds = ((1 - first).pow_(-1 / alpha).sub_(1)).mul_(cosine.square()).clamp_(min=torch.finfo(first.dtype).tiny)
    return odds.reciprocal_().add_(1).rsqrt_().mul_(cosine.sign_()).mul_(0.5).add_(0.5)


def choose(uniform: Tensor, count: int) -> Tensor:
    """Indices below `count` from uniforms in [0, 1)."""
    return (uniform * count).long().clamp_(max=count - 1)


def blend(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """share * first + (1 - share) * second, row by row; overwrites `second`."""
    return second.lerp_(first, share.view(-1, *(1,) * (first.ndim - 1)))


def mix(seen: Batch, first: Tensor, second: Tensor, share: Tensor, out: Tensor | None = None) -> Batch:
    """Mixup of the seen rows with indices `first` and `second`; the inputs in `out` if given."""
    inputs = blend(seen.inputs.index_select(0, first), torch.index_select(seen.inputs, 0, second, out=out), share)
    targets = blend(seen.targets.index_select(0, first), seen.targets.index_select(0, second), share)
    return Batch(inputs, targets, pair_weights(seen.weights, first, second))


def pair_weights(weights: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Weights of pairs, w_i w_j / mean(w): a row of weight three is three times as likely to be either of the two."""
    mean = weights.mean(-1, keepdim=True).clamp_(min=torch.finfo(weights.dtype).tiny)
    return weights.gather(-1, first) * weights.gather(-1, second) / mean


def check_alpha(alpha: float) -> None:
    """Raise `InvalidArgument` unless this can be the parameter of a symmetric Beta."""
    check(is_number(alpha) and 0 < alpha < inf, "alpha", alpha, "a positive number", "The paper uses 0.1 to 2.")
