"""What a sentence of the paper compares: parts of it, and the cases that each part asks for.

A case is a linear combination of samples that the sentence says is positive, or within a tolerance of zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from mixupmp.core.errors import check_known
from mixupmp.metrics.catalog import METRICS

BEST = "best"
HIGHEST = "highest"
CAN_REACH = "can reach"
TESTS = (
    *("better", "larger", "smaller", "close", "within", BEST, HIGHEST, "exceeds", "reaches", CAN_REACH),
    *("rising", "falling", "rising overall", "falling overall"),
    *("rising with level", "falling with level", "loses less", "grows more"),
)


@dataclass(frozen=True)
class Part:
    """What one part of a sentence compares; `{a}` in a line stands for each alpha.

    Parameters
    ----------
    test
        "better", "larger" or "smaller": each of `lines` than each of `than`; "best": the best of `lines` is better than
        the best of `than`; "highest": the highest of `lines` is above that of `than`; "close": within `tolerance` of
        each other; "within": the mean absolute difference of their members is within `tolerance`; "rising" or
        "falling": from each of `lines` to the next; "rising overall" or "falling overall": from each to all later ones,
        of which the mean is the slope over their order; "rising with level" or "falling with level": from each
        intensity to the next; "loses less": from the first intensity to the last; "grows more": from the first of
        `lines` to the last, than from the first of `than` to the last; "exceeds": the first of two measures above the
        second; "reaches": at least `threshold`, in every run; "can reach": in one run, and no run can show that it
        cannot be done.
    margin
        What is added to the effect: positive for "close to the best", negative for "greatly".
    datasets
        Of the sentence's, those that the part is about; none for all.
    """

    test: str
    lines: tuple[str, ...]
    than: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    levels: tuple[int | None, ...] = (None,)
    alphas: tuple[str, ...] = ("",)
    margin: float = 0.0
    tolerance: float | None = None
    threshold: float | None = None
    datasets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_known("test", self.test, TESTS)


Terms = tuple[tuple[float, str, str, int | None], ...]


@dataclass(frozen=True)
class Case:
    """sum_k c_k x_k with x_k = (line, measure, level), said to be positive or close to zero."""

    what: str
    terms: Terms
    margin: float = 0.0
    tolerance: float | None = None
    threshold: float | None = None
    one_suffices: bool = False  # of the runs, for the threshold


def cases_of(part: Part) -> Iterator[Case]:
    """Every comparison that a part asks for, for each alpha."""
    for alpha in part.alphas:
        lines, than = ([name.replace("{a}", alpha) for name in names] for names in (part.lines, part.than))
        for what, terms in _terms(part, lines, than):
            yield Case(what, terms, part.margin, part.tolerance, part.threshold, part.test == CAN_REACH)


def _terms(part: Part, lines: Sequence[str], than: Sequence[str]) -> Iterator[tuple[str, Terms]]:
    levels = part.levels
    if part.test == "exceeds":
        more, less = part.measures
        for line in lines:
            for level in levels:
                yield f"{line}, {more} over {less}{_at(level)}", ((1, line, more, level), (-1, line, less, level))
        return
    for measure in part.measures:
        sign = _sign(part.test, measure)
        if part.test in ("reaches", CAN_REACH):
            yield from ((f"{measure} of {line}", ((1, line, measure, None),)) for line in lines)
        elif part.test == "within":
            for pair in (f"{one} against {other}" for one in lines for other in than):
                yield f"{measure} of {pair}, mean absolute difference", ((1, pair, measure, None),)
        elif part.test.endswith("with level"):
            for line in lines:
                for low, high in pairwise(levels):
                    what = f"{measure} of {line}, {low} to {high}"
                    yield what, ((sign, line, measure, high), (-sign, line, measure, low))
        elif part.test == "grows more":
            grown: Terms = ((1, lines[-1], measure, None), (-1, lines[0], measure, None))
            by_them: Terms = ((-1, than[-1], measure, None), (1, than[0], measure, None))
            yield f"growth of {measure} to {lines[-1]} against to {than[-1]}", (*grown, *by_them)
        elif part.test == "loses less":
            first, last = levels[0], levels[-1]
            for one, other in ((a, b) for a in lines for b in than):
                lost = ((sign, one, measure, last), (-sign, one, measure, first))
                theirs = ((-sign, other, measure, last), (sign, other, measure, first))
                yield f"loss of {measure}, {one} against {other}", (*lost, *theirs)
        else:
            for one, other, what in _pairs(part.test, lines, than):
                for level in levels:
                    terms = ((sign, one, measure, level), (-sign, other, measure, level))
                    yield f"{measure} {what}{_at(level)}", terms


def _pairs(test: str, lines: Sequence[str], than: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Which line is compared with which, and in what words."""
    if test.startswith(("rising", "falling")):
        for one, other in combinations(lines, 2) if test.endswith("overall") else pairwise(lines):
            yield other, one, f"from {one} to {other}"
        return
    for one, other in ((a, b) for a in lines for b in than if a != b):
        yield one, other, f"of {one} against {other}"


def _sign(test: str, measure: str) -> float:
    """What makes the direction that the sentence names positive."""
    if test in ("better", BEST, "loses less"):
        return METRICS[measure].sign
    return -1.0 if test.startswith(("smaller", "falling")) else 1.0


def _at(level: int | None) -> str:
    return "" if level is None else f" at intensity {level}"
