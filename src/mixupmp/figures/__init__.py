"""Pictures for files, drawn by matplotlib (the extra 'plot'). Their titles say what is to be seen."""

from mixupmp.figures.reliability import Panel, reliability_figure
from mixupmp.figures.style import METHOD_COLOURS, colour_of, new_figure, write

__all__ = ["METHOD_COLOURS", "Panel", "colour_of", "new_figure", "reliability_figure", "write"]
