"""Figures: what is drawn is what was measured, and drawing changes nobody's settings."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pytest
import torch

from mixupmp.core.errors import InvalidArgument
from mixupmp.metrics import Scores
from mixupmp.plots import ReliabilityPanel, color_of, reliability_figure, write
from mixupmp.plots.style import ACCENT, METHOD_COLORS, OTHER_COLOR, WARNING


def panel(method: str = "DE", rows: str = "clean", confidence: float = 0.8, right: int = 5) -> ReliabilityPanel:
    probabilities = torch.tensor([[confidence, 1 - confidence]]).repeat(10, 1)
    labels = torch.tensor([0] * right + [1] * (10 - right))
    return ReliabilityPanel(method, rows, Scores(2).update(probabilities, labels).result())


def test_a_dot_stands_at_its_confidence_and_accuracy_with_a_stem_to_the_diagonal() -> None:
    for right, color in ((5, WARNING), (10, ACCENT)):
        axes = reliability_figure([panel(right=right)], "title").axes[0]
        (dot,) = axes.collections[0].get_offsets().tolist()  # type: ignore[union-attr]
        assert dot == pytest.approx([0.8, right / 10])
        stem = axes.lines[1]
        assert list(stem.get_ydata()) == pytest.approx([0.8, right / 10])  # type: ignore[arg-type]
        assert stem.get_color() == color


def test_lines_and_columns_are_rows_and_methods() -> None:
    panels = [panel(method, rows) for rows in ("clean", "noise") for method in ("NN", "DE", "MixupMP")]
    figure = reliability_figure(panels, "What is to be seen")
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == ["NN", "DE", "MixupMP"]
    assert len(figure.axes) == 6
    assert figure.get_suptitle() == "What is to be seen"
    with pytest.raises(InvalidArgument, match="panels"):
        reliability_figure([], "nothing")


def test_methods_keep_their_colors() -> None:
    assert color_of("MixupMP (r = 1)") == METHOD_COLORS["MixupMP"]
    assert color_of("Mixup ensemble") == METHOD_COLORS["Mixup ensemble"]
    assert color_of("SWAG") == OTHER_COLOR


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_figure_gives_the_same_bytes(tmp_path: Path, kind: str) -> None:
    before = dict(mpl.rcParams)
    first, second = (write(reliability_figure([panel()], "t"), tmp_path / f"{n}.{kind}").read_bytes() for n in "ab")
    assert first == second
    assert dict(mpl.rcParams) == before
