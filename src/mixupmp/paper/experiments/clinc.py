"""Intents and what is out of scope: CLINC150 with sentences as futures, on one small network.

Not of the paper, which has images only. Temperature and thresholds for out-of-scope requests are from the published
validation sentences; the published test sentences are scored. Larson et al. (2019) choose their threshold so that most
validation sentences are right, those out of scope as a class of their own ("oos-threshold"); acc_threshold and
recall_threshold are by that rule.
"""

from __future__ import annotations

import random
from math import inf

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.base_measures import AtLayer, Mixup, SentenceSplice
from mixupmp.core.fields import Fields
from mixupmp.core.methods import Method, deep_ensemble, martingale_posterior, mc_dropout
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.data.arrays import class_numbers
from mixupmp.data.text_files import clinc150_parts
from mixupmp.metrics import detection, predictive_entropy
from mixupmp.paper.repeats import Record, Repeats, calibrated_scores, fitted
from mixupmp.paper.study import Study
from mixupmp.train.plans import plan_for

TITLE = "CLINC150: intents, and requests that are out of scope (not in the paper)"
OPTIONS = ("device", "precision", "compile")  # protocols are of what the paper has
IN_PAPER = False
COST = "hours of a CPU"
REPEATS = {"smoke": 1, "cpu": 5, "paper": 5}
EPOCHS = 4  # 99% of the training sentences are right by then
MEMBERS = 3
FALSE_ALARMS = (0.05, 0.1)  # of in-scope requests, for the recall of those out of scope
EMBEDDINGS = AtLayer(Mixup(0.4), "embedding")
LINES: dict[str, Method] = {
    "DE": deep_ensemble(MEMBERS),
    "MP, blends of embeddings": martingale_posterior(1.0, EMBEDDINGS, MEMBERS),
    "MP, spliced sentences": martingale_posterior(1.0, SentenceSplice(0.4), MEMBERS),
    "Mixup ensemble, embeddings": martingale_posterior(inf, EMBEDDINGS, MEMBERS),
    "Mixup, embeddings": martingale_posterior(inf, EMBEDDINGS, 1),
    "MC dropout": mc_dropout(20),
}
COLUMNS = (
    *("acc", "nll", "ece", "nll_calibrated", "ece_calibrated", "auroc", "fpr95"),
    *(f"recall_{a:g}" for a in FALSE_ALARMS),
    *("acc_threshold", "recall_threshold"),
)
CAPTION = (
    f"TextCNN, {EPOCHS} epochs, {MEMBERS} members, r = 1, alpha = 0.4; one temperature, and the thresholds of recall_a "
    "(a of the in-scope requests are false alarms), from the validation sentences. ACC, NLL and ECE of the test "
    "sentences; AUROC, FPR95 and recall of those out of scope, by entropy. acc_threshold and recall_threshold: "
    "in-scope accuracy and out-of-scope recall by the rule of Larson et al. (2019). The figures that they print for "
    "their own small models (Table 1 of their paper) are not shown beside these: they could not be looked up where "
    "this was run. By the settings in their repository, their MLP takes sentence embeddings of a pretrained encoder, "
    "which no line here does."
)
Parts = dict[str, list[tuple[str, str]]]


def run(study: Study) -> None:
    """Fit and score every line in every repeat, and write the table."""
    dataset, held, strangers = prepared(made_up() if study.scale == "smoke" else clinc150_parts())

    def score(method: Method, seed: int) -> Record:
        posterior = fitted(study, plan_for(dataset, method, None, {"epochs": EPOCHS}, seed=seed))
        return scores(posterior, dataset, held, strangers)

    Repeats("CLINC150, in scope and out of it", CAPTION, LINES, COLUMNS, REPEATS[study.scale], score).run(study)


def prepared(parts: Parts) -> tuple[Dataset, Rows, Tensor]:
    """The dataset, its validation sentences, and those of them that are out of scope."""
    vocabulary = Vocabulary.of(sentence for sentence, _ in parts["train"])
    names = ("train", "val", "test")
    labels, classes = class_numbers("clinc150", *(np.array([intent for _, intent in parts[name]]) for name in names))
    tokens = {name: vocabulary([sentence for sentence, _ in parts[name]]) for name in (*names, "oos_val", "oos_test")}
    train, held, test = (Rows(tokens[name], y) for name, y in zip(names, labels, strict=True))
    standardize = Fields.of(tokens["train"])
    dataset = Dataset("clinc150", train, test, classes, standardize, vocabulary, tokens["oos_test"])
    return dataset.checked(), held, tokens["oos_val"]


def scores(posterior: Posterior, dataset: Dataset, held: Rows, strangers: Tensor) -> Record:
    """In-scope measures before and after calibration, and the detection of out-of-scope requests by entropy."""
    assert dataset.outside is not None
    record, temperature = calibrated_scores(posterior, dataset.test, held)
    inputs = (dataset.test.inputs, held.inputs, dataset.outside, strangers)
    raw, validation, outside, stranger = (posterior.probabilities(rows).cpu().double() for rows in inputs)
    inside, known, foreign = (predictive_entropy(temperature(p)) for p in (raw, validation, outside))
    found = detection(inside, foreign)
    threshold = best_threshold(validation, held.labels, stranger)
    return record | {
        "auroc": found.auroc,
        "fpr95": found.fpr95,
        **{f"recall_{rate:g}": recall(known, foreign, rate) for rate in FALSE_ALARMS},
        "acc_threshold": accepted(raw, dataset.test.labels, threshold),
        "recall_threshold": float((outside.amax(1) < threshold).double().mean()),
    }


def best_threshold(validation: Tensor, labels: Tensor, stranger: Tensor) -> float:
    """The maximum probability below which a request counts as out of scope, as Larson et al. choose it."""
    grid = torch.linspace(0, 1, 101, dtype=torch.float64)
    found = [float((stranger.amax(1) < t).sum()) for t in grid]
    right = [accepted(validation, labels, float(t)) * len(labels) for t in grid]
    return float(grid[int((torch.tensor(right) + torch.tensor(found)).argmax())])


def accepted(probabilities: Tensor, labels: Tensor, threshold: float) -> float:
    """The share of in-scope requests that are both accepted and right."""
    confidence, label = probabilities.max(1)
    return float(((confidence >= threshold) & (label == labels)).double().mean())


def recall(known: Tensor, foreign: Tensor, rate: float) -> float:
    """The share of out-of-scope requests above the threshold that this share of the validation sentences exceeds."""
    return float((foreign > torch.quantile(known, 1 - rate)).double().mean())


def made_up(intents: int = 5, each: int = 24) -> Parts:
    """Sentences of words that tell their intent, in the form of CLINC150's parts, for a try without its file."""
    draws = random.Random(0)

    def sentence(intent: int) -> str:
        words = [f"word{intent}{draws.randrange(4)}" for _ in range(3)] + [
            f"filler{draws.randrange(6)}" for _ in range(3)
        ]
        return " ".join(draws.sample(words, len(words)))

    def part(count: int) -> list[tuple[str, str]]:
        return [(sentence(intent), f"intent {intent}") for intent in range(intents) for _ in range(count)]

    foreign = [(" ".join(f"filler{draws.randrange(9)}" for _ in range(6)), "oos") for _ in range(40)]
    names = ("train", "val", "test", "oos_val", "oos_test")
    return dict(zip(names, (part(each), part(10), part(10), foreign[:20], foreign[20:]), strict=True))
