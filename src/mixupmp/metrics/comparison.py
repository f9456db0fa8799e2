"""Comparing methods: means and standard errors over repeats, which is best, and the table that shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich import box
from rich.table import Table
from rich.text import Text

from mixupmp.core.errors import check
from mixupmp.metrics.catalog import Metric, metric_named, standard_metrics
from mixupmp.metrics.reliability import Result

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Summary:
    """A metric over repeats."""

    mean: float
    standard_error: float | None  # None for a single repeat, which says nothing about spread
    repeats: int
    values: tuple[float, ...] = ()  # of each repeat, where they are known: two of a length are paired


def summarize(results: Sequence[Result | Mapping[str, float | None]]) -> dict[str, Summary]:
    """Mean and standard error s/sqrt(n), s with n-1, of every metric that all repeats have."""
    check(len(results) > 0, "results", results, "at least one result")
    plain = [r.to_dict() if isinstance(r, Result) else dict(r) for r in results]
    summaries = {}
    for name in plain[0]:
        values = [float(value) for line in plain if (value := line.get(name)) is not None]
        if len(values) == len(plain):
            summaries[name] = summary_of(values)
    return summaries


def summary_of(values: Sequence[float]) -> Summary:
    """Mean and standard error of one metric's repeats."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Summary(mean, None, count, tuple(values))
    variance = math.fsum((v - mean) ** 2 for v in values) / (count - 1)
    return Summary(mean, math.sqrt(variance / count), count, tuple(values))


def difference(ours: Summary, theirs: Summary) -> Summary:
    """Ours minus theirs, paired by repeat where both have the same number of values, else as if independent."""
    if ours.values and len(ours.values) == len(theirs.values):
        return summary_of([a - b for a, b in zip(ours.values, theirs.values, strict=True)])
    errors = [one.standard_error for one in (ours, theirs) if one.standard_error is not None]
    error = math.hypot(*errors) if errors else None
    return Summary(ours.mean - theirs.mean, error, min(ours.repeats, theirs.repeats))


def best(
    metric: Metric, candidates: Mapping[K, Summary], compare: Callable[[K, K], Summary] | None = None
) -> frozenset[K]:
    """The candidates to print in bold: the best mean, and every other within two standard errors of it.

    The standard error is that of the difference to the best: paired where `compare` or equal numbers of repeats allow
    it, else sqrt(s_1^2 + s_2^2) of their own. Without standard errors only equals of the best are added. Nothing is
    best of fewer than two candidates, or by a metric of which neither end is better.

    Parameters
    ----------
    compare
        ``(candidate, best) -> Summary`` of their difference, such as one paired by test rows; by default `difference`.
    """
    sign = metric.sign
    if sign == 0 or len(candidates) < 2:
        return frozenset()
    top = max(candidates, key=lambda key: sign * candidates[key].mean)

    def level(key: K) -> bool:
        change = difference(candidates[key], candidates[top]) if compare is None else compare(key, top)
        return -sign * change.mean <= 2 * (change.standard_error or 0.0)

    return frozenset(key for key in candidates if key == top or level(key))


def display(name: str, value: float) -> tuple[str, float]:
    """The heading and the number that a table shows: ("ECE (%)", 4.67) for ("ece", .0467)."""
    metric = metric_named(name)
    return metric.column, metric.scale * value


@dataclass(frozen=True)
class MetricRow:
    """A line of a table: the metrics of one method, run or dataset. Lines of one group are compared."""

    label: str
    metrics: Mapping[str, Summary]
    group: str = ""


def single(values: Mapping[str, float | None]) -> dict[str, Summary]:
    """One evaluation as the metrics of a line."""
    return {name: Summary(value, None, 1) for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class MetricTable:
    """Metrics of several methods, runs or datasets, with the `best` of each group in bold."""

    lines: tuple[MetricRow, ...]
    metrics: tuple[str, ...] = field(default_factory=standard_metrics)
    title: str = ""
    heading: str = "method"
    percent_digits: int = 2

    def is_best(self, line: MetricRow, metric: str) -> bool:
        """Whether a line is among the `best` of its group."""
        rivals = [other for other in self.lines if other.group == line.group and metric in other.metrics]
        return id(line) in best(metric_named(metric), {id(other): other.metrics[metric] for other in rivals})

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(
            title=self.title or None,
            box=box.SIMPLE_HEAD,
            title_justify="left",
            title_style="bold",
            pad_edge=False,
            collapse_padding=True,
        )
        table.add_column(self.heading, no_wrap=True)
        for heading in self._headings():
            table.add_column(heading, justify="right", no_wrap=True)
        for group in dict.fromkeys(line.group for line in self.lines):
            if group:
                table.add_row(Text(group, style="italic"))
            lines = [line for line in self.lines if line.group == group]
            for number, line in enumerate(lines):
                cells = [Text(cell, "bold" if bold else "") for cell, bold in self._cells(line)]
                table.add_row(Text((" " if group else "") + line.label), *cells, end_section=number == len(lines) - 1)
        return table

    def markdown(self) -> str:
        """For a file."""
        grouped = any(line.group for line in self.lines)
        lines = [[*([" "] if grouped else []), self.heading, *self._headings()]]
        lines.append(["---"] * (1 + grouped) + ["---:"] * len(self.metrics))
        for line in self.lines:
            cells = [f"**{cell}**" if bold else cell for cell, bold in self._cells(line)]
            lines.append([*([line.group] if grouped else []), line.label, *cells])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _headings(self) -> list[str]:
        return [f"{metric.column} {metric.arrow}".strip() for metric in map(metric_named, self.metrics)]

    def _cells(self, line: MetricRow) -> Iterator[tuple[str, bool]]:
        for name in self.metrics:
            summary = line.metrics.get(name)
            shown = "" if summary is None else format_summary(name, summary, self.percent_digits)
            yield shown, summary is not None and self.is_best(line, name)


def format_summary(name: str, summary: Summary, percent_digits: int = 2) -> str:
    """A mean with its standard error, in the metric's digits: "94.24 ± 0.31"."""
    metric = metric_named(name)
    digits = percent_digits if metric.percent else metric.digits
    text = metric.format(summary.mean, digits)
    return text if summary.standard_error is None else f"{text} ± {metric.format(summary.standard_error, digits)}"
