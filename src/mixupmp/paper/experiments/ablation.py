"""ACC, NLL, ECE, OE and UE against r for each alpha: from the deep ensemble (0) to the Mixup ensemble (infinity)."""

from __future__ import annotations

import time
from math import inf

from mixupmp.paper import Setting, Study
from mixupmp.paper.figures import SEQUENCE, curve, pyplot, save
from mixupmp.paper.lines import ALPHAS, Line, mixup_mp_ensembles, wanted_of
from mixupmp.paper.reporting import (
    Evaluated,
    evaluate_lines,
    on_rows,
    summaries_of,
    table_of,
    write_evaluations,
    write_table,
)
from mixupmp.paper.settings import fashion_mnist, fashion_mnist_under_fitted, image_setting
from mixupmp.paper.tables import MEASURES as SHOWN

TITLE = "the effect of r and alpha on every measure (ablation figures)"
DATASETS = {
    "smoke": ("fmnist-cnn",),
    "cpu": ("fmnist-cnn", "fmnist-under-fitted"),
    "paper": ("cifar10", "cifar100", "fmnist", "fmnist-cnn"),
}
RATIOS = (0.0, 0.1, 0.4, 1.0, 10.0, inf)
MEASURES = ("acc", "nll", "ece", "oe", "ue")


def setting_of(dataset: str, scale: str) -> Setting:
    if dataset == "fmnist-cnn":
        return fashion_mnist(scale, "cnn")
    if dataset == "fmnist-under-fitted":
        return fashion_mnist_under_fitted(scale)
    return image_setting(dataset, scale)


def lines(setting: Setting, dataset: str, scale: str) -> list[Line]:
    """A line for each r of each alpha; r = 0 does not depend on alpha and is trained once."""
    alphas = (2.0,) if scale == "smoke" or dataset == "fmnist-under-fitted" else ALPHAS
    ratios = (0.0, 0.1, 1.0, inf) if scale == "smoke" or dataset == "fmnist-under-fitted" else RATIOS
    return [
        Line(f"alpha={alpha:g}", f"r={ratio:g}", mixup_mp_ensembles(setting, ratio, alpha))
        for alpha in alphas
        for ratio in ratios
    ]


def run(study: Study, dataset: str) -> None:
    started = time.time()
    setting = setting_of(dataset, study.scale)
    wanted = lines(setting, dataset, study.scale)
    # Repeat by repeat, the middle of the grid first: an interrupted plan has whole curves to show.
    study.train(sorted(wanted_of(wanted), key=lambda one: one.plan.seed))
    evaluated, missing = evaluate_lines(study, wanted, on_rows(study, setting.dataset.test))
    caption = f"{setting.describe()}. Reduced against the paper: {setting.reduced}. Mean (standard error) over repeats."
    if missing:
        caption += f" Not finished: {'; '.join(missing)}."
    write_table(study, "table", table_of(evaluated, f"Ablation over r and alpha, {dataset}", MEASURES, None, caption))
    write_evaluations(study, "evaluations", evaluated)
    draw(study, evaluated, setting)
    study.record([setting.reduced], setting.seeds, started, setting=setting.describe(), missing=missing)


def draw(study: Study, evaluated: Evaluated, setting: Setting) -> None:
    """One panel for each measure: a curve over r for each alpha, with bars of two standard errors."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(MEASURES), figsize=(3.1 * len(MEASURES), 3.0))
    alphas = list(dict.fromkeys(line.group for line, _ in evaluated))
    ratios = sorted({float(line.label.removeprefix("r=")) for line, _ in evaluated})
    for axis, measure in zip(axes, MEASURES, strict=True):
        heading, factor, _, _ = SHOWN[measure]
        for number, alpha in enumerate(alphas):
            points = [(line, summaries_of(found)[measure]) for line, found in evaluated if line.group == alpha]
            x = [ratios.index(float(line.label.removeprefix("r="))) for line, _ in points]
            y = [factor * summary.mean for _, summary in points]
            errors = [factor * (summary.standard_error or 0) for _, summary in points]
            curve(axis, x, y, errors, alpha.replace("alpha", "α"), SEQUENCE[number % len(SEQUENCE)])
        axis.set_xticks(range(len(ratios)), ["∞" if ratio == inf else f"{ratio:g}" for ratio in ratios])
        axis.set_xlabel("r (0: deep ensemble, ∞: Mixup ensemble)", fontsize=7)
        axis.set_title(heading + (" (%)" if factor == 100 else ""))
    axes[0].legend(fontsize=7)
    trained = f"{len(setting.dataset.train)} training rows"
    figure.suptitle(f"{setting.name}, {trained}: what r and α do (bars: 2 standard errors)", y=1.04)
    save(figure, study.folder, "curves")
