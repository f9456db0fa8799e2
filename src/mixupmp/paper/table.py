"""Tables as the paper makes them: best in group in bold, best of all starred, the paper's own figures beside ours.

Bold is the best of its group, and whatever a two-sided test at 5% does not tell from it (`effects.py`); a star is the
same over all groups. The paper prints in bold what is within two standard errors of the best, which is a narrower rule
with its three repeats, and narrower still as it leaves out that repeats share their test rows. A measure of single runs
has exactly one best. Lines whose networks do not interpolate their training rows are outside the paper's regime; they
are never bold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mixupmp.metrics.catalog import CALIBRATED, METRICS, Metric, metric_named
from mixupmp.metrics.comparison import Summary
from mixupmp.metrics.text_tables import csv_table, latex_table, latex_text, markdown_table
from mixupmp.paper.effects import Sample, combine

BOLD = "Bold: the best of its group, and what a two-sided t test at 5% does not tell from it; star: the same over all."
DIGITS = {"nll": 4}  # as the paper prints them, where the catalog has fewer
EXTRA = {
    "human_cross_entropy": Metric("human_cross_entropy", "Human CE", "cross-entropy of human labels", False),
    "ece_by_corruption": Metric("ece_by_corruption", "ECE by corruption", "mean of each one's ECE", False, 100, 2),
    "ece_noise": Metric("ece_noise", "noise in ECE", "what chance in the test rows adds to the ECE", None, 100, 2),
    "entropy_rank": Metric("entropy_rank", "Entropy rank corr.", "rank correlation with human entropy", True),
}


def shown_metric(name: str) -> Metric:
    """How a measure is shown: as the catalog has it, after calibration under a heading that says so."""
    plain = name.removesuffix(CALIBRATED)
    found = EXTRA[plain] if plain in EXTRA and plain not in METRICS else metric_named(plain)
    found = replace(found, digits=DIGITS.get(plain, found.digits))
    return found if plain == name else found.calibrated()


@dataclass(frozen=True)
class Cell:
    """A measured value over repeats, and what the paper has in that place, in the units it prints.

    `sample` has the same value by repeat and by resample of the test rows, for tests between lines.
    """

    ours: Summary | None
    paper: tuple[float, float | None] | None = None
    sample: Sample | None = None


@dataclass(frozen=True)
class TableLine:
    """One line: its group, its label, a cell for each measure, and how the training went.

    Parameters
    ----------
    comparable
        Whether it is in the paper's regime, and so may be the best.
    """

    group: str
    label: str
    cells: Mapping[str, Cell]
    notes: Mapping[str, str] = field(default_factory=dict)
    comparable: bool = True


@dataclass(frozen=True)
class Table:
    """Lines in groups, over the same measures."""

    title: str
    measures: tuple[str, ...]
    lines: tuple[TableLine, ...]
    caption: str = ""

    def marks(self) -> dict[tuple[str, str, str], str]:
        """'best', 'best*' or '' for each (group, label, measure)."""
        found: dict[tuple[str, str, str], str] = {}
        for measure in self.measures:
            overall = self._best(self.lines, measure)
            for group, members in self.groups():
                inside = self._best(members, measure)
                for line in members:
                    place = (group, line.label)
                    found[*place, measure] = "" if place not in inside else "best*" if place in overall else "best"
        return found

    def _best(self, lines: Sequence[TableLine], measure: str) -> set[tuple[str, str]]:
        cells = {(line.group, line.label): line.cells.get(measure, Cell(None)) for line in lines if line.comparable}
        candidates = {place: cell.ours for place, cell in cells.items() if cell.ours is not None}
        sign = shown_metric(measure).sign
        if sign == 0 or len(candidates) < 2:
            return set()
        top = max(candidates, key=lambda place: sign * candidates[place].mean)
        return {place for place in candidates if place == top or _level(cells[place], cells[top])}

    def groups(self) -> list[tuple[str, list[TableLine]]]:
        """The lines by group, in their order."""
        names = dict.fromkeys(line.group for line in self.lines)
        return [(name, [line for line in self.lines if line.group == name]) for name in names]

    def with_paper(self, measure: str) -> bool:
        """Whether the paper prints this measure for any of the lines."""
        return any(line.cells[measure].paper is not None for line in self.lines if measure in line.cells)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for line in self.lines for name in line.notes))

    def headings(self) -> list[str]:
        """One for each column after the label."""
        found = []
        for measure in self.measures:
            found.append(shown_metric(measure).column)
            if self.with_paper(measure):
                found.append("paper")
        return [*found, *self.notes]

    def row(
        self, line: TableLine, emphasize: Callable[[str, str], str], marks: Mapping[tuple[str, str, str], str]
    ) -> list[str]:
        """The cells of a line as text, after its label."""
        row = []
        for measure in self.measures:
            cell = line.cells.get(measure, Cell(None))
            row.append(emphasize(_shown(measure, cell.ours), marks[line.group, line.label, measure]))
            if self.with_paper(measure):
                row.append(_shown_paper(measure, cell.paper))
        return row + [line.notes.get(name, "") for name in self.notes]


def _level(one: Cell, best: Cell) -> bool:
    """Whether nothing tells a value from the best one."""
    effect = combine([(1.0, _sample(one)), (-1.0, _sample(best))])
    return effect.mean == 0 or (effect.error is not None and not effect.beyond_chance)


def _sample(cell: Cell) -> Sample:
    assert cell.ours is not None
    return cell.sample or Sample(cell.ours.mean, cell.ours.standard_error, cell.ours.repeats)


def to_markdown(table: Table) -> str:
    """For people, on a terminal or a page."""
    marks, headings = table.marks(), ["", *table.headings()]
    rows = []
    for group, lines in table.groups():
        rows.append([f"**{group}**", *[""] * (len(headings) - 1)])
        rows += [[line.label, *table.row(line, _bold, marks)] for line in lines]
    text = f"## {table.title}\n\n{markdown_table(headings, rows)}\n"
    return text + (f"\n{table.caption}\n" if table.caption else "")


def to_latex(table: Table) -> str:
    """For a paper."""
    marks = table.marks()
    body: list[list[str]] = []
    for group, lines in table.groups():
        body.append([rf"\textbf{{{_escaped(group)}}}"])
        cells = ([cell.replace("%", r"\%") for cell in table.row(line, _latex_bold, marks)] for line in lines)
        body += [[_escaped(line.label), *row] for line, row in zip(lines, cells, strict=True)]
        body.append([])  # a rule
    return latex_table(["", *map(_escaped, table.headings())], body)


def to_csv(table: Table) -> str:
    """For programs: one line for each number."""
    rows = []
    for line in table.lines:
        for measure in table.measures:
            cell, metric = line.cells.get(measure, Cell(None)), shown_metric(measure)
            numbers: list[object] = ["", "", 0]
            if (ours := cell.ours) is not None:
                error = "" if ours.standard_error is None else f"{metric.scale * ours.standard_error:.6g}"
                numbers = [f"{metric.scale * ours.mean:.6g}", error, ours.repeats]
            paper = ["" if value is None else value for value in cell.paper or ("", "")]
            rows.append([line.group, line.label, metric.heading, *numbers, *paper])
    headings = ["group", "line", "measure", "value", "standard_error", "repeats", "paper", "paper_standard_error"]
    return csv_table(headings, rows)


def _shown(measure: str, value: Summary | None) -> str:
    """'86.89 (0.12)'."""
    if value is None:
        return "-"
    metric = shown_metric(measure)
    error = "" if value.standard_error is None else f" ({metric.format(value.standard_error)})"
    return metric.format(value.mean) + error


def _shown_paper(measure: str, value: tuple[float, float | None] | None) -> str:
    """What the paper printed, which is in display units already."""
    if value is None:
        return ""
    digits = shown_metric(measure).digits
    error = f" ({value[1]:.{digits}f})" if value[1] is not None else ""
    return f"{value[0]:.{digits}f}{error}"


def _bold(text: str, mark: str) -> str:
    return f"**{text}**" + (r"\*" if "*" in mark else "") if mark else text


def _latex_bold(text: str, mark: str) -> str:
    return rf"$\mathbf{{{text}}}{'^*' if '*' in mark else ''}$" if mark else text


def _escaped(text: str) -> str:
    return latex_text(text.replace("alpha=", "α="))
