"""Tables of measures: means with standard errors, and in bold what is best or cannot be told from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import hypot

from rich import box
from rich.table import Table
from rich.text import Text

from mixupmp.metrics.summary import PERCENT, Summary, display

HIGHER_IS_BETTER = frozenset(("acc",))
LOWER_IS_BETTER = frozenset(("nll", "brier", "ece", "oe", "ue", "adaptive_ece", "crps"))
STANDARD = ("acc", "nll", "brier", "ece", "oe", "ue")


@dataclass(frozen=True)
class Line:
    """A line of a table: what was measured of one thing. Lines of one group compete with each other."""

    label: str
    measures: Mapping[str, Summary]
    group: str = ""


@dataclass(frozen=True)
class MetricTable:
    """Measures of several methods, runs or datasets."""

    lines: tuple[Line, ...]
    metrics: tuple[str, ...] = STANDARD
    title: str = ""
    heading: str = "method"
    percent_digits: int = 2

    def is_best(self, line: Line, metric: str) -> bool:
        """Whether a line has the best mean of its group, or one within two standard errors (of the difference)."""
        rivals = [
            other.measures[metric] for other in self.lines if other.group == line.group and metric in other.measures
        ]
        mine = line.measures.get(metric)
        if mine is None or len(rivals) < 2 or metric not in HIGHER_IS_BETTER | LOWER_IS_BETTER:
            return False
        sign = -1 if metric in HIGHER_IS_BETTER else 1
        best = min(rivals, key=lambda rival: sign * rival.mean)
        slack = 2 * hypot(best.standard_error or 0.0, mine.standard_error or 0.0)
        return sign * (mine.mean - best.mean) <= slack

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(
            title=self.title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False,
            collapse_padding=True,
        )  # fmt: skip
        groups = list(dict.fromkeys(line.group for line in self.lines))
        table.add_column(self.heading, no_wrap=True)
        for metric in self.metrics:
            table.add_column(f"{display(metric, 0.0)[0]} {_arrow(metric)}".strip(), justify="right", no_wrap=True)
        for group in groups:
            if group:
                table.add_row(Text(group, style="italic"))
            lines = [line for line in self.lines if line.group == group]
            for number, line in enumerate(lines):
                cells = [Text(cell, "bold" if best else "") for cell, best in self._cells(line)]
                table.add_row(Text((" " if group else "") + line.label), *cells, end_section=number == len(lines) - 1)
        return table

    def markdown(self) -> str:
        """For a file."""
        grouped = any(line.group for line in self.lines)
        heading = [*([" "] if grouped else []), self.heading]
        heading += [f"{display(metric, 0.0)[0]} {_arrow(metric)}".strip() for metric in self.metrics]
        lines = [heading, ["---"] * (1 + grouped) + ["---:"] * len(self.metrics)]
        for line in self.lines:
            cells = [f"**{cell}**" if best else cell for cell, best in self._cells(line)]
            lines.append([*([line.group] if grouped else []), line.label, *cells])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _cells(self, line: Line) -> Iterable[tuple[str, bool]]:
        for metric in self.metrics:
            summary = line.measures.get(metric)
            yield (
                ("", False)
                if summary is None
                else (
                    shown(metric, summary, self.percent_digits),
                    self.is_best(line, metric),
                )
            )


def shown(metric: str, summary: Summary, percent_digits: int = 2) -> str:
    """A mean with its standard error, in the digits that the measure deserves: "94.24 ± 0.31"."""
    digits = percent_digits if metric in PERCENT else 3
    text = f"{display(metric, summary.mean)[1]:.{digits}f}"
    if summary.standard_error is not None:
        text += f" ± {display(metric, summary.standard_error)[1]:.{digits}f}"
    return text


def single(measures: Mapping[str, float | None]) -> dict[str, Summary]:
    """One evaluation as measures of a line."""
    return {name: Summary(value, None, 1) for name, value in measures.items() if value is not None}


def _arrow(metric: str) -> str:
    return "↑" if metric in HIGHER_IS_BETTER else "↓" if metric in LOWER_IS_BETTER else ""
