"""MixupMP and its rivals on KEEL's tables: mean ranks with a critical difference, and time beside quality.

Not of the paper. Every fold's numbers are kept, so that a command that was interrupted goes on where it was. The tables
are written again after each set, over all folds that are there, for the sets that defaults were developed on and for
those that are only reported, apart.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from mixupmp.decide.search import Search
from mixupmp.paper.figures import REFERENCE, color_of, panels, save
from mixupmp.paper.study import Study
from mixupmp.paper.tabular import DEVELOPMENT, FOLDS, REPORTED, ours, read_folds, rivals, run_folds
from mixupmp.plots.style import styled

TITLE = "MixupMP, the deep ensemble and rivals on KEEL's tables (not in the paper)"
DATASETS = {"smoke": ("wine",), "cpu": (*DEVELOPMENT, *REPORTED), "paper": (*DEVELOPMENT, *REPORTED)}
COUNTS = {"smoke": 1, "cpu": FOLDS, "paper": 10}
SMOKE = Search(pairs=((0.0, None), (1.0, 0.4)), epochs=(3,), members=2)
HALVES = {"development": DEVELOPMENT, "reported": REPORTED}
SHOWN = ("nll", "brier", "ece", "acc", "aurc")
Scores = Mapping[str, Mapping[str, float]]  # of each classifier on each set, means over folds


def run(study: Study, dataset: str) -> None:
    """Score every classifier on a set, and write all tables again."""
    started, smoke = time.time(), study.scale == "smoke"
    folder = study.results / study.name / ("smoke" if smoke else "folds")
    if not study.partial:
        others = rivals(0, study.say)
        if smoke:
            others = {"logistic regression": others["logistic regression"]}
        classifiers = {**ours(0, SMOKE if smoke else None), **others}
        run_folds(classifiers, (dataset,), folder, COUNTS[study.scale], study.say)
    for half, sets in HALVES.items():
        records = [record for record in read_folds(folder) if record["set"] in sets]
        if records:
            write_half(records, folder.parent, f"smoke-{half}" if smoke else half)
    differences = ["not of the paper", *(["two candidates, three epochs, one rival"] if smoke else [])]
    study.record(differences, [0], started, folds=COUNTS[study.scale])


def write_half(records: Sequence[dict[str, Any]], folder: Path, half: str) -> None:
    """The table and the picture of one half of the sets."""
    complete = complete_sets(records)
    scores = means(complete, "nll")
    if not scores:
        return
    ranks = mean_ranks(scores)
    sets = len(next(iter(scores.values())))
    difference = critical_difference(len(ranks), sets) if len(ranks) > 1 else 0.0
    lines = [
        f"# Tables, {half}: {sets} sets that every classifier has finished",
        "",
        "Means over sets and folds, after one temperature from held-out rows (NLL and ECE also before it); rank by "
        f"calibrated NLL, critical difference {difference:.2f} (Nemenyi, 5%).",
        "",
        "| classifier | mean rank | "
        + " | ".join(SHOWN)
        + " | raw nll | raw ece | 90% sets cover | by class | seconds |",
        "|---|" + "---:|" * (len(SHOWN) + 6),
    ]
    for name in sorted(ranks, key=lambda name: ranks[name]):
        own = [record for record in complete if record["classifier"] == name]
        cells = [f"{ranks[name]:.2f}", *(f"{fmean(r['calibrated'][m] for r in own):.4f}" for m in SHOWN)]
        cells += [f"{fmean(r['raw'][m] for r in own):.4f}" for m in ("nll", "ece")]
        cells += [f"{fmean(r[m] for r in own):.3f}" for m in ("coverage", "class_coverage")]
        lines.append(f"| {name} | " + " | ".join([*cells, f"{fmean(r['seconds'] for r in own):.1f}"]) + " |")
    lines += ["", *_against(complete), "", *_by_set(scores)]
    (folder / f"{half}.md").write_text("\n".join(lines) + "\n")
    _picture(ranks, difference, folder, half)


def complete_sets(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of sets and folds that every classifier has."""
    names = {record["classifier"] for record in records}
    having = defaultdict(set)
    for record in records:
        having[record["set"], record["fold"]].add(record["classifier"])
    return [record for record in records if having[record["set"], record["fold"]] == names]


def means(records: Sequence[dict[str, Any]], metric: str) -> dict[str, dict[str, float]]:
    """The mean over folds of a calibrated measure, by classifier and set."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        values[record["classifier"]][record["set"]].append(record["calibrated"][metric])
    return {name: {key: fmean(folds) for key, folds in sets.items()} for name, sets in values.items()}


def mean_ranks(scores: Scores, higher: bool = False) -> dict[str, float]:
    """The mean over sets of each classifier's rank; 1 is the best, ties share theirs."""
    from scipy.stats import rankdata

    names = list(scores)
    table = np.array([list(scores[name].values()) for name in names])
    ranks = rankdata(-table if higher else table, axis=0).mean(1)
    return dict(zip(names, ranks.tolist(), strict=True))


def critical_difference(classifiers: int, sets: int, level: float = 0.05) -> float:
    """The difference of mean ranks beyond which two classifiers differ (Nemenyi; Demsar, JMLR 7, 2006)."""
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - level, classifiers, np.inf)) / sqrt(2)
    return quantile * sqrt(classifiers * (classifiers + 1) / (6 * sets))


def _against(records: Sequence[dict[str, Any]]) -> list[str]:
    """On how many sets MixupMP is better than the deep ensemble, and where it is worse beyond noise."""
    folds: dict[str, list[float]] = defaultdict(list)
    rival = {(r["set"], r["fold"]): r["calibrated"]["nll"] for r in records if r["classifier"] == "deep ensemble"}
    for record in records:
        if record["classifier"] == "MixupMP" and (key := (record["set"], record["fold"])) in rival:
            folds[record["set"]].append(record["calibrated"]["nll"] - rival[key])
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


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / sqrt(len(values))


def _by_set(scores: Scores) -> list[str]:
    """Calibrated NLL of every classifier on every set."""
    names = list(scores)
    lines = ["| set | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for name in next(iter(scores.values())):
        best = min(scores[one][name] for one in names)
        cells = (f"**{v:.4f}**" if v == best else f"{v:.4f}" for v in (scores[one][name] for one in names))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _picture(ranks: Mapping[str, float], difference: float, folder: Path, half: str) -> None:
    """Mean ranks, with the critical difference from the best."""
    names = sorted(ranks, key=lambda name: -ranks[name])
    best = min(ranks.values())
    with styled():
        figure, [[axis]] = panels(1, 1, 6.4, 0.6 + 0.32 * len(names))
        axis.axvspan(best, best + difference, color=REFERENCE, alpha=0.25, label="critical difference from the best")
        for place, name in enumerate(names):
            axis.plot([ranks[name]], [place], "o", color=color_of(name))
        axis.set_yticks(range(len(names)), names)
        axis.set_xlabel("mean rank by calibrated NLL (1 is the best)")
        axis.legend(loc="lower right")
        save(figure, folder, half)
