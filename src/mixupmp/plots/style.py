"""The style of all figures: colors of methods, axes, and writing to files."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixupmp.core.errors import extra
from mixupmp.core.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PAPER, QUIET, GRID = "#1a1a2e", "#ffffff", "#718096", "#e2e8f0"
ACCENT, WARNING = "#2b6cb0", "#c53030"
METHOD_COLORS = {"NN": "#718096", "DE": "#2b6cb0", "MixupMP": "#2f855a", "Mixup ensemble": "#c05621", "MC": "#6b46c1"}
OTHER_COLOR = "#2c7a7b"
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": GRID,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.hashsalt": "mixupmp",
}


def styled() -> AbstractContextManager[None]:
    """A context in which matplotlib draws in our style; the user's own settings are restored after it."""
    with extra("matplotlib", "plot", "drawing a figure"):
        import matplotlib
    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, without pyplot: no window and no global state. Draw on it inside `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def color_of(method: str) -> str:
    """The color of a method by its label: "MixupMP (r = 1)" is MixupMP."""
    known = [name for name in METHOD_COLORS if method.startswith(name)]
    return METHOD_COLORS[max(known, key=len)] if known else OTHER_COLOR


def square(axes: Axes) -> None:
    """Axes of the unit square, with ticks at each quarter."""
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ticks = (0, 0.25, 0.5, 0.75, 1)
    axes.set_xticks(ticks, ["0", "25%", "50%", "75%", "100%"])
    axes.set_yticks(ticks, ["0", "25%", "50%", "75%", "100%"])
    axes.grid(True, linewidth=0.6)


def write(figure: Figure, path: str | Path) -> Path:
    """Write a figure atomically, in the format of the path's ending; the same figure gives the same bytes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    kind = path.suffix.removeprefix(".") or "png"
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}.get(kind)
    with styled():
        figure.savefig(content, format=kind, metadata=undated)
    write_atomically(path, content.getvalue())
    return path
