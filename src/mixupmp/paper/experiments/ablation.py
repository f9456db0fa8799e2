"""ACC, NLL, ECE, OE and UE against r for each alpha: from the deep ensemble (0) to the Mixup ensemble (infinity)."""

from __future__ import annotations

from math import inf

from mixupmp.core.kernels import identity
from mixupmp.paper.figures import SEQUENCE, bars_of, curve, explain, panels, save
from mixupmp.paper.lines import ALPHAS, Line, ensemble_at, ensemble_label
from mixupmp.paper.reference import ratio_of
from mixupmp.paper.report import Evaluated, report_lines, shared_repeats, summaries_of
from mixupmp.paper.settings import Setting, comparable, setting_named
from mixupmp.paper.study import Study
from mixupmp.paper.table import shown_metric
from mixupmp.plots.style import styled

TITLE = "the effect of r and alpha on every measure (ablation figures)"
DATASETS = {
    "smoke": ("fmnist-cnn",),
    "cpu": ("fmnist-cnn", "cifar10", "cifar10-crops", "fmnist-full", "fmnist-under-fitted"),
    "paper": ("cifar10", "cifar100", "fmnist", "fmnist-cnn"),
}
RATIOS = (0.0, 0.1, 0.4, 1.0, 10.0, inf)
TABLE_RATIOS = (0.0, 0.1, 1.0, inf)  # those of the paper's tables
FEW = ("cifar10-crops", "fmnist-full", "fmnist-under-fitted")  # other regimes: four ensembles at one alpha
MEASURES = ("acc", "nll", "ece", "oe", "ue", "nll_calibrated", "ece_calibrated")
DRAWN = MEASURES[:5]


def grid(dataset: str, scale: str) -> tuple[tuple[float, ...], tuple[float, ...], str]:
    """Alphas and ratios, and how these differ from the paper's."""
    if scale == "smoke" or dataset in FEW:
        return (2.0,), TABLE_RATIOS, "r = 0, .1, 1 and infinity at alpha = 2 alone"
    if (dataset, scale) == ("cifar10", "cpu"):  # two further values would double ten hours
        return ALPHAS, TABLE_RATIOS, "r = 0, .1, 1 and infinity as in the paper's tables; its figure may have more"
    return ALPHAS, RATIOS, "values of r are ours, as the text lists none"


def lines(setting: Setting, dataset: str, scale: str) -> list[Line]:
    """A line for each r of each alpha; r = 0 does not depend on alpha and is trained once."""
    alphas, ratios, _ = grid(dataset, scale)
    return [
        Line(f"alpha={alpha:g}", ensemble_label(ratio, alpha), ensemble_at(setting, ratio, alpha))
        for alpha in alphas
        for ratio in ratios
    ]


def work(dataset: str, scale: str) -> tuple[Setting, list[Line]]:
    setting = setting_named(dataset, scale)
    return setting, lines(setting, dataset, scale)


def run(study: Study, dataset: str) -> None:
    setting = study.setting(setting_named(dataset, study.scale))
    wanted = lines(setting, dataset, study.scale)
    title = f"Ablation over r and alpha, {dataset}"
    *_, ours = grid(dataset, study.scale)
    evaluated = report_lines(
        study, setting, wanted, title, MEASURES, paper=("in_distribution", setting.name), differences=[ours]
    )
    augmented = "" if setting.kernel is identity else ", crops and flips"
    name = f"{setting.name}, {len(setting.dataset(0).train)} training rows{augmented}"
    draw(study, shared_repeats(evaluated), name)


def draw(study: Study, evaluated: Evaluated, name: str) -> None:
    """One panel for each measure: a curve over r for each alpha; points outside the paper's regime are hollow."""
    alphas = list(dict.fromkeys(line.group for line, _ in evaluated))
    ratios = sorted({ratio_of(line.label) or 0.0 for line, _ in evaluated})
    with styled():
        figure, (axes,) = panels(1, len(DRAWN), 3.1 * len(DRAWN), 3.2)
        for axis, measure in zip(axes, DRAWN, strict=True):
            metric = shown_metric(measure)
            for alpha in alphas:
                own = [(line, found) for line, found in evaluated if line.group == alpha]
                summaries = [summaries_of(found)[measure] for _, found in own]
                x = [ratios.index(ratio_of(line.label) or 0.0) for line, _ in own]
                y = [metric.scale * summary.mean for summary in summaries]
                errors = [metric.scale * (summary.standard_error or 0) for summary in summaries]
                hollow = [not comparable(found) for _, found in own]
                color = SEQUENCE[ALPHAS.index(float(alpha.removeprefix("alpha=")))]  # the same in every figure
                curve(axis, x, y, errors, alpha.replace("alpha", "α"), color, hollow)
            axis.set_xticks(range(len(ratios)), ["∞" if ratio == inf else f"{ratio:g}" for ratio in ratios])
            axis.set_xlabel("r (0: deep ensemble, ∞: Mixup ensemble)", fontsize=7)
            axis.set_title(metric.column)
        explain(axes[0], bars_of(found for _, found in evaluated), not all(comparable(found) for _, found in evaluated))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=7)
        figure.suptitle(f"{name}: what r and α do")
    save(figure, study.folder, "curves")
