"""Blends of images: does a warped share, or a pasted box, mend what r = 1 loses to the deep ensemble under shift?

Not of the paper. Test rows are scored as they are and under corruptions, raw and with the temperature of clean
held-out rows; foreign inputs are found by entropy and by mutual information. Rows, networks and recipes are those of
`comparison`, whose members of the deep ensemble, MixupMP and the Mixup ensemble serve here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import inf

import torch
from torch import Tensor

from mixupmp.core.base_measures import CutMix, Mixture, Mixup, WarpedMixup
from mixupmp.core.methods import Method, martingale_posterior
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset, Rows
from mixupmp.data import corrupted, load
from mixupmp.data.corruptions import CORRUPTIONS, unchanged_for_gray
from mixupmp.decide.calibrators import Temperature
from mixupmp.metrics import detection, evaluate, mutual_information, predictive_entropy
from mixupmp.paper.lines import ensemble_at
from mixupmp.paper.repeats import Record, Repeats, calibrated_scores, fitted
from mixupmp.paper.settings import Setting, setting_named, subset_indices
from mixupmp.paper.study import Study

TITLE = "blends of images: warped Mixup and CutMix, clean, shifted and foreign rows (not in the paper)"
# Not at scale paper, where all rows are trained on and none are left for the temperature.
DATASETS = {"smoke": ("fmnist",), "cpu": ("fmnist", "cifar10")}
OPTIONS = ("device", "precision", "compile")  # the authors' code has pairs for Mixup, not for the other blends
IN_PAPER = False
COST = "not at this scale"
SIZES = {("cpu", "fmnist"): (3, 4), ("cpu", "cifar10"): (1, 2)}  # repeats and members, where not the setting's
TEST_ROWS = {"smoke": 40, "cpu": 500}  # of each corruption, and of each foreign dataset
SEVERITIES = (1, 3, 5)
FOREIGN = {"fmnist": ("mnist", "notmnist")}
ALPHA = 2.0
BASES = {
    "MP, warped Mixup": WarpedMixup(ALPHA),
    "MP, CutMix": CutMix(1.0),
    "MP, half Mixup, half CutMix": Mixture((Mixup(ALPHA), CutMix(1.0))),
}
COLUMNS = ("acc", "nll", "ece", "nll_calibrated", "ece_calibrated")
SHIFTED = tuple(f"shifted_{column}" for column in COLUMNS)
UNCERTAINTIES: dict[str, Callable[[Tensor], Tensor]] = {"entropy": predictive_entropy, "mi": mutual_information}


def setting_of(study: Study, dataset: str) -> Setting:
    """The setting of `comparison`, of as many repeats and members as are affordable."""
    setting = setting_named(dataset, study.scale)
    repeats, members = SIZES.get((study.scale, dataset), (setting.repeats, setting.members))
    return study.setting(replace(setting, repeats=repeats, members=members))


def lines(setting: Setting) -> dict[str, Method]:
    """The deep ensemble, MixupMP with r = 1 by base measure, and the Mixup ensemble."""
    others = {name: martingale_posterior(1.0, base, setting.members, setting.kernel) for name, base in BASES.items()}
    known = {name: ensemble_at(setting, r, ALPHA) for name, r in (("DE", 0), ("MP, Mixup", 1.0))}
    return {**known, **others, "Mixup ensemble": ensemble_at(setting, inf, ALPHA)}


def run(study: Study, name: str) -> None:
    """Fit and score every line in every repeat, and write the table."""
    setting = setting_of(study, name)
    count = TEST_ROWS[study.scale]
    some = replace(setting.full, test=setting.full.test.take(subset_indices(setting.full.test, count)))
    foreign = {} if study.scale == "smoke" else foreign_inputs(name, count)

    @cache
    def shifted() -> Rows:
        return all_corrupted(some, CORRUPTIONS[:2] if study.scale == "smoke" else CORRUPTIONS)

    def score(method: Method, seed: int) -> Record:
        posterior = fitted(study, setting.plan(method, seed))
        held = setting.calibration(seed)
        assert held is not None, "a setting of fewer rows has others to calibrate on"
        record, temperature = calibrated_scores(posterior, setting.test, held)
        record |= shifted_scores(posterior, shifted(), temperature)
        return record | detected(posterior, some.test.inputs, foreign)

    caption = (
        f"{setting.describe()}. r = 1, alpha = {ALPHA:g} (CutMix 1). Shifted: {count} test rows under every corruption "
        f"at severities {SEVERITIES}, as one test set. One temperature from {setting.calibration_rows:,} clean rows "
        "that were held out."
    )
    found = tuple(f"auroc_{other}_{kind}" for other in foreign for kind in UNCERTAINTIES)
    columns = (*COLUMNS, *SHIFTED, *found, "training_accuracy")
    Repeats(f"Blends of images, {setting.name}", caption, lines(setting), columns, setting.repeats, score).run(study)


def all_corrupted(dataset: Dataset, names: tuple[str, ...]) -> Rows:
    """The test rows under every corruption at every severity, one after another."""
    gray = dataset.test.inputs.shape[1] == 1
    kept = [name for name in names if not (gray and unchanged_for_gray(name))]
    many = [corrupted(dataset, name, severity) for name in kept for severity in SEVERITIES]
    return Rows(torch.cat([rows.inputs for rows in many]), torch.cat([rows.labels for rows in many]))


def shifted_scores(posterior: Posterior, shifted: Rows, temperature: Temperature) -> Record:
    """Measures of corrupted rows, raw and with the temperature of clean rows."""
    raw = posterior.probabilities(shifted.inputs).cpu().double()
    plain, better = (evaluate(p, shifted.labels) for p in (raw, temperature(raw)))
    found = {f"shifted_{name}": plain[name] for name in ("acc", "nll", "ece")}
    return found | {f"shifted_{name}_calibrated": better[name] for name in ("nll", "ece")}


def detected(posterior: Posterior, inside: Tensor, foreign: dict[str, Tensor]) -> Record:
    """AUROC of foreign inputs against test rows."""
    familiar = posterior.member_probabilities(inside).cpu()
    record: Record = {}
    for name, inputs in foreign.items():
        members = posterior.member_probabilities(inputs).cpu()
        for kind, uncertainty in UNCERTAINTIES.items():
            record[f"auroc_{name}_{kind}"] = detection(uncertainty(familiar), uncertainty(members)).auroc
    return record


def foreign_inputs(name: str, count: int) -> dict[str, Tensor]:
    """So many test inputs of the other datasets of the same shape."""
    tests = {other: load(other).test for other in FOREIGN.get(name, ())}
    return {other: rows.inputs[subset_indices(rows, count)] for other, rows in tests.items()}
