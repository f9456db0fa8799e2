"""F_inf: the distribution of future data, and how one future is simulated.

    F_inf  is proportional to  sum_i w_i K(z_i)  +  r H

with K an augmentation kernel, H a base measure and r = c/n the ratio of the two. Every method of the paper is a choice
of these: r = 0 is the deep ensemble, r = infinity the Mixup ensemble, drawn weights with r = 0 the Bayesian bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

from mixupmp.core import seeds
from mixupmp.core.base_measures import AdaptiveBaseMeasure, AtLayer, BaseMeasure, samples_in_place
from mixupmp.core.batch import Batch, concatenate
from mixupmp.core.errors import InvalidArgument, check, is_number
from mixupmp.core.fields import Fields
from mixupmp.core.kernels import Kernel, as_kernel, identity
from mixupmp.core.likelihoods import Likelihood
from mixupmp.core.rows import Rows, RowSource, Standardize
from mixupmp.core.weights import DrawnWeights, Expected, Weights


@dataclass(frozen=True)
class Predictive:
    """The distribution of future data, F_inf proportional to sum_i w_i K(z_i) + r H.

    Parameters
    ----------
    ratio
        r = c/n, in [0, infinity].
    base
        H, an object with `sample(seen, count, generator)`. Not needed if r = 0.
    kernel
        K, the paper's H^aug: a callable on a batch of raw inputs.
    weights
        `Expected()` as in Algorithm 2, or drawn for each member as in Algorithm 1: `Dirichlet()`.
    normalize
        "total": weights of a step have mean one, so r does not rescale the gradient. "rows": the plain mean over seen
        and pseudo rows of the authors' code, which scales the gradient by (1 + r) / 2 against the same weight decay.
    """

    ratio: float = 0.0
    base: BaseMeasure | None = None
    kernel: Kernel = identity
    weights: Weights = Expected()  # noqa: RUF009 - frozen and empty
    normalize: Literal["total", "rows"] = "total"

    def __post_init__(self) -> None:
        hint = "0 is the deep ensemble, infinity the Mixup ensemble."
        check(is_number(self.ratio) and self.ratio >= 0, "ratio", self.ratio, "r = c/n in [0, infinity]", hint)
        hint = "Try base=Mixup(1.0)."
        if self.ratio > 0 and self.base is None:
            raise InvalidArgument("base", None, f"a base measure, as ratio is {self.ratio}", hint)
        must = "an object with sample(seen, count, generator)"
        check(self.base is None or _has_method(self.base, "sample"), "base", self.base, must, hint)
        check(self.normalize in ("total", "rows"), "normalize", self.normalize, "'total' or 'rows'")
        drawn = _has_method(self.weights, "draw")
        known = isinstance(self.weights, Expected) or drawn
        check(known, "weights", self.weights, "Expected() or drawn, as Dirichlet()")
        must, hint = "Expected() for a base measure that adapts", "Atoms that are drawn once cannot follow it."
        check(not (self.adaptive and drawn), "weights", self.weights, must, hint)
        must, hint = "Expected() for a base measure inside the network", "Atoms that are drawn once are raw inputs."
        check(not (isinstance(self.base, AtLayer) and drawn), "weights", self.weights, must, hint)
        object.__setattr__(self, "kernel", as_kernel(self.kernel))

    def adapted(self, over_confidence: Tensor) -> Predictive:
        """The predictive for the next epoch, where the base measure adapts to validation rows."""
        if isinstance(self.base, AdaptiveBaseMeasure):
            return replace(self, base=self.base.adapted(over_confidence))
        return self

    @property
    def adaptive(self) -> bool:
        """Whether the base measure adapts to validation rows."""
        return isinstance(self.base, AdaptiveBaseMeasure)


def _has_method(value: object, name: str) -> bool:
    """Whether an object has this method; a class passed instead of an instance has not."""
    return callable(getattr(value, name, None)) and not isinstance(value, type)


@dataclass(frozen=True)
class TrainingData:
    """The observed rows, with what makes batches of them: scaling of inputs and encoding of labels."""

    rows: RowSource
    likelihood: Likelihood
    standardize: Standardize | Fields = Standardize()  # noqa: RUF009 - frozen

    def batches(
        self, chunks: Sequence[Tensor], kernel: Kernel, generator: Generator, epoch: int = 0
    ) -> Iterator[Batch]:
        """A batch for each chunk of row indices, augmented by the kernel and then scaled."""
        for rows in self.rows.batches(chunks, epoch):
            yield self.batch(rows, kernel, generator)

    def batch(self, rows: Rows, kernel: Kernel, generator: Generator) -> Batch:
        """These rows, augmented and scaled, with their targets and weights."""
        return self.labeled(self.standardize(kernel(rows.inputs, generator)), rows)

    def labeled(self, inputs: Tensor, rows: Rows) -> Batch:
        """Inputs made from these rows, with the rows' targets and weights."""
        weights = torch.ones(len(rows), device=inputs.device) if rows.weights is None else rows.weights.float()
        return Batch(inputs, self.likelihood.encode(rows.labels), weights)


class Future(Protocol):
    """One simulated future, which one member is fitted to."""

    predictive: Predictive
    data: TrainingData

    def __len__(self) -> int:
        """How many rows an epoch visits."""

    def batches(self, chunks: Sequence[Tensor], generator: Generator, epoch: int = 0) -> Iterator[Batch]:
        """A batch for each chunk of row indices; streamed rows are transformed as in this epoch."""


