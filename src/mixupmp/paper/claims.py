"""The sentences of the paper that claim something, as data, and the rule that judges them.

`claims.toml` has one entry for each sentence: a short quotation, its section, its quantifier, the paper's own
datasets, and what has to be compared. A case is a linear combination of samples that the sentence says is positive
(or, for "close", within a tolerance of zero). It is decided by a one-sided t test over paired repeats; the quantifier
decides how many cases must hold, with a correction for how many there are.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import pairwise

from scipy.stats import t as student

from mixupmp.core.errors import UnknownName, check_known
from mixupmp.core.foreign import Json
from mixupmp.metrics.catalog import METRICS
from mixupmp.paper.evidence import LEVEL, Effect, Evidence, Sample, Term, combine

HOLDS, FAILS, OPEN, NOT_RUN, NOT_COMPARABLE = "holds", "fails", "not decided", "not run", "not comparable"
# How many of so many cases must hold. "tends": the mean over the cases is one case.
QUANTIFIERS: dict[str, Callable[[int], int]] = {
    "all": lambda cases: cases,
    "almost all": lambda cases: math.ceil(0.9 * cases - 1e-9),
    "most": lambda cases: cases // 2 + 1,
    "can": lambda cases: 1,
    "tends": lambda cases: cases,
}


@dataclass(frozen=True)
class Part:
    """What one part of a sentence compares; `{a}` in a line stands for each alpha.

    Parameters
    ----------
    test
        "better", "larger" or "smaller": each of `lines` than each of `than`; "rising" or "falling": from each of
        `lines` to the next; "rising with level" or "falling with level": from each intensity to the next; "loses
        less": from the first intensity to the last; "exceeds": the first of two measures above the second; "close":
        within `tolerance`; "reaches": at least `threshold`.
    margin
        What is added to the effect: positive for "close to the best", negative for "greatly".
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


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper."""

    name: str
    section: str
    quote: str
    quantifier: str
    experiment: str
    datasets: tuple[str, ...]
    parts: tuple[Part, ...]
    extensions: tuple[str, ...] = ()  # datasets of ours that the sentence is not about


@dataclass(frozen=True)
class Case:
    """sum_k c_k x_k with x_k = (line, measure, level), said to be positive or close to zero."""

    what: str
    terms: tuple[tuple[float, str, str, int | None], ...]
    margin: float = 0.0
    tolerance: float | None = None
    threshold: float | None = None


Tested = tuple[Case, Effect]


@dataclass(frozen=True)
class Verdict:
    """What became of the cases of a claim, on one dataset or on all; each case by itself holds, fails or neither."""

    verdict: str
    cases: int = 0
    holding: int = 0
    failing: int = 0
    deciding: Effect | None = None
    by_sign: bool = False  # from single runs, without errors
    left_out: int = 0  # cases of lines that are outside the paper's regime
    datasets: dict[str, Verdict] = field(default_factory=dict)


def all_claims() -> list[Claim]:
    """In the order of the paper."""
    text = resources.files("mixupmp.paper").joinpath("claims.toml").read_text()
    return [_claim(entry) for entry in tomllib.loads(text)["claim"]]


def _claim(entry: dict[str, Json]) -> Claim:
    check_known("quantifier", entry["quantifier"], QUANTIFIERS)
    parts = tuple(Part(**_frozen(part)) for part in entry.pop("part"))
    return Claim(**_frozen(entry), parts=parts)


def _frozen(table: dict[str, Json]) -> dict[str, Json]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def cases_of(part: Part) -> Iterator[Case]:
    """Every comparison that a part asks for, for each alpha."""
    for alpha in part.alphas:
        lines, than = ([name.replace("{a}", alpha) for name in names] for names in (part.lines, part.than))
        for what, terms in _terms(part, lines, than):
            yield Case(what, terms, part.margin, part.tolerance, part.threshold)


Terms = tuple[tuple[float, str, str, int | None], ...]


def _terms(part: Part, lines: Sequence[str], than: Sequence[str]) -> Iterator[tuple[str, Terms]]:
    test, levels = part.test, part.levels
    if test == "exceeds":
        more, less = part.measures
        for line in lines:
            for level in levels:
                yield f"{line}, {more} over {less}{_at(level)}", ((1, line, more, level), (-1, line, less, level))
        return
    for measure in part.measures:
        sign = _sign(test, measure)
        if test in ("better", "larger", "smaller", "close"):
            for one, other in ((a, b) for a in lines for b in than if a != b):
                for level in levels:
                    what = f"{measure} of {one} against {other}{_at(level)}"
                    yield what, ((sign, one, measure, level), (-sign, other, measure, level))
        elif test in ("rising", "falling"):
            for one, other in pairwise(lines):
                for level in levels:
                    what = f"{measure} from {one} to {other}{_at(level)}"
                    yield what, ((sign, other, measure, level), (-sign, one, measure, level))
        elif test in ("rising with level", "falling with level"):
            for line in lines:
                for low, high in pairwise(levels):
                    what = f"{measure} of {line}, {low} to {high}"
                    yield what, ((sign, line, measure, high), (-sign, line, measure, low))
        elif test == "loses less":
            first, last = levels[0], levels[-1]
            for one, other in ((a, b) for a in lines for b in than):
                lost = ((sign, one, measure, last), (-sign, one, measure, first))
                theirs = ((-sign, other, measure, last), (sign, other, measure, first))
                yield f"loss of {measure}, {one} against {other}", (*lost, *theirs)
        elif test == "reaches":
            for line in lines:
                yield f"{measure} of {line}", ((1, line, measure, None),)
        else:
            raise UnknownName("test", test, ("better", "larger", "smaller", "close", "rising", "falling", "exceeds"))


def _sign(test: str, measure: str) -> float:
    """What makes the direction that the sentence names positive."""
    if test in ("better", "loses less"):
        return METRICS[measure].sign
    return -1.0 if test in ("smaller", "falling", "falling with level") else 1.0


def _at(level: int | None) -> str:
    return "" if level is None else f" at intensity {level}"


def judge(claim: Claim, evidence: Evidence, datasets: Sequence[str] | None = None) -> Verdict:
    """The verdict over all datasets for which there is evidence, with that of each."""
    by_dataset: dict[str, Verdict] = {}
    everything: list[Tested] = []
    outside = 0
    for dataset in claim.datasets if datasets is None else datasets:
        found, left_out = _effects(claim, evidence, dataset)
        if found or left_out:
            by_dataset[dataset] = decide(found, claim.quantifier, evidence.by_sign, left_out)
        everything += found
        outside += left_out
    return replace(decide(everything, claim.quantifier, evidence.by_sign, outside), datasets=by_dataset)


def _effects(claim: Claim, evidence: Evidence, dataset: str) -> tuple[list[Tested], int]:
    """The effects of the cases that were run on a dataset, and how many others are outside the paper's regime."""
    found: list[Tested] = []
    left_out = 0
    for part in claim.parts:
        terms = [(case, _samples(case, claim.experiment, dataset, evidence)) for case in cases_of(part)]
        run = [(case, samples) for case, samples in terms if samples is not None]
        present = [(case, samples) for case, samples in run if all(sample.comparable for _, sample in samples)]
        if claim.quantifier == "tends":
            left_out += bool(run) and not present
            if present:
                mean = [(c / len(present), sample) for _, samples in present for c, sample in samples]
                what = f"mean of {len(present)} cases, {part.test} {', '.join(part.measures)}"
                found.append((present[0][0], combine(mean, what)))
            continue
        left_out += len(run) - len(present)
        for case, samples in present:
            if case.threshold is None:
                found.append((case, combine(samples, case.what)))
            else:  # all runs must reach it: a mean above it with some below is no such thing
                values = list((samples[0][1].values or {0: samples[0][1].mean}).values())
                found.append((case, Effect(min(values), 0.0, what=f"{case.what}, lowest of {len(values)} runs")))
    return found, left_out


