"""The 2-D clusters with varying r at alpha = 1: more r, more uncertainty between the clusters."""

from __future__ import annotations

from math import inf

from mixupmp.core.methods import deep_ensemble, mixup_ensemble, mixup_mp
from mixupmp.paper.experiments.landscape import Panel, draw_landscapes
from mixupmp.paper.study import Study

TITLE = "2-D clusters: what r does to F_inf and to the uncertainty"
OPTIONS = ("protocol", "device", "precision")  # all networks of a panel in one program, which is not compiled
COST = "minutes of a CPU"
RATIOS = (0.0, 0.1, 1.0, 10.0, inf)
ALPHA = 1.0


def panels(members: int) -> list[Panel]:
    found = [Panel("r = 0 (deep ensemble)", deep_ensemble(members))]
    found += [Panel(f"r = {r:g}", mixup_mp(r, ALPHA, members)) for r in RATIOS[1:-1]]
    return [*found, Panel("r = ∞ (Mixup ensemble)", mixup_ensemble(ALPHA, members))]


def run(study: Study) -> None:
    title = "As r grows, uncertainty fills the space between the clusters (α = 1)"
    listed = "r = 0, .1, 1, 10 and infinity, as the text names 0 and infinity alone"
    draw_landscapes(study, title, panels, own=[listed])
