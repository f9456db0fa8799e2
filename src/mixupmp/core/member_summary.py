"""How the fits of a posterior's networks ended, and which of them are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MemberSummary:
    """How the fit of one network ended."""

    member: int
    steps: int
    epochs: int
    seconds: float
    training_accuracy: float | None = None
    diverged_at: int | None = None  # first step with a loss that is not finite
    history: list[dict[str, Any]] = field(default_factory=list)
    collapsed: bool = False  # its outputs do not depend on its inputs
    one_class: bool = False  # it predicts the same class for every training row


def left_out(summaries: Sequence[MemberSummary]) -> dict[int, str]:
    """Members that are not part of the posterior, with the reason.

    These are the diverged ones and the collapsed ones; where all that are finite have collapsed, they are kept. A
    member that predicts one class for all rows has collapsed where most others have learned: where the classes are
    uneven, that class may be the best answer.
    """
    reasons = {s.member: f"diverged at step {s.diverged_at}" for s in summaries if s.diverged_at is not None}
    finite = [s for s in summaries if s.diverged_at is None]
    if not all(s.collapsed for s in finite):
        reasons |= {s.member: "collapsed: its outputs do not depend on its inputs" for s in finite if s.collapsed}
    left = [s for s in finite if s.member not in reasons and s.training_accuracy is not None]
    learned = sorted(1 - (s.training_accuracy or 0.0) for s in left if not s.one_class)
    if 2 * len(learned) > len(left):
        worst = 2 * learned[len(learned) // 2]  # twice the median error of those that tell classes apart
        gone = [s for s in left if s.one_class and 1 - (s.training_accuracy or 0.0) > worst]
        reasons |= {s.member: "collapsed: it predicts one class for all rows" for s in gone}
    return reasons


def member_notes(summaries: Sequence[MemberSummary]) -> list[str]:
    """A line for each member that diverged or collapsed."""
    reasons, kept = left_out(summaries), "collapsed: its outputs do not depend on its inputs (kept, as all collapsed)"
    noted = [s.member for s in summaries if s.collapsed or s.member in reasons]
    return [f"member {member} {reasons.get(member, kept)}" for member in noted]
