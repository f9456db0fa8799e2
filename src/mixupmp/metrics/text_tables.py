"""Tables as text: Markdown, comma-separated values and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

_LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "α": r"$\alpha$",
    "∞": r"$\infty$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
}


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells between pipes, in columns of even width."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in (headings, *rows)
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def csv_table(headings: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """Comma-separated values."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([headings, *rows])
    return out.getvalue()


def latex_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A `tabular` of rows that are escaped already; an empty row is a rule."""
    lines = [" & ".join(row) + r" \\" if row else r"\hline" for row in rows]
    top = [rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}", r"\hline", " & ".join(headings) + r" \\ \hline"]
    return "\n".join([*top, *lines, r"\end{tabular}"]) + "\n"


def latex_text(text: str) -> str:
    """Text as LaTeX prints it."""
    return re.sub("|".join(map(re.escape, _LATEX)), lambda found: _LATEX[found[0]], text)
