"""The full in-distribution table: every method, single, explicit (B = 4) and implicit (B = 20)."""

from __future__ import annotations

import time

from mixupmp.reproduce import Setting, Study
from mixupmp.reproduce.lines import ALPHAS, Line, comparison_lines, wanted_of
from mixupmp.reproduce.reporting import evaluate_lines, on_rows, table_of, write_evaluations, write_table
from mixupmp.reproduce.settings import image_setting
from mixupmp.reproduce.tables import Table

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
    study.record([setting.reduced], setting.seeds, started, setting=setting.describe(), missing=missing)


def table(setting: Setting, evaluated: list, missing: list[str]) -> Table:
    caption = (
        f"{setting.describe()}. Reduced against the paper: {setting.reduced}. Mean (standard error) over repeats, two "
        "single models for each repeat. Bold: best in its group, within two standard errors; star: best of all. The "
        "column `paper` is the paper's own figure for this dataset at its own scale."
    )
    if missing:
        caption += f" Not finished: {'; '.join(missing)}."
    title = f"In-distribution comparison, {setting.name}"
    return table_of(evaluated, title, MEASURES, ("in_distribution", setting.name), caption)
