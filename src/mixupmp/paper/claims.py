"""The sentences of the paper that claim something, as data, and the rule that judges them.

`claims.toml` has one entry for each sentence: a short quotation, its section, its quantifier, the paper's own
datasets, and what has to be compared. A case is a linear combination of samples that the sentence says is positive
(or, for "close", within a tolerance of zero). It is decided by a one-sided t test over paired repeats; the quantifier
decides how many cases must hold.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise
from typing import Any

from mixupmp.core.errors import UnknownName
from mixupmp.metrics.catalog import METRICS
from mixupmp.paper.evidence import Effect, Evidence, Sample, Term, combine

HOLDS, FAILS, OPEN, NOT_RUN = "holds", "fails", "not decided", "not run"
# The share of cases that must hold. "tends": the mean over the cases; "can": a single case.
QUANTIFIERS = {"all": 1.0, "almost all": 0.9, "most": 0.5, "can": 0.0, "tends": 1.0}


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


@dataclass(frozen=True)
class Verdict:
    """What became of the cases of a claim, on one dataset or on all."""

    verdict: str
    cases: int = 0
    holding: int = 0
    failing: int = 0
    deciding: Effect | None = None
    by_sign: bool = False  # from single runs, without errors
    datasets: dict[str, Verdict] = field(default_factory=dict)


def all_claims() -> list[Claim]:
    """In the order of the paper."""
    text = resources.files("mixupmp.paper").joinpath("claims.toml").read_text()
    return [_claim(entry) for entry in tomllib.loads(text)["claim"]]


def _claim(entry: dict[str, Any]) -> Claim:
    if entry["quantifier"] not in QUANTIFIERS:
        raise UnknownName("quantifier", str(entry["quantifier"]), QUANTIFIERS)
    parts = tuple(Part(**_frozen(part)) for part in entry.pop("part"))
    return Claim(**_frozen(entry), parts=parts)


def _frozen(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def cases_of(part: Part) -> Iterator[Case]:
    """Every comparison that a part asks for, for each alpha."""
    for alpha in part.alphas:
        lines, than = ([name.replace("{a}", alpha) for name in names] for names in (part.lines, part.than))
        for what, terms in _terms(part, lines, than):
            yield Case(what, terms, part.margin, part.tolerance)


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
    by_dataset: dict[str, list[tuple[Case, Effect]]] = {}
    total = 0
    for dataset in claim.datasets if datasets is None else datasets:
        cases, found = _effects(claim, evidence, dataset)
        total += cases
        if found:
            by_dataset[dataset] = found
    everything = [pair for found in by_dataset.values() for pair in found]
    each = {dataset: decide(found, claim.quantifier, evidence.by_sign) for dataset, found in by_dataset.items()}
    whole = decide(everything, claim.quantifier, evidence.by_sign)
    return Verdict(whole.verdict, total, whole.holding, whole.failing, whole.deciding, whole.by_sign, each)


def _effects(claim: Claim, evidence: Evidence, dataset: str) -> tuple[int, list[tuple[Case, Effect]]]:
    """How many cases there are on a dataset, and the effects of those that were run."""
    found, total = [], 0
    for part in claim.parts:
        cases = list(cases_of(part))
        terms = [(case, _samples(case, claim.experiment, dataset, evidence)) for case in cases]
        present = [(case, samples) for case, samples in terms if samples is not None]
        if claim.quantifier == "tends":
            total += 1
            if present:
                mean = [(c / len(present), sample) for _, samples in present for c, sample in samples]
                what = f"mean of {len(present)} cases, {part.test} {', '.join(part.measures)}"
                found.append((present[0][0], combine(mean, what)))
            continue
        total += len(cases)
        for case, samples in present:
            if part.threshold is not None:
                # All runs must reach it: a mean above it with some below is no such thing.
                low = min((samples[0][1].values or {0: samples[0][1].mean}).values())
                effect = Effect(low - part.threshold + 1e-9, 1e-12, 1, case.what)
            else:
                effect = combine(samples, case.what)
            found.append((case, effect))
    return total, found


def _samples(case: Case, experiment: str, dataset: str, evidence: Evidence) -> list[Term] | None:
    found: list[Term] = []
    for coefficient, line, measure, level in case.terms:
        sample: Sample | None = evidence.sample(experiment, dataset, line, measure, level)
        if sample is None:
            return None
        found.append((coefficient, sample))
    return found


def decide(effects: Sequence[tuple[Case, Effect]], quantifier: str, by_sign: bool = False) -> Verdict:
    """Holds where enough cases hold, fails where too many fail for that, and is not decided in between."""
    if not effects:
        return Verdict(NOT_RUN)
    verdicts = [case_verdict(case, effect, by_sign) for case, effect in effects]
    counts = Counter(verdicts)
    need = max(1, math.ceil(QUANTIFIERS[quantifier] * len(effects) - 1e-9))
    holding, failing = counts[HOLDS], counts[FAILS]
    found = HOLDS if holding >= need else FAILS if len(effects) - failing < need else OPEN
    order = {FAILS: 0, OPEN: 1, HOLDS: 2}
    ranked = sorted(zip(verdicts, effects, strict=True), key=lambda pair: (order[pair[0]], _support(*pair[1])))
    # Of a claim that one case suffices for, the best case decides; of all others, the worst.
    deciding = ranked[-1 if quantifier == "can" else 0][1][1]
    return Verdict(found, len(effects), holding, failing, deciding, all(effect.error is None for _, effect in effects))


def case_verdict(case: Case, effect: Effect, by_sign: bool = False) -> str:
    """One case by its t interval. A single run has none: it decides nothing, or with `by_sign` by its sign."""
    if not math.isfinite(effect.mean) or (effect.error is None and not by_sign):
        return OPEN
    reach = effect.reach
    if case.tolerance is not None:
        size = abs(effect.mean)
        return HOLDS if size + reach <= case.tolerance else FAILS if size - reach > case.tolerance else OPEN
    value = effect.mean + case.margin
    return HOLDS if value - reach > 0 else FAILS if value + reach < 0 else OPEN


def _support(case: Case, effect: Effect) -> float:
    """How far a case is on the side of the claim, for ordering."""
    size = case.tolerance - abs(effect.mean) if case.tolerance is not None else effect.mean + case.margin
    return size - effect.reach
