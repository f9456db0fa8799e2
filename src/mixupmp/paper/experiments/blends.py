"""Blends of images: does a warped share, or a pasted box, mend what r = 1 loses to the deep ensemble under shift?

Not of the paper. Test rows are scored as they are and under corruptions, raw and with the temperature of clean
held-out rows; foreign inputs are found by entropy and by mutual information.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import inf

import torch
from torch import Tensor

from mixupmp.core.base_measures import CutMix, Mixture, Mixup, WarpedMixup
from mixupmp.core.methods import Method, deep_ensemble, martingale_posterior, mc_dropout
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.split import split
from mixupmp.data import corrupted, load
from mixupmp.data.corruptions import CORRUPTIONS, unchanged_for_gray
from mixupmp.decide.calibrators import Temperature
from mixupmp.metrics import detection, evaluate, mutual_information, predictive_entropy
from mixupmp.paper.repeats import Record, Repeats, calibrated_scores, fitted
from mixupmp.paper.settings import subset_indices
from mixupmp.paper.study import Study
from mixupmp.train.plans import plan_for
from mixupmp.train.settings import fewer_rows

TITLE = "blends of images: warped Mixup and CutMix, clean, shifted and foreign rows (not in the paper)"
DATASETS = {"smoke": ("digits",), "cpu": ("fashion-mnist",), "paper": ("fashion-mnist", "cifar10")}
REPEATS = {"smoke": 1, "cpu": 3, "paper": 3}
ROWS = {"smoke": 200, "cpu": 5_000, "paper": 5_000}
EPOCHS = {"smoke": 2, "cpu": 20, "paper": 100}
TEST_ROWS = {"smoke": 40, "cpu": 500, "paper": 10_000}  # of each corruption, and of each foreign dataset
SEVERITIES = (1, 3, 5)
NETWORKS = {"digits": "cnn", "fashion-mnist": "cnn", "cifar10": "resnet18"}
FOREIGN = {"fashion-mnist": ("mnist", "notmnist")}
MEMBERS = 2
ALPHA = 2.0
LINES: dict[str, Method] = {
    "DE": deep_ensemble(MEMBERS),
    "MP, Mixup": martingale_posterior(1.0, Mixup(ALPHA), MEMBERS),
    "MP, warped Mixup": martingale_posterior(1.0, WarpedMixup(ALPHA), MEMBERS),
    "MP, CutMix": martingale_posterior(1.0, CutMix(1.0), MEMBERS),
    "MP, half Mixup, half CutMix": martingale_posterior(1.0, Mixture((Mixup(ALPHA), CutMix(1.0))), MEMBERS),
    "Mixup ensemble": martingale_posterior(inf, Mixup(ALPHA), MEMBERS),
    "MC dropout": mc_dropout(20),
}
COLUMNS = ("acc", "nll", "ece", "nll_calibrated", "ece_calibrated")
SHIFTED = tuple(f"shifted_{column}" for column in COLUMNS)
UNCERTAINTIES: dict[str, Callable[[Tensor], Tensor]] = {"entropy": predictive_entropy, "mi": mutual_information}


def run(study: Study, name: str) -> None:
    """Fit and score every line in every repeat, and write the table."""
    scale = study.scale
    whole = load(name)
    some = replace(whole, test=whole.test.take(subset_indices(whole.test, TEST_ROWS[scale])))
    foreign = foreign_inputs(name, TEST_ROWS[scale])

    @cache
    def shifted() -> Rows:
        return all_corrupted(some, CORRUPTIONS[:2] if scale == "smoke" else CORRUPTIONS)

    def score(method: Method, seed: int) -> Record:
        train, held = split(fewer_rows(whole, round(ROWS[scale] * 1.2), seed).train, 1 / 6, seed)
        recipe = {"epochs": EPOCHS[scale], "learning_rate": 0.05, "batch_size": 64}
        posterior = fitted(study, plan_for(whole.with_train(train), method, NETWORKS[name], recipe, seed=seed))
        record, temperature = calibrated_scores(posterior, whole.test, held)
        record |= shifted_scores(posterior, shifted(), temperature)
        return record | detected(posterior, some.test.inputs, foreign)

    caption = (
        f"{ROWS[scale]:,} rows, {NETWORKS[name]}, {EPOCHS[scale]} one-cycle epochs at rate .05 in batches of 64, "
        f"{MEMBERS} members, r = 1. Shifted: {TEST_ROWS[scale]} test rows under every corruption at severities "
        f"{SEVERITIES}, as one test set. One temperature from {ROWS[scale] // 5:,} clean rows that were held out."
    )
    found = tuple(f"auroc_{other}_{kind}" for other in foreign for kind in UNCERTAINTIES)
    columns = (*COLUMNS, *SHIFTED, *found, "training_accuracy")
    Repeats(f"Blends of images, {name}", caption, LINES, columns, REPEATS[scale], score).run(study)


def all_corrupted(dataset: Dataset, names: tuple[str, ...]) -> Rows:
    """The test rows under every corruption at every severity, one after another."""
    gray = dataset.test.inputs.shape[1] == 1
    kept = [name for name in names if not (gray and unchanged_for_gray(name))]
    many = [corrupted(dataset, name, severity) for name in kept for severity in SEVERITIES]
    return Rows(torch.cat([rows.inputs for rows in many]), torch.cat([rows.labels for rows in many]))


def shifted_scores(posterior: Posterior, shifted: Rows, temperature: Temperature) -> Record:
    """Measures of corrupted rows, raw and with the temperature of clean rows."""
    raw = posterior.probabilities(shifted.inputs).double()
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