@dataclass
class ResampledFuture:
    """Algorithm 2: expected weights, and t_mb fresh pseudo rows with each batch of n_mb seen rows."""

    predictive: Predictive
    data: TrainingData
    pseudo_rows: int | None  # t_mb; None: as many as seen rows in the batch

    def __len__(self) -> int:
        return len(self.data.rows)

    def batches(self, chunks: Sequence[Tensor], generator: Generator, epoch: int = 0) -> Iterator[Batch]:
        for rows in self.data.rows.batches(chunks, epoch):
            yield self._batch(rows, generator)

    def _batch(self, rows: Rows, generator: Generator) -> Batch:
        ratio, base, kernel = self.predictive.ratio, self.predictive.base, self.predictive.kernel
        if ratio == 0 or base is None or isinstance(base, AtLayer):
            return self.data.batch(rows, kernel, generator)
        count = self.pseudo_rows or len(rows)
        if ratio == inf:
            return base.sample(self.data.batch(rows, kernel, generator), count, generator)
        for_seen, for_pseudo = self.factors(len(rows), count)
        if not samples_in_place(base):
            seen = self.data.batch(rows, kernel, generator)
            return concatenate(seen.reweighted(for_seen), base.sample(seen, count, generator).reweighted(for_pseudo))
        # Both parts are written where they belong in one tensor: concatenating them afterwards would double the
        # memory traffic, which is most of what augmentation costs.
        augmented = kernel(rows.inputs, generator)
        inputs = torch.empty(len(rows) + count, *augmented.shape[1:], device=augmented.device)
        seen = self.data.labeled(self.data.standardize(augmented, out=inputs[: len(rows)]), rows)
        pseudo = base.sample_into(seen, count, generator, inputs[len(rows) :])
        targets = torch.cat([seen.targets, pseudo.targets])
        return Batch(inputs, targets, torch.cat([seen.weights * for_seen, pseudo.weights * for_pseudo]))

    def with_pseudo_rows(self, seen: Batch, generator: Generator) -> Batch:
        """Seen rows, as a layer of the network computes them, and pseudo rows given those: for `AtLayer`."""
        base, count = self.predictive.base, self.pseudo_rows or len(seen.inputs)
        assert base is not None
        if self.predictive.ratio == inf:
            return base.sample(seen, count, generator)
        for_seen, for_pseudo = self.factors(len(seen.inputs), count)
        return concatenate(seen.reweighted(for_seen), base.sample(seen, count, generator).reweighted(for_pseudo))

    def factors(self, seen: int, pseudo: int) -> tuple[float, float]:
        """Weights of a seen and of a pseudo row in a batch of n and t of them, proportional to 1 and r n/t."""
        ratio = self.predictive.ratio
        if ratio == inf:
            return 0.0, 1.0
        total = (seen + pseudo) / (seen * (1 + ratio)) if self.predictive.normalize == "total" else 1.0
        return total, total * ratio * seen / pseudo


@dataclass
class FixedFuture:
    """Algorithm 1: weights, and atoms from the base measure, drawn once for the whole fit."""

    predictive: Predictive
    data: TrainingData
    atoms: Batch | None
    weights: Tensor  # (seen + atoms,), mean one

    def __len__(self) -> int:
        return len(self.weights)

    def batches(self, chunks: Sequence[Tensor], generator: Generator, epoch: int = 0) -> Iterator[Batch]:
        """A batch for each chunk of row indices; those from the number of seen rows up are atoms."""
        count = len(self.data.rows)
        chosen = [chunk[chunk < count] for chunk in chunks]
        # Chunks of atoms alone are left out: a kernel need not know what to do with an empty batch.
        seen = self.data.batches([rows for rows in chosen if len(rows)], self.predictive.kernel, generator, epoch)
        for chunk, rows in zip(chunks, chosen, strict=True):
            parts = []
            if len(rows):
                parts.append(self._weighted(next(seen), rows))
            if self.atoms is not None and len(rows) < len(chunk):
                later = chunk[chunk >= count]
                atoms = Batch(*(part[(later - count).to(part.device)] for part in self.atoms))
                parts.append(self._weighted(atoms, later))
            yield concatenate(*parts) if len(parts) == 2 else parts[0]

    def _weighted(self, batch: Batch, rows: Tensor) -> Batch:
        """The batch with its weights times those drawn for its rows."""
        return batch._replace(weights=batch.weights * self.weights[rows].to(batch.weights.device))


def simulate(predictive: Predictive, data: TrainingData, pseudo_rows: int | None, generator: Generator) -> Future:
    """Draw one future.

    Parameters
    ----------
    predictive, data
        The distribution of future data, and the observed rows that it is based on.
    pseudo_rows
        t_mb, pseudo rows in a batch of Algorithm 2; None: as many as seen rows.
    generator
        Of everything that is drawn before the fit: weights and atoms.
    """
    if not isinstance(predictive.weights, DrawnWeights):
        return ResampledFuture(predictive, data, pseudo_rows)
    seen = len(data.rows)
    count = 0
    atoms = None
    if predictive.ratio > 0 and predictive.base is not None:
        count = predictive.weights.atoms or seen
        # A user's kernel or base measure may use the global generator, whose state before a fit is arbitrary.
        with seeds.global_seed(int(torch.randint(2**62, (), generator=generator))):
            everything = next(data.batches([torch.arange(seen)], predictive.kernel, generator))
            atoms = predictive.base.sample(everything, count, generator)
    weights = predictive.weights.draw(seen, count, predictive.ratio, generator)
    return FixedFuture(predictive, data, atoms, weights * (seen + count))
