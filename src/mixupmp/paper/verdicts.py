"""The rule that judges a sentence of the paper by its cases.

A case is decided by a one-sided t test over paired repeats; the quantifier decides how many cases must hold, with a
correction for how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from mixupmp.metrics.catalog import METRICS
from mixupmp.paper.cases import BEST, HIGHEST, Case, Part, cases_of
from mixupmp.paper.claims import QUANTIFIERS, Claim
from mixupmp.paper.effects import LEVEL, Effect, Sample, Term, combine
from mixupmp.paper.evidence import Evidence

HOLDS, FAILS, OPEN, NOT_RUN, NOT_COMPARABLE = "holds", "fails", "not decided", "not run", "not comparable"
COUNTS = ("cases", "holding", "failing", "left_out", "not_run", "absent", "longer")

Tested = tuple[Case, Effect]


@dataclass(frozen=True)
class Verdict:
    """What became of the cases of a claim, on one dataset or on all; each case by itself holds, fails or neither."""

    verdict: str
    cases: int = 0
    holding: int = 0
    failing: int = 0
    deciding: Effect | None = None
    single_runs: bool = False  # of which none has an error
    left_out: int = 0  # cases of lines that are outside the paper's regime
    not_run: int = 0  # cases of lines that there are no runs of
    absent: int = 0  # cases of lines that the paper's table, or our experiment beyond that table, does not have
    longer: int = 0  # of the cases, those taken from runs with longer training
    datasets: dict[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What became of the cases of a part: the effects of those that were run in the paper's regime, and the others."""

    tested: tuple[Tested, ...] = ()
    left_out: int = 0
    not_run: int = 0
    absent: int = 0
    undecided: int = 0  # of the cases that the quantifier counts, those without an effect
    longer: int = 0  # of those with an effect, by runs with longer training

    def __add__(self, other: Found) -> Found:
        return Found(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Found)))


def judge(claim: Claim, evidence: Evidence, datasets: Sequence[str] | None = None) -> Verdict:
    """The verdict over all datasets for which there is evidence, with that of each.

    What a sentence says "can" happen must be seen in each of its parts: "can hurt NLL and ECE" is about both.
    """
    by_dataset: dict[str, Verdict] = {}
    by_part = [Found()] * len(claim.parts)
    for dataset in claim.datasets if datasets is None else datasets:
        about = [dataset in (part.datasets or (dataset,)) for part in claim.parts]
        found = [
            _found(claim, part, evidence, dataset) if so else Found()
            for part, so in zip(claim.parts, about, strict=True)
        ]
        if any(one.tested or one.left_out for one in found):
            by_dataset[dataset] = _verdict(claim, sum(found, Found()), evidence)
            by_part = [before + one for before, one in zip(by_part, found, strict=True)]
    groups = by_part if claim.quantifier == "can" else [sum(by_part, Found())]
    each = [_verdict(claim, group, evidence, len(groups)) for group in groups]
    order = {FAILS: 0, HOLDS: 2}
    worst = min(each, key=lambda one: order.get(one.verdict, 1))
    counts = {name: sum(getattr(one, name) for one in each) for name in COUNTS}
    return replace(worst, **counts, datasets=by_dataset)


def _verdict(claim: Claim, found: Found, evidence: Evidence, parts: int = 1) -> Verdict:
    made = decide(found.tested, claim.quantifier, evidence.by_sign, found.undecided, parts)
    if not found.tested and not found.left_out:
        made = replace(made, verdict=NOT_RUN)
    return replace(made, left_out=found.left_out, not_run=found.not_run, absent=found.absent, longer=found.longer)


