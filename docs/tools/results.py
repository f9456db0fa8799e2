"""Tables of measured numbers, read from results/ when the site is built, so that no page repeats a number."""

from __future__ import annotations

import csv
import re
from pathlib import Path

MARKER = re.compile(r"^<!-- results: (\S+) \| (.+) -->$", re.MULTILINE)


def filled(markdown: str, root: Path) -> str:
    """Put a table in the place of each `<!-- results: FILE.csv | MEASURE, ... -->`."""
    return MARKER.sub(lambda match: table(root / match[1], match[2].split(", ")), markdown)


def table(path: Path, measures: list[str]) -> str:
    """A line for each method and a column for each of these measures, with its standard error."""
    with path.open(newline="") as file:
        found = {(row["line"], row["measure"]): row for row in csv.DictReader(file)}
    lines = dict.fromkeys(line for line, _ in found)
    out = [f"| | {' | '.join(measures)} |", "|---|" + "---:|" * len(measures)]
    for line in lines:
        cells = [cell(found.get((line, measure)), measure) for measure in measures]
        out.append(f"| {line} | {' | '.join(cells)} |")
    return "\n".join(out)


def cell(row: dict[str, str] | None, measure: str) -> str:
    if row is None or not row["value"]:
        return ""
    digits = 3 if measure.startswith("NLL") else 2
    error = f" ({float(row['standard_error']):.{digits}f})" if row["standard_error"] else ""
    return f"{float(row['value']):.{digits}f}{error}"
