"""Figures for files, drawn by matplotlib (the extra 'plot')."""

from mixupmp.plots.reliability import ReliabilityPanel, reliability_figure
from mixupmp.plots.style import METHOD_COLORS, color_of, new_figure, write

__all__ = ["METHOD_COLORS", "ReliabilityPanel", "color_of", "new_figure", "reliability_figure", "write"]
