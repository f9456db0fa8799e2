"""The Bayesian bootstrap against the deep ensemble: their table, the paired scatter of members, and whether they meet.

Both start from the same random weights, or from the finished deep ensemble, and go on long after the training rows
are all learned. The paper's appendix A says that both then maximize the same normalized margin.
"""

from __future__ import annotations

import time

from mixupmp.core.methods import bayesian_bootstrap, deep_ensemble
from mixupmp.metrics import evaluate
from mixupmp.paper import Setting, Study, Wanted
from mixupmp.paper.figures import COLORS, OTHER, pyplot, save
from mixupmp.paper.lines import Line
from mixupmp.paper.reporting import on_rows, table_of, write_evaluations, write_table
from mixupmp.paper.settings import homogeneous
from mixupmp.paper.stages import first_stage, margins, next_stage, run_stages

TITLE = "Bayesian bootstrap against deep ensemble: table, paired members, normalized margins"
DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist", "mnist"), "paper": ("mnist", "fmnist")}
FURTHER = {"smoke": (2, 3), "cpu": (10, 40, 150), "paper": (10, 90, 400, 500)}  # epochs after 100% training accuracy
MEASURES = ("acc", "ece", "oe", "ue", "nll")
NAMES = ("DE", "BB")


def methods(setting: Setting) -> list:
    return [deep_ensemble(setting.members), bayesian_bootstrap(setting.members)]


def run(study: Study, dataset: str) -> None:
    started = time.time()
    setting = homogeneous(dataset, study.scale)
    further = FURTHER[study.scale]
    seeds = setting.seeds
    tracks: dict[str, list[dict]] = {}
    final: dict[str, list[Wanted]] = {}
    fresh = [first_stage(setting, method, seed) for seed in seeds for method in methods(setting)]
    follow(study, setting, "random", run_stages(study, fresh, further), tracks, final)
    # "DE" initialization: both methods go on from the members of the finished deep ensemble.
    ended = {seed: study.cache.posterior(final["DE from random"][number]) for number, seed in enumerate(seeds)}
    first, *later = further
    pretrained = [
        next_stage(first_stage(setting, method, seed), ended[seed], first)
        for seed in seeds for method in methods(setting)
    ]  # fmt: skip
    follow(study, setting, "DE", run_stages(study, pretrained, later), tracks, final)
    report(study, setting, tracks, final)
    study.record([setting.reduced], seeds, started, setting=setting.describe(), further_epochs=list(further))


def follow(study: Study, setting: Setting, initial: str, stages, tracks: dict, final: dict) -> None:
    """Go through the stages; note every member's margin, accuracy and loss after each."""
    for stage, wanted in enumerate(stages):
        for number, one in enumerate(wanted):
            label = f"{NAMES[number % 2]} from {initial}"
            noted = study.kept(one, "margins", lambda one=one: look(study, setting, one))
            tracks.setdefault(label, []).append({"stage": stage, **noted})
            final.setdefault(label, [])
            final[label] = [*final[label][: number // 2], one, *final[label][number // 2 + 1 :]]


def look(study: Study, setting: Setting, wanted: Wanted) -> dict:
    """Each member's normalized margin on the training rows, and its own test accuracy and loss."""
    posterior = study.cache.posterior(wanted)
    train, test = setting.dataset.train, setting.dataset.test
    probabilities = posterior.member_probabilities(test.inputs)
    each = [evaluate(member, test.labels) for member in probabilities]
    return {
        "margins": margins(posterior, train.inputs, train.labels),
        "acc": [one["acc"] for one in each],
        "nll": [one["nll"] for one in each],
        "epochs": [summary.epochs for summary in posterior.summaries],
        "training_accuracy": [summary.training_accuracy for summary in posterior.summaries],
    }


def report(study: Study, setting: Setting, tracks: dict, final: dict) -> None:
    evaluate_on = on_rows(study, setting.dataset.test)
    order = ("DE from random", "BB from random", "DE from DE", "BB from DE")
    evaluated = [
        (Line(setting.name, label, tuple(final[label])), [evaluate_on(one) for one in final[label]]) for label in order
    ]
    caption = (
        f"{setting.describe()}. Reduced against the paper: {setting.reduced}. Bias-free CNN; both methods start from "
        "the same weights."
    )
    title = f"Bayesian bootstrap against deep ensemble, {setting.name}"
    write_table(study, "table", table_of(evaluated, title, MEASURES, ("bb_vs_de", setting.name), caption))
    write_evaluations(study, "evaluations", evaluated)
    study.write("members.json", tracks)
    draw_pairs(study, tracks, setting)
    draw_margins(study, tracks, setting)


def draw_pairs(study: Study, tracks: dict, setting: Setting) -> None:
    """Each point is a pair of members with the same start: on the diagonal they ended alike."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 4, figsize=(12, 3))
    panels = [(measure, initial) for initial in ("random", "DE") for measure in ("acc", "nll")]
    for axis, (measure, initial) in zip(axes, panels, strict=True):
        last = [max(tracks[f"{name} from {initial}"], key=lambda one: one["stage"]) for name in NAMES]
        x, y = (one[measure] for one in last)
        low, high = min(x + y), max(x + y)
        pad = 0.1 * (high - low) + 1e-4
        axis.plot([low - pad, high + pad], [low - pad, high + pad], color="#a0aec0", linewidth=1)
        axis.scatter(x, y, color=OTHER, s=22)
        axis.set(xlabel=f"DE member, {measure.upper()}", ylabel=f"BB member, {measure.upper()}")
        axis.set_title(f"start: {initial}")
    figure.suptitle(f"{setting.name}: BB and DE members from the same start end near the diagonal?", y=1.05)
    figure.tight_layout()
    save(figure, study.folder, "pairs")


def draw_margins(study: Study, tracks: dict, setting: Setting) -> None:
    """Normalized margins over training: do the two methods meet?"""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    further = FURTHER[study.scale]
    for axis, initial in zip(axes, ("random", "DE"), strict=True):
        passed = [sum(further[:k]) for k in range(len(further) + 1)]
        passed = passed if initial == "random" else passed[1:]
        for name, color in (("DE", COLORS["DE"]), ("BB", COLORS["Mixup Ensemble"])):
            stages = sorted(tracks[f"{name} from {initial}"], key=lambda one: one["stage"])[: len(passed)]
            for member in range(len(stages[0]["margins"])):
                values = [one["margins"][member] for one in stages]
                axis.plot(passed, values, color=color, marker="o", markersize=3, label=None if member else name)
        axis.axhline(0, color="#a0aec0", linewidth=1)
        axis.set(xlabel="epochs after 100% training accuracy", title=f"start: {initial}")
    axes[0].set_ylabel("normalized margin")
    axes[0].legend()
    figure.suptitle(f"{setting.name}: normalized margins of DE and BB members over training", y=1.03)
    save(figure, study.folder, "margins")
