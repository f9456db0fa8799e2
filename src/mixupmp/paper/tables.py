"""Tables as the paper makes them: best in group in bold, best of all starred, the paper's own figures beside ours.

The paper's rule: bold is the best of its group, and whatever is within two standard errors of it; a star is the same
over all groups. A measure without a standard error has exactly one best.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mixupmp.metrics import Summary

# How each measure is shown: heading, factor, decimals, and whether more is better (None: neither).
MEASURES: dict[str, tuple[str, float, int, bool | None]] = {
    "acc": ("ACC", 100, 2, True),
    "nll": ("NLL", 1, 4, False),
    "ece": ("ECE", 100, 2, False),
    "oe": ("OE", 100, 2, False),
    "ue": ("UE", 100, 2, False),
    "brier": ("Brier", 1, 4, False),
    "entropy": ("entropy", 1, 3, None),
    "training_accuracy": ("train ACC", 100, 2, None),
    "auroc": ("AUROC", 100, 2, True),
    "aupr_out": ("AUPR-out", 100, 2, True),
    "aupr_in": ("AUPR-in", 100, 2, True),
    "fpr95": ("FPR95", 100, 2, False),
    "aurc": ("AURC", 1000, 2, False),
    "acc_at_80": ("ACC at 80%", 100, 2, True),
}


@dataclass(frozen=True)
class Cell:
    """A measured value over repeats, and what the paper has in that place."""

    ours: Summary | None
    paper: tuple[float, float | None] | None = None


@dataclass(frozen=True)
class TableLine:
    """One line: its group, its label, a cell for each measure, and how the training went."""

    group: str
    label: str
    cells: Mapping[str, Cell]
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Lines in groups, over the same measures."""

    title: str
    measures: tuple[str, ...]
    lines: tuple[TableLine, ...]
    caption: str = ""
    paper_heading: str = "paper"

    def marks(self) -> dict[tuple[str, str, str], str]:
        """'best', 'best*' or '' for each (group, label, measure)."""
        found: dict[tuple[str, str, str], str] = {}
        for measure in self.measures:
            overall = _best(self.lines, measure)
            for group in dict.fromkeys(line.group for line in self.lines):
                members = [line for line in self.lines if line.group == group]
                inside = _best(members, measure)
                for line in members:
                    place = (group, line.label)
                    found[*place, measure] = "" if place not in inside else "best*" if place in overall else "best"
        return found

    @property
    def has_paper(self) -> bool:
        return any(cell.paper is not None for line in self.lines for cell in line.cells.values())

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for line in self.lines for name in line.notes))


def _best(lines: Sequence[TableLine], measure: str) -> set[tuple[str, str]]:
    """(group, label) of the best lines, by the paper's rule."""
    higher = MEASURES[measure][3]
    measured = [(line, cell.ours) for line in lines if (cell := line.cells.get(measure)) and cell.ours is not None]
    if higher is None or not measured:
        return set()
    sign = 1 if higher else -1
    _, top = max(measured, key=lambda pair: sign * pair[1].mean)
    slack = 2 * (top.standard_error or 0.0)
    return {(line.group, line.label) for line, ours in measured if sign * (top.mean - ours.mean) <= slack}


def shown(measure: str, value: Summary | None, with_error: bool = True) -> str:
    """'86.89 (0.12)'."""
    if value is None:
        return "-"
    _, factor, decimals, _ = MEASURES[measure]
    text = f"{factor * value.mean:.{decimals}f}"
    if with_error and value.standard_error is not None:
        text += f" ({factor * value.standard_error:.{decimals}f})"
    return text


def shown_paper(measure: str, value: tuple[float, float | None] | None) -> str:
    """What the paper printed, which is in display units already."""
    if value is None:
        return ""
    decimals = MEASURES[measure][2]
    error = f" ({value[1]:.{decimals}f})" if value[1] is not None else ""
    return f"{value[0]:.{decimals}f}{error}"


def to_markdown(table: Table) -> str:
    """For people, on a terminal or a page."""
    marks = table.marks()
    headings = ["", *_headings(table), *table.notes]
    rows = []
    for group, lines in _groups(table):
        rows.append([f"**{group}**", *[""] * (len(headings) - 1)])
        for line in lines:
            row = [line.label]
            for measure in table.measures:
                cell = line.cells.get(measure, Cell(None))
                row.append(_emphasised(shown(measure, cell.ours), marks[line.group, line.label, measure]))
                if _with_paper(table, measure):
                    row.append(shown_paper(measure, cell.paper))
            rows.append(row + [line.notes.get(name, "") for name in table.notes])
    text = f"## {table.title}\n\n{_pipes(headings, rows)}\n"
    return text + (f"\n{table.caption}\n" if table.caption else "")


def to_csv(table: Table) -> str:
    """For programs: one line for each number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["group", "line", "measure", "value", "standard_error", "repeats", "paper", "paper_standard_error"])
    for line in table.lines:
        for measure in table.measures:
            cell = line.cells.get(measure, Cell(None))
            heading, factor = MEASURES[measure][:2]
            ours = cell.ours
            numbers = (
                [factor * ours.mean, "" if ours.standard_error is None else factor * ours.standard_error, ours.repeats]
                if ours
                else ["", "", 0]
            )
            paper = ["" if v is None else v for v in cell.paper or ("", "")]
            writer.writerow([line.group, line.label, heading, *map(_short, numbers), *paper])
    return out.getvalue()


def to_latex(table: Table) -> str:
    """For a paper."""
    marks = table.marks()
    columns = "l" + "r" * (len(_headings(table)) + len(table.notes))
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline"]
    lines += [" & ".join(["", *map(_escaped, _headings(table)), *map(_escaped, table.notes)]) + r" \\ \hline"]
    for group, members in _groups(table):
        lines.append(rf"\textbf{{{_escaped(group)}}} \\")
        for line in members:
            row = [_escaped(line.label)]
            for measure in table.measures:
                cell = line.cells.get(measure, Cell(None))
                row.append(_latex_mark(shown(measure, cell.ours), marks[line.group, line.label, measure]))
                if _with_paper(table, measure):
                    row.append(shown_paper(measure, cell.paper))
            lines.append(" & ".join(row + [_escaped(line.notes.get(name, "")) for name in table.notes]) + r" \\")
        lines.append(r"\hline")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def _groups(table: Table) -> Iterable[tuple[str, list[TableLine]]]:
    for group in dict.fromkeys(line.group for line in table.lines):
        yield group, [line for line in table.lines if line.group == group]


def _with_paper(table: Table, measure: str) -> bool:
    return any(line.cells[measure].paper is not None for line in table.lines if measure in line.cells)


def _headings(table: Table) -> list[str]:
    found = []
    for measure in table.measures:
        heading, factor, _, _ = MEASURES[measure]
        found.append(f"{heading} (%)" if factor == 100 else f"{heading} (x{factor:g})" if factor != 1 else heading)
        if _with_paper(table, measure):
            found.append(table.paper_heading)
    return found


def _pipes(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    line = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    top = "| " + " | ".join(cell.ljust(w) for cell, w in zip(headings, widths, strict=True)) + " |"
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([top, rule, *line])


def _emphasised(text: str, mark: str) -> str:
    return f"**{text}**" + (r"\*" if "*" in mark else "") if mark else text


def _latex_mark(text: str, mark: str) -> str:
    return rf"$\mathbf{{{text}}}{'^*' if '*' in mark else ''}$" if mark else text


def _escaped(text: str) -> str:
    return text.replace("%", r"\%").replace("alpha=", r"$\alpha$=").replace("_", r"\_").replace("#", r"\#")


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
