"""Means and standard errors over repeats, and how measures are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mixupmp.core.errors import check
from mixupmp.metrics.reliability import Result

# Shown in percent, as the paper's tables do. All other measures are shown as they are.
PERCENT = ("acc", "ece", "oe", "ue", "adaptive_ece")


@dataclass(frozen=True)
class Summary:
    """A measure over repeats."""

    mean: float
    standard_error: float | None  # None for a single repeat, which says nothing about spread
    repeats: int


def summarize(results: Sequence[Result | Mapping[str, float | None]]) -> dict[str, Summary]:
    """Mean and standard error (deviation with n-1, over the root of n) of every measure that all repeats have."""
    check(len(results) > 0, "results", results, "at least one result")
    plain = [r.to_dict() if isinstance(r, Result) else dict(r) for r in results]
    summaries = {}
    for name in plain[0]:
        values = [line[name] for line in plain if line.get(name) is not None]
        if len(values) == len(plain):
            summaries[name] = _summary([float(v) for v in values if v is not None])
    return summaries


def _summary(values: list[float]) -> Summary:
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Summary(mean, None, count)
    variance = math.fsum((v - mean) ** 2 for v in values) / (count - 1)
    return Summary(mean, math.sqrt(variance / count), count)


def display(name: str, value: float) -> tuple[str, float]:
    """The heading and the number that a table shows: ("ECE (%)", 4.67) for ("ece", .0467)."""
    heading = name.upper() if len(name) <= 3 else name.replace("_ece", " ECE").replace("_", " ").capitalize()
    if name == "adaptive_ece":
        heading = "Adaptive ECE"
    return (f"{heading} (%)", 100 * value) if name in PERCENT else (heading, value)