def _found(claim: Claim, part: Part, evidence: Evidence, dataset: str) -> Found:
    """The cases of a part on a dataset.

    A case that was not run counts as undecided, as one that is not comparable does: a line less must not make a
    sentence easier to hold. What the paper does not print is not counted, nor is a line beyond its tables that the
    experiment does not have for this dataset. Where a line does not interpolate, longer training is asked: not for
    "tends" and "best", which are about several lines of the same runs.
    """
    if part.test in (BEST, HIGHEST):
        return sum((_best(claim, replace(part, measures=(one,)), evidence, dataset) for one in part.measures), Found())
    terms = [(case, _samples(case, claim.experiment, dataset, evidence)) for case in cases_of(part)]
    run = [(case, samples) for case, samples in terms if samples is not None]
    present = [(case, samples) for case, samples in run if _comparable(samples)]
    longer = []
    if claim.quantifier != "tends":
        longer = _of_longer(claim, [case for case, samples in run if not _comparable(samples)], evidence, dataset)
    expected = [
        all(evidence.expects(claim.experiment, dataset, line) for _, line, *_ in case.terms)
        for case, samples in terms
        if samples is None
    ]
    left_out, not_run = len(run) - len(present) - len(longer), sum(expected)
    absent, undecided = len(expected) - not_run, left_out + not_run
    if claim.quantifier == "tends":
        if not present:
            return Found((), left_out, not_run, absent, int(undecided > 0))
        mean = [(c / len(present), sample) for _, samples in present for c, sample in samples]
        effect = combine(mean, f"mean of {len(present)} cases, {part.test} {', '.join(part.measures)}")
        if not_run:  # the others could turn the mean, either way
            effect = replace(effect, p=(1.0, 1.0))
        return Found(((present[0][0], effect),), left_out, not_run, absent)
    tested = tuple((case, _effect(case, samples)) for case, samples in [*present, *longer])
    return Found(tested, left_out, not_run, absent, undecided, len(longer))


def _comparable(samples: list[Term]) -> bool:
    """Whether all of these lines are in the paper's regime."""
    return all(sample.comparable for _, sample in samples)


def _of_longer(claim: Claim, cases: Sequence[Case], evidence: Evidence, dataset: str) -> list[tuple[Case, list[Term]]]:
    """Those of the cases whose lines all interpolate in runs with longer training, with their samples there."""
    longer = evidence.longer(dataset)
    if longer is None:
        return []
    named = [replace(case, what=f"{case.what} ({longer})") for case in cases]
    found = [(case, _samples(case, claim.experiment, longer, evidence)) for case in named]
    return [(case, samples) for case, samples in found if samples is not None and _comparable(samples)]


def _effect(case: Case, samples: list[Term]) -> Effect:
    if case.threshold is None:
        return combine(samples, case.what)
    values = list((samples[0][1].values or {0: samples[0][1].mean}).values())
    if case.one_suffices:
        return Effect(max(values), 0.0, what=f"{case.what}, highest of {len(values)} runs")
    # All runs must reach it: a mean above it with some below is no such thing.
    return Effect(min(values), 0.0, what=f"{case.what}, lowest of {len(values)} runs")


def _best(claim: Claim, part: Part, evidence: Evidence, dataset: str) -> Found:
    """Whether the best (or highest) of some lines is above the best of others, by one measure: a case without a choice.

    With a margin m it holds where one of the lines is better than each of the others less m,
    p = |A| min_a max_b p(a > b - m), and goes against it where one of the others is better than each of the lines plus
    m. The line that looks best is named, but the test does not depend on it. Lines that were not run, or do not
    interpolate, could be the best: pairs with one have p = 1.
    """
    measure, given = part.measures[0], (claim.experiment, dataset)
    sides = [[name.replace("{a}", alpha) for name in side for alpha in part.alphas] for side in (part.lines, part.than)]
    sides = [list(dict.fromkeys(side)) for side in sides]
    samples = {name: evidence.sample(*given, name, measure, None) for side in sides for name in side}
    run = {name: one for name, one in samples.items() if one is not None}
    sides = [[name for name in side if name in run or evidence.expects(*given, name)] for side in sides]
    counted, outside = {name for side in sides for name in side}, sum(not one.comparable for one in run.values())
    not_run, absent = len(counted) - len(run), len(samples) - len(counted)
    sign = METRICS[measure].sign if part.test == BEST else 1.0
    within = [{name: run[name] for name in side if name in run and run[name].comparable} for side in sides]
    if not all(within):
        return Found((), outside, not_run, absent, int(all(sides)))
    ours, theirs = (max(side, key=lambda name, side=side: sign * side[name].mean) for side in within)  # type: ignore[misc]

    def p_of(one: str, other: str) -> tuple[float, float]:
        """Of one of ours being better than one of theirs less the margin, and of the contrary."""
        if one not in within[0] or other not in within[1]:
            return 1.0, 1.0
        case = Case("", (), part.margin)
        return p_values(case, combine([(sign, run[one]), (-sign, run[other])]), evidence.by_sign)

    pairs = {(a, b): p_of(a, b) for a in sides[0] for b in sides[1]}
    for_it = len(sides[0]) * min(max(pairs[a, b][0] for b in sides[1]) for a in sides[0])
    against = len(sides[1]) * min(max(pairs[a, b][1] for a in sides[0]) for b in sides[1])
    what = f"{measure} of {ours} against {theirs}"
    effect = combine([(sign, run[ours]), (-sign, run[theirs])], what)
    case = Case(what, ((sign, ours, measure, None), (-sign, theirs, measure, None)), part.margin)
    tested = (case, replace(effect, p=(min(1.0, for_it), min(1.0, against))))
    return Found((tested,), outside, not_run, absent)


