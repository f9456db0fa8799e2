"""The paper's own figures, to be printed beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Literal

Table = Literal["in_distribution", "shift", "bb_vs_de"]


@cache
def paper_figures() -> dict[str, Any]:
    """Everything in the data file."""
    text = resources.files("mixupmp.paper").joinpath("paper_figures.json").read_text()
    return dict(json.loads(text))


def paper_value(table: Table, dataset: str, label: str, measure: str) -> tuple[float, float | None] | None:
    """(value, standard error) that the paper prints, or None where it prints none."""
    found = paper_figures()[table].get(dataset, {}).get(label, {}).get(measure)
    if found is None:
        return None
    return (float(found[0]), float(found[1])) if isinstance(found, list) else (float(found), None)
