"""The paper's own figures, to be printed beside ours, and how far our methods are ordered as the paper's are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import combinations
from math import hypot, inf
from typing import Literal

from scipy.stats import spearmanr

from mixupmp.core.foreign import Json

PaperTable = Literal["in_distribution", "shift", "bb_vs_de"]
CONCORDANCE_MEASURES = ("acc", "nll", "ece")
SINGLE, EXPLICIT, IMPLICIT = "Single model", "Explicit ensemble", "Implicit ensemble"
RANKED = 6  # lines that a rank correlation needs: of fewer it takes few values, and chance gives the highest
PERCENT = ("ACC", "ECE", "OE", "UE")  # of the paper's measures, those it prints in percent


@cache
def paper_figures() -> dict[str, Json]:
    """Everything in the data file."""
    text = resources.files("mixupmp.paper").joinpath("paper_figures.json").read_text()
    return dict(json.loads(text))


def paper_value(table: PaperTable, dataset: str, label: str, measure: str) -> tuple[float, float | None] | None:
    """(value, standard error) that the paper prints, or None where it prints none."""
    found = paper_figures()[table].get(dataset, {}).get(label, {}).get(measure)
    if found is None:
        return None
    return (float(found[0]), float(found[1])) if isinstance(found, list) else (float(found), None)


@dataclass(frozen=True)
class Concordance:
    """How far two tables order the same methods alike.

    Parameters
    ----------
    pairs
        Of each measure, the pairs of methods that differ by more than two standard errors in the paper, the one that
        is larger there first; all pairs where it prints no standard errors.
    rank
        Spearman's rank correlation of each measure over all methods of both tables.
    reversed
        Those of them whose difference has another sign here.
    """

    pairs: dict[str, list[tuple[str, str]]]
    rank: dict[str, float]
    reversed: dict[str, list[tuple[str, str]]]

    @property
    def total(self) -> int:
        return sum(map(len, self.pairs.values()))

    @property
    def same(self) -> int:
        return self.total - sum(map(len, self.reversed.values()))

    @property
    def share(self) -> float | None:
        return self.same / self.total if self.total else None

    def reversed_by_blends(self, measure: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """(how many reverse, of how many) pairs with different r: where the larger is worse there, and where better.

        Of pairs within a group alone: a difference between an ensemble and a single model is not one of blends.
        """
        low_is_good = measure in ("nll", "ece")
        pairs = [(a, b) for a, b in self.pairs.get(measure, []) if group_of(a) == group_of(b)]
        pairs = [(a, b) for a, b in pairs if _differ(ratio_of(a), ratio_of(b))]
        more_first = {(a, b): (ratio_of(a) or 0.0) > (ratio_of(b) or 0.0) for a, b in pairs}
        worse = [pair for pair in pairs if more_first[pair] == low_is_good]
        better = [pair for pair in pairs if more_first[pair] != low_is_good]
        turned = set(self.reversed.get(measure, ()))
        return (len(turned.intersection(worse)), len(worse)), (len(turned.intersection(better)), len(better))

    def to_dict(self) -> dict[str, object]:
        """As plain JSON."""
        return {"pairs": self.total, "same": self.same, "share": self.share, "rank": self.rank}


def ratio_of(label: str) -> float | None:
    """r of a line of the tables: how many blends there are for each row; None where that adapts."""
    if "r=" in label:
        return float(label.split("r=")[1].split()[0])
    if label.startswith("CAMixup"):
        return None
    return inf if label.startswith("Mixup") else 0.0


def group_of(label: str) -> str:
    """The group of the paper's tables that a line is in."""
    if label.startswith(("NN", "MixupMP-single", "Mixup alpha", "Laplace")):
        return SINGLE
    return IMPLICIT if label.startswith("MC ") or "-MC" in label else EXPLICIT


def _differ(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one != other


def concordance(ours: Mapping[str, Mapping[str, float]], table: PaperTable, dataset: str) -> Concordance:
    """Our means (label -> measure -> mean) against a table of the paper."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    turned: dict[str, list[tuple[str, str]]] = {}
    rank = {}
    for measure in CONCORDANCE_MEASURES:
        printed = {label: paper_value(table, dataset, label, measure.upper()) for label in ours}
        theirs = {label: value for label, value in printed.items() if value is not None and measure in ours[label]}
        for one, other in combinations(theirs, 2):
            difference = theirs[one][0] - theirs[other][0]
            if abs(difference) > 2 * hypot(theirs[one][1] or 0.0, theirs[other][1] or 0.0):
                pair = (one, other) if difference > 0 else (other, one)
                pairs.setdefault(measure, []).append(pair)
                if difference * (ours[one][measure] - ours[other][measure]) <= 0:
                    turned.setdefault(measure, []).append(pair)
        if len(theirs) >= RANKED:
            values = [(theirs[label][0], ours[label][measure]) for label in theirs]
            rank[measure] = float(spearmanr(*zip(*values, strict=True)).statistic)
    return Concordance(pairs, rank, turned)