def _samples(case: Case, experiment: str, dataset: str, evidence: Evidence) -> list[Term] | None:
    found: list[Term] = []
    for coefficient, line, measure, level in case.terms:
        sample: Sample | None = evidence.sample(experiment, dataset, line, measure, level)
        if sample is None:
            return None
        found.append((coefficient, sample))
    return found


def decide(effects: Sequence[Tested], quantifier: str, by_sign: bool = False, left_out: int = 0) -> Verdict:
    """Holds where enough cases hold, fails where too many fail for that, and is not decided in between.

    "At least k of n cases" is a partial conjunction hypothesis (Benjamini & Heller 2008). It is accepted at 5% where
    (n - k + 1) p_(k) is at most 5%, p_(k) the k-th smallest of the cases' p values. For one case of n this is the first
    step of Holm's procedure, and for all n no correction is needed. Cases that are left out are among the n, undecided.
    """
    if not effects:
        return Verdict(NOT_COMPARABLE if left_out else NOT_RUN, left_out=left_out)
    count = len(effects) + left_out
    need = QUANTIFIERS[quantifier](count)
    tests = [p_values(case, effect, by_sign) for case, effect in effects]
    for_it, against = zip(*tests, *[(1.0, 1.0)] * left_out, strict=True)
    found = HOLDS if _at_least(need, for_it) else FAILS if _at_least(count - need + 1, against) else OPEN
    verdicts = [case_verdict(*each) for each in tests]
    order = {FAILS: 0, OPEN: 1, HOLDS: 2}
    ranked = sorted(zip(verdicts, effects, strict=True), key=lambda pair: (order[pair[0]], _support(*pair[1])))
    # Of a claim that one case suffices for, the best case decides; of all others, the worst.
    deciding = ranked[-1 if quantifier == "can" else 0][1][1]
    single = all(effect.error is None for _, effect in effects)
    return Verdict(found, len(effects), verdicts.count(HOLDS), verdicts.count(FAILS), deciding, single, left_out)


