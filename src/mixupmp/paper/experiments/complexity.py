"""What each method costs against the deep ensemble: time of a step and memory of a fit (appendix F)."""

from __future__ import annotations

import subprocess
import sys
import time

from mixupmp.core.methods import (
    Method,
    bayesian_bootstrap,
    ca_mixup_mc,
    deep_ensemble,
    mc_dropout,
    mixup_ensemble,
    mixup_mp,
    mixup_mp_mc,
)
from mixupmp.paper import Study
from mixupmp.paper.complexity import Cost, measure_all
from mixupmp.paper.figures import OTHER, pyplot, save
from mixupmp.paper.settings import fashion_mnist

TITLE = "time and memory of each method against DE (appendix F)"
ROUNDS = {"smoke": 3, "cpu": 12, "paper": 12}


def methods() -> dict[str, Method]:
    return {
        "DE": deep_ensemble(),
        "BB": bayesian_bootstrap(),
        "MixupMP": mixup_mp(1.0, 2.0),
        "Mixup Ensemble": mixup_ensemble(2.0),
        "MC Dropout": mc_dropout(),
        "MixupMP-MC": mixup_mp_mc(1.0, 2.0),
        "CAMixup-MC": ca_mixup_mc(2.0),
    }


def run(study: Study) -> None:
    started = time.time()
    setting = fashion_mnist(study.scale, "cnn")
    plans = {name: setting.plan(method, 0) for name, method in methods().items()}
    study.say(f"complexity ({study.scale}): {len(plans)} methods, {ROUNDS[study.scale]} rounds of steps each.")
    costs = measure_all(plans, ROUNDS[study.scale])
    write(study, costs, setting.describe())
    draw(study, costs)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    reduced = "CPU time of one thread; the methods take turns, so that what else the machine does falls on all alike"
    study.record([reduced], [0], started, python=sys.version.split()[0], commit=commit.stdout.strip())


def write(study: Study, costs: dict[str, Cost], setting: str) -> None:
    study.write("costs.json", {name: vars(cost) for name, cost in costs.items()})
    headings = ("method", "CPU ms a step", "time / DE", "(error)", "saved tensors (MB)", "memory / DE")
    rows = [
        (name, f"{1000 * c.seconds:.2f}", f"{c.time_ratio:.2f}", f"{c.time_error:.2f}", f"{c.megabytes:.2f}",
         f"{c.memory_ratio:.2f}")
        for name, c in costs.items()
    ]  # fmt: skip
    lines = ["## Time and memory of a step against DE", "", "| " + " | ".join(headings) + " |", "|---" * 6 + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    paper = (
        "The paper (appendix F): the same order of magnitude as DE; MixupMP a constant factor more for its minibatches "
        "of n_mb + t_mb rows (two, with t_mb = n_mb); BB next to nothing more."
    )
    lines += ["", f"{setting}. {paper}"]
    study.write("table.md", "\n".join(lines) + "\n")
    study.write("table.csv", "\n".join(",".join(row) for row in [headings, *rows]) + "\n")
    body = [" & ".join(row) + r" \\" for row in [headings, *rows]]
    study.write("table.tex", "\n".join([r"\begin{tabular}{lrrrrr}", *body, r"\end{tabular}"]) + "\n")
    study.say("\n".join(lines))


def draw(study: Study, costs: dict[str, Cost]) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    names = list(costs)[::-1]
    axes[0].barh(
        names, [costs[n].time_ratio for n in names], xerr=[2 * costs[n].time_error for n in names], color=OTHER
    )
    axes[1].barh(names, [costs[n].memory_ratio for n in names], color=OTHER)
    for axis, title in zip(axes, ("time of a step / DE", "memory of a step / DE"), strict=True):
        axis.axvline(1, color="#1a1a2e", linewidth=1)
        axis.set_title(title)
    figure.suptitle("A step of each method against a step of DE", y=1.03)
    save(figure, study.folder, "costs")
