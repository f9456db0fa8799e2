"""F_inf: what future data will look like, and how one such future is simulated.

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
from mixupmp.core.base_measures import AdaptiveBaseMeasure, BaseMeasure, Mixup
from mixupmp.core.batch import Batch, concatenate
from mixupmp.core.errors import InvalidArgument, check, number
from mixupmp.core.kernels import Kernel, as_kernel, identity
from mixupmp.core.likelihoods import Likelihood
from mixupmp.core.rows import Rows, Standardize
from mixupmp.core.source import Source
from mixupmp.core.weights import Expected, Weights


@dataclass(frozen=True)
class Predictive:
    """Which future: F_inf proportional to sum_i w_i K(z_i) + r H."""

    ratio: float = 0.0  # r = c/n, in [0, inf]
    base: BaseMeasure | None = None  # H
    kernel: Kernel = identity  # K, the paper's H^aug
    weights: Weights = Expected()  # noqa: RUF009 - frozen and empty
    # "total": a step's weights average one, so r leaves the gradient's scale alone. "rows": the plain mean over seen
    # and pseudo rows of the authors' code, which scales the gradient by (1 + r) / 2 against the same weight decay.
    normalize: Literal["total", "rows"] = "total"

    def __post_init__(self) -> None:
        check(
            number(self.ratio) and self.ratio >= 0,
            "ratio",
            self.ratio,
            "r = c/n in [0, infinity]",
            "0 is the deep ensemble, infinity the Mixup ensemble.",
        )
        if self.ratio > 0 and self.base is None:
            raise InvalidArgument("base", None, f"a base measure, as ratio is {self.ratio}", "Try base=Mixup(1.0).")
        samples = self.base is None or (
            callable(getattr(self.base, "sample", None)) and not isinstance(self.base, type)
        )
        check(samples, "base", self.base, "an object with sample(seen, count, generator)", "Try base=Mixup(1.0).")
        check(self.normalize in ("total", "rows"), "normalize", self.normalize, "'total' or 'rows'")
        drawn = callable(getattr(self.weights, "draw", None)) and not isinstance(self.weights, type)
        check(
            isinstance(self.weights, Expected) or drawn, "weights", self.weights, "Expected() or drawn, as Dirichlet()"
        )
        check(not (self.adaptive and drawn), "weights", self.weights, "Expected() for a base measure that adapts",
              "Atoms that are drawn once cannot follow it.")  # fmt: skip
        object.__setattr__(self, "kernel", as_kernel(self.kernel))

    def adapted(self, over_confidence: Tensor) -> Predictive:
        """The predictive for the next epoch, where its base measure learns from validation rows."""
        if isinstance(self.base, AdaptiveBaseMeasure):
            return replace(self, base=self.base.adapted(over_confidence))
        return self

    @property
    def adaptive(self) -> bool:
        """Whether the base measure learns from validation rows."""
        return isinstance(self.base, AdaptiveBaseMeasure)


@dataclass(frozen=True)
class Seen:
    """The observed rows, and how they become batches: where they lie, their scaling, their likelihood."""

    source: Source
    likelihood: Likelihood
    standardize: Standardize = Standardize()  # noqa: RUF009 - frozen

    def batches(self, chunks: Sequence[Tensor], kernel: Kernel, generator: Generator) -> Iterator[Batch]:
        """Each chunk of rows: augmented by the kernel, then scaled, with its targets and its own weights."""
        for rows in self.source.batches(chunks):
            yield self.batch(rows, kernel, generator)

    def batch(self, rows: Rows, kernel: Kernel, generator: Generator) -> Batch:
        """These rows: augmented, scaled, with their targets and weights."""
        return self.labeled(self.standardize(kernel(rows.inputs, generator)), rows)

    def labeled(self, inputs: Tensor, rows: Rows) -> Batch:
        """Inputs that were made of these rows, with the rows' targets and weights."""
        weights = torch.ones(len(rows), device=inputs.device) if rows.weights is None else rows.weights.float()
        return Batch(inputs, self.likelihood.encode(rows.labels), weights)


class Future(Protocol):
    """One simulated future, which one member is fitted to."""

    predictive: Predictive
    seen: Seen

    @property
    def rows(self) -> int:
        """How many rows an epoch visits."""
        ...

    def batches(self, chunks: Sequence[Tensor], generator: Generator) -> Iterator[Batch]:
        """A batch for each chunk of row indices."""
        ...


