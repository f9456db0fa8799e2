"""The ledger of claims: what the paper says, the statistic that would show it, and what was measured.

A verdict follows from the effect and its standard error over repeats alone. For a claim that something is larger:
it holds where the effect is more than two standard errors above zero, fails where it is more than two below, and is
not decided in between, or where one repeat gives no error. For a claim that two things agree: it holds where the whole
interval of two standard errors lies within the tolerance, fails where it lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixupmp.metrics import Summary, summarize
from mixupmp.paper.study import read_results

# The sign that makes a better value a larger one.
BETTER = {"acc": 1.0, "nll": -1.0, "ece": -1.0}
HOLDS, FAILS, OPEN, NOT_RUN = "holds", "fails", "not decided", "not run"


EXPLANATION = """\
An effect is positive where the claim points. A claim *holds* where its effect is more than two standard errors above
zero, *fails* where it is more than two below, and is *not decided* in between, or from one repeat alone. A claim that
two things agree holds where the interval of two standard errors lies within the tolerance. Where a claim must hold in
several cases, one that fails refutes it; else the one that supports it least decides. The deciding case is named. What
was reduced against the paper is in each run's `run.json`."""


@dataclass(frozen=True)
class Effect:
    """A difference over paired repeats, and in words what it is."""

    mean: float
    standard_error: float | None
    repeats: int
    what: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper's text, and how it is checked."""

    name: str
    says: str  # what the paper claims, and where
    statistic: str
    run: str  # the results folder that decides it, below results/
    measure: Measure
    tolerance: float | None = None  # for claims that two things agree; None: the effect must be above zero


@dataclass(frozen=True)
class Judged:
    """A claim with what was found."""

    claim: Claim
    effect: Effect | None
    verdict: str


class Results:
    """What the experiments of one scale have written."""

    def __init__(self, folder: Path, scale: str) -> None:
        self.folder, self.scale = folder, scale

    def read(self, experiment: str, part: str, file: str) -> Any:
        """A results file, or None where it is not there."""
        return read_results(self.folder, experiment, self.scale, f"{part}/{file}" if part else file)

    def repeats(self, experiment: str, part: str, label: str, group: str | None = None) -> list[dict[str, Any]] | None:
        """The repeats of one line of an experiment's table."""
        for line in self.read(experiment, part, "evaluations.json") or ():
            if line["label"] == label and group in (None, line["group"]):
                found: list[dict[str, Any]] = line["repeats"]
                return found
        return None


Measure = Callable[[Results], Effect | None]


def judge(claim: Claim, results: Results) -> Judged:
    """The verdict on one claim."""
    effect = claim.measure(results)
    return Judged(claim, effect, verdict(effect, claim.tolerance))


def verdict(effect: Effect | None, tolerance: float | None = None) -> str:
    """Holds, fails or not decided, by the effect and its error alone."""
    if effect is None:
        return NOT_RUN
    if effect.standard_error is None or not math.isfinite(effect.mean):
        return OPEN
    slack = 2 * effect.standard_error
    if tolerance is not None:
        size = abs(effect.mean)
        return HOLDS if size + slack <= tolerance else FAILS if size - slack > tolerance else OPEN
    return HOLDS if effect.mean - slack > 0 else FAILS if effect.mean + slack < 0 else OPEN


def paired(larger: Sequence[float] | None, smaller: Sequence[float] | None, what: str = "") -> Effect | None:
    """Mean and standard error of the differences of paired repeats; None where one side was not run."""
    if not larger or not smaller:
        return None
    differences = [a - b for a, b in zip(larger, smaller, strict=False)]
    summary: Summary = summarize([{"difference": value} for value in differences])["difference"]
    return Effect(summary.mean, summary.standard_error, summary.repeats, what)


def times(factor: float, values: Sequence[float] | None) -> list[float] | None:
    """Each value times a factor, most often a sign; nothing stays nothing."""
    return None if values is None else [factor * value for value in values]


def worst(effects: Sequence[Effect | None]) -> Effect | None:
    """Of a claim that must hold everywhere, the case that decides it; None where a case was not run.

    One case that fails refutes it: the clearest of those. Without any, it is the case that supports it least.
    """
    if not effects or any(effect is None for effect in effects):
        return None
    present = [effect for effect in effects if effect is not None]
    failing = [effect for effect in present if verdict(effect) == FAILS]
    if failing:
        return min(failing, key=lambda effect: effect.mean + 2 * (effect.standard_error or 0))
    return min(present, key=lambda effect: effect.mean - 2 * (effect.standard_error or 0))


def ledger(judged: Sequence[Judged], scale: str) -> str:
    """CLAIMS.md."""
    counts = {name: sum(one.verdict == name for one in judged) for name in (HOLDS, FAILS, OPEN, NOT_RUN)}
    lines = [
        "# The paper's claims, checked",
        "",
        f"Generated by `mixupmp reproduce claims --scale {scale}` from the results beside this file; do not edit.",
        "",
        ", ".join(f"{count} {name}" for name, count in counts.items()) + f", of {len(judged)} claims.",
        "",
        EXPLANATION,
        "",
        "| claim | the paper says | statistic | effect | standard error | repeats | verdict | run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join(lines + [_line(one, scale) for one in judged]) + "\n"


def _line(one: Judged, scale: str) -> str:
    claim, effect = one.claim, one.effect
    experiment, _, part = claim.run.partition("/")
    path = f"{experiment}/{scale}" + (f"/{part}" if part else "")
    cells = ["-", "-", "-"]
    statistic = claim.statistic + (f"; tolerance {claim.tolerance:g}" if claim.tolerance is not None else "")
    if effect is not None:
        error = "-" if effect.standard_error is None else f"{effect.standard_error:.4g}"
        cells = [f"{effect.mean:+.4g}", error, str(effect.repeats)]
        statistic += f" (deciding: {effect.what})" if effect.what else ""
    link = f"[{claim.run}]({path}/run.json)" if one.verdict != NOT_RUN else claim.run
    return "| " + " | ".join([f"`{claim.name}`", claim.says, statistic, *cells, f"**{one.verdict}**", link]) + " |"
