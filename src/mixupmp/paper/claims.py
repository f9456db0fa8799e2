"""The sentences of the paper that claim something, as data, and the rule that judges them.

`claims.toml` has one entry for each sentence: a short quotation, its section, its quantifier, the paper's own
datasets, and what has to be compared (`cases.py`). A case is decided by a one-sided t test over paired repeats; the
quantifier decides how many cases must hold, with a correction for how many there are.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources

from scipy.stats import t as student

from mixupmp.core.errors import check_known
from mixupmp.core.foreign import Json
from mixupmp.metrics.catalog import METRICS
from mixupmp.paper.cases import BEST, Case, Part, cases_of
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
    not_run: int = 0  # cases of lines that there are no runs of
    datasets: dict[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True)
class Untested:
    """A sentence that claims something and is not tested."""

    section: str
    quote: str
    why: str


def all_claims() -> list[Claim]:
    """By experiment, and within each in the order of the paper."""
    return [_claim(entry) for entry in _document()["claim"]]


def untested() -> list[Untested]:
    """What is claimed and not tested."""
    return [Untested(**entry) for entry in _document()["untested"]]


def _document() -> dict[str, Json]:
    return tomllib.loads(resources.files("mixupmp.paper").joinpath("claims.toml").read_text())


def _claim(entry: dict[str, Json]) -> Claim:
    check_known("quantifier", entry["quantifier"], QUANTIFIERS)
    parts = tuple(Part(**_frozen(part)) for part in entry.pop("part"))
    return Claim(**_frozen(entry), parts=parts)


def _frozen(table: dict[str, Json]) -> dict[str, Json]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


@dataclass(frozen=True)
class Found:
    """What became of the cases of a part: the effects of those that were run in the paper's regime, and the others."""

    tested: tuple[Tested, ...] = ()
    left_out: int = 0
    not_run: int = 0

    def __add__(self, other: Found) -> Found:
        return Found(self.tested + other.tested, self.left_out + other.left_out, self.not_run + other.not_run)


def judge(claim: Claim, evidence: Evidence, datasets: Sequence[str] | None = None) -> Verdict:
    """The verdict over all datasets for which there is evidence, with that of each.

    What a sentence says "can" happen must be seen in each of its parts: "can hurt NLL and ECE" is about both.
    """
    by_dataset: dict[str, Verdict] = {}
    by_part = [Found()] * len(claim.parts)
    for dataset in claim.datasets if datasets is None else datasets:
        found = [_found(claim, part, evidence, dataset) for part in claim.parts]
        if any(one.tested or one.left_out for one in found):
            by_dataset[dataset] = _verdict(claim, sum(found, Found()), evidence)
            by_part = [before + one for before, one in zip(by_part, found, strict=True)]
    groups = by_part if claim.quantifier == "can" else [sum(by_part, Found())]
    each = [_verdict(claim, group, evidence) for group in groups]
    order = {FAILS: 0, HOLDS: 2}
    worst = min(each, key=lambda one: order.get(one.verdict, 1))
    counts = {name: sum(getattr(one, name) for one in each) for name in ("cases", "holding", "failing", "left_out")}
    return replace(worst, **counts, datasets=by_dataset)


def _verdict(claim: Claim, found: Found, evidence: Evidence) -> Verdict:
    return replace(decide(found.tested, claim.quantifier, evidence.by_sign, found.left_out), not_run=found.not_run)


def _found(claim: Claim, part: Part, evidence: Evidence, dataset: str) -> Found:
    """The cases of a part on a dataset."""
    cases = [case for one in _chosen(part, claim.experiment, dataset, evidence) for case in cases_of(one)]
    terms = [(case, _samples(case, claim.experiment, dataset, evidence)) for case in cases]
    run = [(case, samples) for case, samples in terms if samples is not None]
    present = [(case, samples) for case, samples in run if all(sample.comparable for _, sample in samples)]
    not_run = len(terms) - len(run)
    if claim.quantifier == "tends":
        if not present:
            return Found((), int(bool(run)), not_run)
        mean = [(c / len(present), sample) for _, samples in present for c, sample in samples]
        what = f"mean of {len(present)} cases, {part.test} {', '.join(part.measures)}"
        return Found(((present[0][0], combine(mean, what)),), 0, not_run)
    tested = tuple((case, _effect(case, samples)) for case, samples in present)
    return Found(tested, len(run) - len(present), not_run)


def _effect(case: Case, samples: list[Term]) -> Effect:
    if case.threshold is None:
        return combine(samples, case.what)
    # All runs must reach it: a mean above it with some below is no such thing.
    values = list((samples[0][1].values or {0: samples[0][1].mean}).values())
    return Effect(min(values), 0.0, what=f"{case.what}, lowest of {len(values)} runs")


def _chosen(part: Part, experiment: str, dataset: str, evidence: Evidence) -> list[Part]:
    """The part itself or, where it is about the best of its lines, those that are the best, by each measure."""
    if part.test != BEST:
        return [part]
    found = []
    for measure in part.measures:
        sides = []
        for side in (part.lines, part.than):
            names = [name.replace("{a}", alpha) for name in side for alpha in part.alphas]
            samples = {name: evidence.sample(experiment, dataset, name, measure, None) for name in names}
            run = {name: one for name, one in samples.items() if one is not None}
            within = {name: one.mean for name, one in run.items() if one.comparable}
            best = max(within, key=lambda name: METRICS[measure].sign * within[name], default=None)
            sides.append((best or next(iter(run), names[0]),))
        found.append(replace(part, test="better", lines=sides[0], than=sides[1], measures=(measure,), alphas=("",)))
    return found


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
