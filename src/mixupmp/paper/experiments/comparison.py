"""The full in-distribution table: every method, single, explicit (B = 4) and implicit (B = 20)."""

from __future__ import annotations

from mixupmp.paper.figures import bars_of, color_of, explain, panels, save
from mixupmp.paper.lines import ALPHAS, Line, comparison_lines, open_choices
from mixupmp.paper.report import Evaluated, report_lines, summaries_of
from mixupmp.paper.settings import Setting, comparable, setting_named
from mixupmp.paper.study import Study
from mixupmp.plots.style import METHOD_COLORS, PAPER, styled

TITLE = "in-distribution comparison of all methods (main table and its extended form)"
DATASETS = {
    "smoke": ("fmnist",),
    "cpu": ("fmnist", "fmnist-alphas", "fmnist-long", "cifar10"),
    "paper": ("cifar10", "cifar100", "fmnist"),
}
ONE_ALPHA = "alpha = 2 alone, as in the paper's main table"
ALL_ALPHAS = "fmnist-alphas"  # the extended form, apart from the main table
MEASURES = ("acc", "nll", "ece", "ece_noise", "oe", "ue", "nll_calibrated", "ece_calibrated")


def work(dataset: str, scale: str) -> tuple[Setting, list[Line]]:
    """The paper's lines: at alpha = 2 as in its main table, or at all four as in its appendix."""
    setting = setting_named(dataset, scale)
    return setting, comparison_lines(setting, alphas_of(dataset, scale))


def alphas_of(dataset: str, scale: str) -> tuple[float, ...]:
    """Those of the paper's main table, or of its extended form."""
    return ALPHAS if scale == "paper" or dataset == ALL_ALPHAS else (2.0,)


def run(study: Study, dataset: str) -> None:
    setting = study.setting(setting_named(dataset, study.scale))
    alphas = alphas_of(dataset, study.scale)
    lines = comparison_lines(setting, alphas)
    caption = (
        "Two single models of each repeat, whose mean counts once. cal.: after one temperature on the pooled "
        "probabilities, from rows not trained on. The columns `paper` are the paper's own figures for this dataset at "
        "its own scale. noise in ECE: what chance in the test rows adds to it, by the bootstrap's estimate of its bias."
    )
    title = f"In-distribution comparison, {setting.name}"
    evaluated = report_lines(
        study,
        setting,
        lines,
        title,
        MEASURES,
        paper=("in_distribution", setting.name),
        caption=caption,
        differences=[*open_choices(setting), *([ONE_ALPHA] if len(alphas) == 1 else [])],
    )
    draw(study, evaluated, setting.name)


def draw(study: Study, evaluated: Evaluated, name: str) -> None:
    """Accuracy and loss of each method, and its calibration error split into over- and under-confidence.

    Lines that are outside the paper's regime are hollow.
    """
    with styled():
        figure, (axes,) = panels(1, 3, 11, 0.26 * len(evaluated) + 1.2, sharey=True)
        found = [(line.label, summaries_of(many)) for line, many in evaluated][::-1]
        filled = [comparable(many) for _, many in evaluated][::-1]
        for axis, measure, factor in ((axes[0], "acc", 100), (axes[1], "nll", 1)):
            for place, (label, summary) in enumerate(found):
                error = 2 * factor * (summary[measure].standard_error or 0)
                mean, color = factor * summary[measure].mean, color_of(label)
                face = color if filled[place] else PAPER
                axis.errorbar(mean, place, xerr=error, fmt="o", color=color, markersize=5, markerfacecolor=face)
        over, under = ([100 * summary[measure].mean for _, summary in found] for measure in ("oe", "ue"))
        places = list(range(len(found)))
        for values, left, color, label in (
            (over, [0.0] * len(over), METHOD_COLORS["Mixup ensemble"], "over-confidence (OE)"),
            (under, over, METHOD_COLORS["DE"], "under-confidence (UE)"),
        ):
            faces = [color if one else PAPER for one in filled]
            axes[2].barh(places, values, left=left, color=faces, edgecolor=color)
            axes[2].fill_between([], [], color=color, label=label)
        axes[2].set_yticks(places, [label.replace("alpha", "α") for label, _ in found])
        axes[2].set_ylim(-0.7, len(found) - 0.3)  # the margins of many lines would be lines of their own
        explain(axes[2], bars_of(many for _, many in evaluated), hollow=not all(filled))
        figure.legend(*axes[2].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7)
        for axis, title in zip(axes, ("ACC (%)", "NLL", "ECE (%) = OE + UE"), strict=True):
            axis.set_title(title)
            axis.grid(True, linewidth=0.6)
        figure.suptitle(f"{name}: who is right, and who knows it")
    save(figure, study.folder, "methods")
