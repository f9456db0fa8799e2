"""How the fits of a posterior's networks ended, and which of them are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

EpochRecord = dict[str, Any]  # numbers by name; while it is reported, also the votes of the validation rows


@dataclass(frozen=True)
class MemberSummary:
    """How the fit of one network ended."""

    member: int
    steps: int
    epochs: int
    seconds: float
    training_accuracy: float | None = None
    diverged_at: int | None = None  # first step with a loss that is not finite
    history: list[EpochRecord] = field(default_factory=list)
    collapsed: bool = False  # its outputs do not depend on its inputs
    one_class: bool = False  # it predicts the same class for every training row
    keep: bool = False  # part of the posterior also if it has collapsed


def fault(summary: MemberSummary) -> str | None:
    """What is wrong with a member: it diverged, or its predictions do not depend on its inputs."""
    if summary.diverged_at is not None:
        return f"diverged at step {summary.diverged_at}"
    if summary.collapsed:
        return "collapsed: the outputs do not depend on the inputs"
    if summary.one_class and _accuracy(summary) < 1:  # at 1 the rows are of one class
        return f"predicted one class for all training rows, right for {_accuracy(summary):.1%}"
    return None


def left_out(summaries: Sequence[MemberSummary]) -> dict[int, str]:
    """Members that are not part of the posterior, with the reason.

    These are the diverged ones, and, unless they are to be kept, the collapsed ones where others are left. A member
    that predicts one class for all rows is left out where the others have learned: the odds that their median is right
    are more than four times as high. But a class of more than half of the rows may be the best answer, and is kept
    where most members give it.
    """
    finite = [s for s in summaries if s.diverged_at is None]
    others = [s for s in finite if not s.collapsed]
    learned = [_accuracy(s) for s in others if not s.one_class]

    def has_collapsed(s: MemberSummary) -> bool:
        if s.collapsed:
            return bool(others)
        own, median = _accuracy(s), median_low(learned or [0.0])
        return median * (1 - own) > 4 * own * (1 - median) and (own <= 0.5 or 2 * len(learned) >= len(others))

    return {
        s.member: reason
        for s in summaries
        if (reason := fault(s)) and (s.diverged_at is not None or (not s.keep and has_collapsed(s)))
    }


def member_notes(summaries: Sequence[MemberSummary]) -> list[str]:
    """A line for each way in which members diverged or collapsed, and whether these are left out."""
    out = left_out(summaries)
    members: dict[str, list[str]] = {}
    for s in summaries:
        if reason := fault(s):
            members.setdefault(f"{reason}; {'left out' if s.member in out else _why_kept(s)}", []).append(str(s.member))
    return [f"member{'s' if len(named) > 1 else ''} {', '.join(named)} {text}" for text, named in members.items()]


def _why_kept(summary: MemberSummary) -> str:
    if summary.keep:
        return "kept, as keep_collapsed says"
    if summary.collapsed:
        return "kept, as no member has learned: lower the learning rate or train longer"
    return (
        "kept, as that can be the best answer where classes are uneven and inputs say little: "
        "if it is not, lower the learning rate or train longer"
    )


def _accuracy(summary: MemberSummary) -> float:
    return summary.training_accuracy or 0.0
