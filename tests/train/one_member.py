"""Running one member's fit, and comparing weights."""

from __future__ import annotations

import torch
from torch import Tensor

from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import Recipe
from mixupmp.train.member import MemberFit

FEW = Recipe(epochs=3, batch_size=16, learning_rate=0.05)


class Silent:
    """Watches and says nothing; counts the steps it saw."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_step(self, fit: MemberFit) -> None:
        self.steps.append(fit.step)


def ran(plan: Plan, member: int = 0) -> tuple[MemberFit, MemberSummary]:
    one = MemberFit(plan, member)
    return one, one.run(Silent())


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def close(first: dict[str, Tensor], second: dict[str, Tensor], tolerance: float = 1e-5) -> bool:
    return all(torch.allclose(first[name], second[name], atol=tolerance, rtol=1e-4) for name in first)
