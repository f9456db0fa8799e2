"""A table as a value: `report.html.j2` shows it, and it can be written as CSV and LaTeX."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mixupmp.metrics.text_tables import csv_table, latex_text


@dataclass(frozen=True)
class ReportCell:
    """Text with an optional standard error.

    `emphasis` marks the best of a column, or a clear difference for the better or the worse; `color` is the run's.
    """

    text: str
    error: str = ""
    emphasis: Literal["", "best", "better", "worse", "unclear"] = ""
    color: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table; its first `text_columns` columns are text, the others numbers."""

    name: str  # of its file
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[ReportCell | str]]
    text_columns: int = 1
    sortable: bool = False

    def cells(self) -> list[list[ReportCell]]:
        return [[cell if isinstance(cell, ReportCell) else ReportCell(cell) for cell in row] for row in self.rows]

    def csv(self) -> str:
        """Comma-separated values; where a column has standard errors, they have a column of their own."""
        cells = self.cells()
        with_error = [any(row[k].error for row in cells) for k in range(len(self.head))]
        head = [part for name, both in zip(self.head, with_error, strict=True) for part in _columns(name, both)]
        rows = []
        for row in cells:
            pairs = zip(row, with_error, strict=True)
            parts = [part for cell, both in pairs for part in ((cell.text, cell.error) if both else (cell.text,))]
            rows.append([part.replace("−", "-") for part in parts])
        return csv_table(head, rows)

    def latex(self) -> str:
        """A `tabular` with booktabs rules, the best in bold."""
        columns = "l" * self.text_columns + "r" * (len(self.head) - self.text_columns)
        lines = [" & ".join(map(_latex, row)) + r" \\" for row in self.cells()]
        head = " & ".join(latex_text(name) for name in self.head) + r" \\"
        body = "\n".join((r"\toprule", head, r"\midrule", *lines, r"\bottomrule"))
        return f"% {self.caption}\n\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"

    def downloads(self) -> list[tuple[str, str, str]]:
        """(format, file name, data URI) of the table as CSV and as LaTeX."""
        kinds = (("CSV", "csv", "text/csv", self.csv()), ("LaTeX", "tex", "application/x-tex", self.latex()))
        return [
            (label, f"{self.name}.{suffix}", f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}")
            for label, suffix, kind, text in kinds
        ]


def _columns(name: str, with_error: bool) -> tuple[str, ...]:
    return (name, f"{name} standard error") if with_error else (name,)


def _latex(cell: ReportCell) -> str:
    text = latex_text(cell.text)
    if cell.emphasis in ("best", "better"):
        text = rf"\textbf{{{text}}}"
    return rf"{text} {{\scriptsize $\pm$ {latex_text(cell.error)}}}" if cell.error else text
