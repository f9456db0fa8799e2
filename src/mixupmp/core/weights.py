"""w: the weights of the rows of a future, expected (Algorithm 2) or drawn from a Dirichlet (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from mixupmp.core.errors import check, is_number, is_whole


@runtime_checkable
class DrawnWeights(Protocol):
    """Weights drawn once for each member, over the seen rows and a fixed number of atoms from the base measure."""

    @property
    def atoms(self) -> int | None:
        """T; None: as many as seen rows."""

    def draw(self, seen: int, atoms: int, ratio: float, generator: Generator) -> Tensor:
        """(seen + atoms,) weights that sum to one."""


@dataclass(frozen=True)
class Expected:
    """Weights of Algorithm 2, E[w]: 1 for a seen row, r n/t for each of t pseudo rows, drawn anew with every batch."""


@dataclass(frozen=True)
class Dirichlet:
    """Weights of Algorithm 1: w ~ Dirichlet(1, .., 1, c/T, .., c/T) over n seen rows and T atoms, c = r n.

    With c = 0 there are no atoms, and it is the Bayesian bootstrap (Rubin 1981). The weights sum to one, and those of
    the atoms have the expected sum c / (n + c).

    Parameters
    ----------
    atoms
        T; None: n.
    """

    atoms: int | None = None

    def __post_init__(self) -> None:
        _check_atoms(self.atoms)

    def draw(self, seen: int, atoms: int, ratio: float, generator: Generator) -> Tensor:
        if ratio == inf:
            # The limit of a Dirichlet whose mass c goes to infinity: none on the seen rows, no spread on the atoms.
            return torch.cat([torch.zeros(seen), torch.full((atoms,), 1 / atoms)])
        shapes = torch.ones(seen + atoms, dtype=torch.float64)
        if atoms:
            shapes[seen:] = ratio * seen / atoms
        masses = torch._standard_gamma(shapes, generator=generator)
        return (masses / masses.sum()).float()


@dataclass(frozen=True)
class StabilizedDirichlet:
    """Weights of the stabilized Bayesian bootstrap (appendix A), which are bounded.

    w = (w~ + eta) / (1 + N eta) with w~ of `Dirichlet` over N rows and eta = 1 / (M - N), M > N. Every weight then lies
    in [1/M, M], as assumption A5 asks. (The appendix prints the denominator n + eta, with which they do not sum to
    one.)

    Parameters
    ----------
    bound
        M, as a multiple of N.
    atoms
        T; None: n.
    """

    bound: float = 2.0
    atoms: int | None = None

    def __post_init__(self) -> None:
        must = "greater than 1, the bound M as a multiple of the rows"
        check(is_number(self.bound) and self.bound > 1, "bound", self.bound, must)
        _check_atoms(self.atoms)

    def draw(self, seen: int, atoms: int, ratio: float, generator: Generator) -> Tensor:
        plain = Dirichlet().draw(seen, atoms, ratio, generator)
        rows = seen + atoms
        eta = 1 / (self.bound * rows - rows)
        return (plain + eta) / (1 + rows * eta)


Weights = Expected | DrawnWeights


def _check_atoms(atoms: int | None) -> None:
    check(atoms is None or is_whole(atoms), "atoms", atoms, "a whole number, at least 1, or None for as many as rows")
