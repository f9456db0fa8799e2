"""w: how much each row of the future counts. Expected (Algorithm 2), or drawn (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor

from mixupmp.core.errors import check, number, whole


class DrawnWeights(Protocol):
    """Weights drawn once for each member, over the seen rows and a fixed number of atoms from the base measure."""

    atoms: int | None

    def draw(self, seen: int, atoms: int, ratio: float, generator: Generator) -> Tensor: ...


@dataclass(frozen=True)
class Expected:
    """E[w]: seen rows count alike, pseudo rows together r times as much; fresh pseudo rows come with each batch."""


@dataclass(frozen=True)
class Dirichlet:
    """w ~ Dirichlet(1, .., 1, c/T, .., c/T) over n seen rows and T atoms, c = r n (Algorithm 1).

    With c = 0 there are no atoms, and it is the Bayesian bootstrap (Rubin 1981). `atoms` is T, n unless given. Returned
    weights sum to one; E[sum over the atoms] = c / (n + c).
    """

    atoms: int | None = None

    def __post_init__(self) -> None:
        _check_atoms(self.atoms)

    def draw(self, seen: int, atoms: int, ratio: float, generator: Generator) -> Tensor:
        if ratio == float("inf"):
            # The limit of a Dirichlet whose mass c goes to infinity: no mass on what was seen, no spread on the atoms.
            return torch.cat([torch.zeros(seen), torch.full((atoms,), 1 / atoms)])
        shapes = torch.ones(seen + atoms, dtype=torch.float64)
        if atoms:
            shapes[seen:] = ratio * seen / atoms
        masses = torch._standard_gamma(shapes, generator=generator)
        return (masses / masses.sum()).float()


@dataclass(frozen=True)
class StabilizedDirichlet:
    """The stabilized Bayesian bootstrap of appendix A, its weights kept within a bound.

    w = (w~ + eta) / (1 + N eta) with w~ ~ Dirichlet(1, .., 1) over N rows and eta = 1 / (M - N), M > N. (The appendix
    prints the denominator n + eta, which does not sum to one; this one does, and every weight then lies in
    [1/M, M], as its assumption A5 asks.) `bound` is M, as a multiple of N.
    """

    bound: float = 2.0
    atoms: int | None = None

    def __post_init__(self) -> None:
        must = "greater than 1, the bound M as a multiple of the rows"
        check(number(self.bound) and self.bound > 1, "bound", self.bound, must)
        _check_atoms(self.atoms)

    def draw(self, seen: int, atoms: int, ratio: float, generator: Generator) -> Tensor:
        plain = Dirichlet().draw(seen, atoms, ratio, generator)
        rows = seen + atoms
        eta = 1 / (self.bound * rows - rows)
        return (plain + eta) / (1 + rows * eta)


Weights = Expected | Dirichlet | StabilizedDirichlet


def _check_atoms(atoms: int | None) -> None:
    check(atoms is None or whole(atoms), "atoms", atoms, "a whole number, at least 1, or None for as many as rows")
