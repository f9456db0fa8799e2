"""What the figures of all experiments share: colors by method, curves with error bars, SVG and PNG files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixupmp.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEQUENCE = ("#9ae6b4", "#48bb78", "#2f855a", "#1c4532")  # light to dark green: growing alpha or r of MixupMP
REFERENCE = "#a0aec0"  # lines of reference: a diagonal, zero


def color_of(label: str) -> str:
    """A method's color; of MixupMP and its variants, darker for larger r."""
    if label.startswith("MixupMP") and "r=" in label:
        return SEQUENCE[1] if float(label.split("r=")[1].split()[0]) < 1 else SEQUENCE[2]
    return style.color_of(label.replace("Mixup Ensemble", "Mixup ensemble").replace("MC Dropout", "MC"))


def panels(rows: int, columns: int, width: float, height: float, **shared: Any) -> tuple[Figure, list[list[Axes]]]:
    """A figure and its axes, row by row; draw on them inside `style.styled()`."""
    figure = style.new_figure(width, height)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared).tolist()


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write both formats."""
    for ending in ("svg", "png"):
        style.write(figure, folder / f"{name}.{ending}")


def curve(
    axis: Axes,
    x: Sequence[float],
    y: Sequence[float],
    errors: Sequence[float],
    label: str,
    color: str,
    hollow: Sequence[bool],
) -> None:
    """A line with error bars of two standard errors, and hollow markers where it is outside the paper's regime."""
    bars = [2 * error for error in errors]
    axis.errorbar(x, y, bars, label=label, color=color, marker="o", markersize=3.5, linewidth=1.4, capsize=2)
    outside = [(a, b) for a, b, one in zip(x, y, hollow, strict=True) if one]
    axis.plot([a for a, _ in outside], [b for _, b in outside], **_hollow(color))
    axis.grid(True, linewidth=0.6)


def explain(axis: Axes, bars: str = "", hollow: bool = False) -> None:
    """Entries of the legend for error bars and, where there are some, for hollow markers."""
    if bars:
        axis.plot([], [], marker="|", markersize=9, linestyle="none", color=style.QUIET, label=bars)
    if hollow:
        axis.plot([], [], **_hollow(style.QUIET), label="hollow: training accuracy below 98%, not comparable")


def bars_of(evaluations: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """What error bars of two standard errors are of; a line may have several runs of one repeat, which is a seed."""
    repeats = len({one.get("seed") for runs in evaluations for one in runs})
    return f"bars: 2 standard errors over the runs of {repeats} repeats" if repeats > 1 else "one repeat: no error bars"


def _hollow(color: str) -> Any:
    return {"marker": "o", "markersize": 3.5, "linestyle": "none", "color": color, "mfc": style.PAPER, "zorder": 4}
