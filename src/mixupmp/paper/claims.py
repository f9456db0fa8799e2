"""The sentences of the paper that claim something, as data.

`claims.toml` has one entry for each sentence: a short quotation, its section, its quantifier, the paper's own
datasets, and what has to be compared (`cases.py`). `verdicts.py` has the rule that judges them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

from mixupmp.core.errors import check_known
from mixupmp.core.foreign import Json
from mixupmp.paper.cases import Part

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
    restates: str = ""  # an earlier sentence that says the same

    @property
    def on_one_draw(self) -> bool:
        """Whether all repeats share their training rows: the examples in the plane and the known margins."""
        return self.experiment.startswith("illustration") or self.experiment == "margins"


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


def allowances(claim: Claim) -> str:
    """The numbers of ours in the tests of a sentence: 'margin 0.005 (ece)'."""
    found = []
    for part in claim.parts:
        measures = ", ".join(part.measures)
        found += [f"margin {part.margin:+g} ({measures})"] if part.margin else []
        found += [f"tolerance {part.tolerance:g} ({measures})"] if part.tolerance is not None else []
        found += [f"threshold {part.threshold:g} ({measures})"] if part.threshold is not None else []
    return "; ".join(dict.fromkeys(found)) or "-"
