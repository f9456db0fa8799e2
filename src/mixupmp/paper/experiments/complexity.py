"""What each method costs against the deep ensemble: time of a step, and memory of what it keeps (appendix F)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import sqrt

import torch
from torch import Tensor

from mixupmp.core.batch import Batch
from mixupmp.core.likelihoods import weighted_loss
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
from mixupmp.core.plan import Plan
from mixupmp.core.threads import pinned_threads
from mixupmp.metrics.text_tables import csv_table, latex_table, markdown_table
from mixupmp.paper.figures import REFERENCE, explain, panels, save
from mixupmp.paper.settings import setting_named
from mixupmp.paper.study import Study
from mixupmp.plots.style import OTHER_COLOR, styled
from mixupmp.train.member import MemberFit

TITLE = "time and memory of each method against DE (appendix F)"
OPTIONS = ("protocol",)  # CPU time: a GPU's is not seen in it; memory is counted in float32, without compilation
COST = "minutes of a CPU"
ROUNDS = {"smoke": 3, "cpu": 12, "paper": 12}
HEADINGS = ("method", "CPU ms a step", "time / DE", "(error)", "saved tensors (MB)", "memory / DE")
PAPER = (
    "The paper (appendix F): the same order of magnitude as DE; MixupMP a constant factor more for its minibatches "
    "of n_mb + t_mb rows (two, with t_mb = n_mb); BB next to nothing more."
)


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


@dataclass(frozen=True)
class Cost:
    """A step of one method, and its ratios to a step of the first method, which is the deep ensemble."""

    seconds: float
    time_ratio: float
    time_error: float  # standard error of the ratio over rounds
    megabytes: float
    memory_ratio: float
    rounds: int


def run(study: Study) -> None:
    setting = study.setting(setting_named("fmnist-cnn", study.scale))
    plans = {name: setting.plan(method, 0) for name, method in methods().items()}
    rounds = ROUNDS[study.scale]
    study.say(f"complexity ({study.scale}): {len(plans)} methods, {rounds} rounds of steps each.")
    with pinned_threads(1):  # CPU time of one thread, which another process's load does not lengthen
        costs = measure(plans, rounds)
    study.write("costs.json", {name: asdict(cost) for name, cost in costs.items()})
    rows = []
    for name, cost in costs.items():
        numbers = (1000 * cost.seconds, cost.time_ratio, cost.time_error, cost.megabytes, cost.memory_ratio)
        rows.append([name, *(f"{number:.2f}" for number in numbers)])
    table = markdown_table(HEADINGS, rows)
    text = f"## Time and memory of a step against DE\n\n{table}\n\n{setting.describe()}. {PAPER}\n"
    study.write("table.md", text)
    study.write("table.csv", csv_table(HEADINGS, rows))
    study.write("table.tex", latex_table(HEADINGS, rows))
    study.say(text)
    draw(study, costs)
    method = "CPU time of one thread; the methods take turns, so that what else the machine does falls on all alike"
    study.record([*setting.all_differences, method], [0], setting=setting.describe())


def measure(plans: dict[str, Plan], rounds: int, steps: int = 4) -> dict[str, Cost]:
    """Time the methods in turn, round after round."""
    clocks = {name: _Steps(plan) for name, plan in plans.items()}
    for clock in clocks.values():
        clock.run(2)  # to warm up
    times: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(rounds):
        for name, clock in clocks.items():
            times[name].append(min(clock.run(1) for _ in range(steps)))
    memory = {name: clock.saved_bytes() for name, clock in clocks.items()}
    first = next(iter(plans))
    found = {}
    for name in plans:
        ratios = [mine / base for mine, base in zip(times[name], times[first], strict=True)]
        spread = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
        seconds, ratio = statistics.median(times[name]), statistics.median(ratios)
        relative = memory[name] / memory[first]
        found[name] = Cost(seconds, ratio, spread / sqrt(len(ratios)), memory[name] / 1e6, relative, rounds)
    return found


class _Steps:
    """Steps of one member's fit, taken when needed."""

    def __init__(self, plan: Plan) -> None:
        self.fit = MemberFit(plan, 0)
        self.fit.network.train()
        self.batches = self._endless()

    def _endless(self) -> Iterator[Batch]:
        while True:
            chunks = self.fit._chunks(0)
            # Whole batches only: the last one of an epoch is shorter, and would be the fastest.
            yield from self.fit.future.batches([c for c in chunks if len(c) == len(chunks[0])], self.fit.draws)

    def run(self, count: int) -> float:
        """CPU seconds for so many steps, the making of their batches included."""
        started = time.process_time()
        for _ in range(count):
            self.fit._step(next(self.batches))
        return time.process_time() - started

    def saved_bytes(self) -> int:
        """Bytes of all distinct tensors that one step keeps for its backward pass, weights left out."""
        weights = {parameter.untyped_storage().data_ptr() for parameter in self.fit.network.parameters()}
        kept: dict[int, int] = {}

        def count(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        batch = next(self.batches)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            outputs = self.fit.network(batch.inputs)
            weighted_loss(self.fit.plan.task.likelihood, outputs, batch)
        return sum(kept.values())


def draw(study: Study, costs: dict[str, Cost]) -> None:
    names = list(costs)[::-1]
    with styled():
        figure, (axes,) = panels(1, 2, 8, 3.2, sharey=True)
        errors = [2 * costs[name].time_error for name in names]
        axes[0].barh(names, [costs[name].time_ratio for name in names], xerr=errors, color=OTHER_COLOR)
        axes[1].barh(names, [costs[name].memory_ratio for name in names], color=OTHER_COLOR)
        for axis, title in zip(axes, ("time of a step / DE", "memory of a step / DE"), strict=True):
            axis.axvline(1, color=REFERENCE, linewidth=1)
            axis.set_title(title)
        explain(axes[0], f"bars: 2 standard errors over {next(iter(costs.values())).rounds} rounds")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", fontsize=7)
        figure.suptitle("A step of each method against a step of DE")
    save(figure, study.folder, "costs")
