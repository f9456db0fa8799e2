"""How the figures of all experiments look, and how they are saved: SVG and PNG, in the project's colors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mixupmp.core.errors import MissingExtra

INK = "#1a1a2e"
COLORS = {
    "NN": "#718096",
    "DE": "#2b6cb0",
    "MixupMP": "#2f855a",
    "Mixup Ensemble": "#c05621",
    "MC Dropout": "#6b46c1",
}
OTHER = "#2c7a7b"
SEQUENCE = ("#9ae6b4", "#48bb78", "#2f855a", "#1c4532")  # light to dark green: growing alpha or r of MixupMP


def color_of(label: str) -> str:
    """A method's color; of MixupMP, darker for larger r."""
    if label.startswith("MixupMP r="):
        ratio = float(label.split("r=")[1].split()[0])
        return SEQUENCE[1] if ratio < 1 else SEQUENCE[2]
    for name, color in COLORS.items():
        if label.startswith(name):
            return color
    return OTHER


def pyplot() -> Any:
    """matplotlib without a screen, set up in the project's style."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("matplotlib", "plot", "Drawing the figures") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update(
        {
            "font.family": "sans-serif",
            "font.size": 9,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#e2e8f0",
            "svg.hashsalt": "mixupmp",  # so that the same figure has the same bytes
            "savefig.bbox": "tight",
        }
    )
    return plt


def save(figure: Any, folder: Path, name: str) -> None:
    """Write both formats and let go of the figure."""
    from matplotlib import pyplot as plt

    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=150)
    plt.close(figure)


def curve(axis: Any, x: Sequence[float], y: Sequence[float], errors: Sequence[float], label: str, color: str) -> None:
    """A line with error bars of two standard errors."""
    bars = [2 * error for error in errors]
    axis.errorbar(x, y, bars, label=label, color=color, marker="o", markersize=3.5, linewidth=1.4, capsize=2)
