"""Reliability diagrams: how often a classifier is right when it is so sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mixupmp.errors import check
from mixupmp.figures.style import ACCENT, INK, QUIET, WARNING, colour_of, new_figure, square, styled
from mixupmp.metrics.reliability import ReliabilityBin, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 420.0  # area of the dot of a bin with all rows, in points


@dataclass(frozen=True)
class Panel:
    """One diagram: a method on some rows. Panels of one `rows` stand beside each other."""

    method: str
    rows: str
    result: Result


def reliability_figure(panels: Sequence[Panel], title: str) -> Figure:
    """A grid of diagrams, a line for each set of rows and a column for each method.

    A dot is a bin of predictions: across, how sure they were; up, how often they were right; its area, how many there
    are. A stem joins it to the diagonal, where the two agree: red below it (over-confident), blue above.
    """
    check(len(panels) > 0, "panels", panels, "at least one")
    sets = list(dict.fromkeys(panel.rows for panel in panels))
    methods = list(dict.fromkeys(panel.method for panel in panels))
    with styled():
        figure = new_figure(3.1 * len(methods) + 0.4, 3.3 * len(sets) + 1.0)
        grid = figure.subplots(len(sets), len(methods), squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat:
            axes.set_visible(False)
        for panel in panels:
            line, column = sets.index(panel.rows), methods.index(panel.method)
            _draw(grid[line][column], panel)
            if column == 0:
                grid[line][column].set_ylabel(f"{panel.rows}\n\nhow often it was right")
            if line == len(sets) - 1:
                grid[line][column].set_xlabel("how sure it was")
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        _legend(figure)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_visible(True)
    square(axes)
    axes.plot((0, 1), (0, 1), color=QUIET, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    shown = [line for line in panel.result.reliability if line.count]
    for at, to in map(_means, shown):
        axes.plot((at, at), (at, to), color=WARNING if to < at else ACCENT, linewidth=2.5, zorder=2)
    sure, right = zip(*(_means(line) for line in shown), strict=True)
    areas = [max(14.0, LARGEST * line.count / panel.result.rows) for line in shown]
    colour = colour_of(panel.method)
    axes.scatter(sure, right, areas, colour, edgecolor="white", linewidth=0.8, zorder=3)
    result = panel.result
    axes.set_title(panel.method, fontweight="bold", color=colour)
    text = (
        f"right {result.acc:.1%}\nNLL {result.nll:.3f}\nover-confident {result.oe:.1%}\nunder-confident {result.ue:.1%}"
    )
    axes.text(0.04, 0.97, text, transform=axes.transAxes, va="top", fontsize=8.5, linespacing=1.45, color=INK,
              bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2})  # fmt: skip


def _means(line: ReliabilityBin) -> tuple[float, float]:
    assert line.confidence is not None  # it has rows
    assert line.accuracy is not None
    return line.confidence, line.accuracy


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=QUIET, linewidth=1, linestyle=(0, (4, 3)), label="as sure as it is right"),
        Line2D([], [], color=WARNING, linewidth=2.5, label="too sure"),
        Line2D([], [], color=ACCENT, linewidth=2.5, label="not sure enough"),
        Line2D([], [], color=QUIET, marker="o", linestyle="", label="the larger, the more predictions"),
    ]
    figure.legend(handles=marks, loc="outside lower left", ncols=4, fontsize=9)
