"""The results explorer: one page over a folder of results, to pick a dataset, methods and a metric."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from mixupmp.core.errors import BadData, UnknownName
from mixupmp.core.files import write_atomically
from mixupmp.core.foreign import Json
from mixupmp.core.version import __version__
from mixupmp.metrics.catalog import CALIBRATED, metric_named
from mixupmp.metrics.comparison import summary_of
from mixupmp.web.pages import render

FILE = "evaluations.json"


def write_explorer(results: Path, out: Path) -> int:
    """Write the page over all evaluations under a folder; returns how many sets of results it shows."""
    sets = [read_set(path, results) for path in sorted(results.rglob(FILE))]
    if not sets:
        raise BadData(f"{results} has no {FILE}: name a folder that `mixupmp reproduce` wrote.")
    names = sorted({name.removesuffix(CALIBRATED) for one in sets for line in one["lines"] for name in line["metrics"]})
    metrics = {name: _described(name) for name in names}
    document = {"sets": sets, "metrics": metrics, "calibrated": CALIBRATED}
    # A script of JSON ends at "</", whatever is inside it.
    content = json.dumps(document, allow_nan=False).replace("<", "\\u003c")
    page = render(
        "explorer.html.j2",
        document=content,
        sets=len(sets),
        version=__version__,
        written=f"{datetime.now(UTC):%-d %B %Y}",
    )
    write_atomically(out, page.encode())
    return len(sets)


def read_set(path: Path, results: Path) -> dict[str, Json]:
    """The lines of one table: a name, a group, and the mean, standard error and number of repeats of each metric."""
    try:
        lines = json.loads(path.read_text("utf-8"))
        command = json.loads((path.parent / "run.json").read_text("utf-8")).get("command", "")
        shown = [
            {"label": str(line["label"]), "group": str(line["group"]), "metrics": _summaries(line["repeats"])}
            for line in lines
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadData(f"{path} is not a table of evaluations: {error}.") from error
    return {"name": " · ".join(path.parent.relative_to(results).parts), "command": str(command), "lines": shown}


def _summaries(repeats: list[dict[str, Json]]) -> dict[str, list[float]]:
    """[mean, standard error, repeats] of each metric of the catalog that all repeats have."""
    shared = set.intersection(*(set(one) for one in repeats)) if repeats else set()
    found = {}
    for name in sorted(shared):
        values = [one[name] for one in repeats]
        known = all(isinstance(v, int | float) and not isinstance(v, bool) and isfinite(v) for v in values)
        if known and _described(name) is not None:
            summary = summary_of(values)
            found[name] = [summary.mean, summary.standard_error or 0.0, summary.repeats]
    return found


def _described(name: str) -> dict[str, Json] | None:
    try:
        metric = metric_named(name)
    except UnknownName:
        return None
    better = {True: "higher", False: "lower", None: ""}[metric.higher_is_better]
    shown = {"heading": metric.column, "title": metric.title, "scale": metric.scale, "digits": metric.digits}
    return shown | {"better": better}
