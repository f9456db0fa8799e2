"""A base measure that only tests know."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator

from mixupmp import Mixup
from mixupmp.core.batch import Batch


@dataclass(frozen=True)
class Mirrored:
    """Mirror Mixup: blends of pairs, seen from behind (Nobody et al. 1900).

    It is in no list but that of these tests.
    """

    alpha: float = 1.0

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        made = Mixup(self.alpha).sample(seen, count, generator)
        return made._replace(inputs=-made.inputs)
