"""The 2-D clusters with varying alpha at r = 1: larger alpha puts new rows further from the data."""

from __future__ import annotations

from mixupmp.core.methods import mixup_mp
from mixupmp.paper.experiments.landscape import Panel, draw_landscapes
from mixupmp.paper.lines import ALPHAS
from mixupmp.paper.study import Study

TITLE = "2-D clusters: what alpha does to F_inf and to the uncertainty"
OPTIONS = ("protocol", "device", "precision")  # all networks of a panel in one program, which is not compiled
COST = "minutes of a CPU"
RATIO = 1.0


def panels(members: int) -> list[Panel]:
    return [Panel(f"α = {alpha:g}", mixup_mp(RATIO, alpha, members)) for alpha in ALPHAS]


def run(study: Study) -> None:
    title = "As α grows, the bands of uncertainty around the decision boundary widen (r = 1)"
    draw_landscapes(study, title, panels)