def _samples(case: Case, experiment: str, dataset: str, evidence: Evidence) -> list[Term] | None:
    found: list[Term] = []
    for coefficient, line, measure, level in case.terms:
        sample: Sample | None = evidence.sample(experiment, dataset, line, measure, level)
        if sample is None:
            return None
        found.append((coefficient, sample))
    return found


def decide(
    effects: Sequence[Tested], quantifier: str, by_sign: bool = False, undecided: int = 0, parts: int = 1
) -> Verdict:
    """Holds where enough cases hold, fails where too many fail for that, and is not decided in between.

    "At least k of n cases" is a partial conjunction hypothesis (Benjamini & Heller 2008). It is accepted at 5% where
    (n - k + 1) p_(k) is at most 5%, p_(k) the k-th smallest of the cases' p values. For one case of n this is the first
    step of Holm's procedure, and for all n no correction is needed. Undecided cases without an effect are among the n.
    Where a sentence has parts that must all hold, one that fails is enough: each is tested at 5% over their number.
    """
    if not effects:
        return Verdict(NOT_COMPARABLE if undecided else NOT_RUN)
    count = len(effects) + undecided
    need = QUANTIFIERS[quantifier](count)
    tests = [p_values(case, effect, by_sign) for case, effect in effects]
    for_it, against = zip(*tests, *[(1.0, 1.0)] * undecided, strict=True)
    fails = _at_least(count - need + 1, against, LEVEL / parts)
    found = HOLDS if _at_least(need, for_it) else FAILS if fails else OPEN
    verdicts = [case_verdict(*each) for each in tests]
    order = {FAILS: 0, OPEN: 1, HOLDS: 2}
    ranked = sorted(zip(verdicts, effects, strict=True), key=lambda pair: (order[pair[0]], _support(*pair[1])))
    # Of a claim that one case suffices for, the best case decides; of all others, the worst.
    deciding = ranked[-1 if quantifier == "can" else 0][1][1]
    single = all(effect.error is None for _, effect in effects)
    return Verdict(found, len(effects), verdicts.count(HOLDS), verdicts.count(FAILS), deciding, single)


def _at_least(cases: int, p_values: Sequence[float], level: float = LEVEL) -> bool:
    return (len(p_values) - cases + 1) * sorted(p_values)[cases - 1] <= level


def p_values(case: Case, effect: Effect, by_sign: bool = False) -> tuple[float, float]:
    """Of the one-sided t tests for a case and against it. A single run has none: with `by_sign` its sign decides."""
    if not math.isfinite(effect.mean) or (effect.error is None and not by_sign):
        return 1.0, 1.0
    if effect.p is not None:
        return effect.p
    if case.threshold is not None:
        reached = effect.mean >= case.threshold
        return float(not reached), float(reached or case.one_suffices)
    distance = _distance(case, effect)
    if not effect.error:
        return float(distance <= 0), float(distance >= 0)
    if case.tolerance is None:
        return effect.tail(distance), effect.tail(-distance)
    # Equivalence is two one-sided tests. Its contrary has two sides, but for a mean of absolute differences.
    other_side = effect.tail(abs(effect.mean) + case.tolerance) if len(case.terms) != 1 else 0.0
    return effect.tail(distance), min(1.0, effect.tail(-distance) + other_side)


def case_verdict(for_it: float, against: float) -> str:
    """One case by its p values, without regard to how many others there are."""
    return HOLDS if for_it < LEVEL else FAILS if against < LEVEL else OPEN


def _distance(case: Case, effect: Effect) -> float:
    """How far an effect is on the side of the claim."""
    return case.tolerance - abs(effect.mean) if case.tolerance is not None else effect.mean + case.margin


def _support(case: Case, effect: Effect) -> float:
    """The same less the width of the interval, for ordering."""
    return _distance(case, effect) - effect.reach