def _at_least(cases: int, p_values: Sequence[float]) -> bool:
    return (len(p_values) - cases + 1) * sorted(p_values)[cases - 1] <= LEVEL


def p_values(case: Case, effect: Effect, by_sign: bool = False) -> tuple[float, float]:
    """Of the one-sided t tests for a case and against it. A single run has none: with `by_sign` its sign decides."""
    if not math.isfinite(effect.mean) or (effect.error is None and not by_sign):
        return 1.0, 1.0
    if case.threshold is not None:
        reached = effect.mean >= case.threshold
        return float(not reached), float(reached)
    distance = _distance(case, effect)
    if not effect.error:
        return float(distance <= 0), float(distance >= 0)
    statistic = distance / effect.error
    return float(student.sf(statistic, effect.freedom)), float(student.cdf(statistic, effect.freedom))


def case_verdict(for_it: float, against: float) -> str:
    """One case by its p values, without regard to how many others there are."""
    return HOLDS if for_it < LEVEL else FAILS if against < LEVEL else OPEN


def _distance(case: Case, effect: Effect) -> float:
    """How far an effect is on the side of the claim."""
    return case.tolerance - abs(effect.mean) if case.tolerance is not None else effect.mean + case.margin


def _support(case: Case, effect: Effect) -> float:
    """The same less the width of the interval, for ordering."""
    return _distance(case, effect) - effect.reach


def allowances(claim: Claim) -> str:
    """The numbers of ours in the tests of a sentence: 'margin 0.005 (ece)'."""
    found = []
    for part in claim.parts:
        measures = ", ".join(part.measures)
        found += [f"margin {part.margin:+g} ({measures})"] if part.margin else []
        found += [f"tolerance {part.tolerance:g} ({measures})"] if part.tolerance is not None else []
        found += [f"threshold {part.threshold:g} ({measures})"] if part.threshold is not None else []
    return "; ".join(dict.fromkeys(found)) or "-"
