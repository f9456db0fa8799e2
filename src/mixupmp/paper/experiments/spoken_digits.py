"""Spoken digits: spectrograms and their futures, for speakers that were heard in training and for others.

Not of the paper. `fsdd` is the published split, with the same six speakers in both parts; `fsdd-speakers` trains on
four of them and is tested on the two others, all six in turn over three repeats. A tenth of the training rows is held
out for the temperature: of the speakers that are known, as in practice.
"""

from __future__ import annotations

from math import inf

from mixupmp.core.base_measures import Mixup
from mixupmp.core.kernels import Compose, FrequencyMask, TimeMask
from mixupmp.core.methods import Method, deep_ensemble, martingale_posterior, mc_dropout
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.split import split
from mixupmp.data import load
from mixupmp.paper.repeats import Record, Repeats, calibrated_scores, fitted
from mixupmp.paper.study import Study
from mixupmp.train.plans import plan_for

TITLE = "spoken digits: known speakers, and speakers that were never heard (not in the paper)"
DATASETS = {
    "smoke": ("digits",),
    "cpu": ("fsdd", "fsdd-speakers"),
    "paper": ("fsdd", "fsdd-speakers"),
}
OPTIONS = ("device", "precision", "compile")  # protocols are of what the paper has
IN_PAPER = False
COST = "hours of a CPU"
REPEATS = {"smoke": 1, "cpu": 3, "paper": 3}
EPOCHS = {"smoke": 6, "cpu": 30, "paper": 50}
RECIPE = {"batch_size": 64, "learning_rate": 0.01}  # with which every line learns its training rows
MEMBERS = 2
MASKS = Compose((TimeMask(), FrequencyMask()))
LINES: dict[str, Method] = {
    "DE": deep_ensemble(MEMBERS),
    "DE, masks": deep_ensemble(MEMBERS, MASKS),
    "MP, Mixup": martingale_posterior(1.0, Mixup(1.0), MEMBERS),
    "MP, Mixup, masks": martingale_posterior(1.0, Mixup(1.0), MEMBERS, MASKS),
    "Mixup ensemble": martingale_posterior(inf, Mixup(1.0), MEMBERS),
    "MC dropout": mc_dropout(20),
}
COLUMNS = ("acc", "nll", "ece", "nll_calibrated", "ece_calibrated", "temperature", "training_accuracy")


def run(study: Study, name: str) -> None:
    """Fit and score every line in every repeat, and write the table."""
    epochs = EPOCHS[study.scale]

    def score(method: Method, seed: int) -> Record:
        dataset, held = prepared(name, seed)
        posterior = fitted(study, plan_for(dataset, method, None, RECIPE | {"epochs": epochs}, seed=seed))
        return calibrated_scores(posterior, dataset.test, held)[0]

    caption = (
        f"AudioCNN on spectrograms, {epochs} epochs of AdamW at rate .01 in batches of 64, {MEMBERS} members, r = 1, "
        "alpha = 1; masks: one of time and one of frequency. One temperature from a tenth of the training rows, which "
        "the networks have not seen."
    )
    Repeats(f"Spoken digits, {name}", caption, LINES, COLUMNS, REPEATS[study.scale], score).run(study)


def prepared(name: str, seed: int) -> tuple[Dataset, Rows]:
    """The dataset of a repeat, and the rows held out for its temperature."""
    dataset = load(name, seed=seed)
    train, held = split(dataset.train, 0.1, seed)
    return dataset.with_train(train), held
