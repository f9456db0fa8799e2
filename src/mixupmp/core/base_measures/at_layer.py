"""Base measures that act inside the network, on what one of its layers computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Generator

from mixupmp.core.base_measures.paper import BaseMeasure, Mixup
from mixupmp.core.batch import Batch
from mixupmp.core.cut import Cut
from mixupmp.core.errors import check


@dataclass(frozen=True)
class AtLayer:
    """A base measure for the values of a layer in place of raw inputs: pseudo rows enter the network there.

    `AtLayer(Mixup(0.4), "embedding")` blends embeddings of tokens (Guo et al. 2019), which cannot be blended
    themselves; with a hidden layer it is manifold Mixup (Verma et al. 2019). All that comes after the layer must depend
    on its values, and on other inputs of the network that can be joined: the mask of a blend is the union of two masks
    (whole numbers of 0 and 1), numbers are blended. Tokens themselves must not be used after it.

    Parameters
    ----------
    base
        What pseudo rows look like, given the values of seen rows.
    layer, at
        Where, see `Cut`: a submodule's name as `named_modules` gives it, and which side of it.
    """

    base: BaseMeasure = Mixup()  # noqa: RUF009 - frozen
    layer: str = "embedding"
    at: Literal["input", "output"] = "output"

    def __post_init__(self) -> None:
        must = "an object with sample(seen, count, generator), in the network once"
        samples = callable(getattr(self.base, "sample", None)) and not isinstance(self.base, AtLayer)
        check(samples, "base", self.base, must)
        check(isinstance(self.layer, str) and self.layer != "", "layer", self.layer, "the name of a layer")
        check(self.at in ("input", "output"), "at", self.at, "'input' or 'output'")

    @property
    def cut(self) -> Cut:
        return Cut(self.layer, self.at)

    @property
    def alpha(self) -> float | None:
        """The base measure's, where it has one."""
        return getattr(self.base, "alpha", None)

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        """Given what the layer computes for seen rows, pseudo rows of the same kind."""
        return self.base.sample(seen, count, generator)
