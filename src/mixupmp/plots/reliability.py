"""Reliability diagrams: accuracy against confidence (DeGroot & Fienberg, 1983; Guo et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mixupmp.core.errors import check
from mixupmp.metrics.reliability import ReliabilityBin, Result
from mixupmp.plots.style import ACCENT, QUIET, WARNING, color_of, new_figure, square, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 420.0  # area of the dot of a bin with all rows, in points
FEW = 0.004  # share of the rows under which a bin is drawn faint


@dataclass(frozen=True)
class ReliabilityPanel:
    """One diagram: a method on a set of test rows. Panels with the same `rows` share a row of the grid."""

    method: str
    rows: str
    result: Result


def reliability_figure(panels: Sequence[ReliabilityPanel], title: str) -> Figure:
    """A grid of reliability diagrams, a row for each set of test rows and a column for each method.

    A dot is a bin of predictions at its mean confidence and accuracy, its area proportional to their number. A stem
    joins it to the diagonal of perfect calibration: red below it (over-confident), blue above (under-confident).
    """
    check(len(panels) > 0, "panels", panels, "at least one")
    sets = list(dict.fromkeys(panel.rows for panel in panels))
    methods = list(dict.fromkeys(panel.method for panel in panels))
    with styled():
        figure = new_figure(3.1 * len(methods) + 0.6, 3.0 * len(sets) + 1.2)
        grid = figure.subplots(len(sets), len(methods), squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat:
            axes.set_visible(False)
        for panel in panels:
            line, column = sets.index(panel.rows), methods.index(panel.method)
            _draw(grid[line][column], panel)
            if column == 0:
                grid[line][column].set_ylabel("accuracy")
                _name_line(grid[line][column], panel.rows)
            if line == len(sets) - 1:
                grid[line][column].set_xlabel("confidence")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        _legend(figure)
    return figure


def _name_line(axes: Axes, name: str) -> None:
    axes.text(-0.34, 0.5, name, transform=axes.transAxes, rotation=90, ha="center", va="center", fontweight="bold")


def _draw(axes: Axes, panel: ReliabilityPanel) -> None:
    axes.set_visible(True)
    square(axes)
    axes.plot((0, 1), (0, 1), color=QUIET, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    shown = [line for line in panel.result.reliability if line.count]
    for line in shown:
        at, to = _means(line)
        faint = line.count < FEW * panel.result.rows  # few rows say little, however far off they are
        color = WARNING if to < at else ACCENT
        axes.plot((at, at), (at, to), color=color, linewidth=2.5, alpha=0.35 if faint else 1.0, zorder=2)
    sure, right = zip(*(_means(line) for line in shown), strict=True)
    areas = [max(14.0, LARGEST * line.count / panel.result.rows) for line in shown]
    color = color_of(panel.method)
    axes.scatter(sure, right, areas, color, edgecolor="white", linewidth=0.8, zorder=3, clip_on=False)
    result = panel.result
    axes.set_title(panel.method, fontweight="bold", color=color)
    text = f"ACC {result.acc:.1%}\nNLL {result.nll:.3f}\nOE {result.oe:.1%}\nUE {result.ue:.1%}"
    # In the corner below the diagonal, which only a classifier that is quite wrong would reach.
    axes.text(0.97, 0.04, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=8.5, linespacing=1.4)


def _means(line: ReliabilityBin) -> tuple[float, float]:
    assert line.confidence is not None  # it has rows
    assert line.accuracy is not None
    return line.confidence, line.accuracy


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=QUIET, linewidth=1, linestyle=(0, (4, 3)), label="perfect calibration"),
        Line2D([], [], color=WARNING, linewidth=2.5, label="over-confident"),
        Line2D([], [], color=ACCENT, linewidth=2.5, label="under-confident"),
        Line2D([], [], color=QUIET, marker="o", linestyle="", label="area: number of predictions"),
    ]
    figure.legend(handles=marks, loc="outside lower left", ncols=4, fontsize=9)
