"""Does the rate of dropout explain why the implicit ensembles of a small CNN are worse here than in the paper?

Not of the paper, whose rate is .3. Rows, network and recipe are those of `comparison --data fmnist`.

mixupmp reproduce results/dropout/dropout.py --scale cpu
"""

from __future__ import annotations

from mixupmp.core.methods import mc_dropout, mixup_mp_mc
from mixupmp.paper.lines import EXPLICIT, IMPLICIT, SINGLE, Line, ensemble_at
from mixupmp.paper.report import report_lines
from mixupmp.paper.settings import Setting, setting_named
from mixupmp.paper.study import Study

TITLE = "implicit ensembles of the CNN at three rates of dropout (not in the paper)"
RATES = (0.05, 0.1, 0.3)
MEASURES = ("acc", "nll", "ece", "oe", "ue", "nll_calibrated", "ece_calibrated")


def lines(setting: Setting) -> list[Line]:
    """MC Dropout and MixupMP-MC at each rate, below the single network and above the explicit ensembles."""
    found = [Line(SINGLE, "NN", ensemble_at(setting, 0, 2.0), (0, 1))]
    for rate in RATES:
        found.append(Line(IMPLICIT, f"MC Dropout, rate {rate:g}", mc_dropout(setting.masks, rate)))
        method = mixup_mp_mc(1.0, 2.0, setting.masks, rate)
        found.append(Line(IMPLICIT, f"MixupMP-MC r=1 alpha=2, rate {rate:g}", method))
    return [*found, *(Line(EXPLICIT, label, ensemble_at(setting, r, 2.0)) for label, r in (("DE", 0), ("MixupMP", 1)))]


def run(study: Study) -> None:
    """Train and evaluate them, and write the table."""
    setting = study.setting(setting_named("fmnist", study.scale))
    report_lines(study, setting, lines(setting), "Implicit ensembles by rate of dropout, FMNIST", MEASURES)
