"""The full in-distribution table: every method, single, explicit (B = 4) and implicit (B = 20)."""

from __future__ import annotations

import time

from mixupmp.paper import Setting, Study
from mixupmp.paper.figures import COLORS, color_of, pyplot, save
from mixupmp.paper.lines import ALPHAS, Line, comparison_lines, wanted_of
from mixupmp.paper.reporting import (
    Evaluated,
    evaluate_lines,
    on_rows,
    summaries_of,
    table_of,
    write_evaluations,
    write_table,
)
from mixupmp.paper.settings import image_setting
from mixupmp.paper.tables import Table

TITLE = "in-distribution comparison of all methods (main table and its extended form)"
DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist", "cifar10"), "paper": ("cifar10", "cifar100", "fmnist")}
MEASURES = ("acc", "nll", "ece", "oe", "ue")


def lines(setting: Setting, scale: str) -> list[Line]:
    """The paper's lines: at alpha = 2 as in its main table, at all four at paper scale as in its appendix."""
    return comparison_lines(setting, ALPHAS if scale == "paper" else (2.0,))


def run(study: Study, dataset: str) -> None:
    started = time.time()
    setting = image_setting(dataset, study.scale)
    wanted = lines(setting, study.scale)
    study.train(wanted_of(wanted))
    evaluated, missing = evaluate_lines(study, wanted, on_rows(study, setting.dataset.test))
    write_table(study, "table", table(setting, evaluated, missing))
    write_evaluations(study, "evaluations", evaluated)
    draw(study, evaluated, setting)
    study.record([setting.reduced], setting.seeds, started, setting=setting.describe(), missing=missing)


def draw(study: Study, evaluated: Evaluated, setting: Setting) -> None:
    """Accuracy and loss of each method, and its calibration error parted into over- and under-confidence."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(11, 0.26 * len(evaluated) + 1.2), sharey=True)
    found = [(line.label, summaries_of(many)) for line, many in evaluated][::-1]
    labels = [label.replace("alpha", "α") for label, _ in found]
    for axis, measure, factor in ((axes[0], "acc", 100), (axes[1], "nll", 1)):
        means = [factor * summary[measure].mean for _, summary in found]
        errors = [2 * factor * (summary[measure].standard_error or 0) for _, summary in found]
        for place, (label, _) in enumerate(found):
            axis.errorbar(means[place], place, xerr=errors[place], fmt="o", color=color_of(label), markersize=5)
    over, under = ([100 * summary[name].mean for _, summary in found] for name in ("oe", "ue"))
    # By number: naming the places while drawing would have the other axes forget how long their error bars are.
    places = range(len(found))
    axes[2].barh(places, over, color=COLORS["Mixup Ensemble"], label="over-confidence (OE)")
    axes[2].barh(places, under, left=over, color=COLORS["DE"], label="under-confidence (UE)")
    axes[2].set_yticks(places, labels)
    axes[2].legend(fontsize=7)
    for axis, title in zip(axes, ("ACC (%)", "NLL", "ECE (%) = OE + UE"), strict=True):
        axis.set_title(title)
    figure.suptitle(f"{setting.name}: who is right, and who knows it (bars: 2 standard errors)", y=1.0)
    figure.tight_layout()
    save(figure, study.folder, "methods")


def table(setting: Setting, evaluated: Evaluated, missing: list[str]) -> Table:
    caption = (
        f"{setting.describe()}. Reduced against the paper: {setting.reduced}. Mean (standard error) over repeats, two "
        "single models for each repeat. Bold: best in its group, within two standard errors; star: best of all. The "
        "column `paper` is the paper's own figure for this dataset at its own scale."
    )
    if missing:
        caption += f" Not finished: {'; '.join(missing)}."
    title = f"In-distribution comparison, {setting.name}"
    return table_of(evaluated, title, MEASURES, ("in_distribution", setting.name), caption)
