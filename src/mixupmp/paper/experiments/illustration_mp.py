"""The 2-D clusters under three martingale posteriors: the Bayesian bootstrap, and DP-MP with two base measures.

The paper writes c = 1, which gives all new rows together the weight of one observed row; its figure shows as many new
rows as observed ones, which is c = n. Both are drawn.
"""

from __future__ import annotations

from mixupmp.core.methods import bayesian_bootstrap, dp_mp_perturbed, dp_mp_uniform
from mixupmp.data.clusters import SIZES
from mixupmp.paper.experiments.landscape import Panel, draw_landscapes
from mixupmp.paper.study import Study

TITLE = "2-D clusters: Bayesian bootstrap against DP-MP with Perturbed and Uniform base measures"
ONE_ROW = 1 / sum(SIZES)  # r = c/n for c = 1


def panels(members: int) -> list[Panel]:
    return [
        Panel("Bayesian bootstrap", bayesian_bootstrap(members)),
        Panel("Perturbed, c = 1", dp_mp_perturbed(ONE_ROW, members=members)),
        Panel("Uniform, c = 1", dp_mp_uniform(ONE_ROW, members=members)),
        Panel("Perturbed, c = n", dp_mp_perturbed(1.0, members=members)),
        Panel("Uniform, c = n", dp_mp_uniform(1.0, members=members)),
    ]


def run(study: Study) -> None:
    title = "What the future is believed to be decides where there is uncertainty"
    draw_landscapes(study, title, panels)
