"""The 2-D clusters under three martingale posteriors: the Bayesian bootstrap, and DP-MP with two base measures.

The paper writes c = 1, which gives all new rows together the weight of one observed row; its figure shows as many new
rows as observed ones, which is c = n. Both are drawn. With the paper's rate of .5 some networks of c = n collapse to a
constant output, and more give several classes the same one; averaged in, they look like uncertainty. So there are two
figures: by the paper's recipe, without the collapsed members, with them, and with those alone that interpolate their
rows; and by a recipe that trains, the paper's at rate .1.
"""

from __future__ import annotations

from functools import partial

from mixupmp.core.methods import bayesian_bootstrap, dp_mp_perturbed, dp_mp_uniform
from mixupmp.data.clusters import SIZES
from mixupmp.paper.experiments.landscape import Panel, draw_landscapes
from mixupmp.paper.study import Study

TITLE = "2-D clusters: Bayesian bootstrap against DP-MP with Perturbed and Uniform base measures"
OPTIONS = ("protocol", "device", "precision")  # all networks of a panel in one program, which is not compiled
COST = "minutes of a CPU"
ONE_ROW = 1 / sum(SIZES)  # r = c/n for c = 1


BOTH = ("paper-recipe", "rate-0.1")
DIFFERENCES = (
    "N(0, 4) has variance 4, as the text does not say whether 4 is variance or deviation",
    "c = n beside the text's c = 1, as the paper's figure shows as many new rows as observed ones",
)
DATASETS = {"smoke": BOTH, "cpu": BOTH, "paper": BOTH[:1]}


def panels(members: int, collapsed: bool = False) -> list[Panel]:
    dense = {
        "Perturbed, c = n": dp_mp_perturbed(1.0, members=members),
        "Uniform, c = n": dp_mp_uniform(1.0, members=members),
    }
    found = [
        Panel("Bayesian bootstrap", bayesian_bootstrap(members)),
        Panel("Perturbed, c = 1", dp_mp_perturbed(ONE_ROW, members=members)),
        Panel("Uniform, c = 1", dp_mp_uniform(ONE_ROW, members=members)),
        *(Panel(name, method) for name, method in dense.items()),
    ]
    if collapsed:
        found += [Panel(f"{name}, all kept", method, keep_collapsed=True) for name, method in dense.items()]
        found.append(Panel("Perturbed, c = n, interpolating", dense["Perturbed, c = n"], interpolating=True))
    return found


def run(study: Study, recipe: str) -> None:
    title = "What the future is believed to be decides where there is uncertainty"
    if recipe == "rate-0.1":
        draw_landscapes(study, f"{title} (rate .1, all networks trained)", panels, "clusters-trained", DIFFERENCES)
    else:
        kept = "two panels more, in which collapsed networks are kept, and one of those that interpolate alone"
        both = partial(panels, collapsed=True)
        draw_landscapes(study, f"{title} (the paper's rate, .5)", both, own=[*DIFFERENCES, kept])