@dataclass
class Streamed:
    """Algorithm 2: expected weights, and fresh pseudo rows with each batch of seen ones."""

    predictive: Predictive
    seen: Seen
    pseudo_rows: int | None  # t_mb; None: as many as there are seen rows in the batch

    @property
    def rows(self) -> int:
        return len(self.seen.source)

    def batches(self, chunks: Sequence[Tensor], generator: Generator) -> Iterator[Batch]:
        for rows in self.seen.source.batches(chunks):
            yield self._batch(rows, generator)

    def _batch(self, rows: Rows, generator: Generator) -> Batch:
        ratio, base, kernel = self.predictive.ratio, self.predictive.base, self.predictive.kernel
        if ratio == 0 or base is None:
            return self.seen.batch(rows, kernel, generator)
        count = self.pseudo_rows or len(rows)
        if ratio == inf:
            return base.sample(self.seen.batch(rows, kernel, generator), count, generator)
        for_seen, for_pseudo = self.factors(len(rows), count)
        if type(base) is not Mixup:
            seen = self.seen.batch(rows, kernel, generator)
            return concatenate(seen.reweighted(for_seen), base.sample(seen, count, generator).reweighted(for_pseudo))
        # Both parts of the inputs are written where they belong: putting them together afterwards would double the
        # memory traffic, which is most of what augmentation costs.
        augmented = kernel(rows.inputs, generator)
        everything = torch.empty(len(rows) + count, *augmented.shape[1:], device=augmented.device)
        seen = self.seen.labeled(self.seen.standardize(augmented, out=everything[: len(rows)]), rows)
        pseudo = base.sample(seen, count, generator, into=everything[len(rows) :])
        targets = torch.cat([seen.targets, pseudo.targets])
        return Batch(everything, targets, torch.cat([seen.weights * for_seen, pseudo.weights * for_pseudo]))

    def factors(self, real: int, pseudo: int) -> tuple[float, float]:
        """What a seen and a pseudo row count in a batch of so many of each."""
        ratio = self.predictive.ratio
        if ratio == inf:
            return 0.0, 1.0
        total = (real + pseudo) / (real * (1 + ratio)) if self.predictive.normalize == "total" else 1.0
        return total, total * ratio * real / pseudo


@dataclass
class Drawn:
    """Algorithm 1: weights and atoms drawn once, and kept for the whole fit."""

    predictive: Predictive
    seen: Seen
    atoms: Batch | None
    weights: Tensor  # (seen + atoms,), mean one

    @property
    def rows(self) -> int:
        return len(self.weights)

    def batches(self, chunks: Sequence[Tensor], generator: Generator) -> Iterator[Batch]:
        real = len(self.seen.source)
        chosen = [chunk[chunk < real] for chunk in chunks]
        # A chunk of atoms alone is none of the source's, nor of the kernel's, which may not know what to do with it.
        seen = self.seen.batches([rows for rows in chosen if len(rows)], self.predictive.kernel, generator)
        for chunk, rows in zip(chunks, chosen, strict=True):
            parts = []
            if len(rows):
                parts.append(self._weighted(next(seen), rows))
            if self.atoms is not None and len(rows) < len(chunk):
                later = chunk[chunk >= real]
                atoms = Batch(*(part[(later - real).to(part.device)] for part in self.atoms))
                parts.append(self._weighted(atoms, later))
            yield concatenate(*parts) if len(parts) == 2 else parts[0]

    def _weighted(self, batch: Batch, rows: Tensor) -> Batch:
        """A batch whose own weights also count what was drawn for its rows."""
        return batch._replace(weights=batch.weights * self.weights[rows].to(batch.weights.device))


def simulate(predictive: Predictive, seen: Seen, pseudo_rows: int | None, generator: Generator) -> Future:
    """Draw one future of this predictive."""
    if isinstance(predictive.weights, Expected):
        return Streamed(predictive, seen, pseudo_rows)
    real = len(seen.source)
    count = 0
    atoms = None
    if predictive.ratio > 0 and predictive.base is not None:
        count = predictive.weights.atoms or real
        # A user's kernel or measure may draw from the global generator, which is anywhere before a fit starts.
        with seeds.global_seed(int(torch.randint(2**62, (), generator=generator))):
            everything = next(seen.batches([torch.arange(real)], predictive.kernel, generator))
            atoms = predictive.base.sample(everything, count, generator)
    weights = predictive.weights.draw(real, count, predictive.ratio, generator)
    return Drawn(predictive, seen, atoms, weights * (real + count))
