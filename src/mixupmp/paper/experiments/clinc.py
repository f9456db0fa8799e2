"""Intents and what is out of scope: CLINC150 with sentences as futures, on one small network.

Not of the paper, which has images only. Each repeat fits every method anew, takes one temperature and the thresholds
for out-of-scope requests from the published validation sentences, and scores the published test sentences. Every
repeat's numbers are kept, so that a command that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.base_measures import AtLayer, Mixup, SentencePair, SentenceSplice
from mixupmp.core.encoders import Vocabulary
from mixupmp.core.fields import Fields
from mixupmp.core.files import write_json
from mixupmp.core.methods import Method, deep_ensemble, martingale_posterior, mc_dropout
from mixupmp.core.posterior import Posterior
from mixupmp.core.rows import Dataset, Rows
from mixupmp.data.arrays import encode
from mixupmp.data.text_files import clinc150_parts
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.metrics import detection, evaluate, predictive_entropy
from mixupmp.paper.study import Study
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit

TITLE = "CLINC150: intents, and requests that are out of scope (not in the paper)"
REPEATS = {"smoke": 1, "cpu": 5, "paper": 5}
EPOCHS = 6
FALSE_ALARMS = (0.05, 0.1)  # of in-scope requests, for the recall of those out of scope
LINES: dict[str, Callable[[], Method]] = {
    "DE": lambda: deep_ensemble(4),
    "MP, blends of embeddings": lambda: martingale_posterior(1.0, AtLayer(Mixup(0.4), "embedding"), 4),
    "MP, spliced sentences": lambda: martingale_posterior(1.0, SentenceSplice(0.4), 4),
    "MP, pairs of sentences": lambda: martingale_posterior(1.0, SentencePair(), 4),
    "Mixup, spliced sentences": lambda: martingale_posterior(inf, SentenceSplice(0.4), 1),
    "MC dropout": lambda: mc_dropout(20),
}
COLUMNS = (
    "acc",
    "nll",
    "ece",
    "nll_calibrated",
    "ece_calibrated",
    "auroc",
    "fpr95",
    *(f"recall_{a:g}" for a in FALSE_ALARMS),
)
Parts = dict[str, list[tuple[str, str]]]


def run(study: Study) -> None:
    """Fit and score every line in every repeat, and write the table."""
    started = time.time()
    parts = made_up() if study.scale == "smoke" else clinc150_parts()
    dataset, held = prepared(parts)
    folder = study.results / study.name / ("smoke" if study.scale == "smoke" else "repeats")
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(0 if study.partial else REPEATS[study.scale]):
        for line, method in LINES.items():
            path = folder / f"{''.join(c if c.isalnum() else '-' for c in line.lower())}-{seed}.json"
            if not path.exists():
                posterior = fit(plan_for(dataset, method(), None, {"epochs": EPOCHS}, seed=seed))
                record = {"line": line, "seed": seed, **scores(posterior, dataset, held)}
                write_json(path, record)
                study.say(f"repeat {seed}, {line}: ACC {record['acc']:.4f}, AUROC {record['auroc']:.4f}")
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if records:
        write_table(records, folder.parent / ("smoke.md" if study.scale == "smoke" else "README.md"))
    differences = ["not of the paper", *(["sentences that are made up"] if study.scale == "smoke" else [])]
    study.record(differences, range(REPEATS[study.scale]), started, epochs=EPOCHS)


def prepared(parts: Parts) -> tuple[Dataset, Rows]:
    """The dataset, and its validation sentences."""
    vocabulary = Vocabulary.of(sentence for sentence, _ in parts["train"])
    names = ("train", "val", "test")
    labels, classes = encode("clinc150", *(np.array([intent for _, intent in parts[name]]) for name in names))
    tokens = {name: vocabulary([sentence for sentence, _ in parts[name]]) for name in (*names, "oos_test")}
    train, held, test = (Rows(tokens[name], y) for name, y in zip(names, labels, strict=True))
    standardize = Fields.of(tokens["train"])
    return Dataset("clinc150", train, test, classes, standardize, vocabulary, tokens["oos_test"]).checked(), held


def scores(posterior: Posterior, dataset: Dataset, held: Rows) -> dict[str, Any]:
    """In-scope measures before and after calibration, and the detection of out-of-scope requests by entropy."""
    assert dataset.outside is not None
    raw, validation, outside = (
        posterior.probabilities(inputs).double() for inputs in (dataset.test.inputs, held.inputs, dataset.outside)
    )
    temperature = fit_temperature(validation, held.labels)
    plain, better = (evaluate(p, dataset.test.labels) for p in (raw, temperature(raw)))
    inside, known, foreign = (predictive_entropy(temperature(p)) for p in (raw, validation, outside))
    found = detection(inside, foreign)
    return {
        **{name: plain[name] for name in ("acc", "nll", "ece")},
        **{f"{name}_calibrated": better[name] for name in ("nll", "ece")},
        "temperature": temperature.temperature,
        "auroc": found.auroc,
        "fpr95": found.fpr95,
        **{f"recall_{rate:g}": recall(known, foreign, rate) for rate in FALSE_ALARMS},
    }


def recall(known: Tensor, foreign: Tensor, rate: float) -> float:
    """The share of out-of-scope requests above the threshold that this share of the validation sentences exceeds."""
    return float((foreign > torch.quantile(known, 1 - rate)).double().mean())


def write_table(records: list[dict[str, Any]], path: Path) -> None:
    """Means over repeats, with standard errors where there are several."""
    lines = [
        "# CLINC150, in scope and out of it",
        "",
        f"TextCNN, {EPOCHS} epochs; one temperature, and the thresholds of recall_a (a of the in-scope requests are "
        "false alarms), from the validation sentences. ACC, NLL and ECE of the test sentences; AUROC, FPR95 and recall "
        "of those out of scope, by entropy.",
        "",
        f"| method | repeats | {' | '.join(COLUMNS)} |",
        "|---|" + "---:|" * (len(COLUMNS) + 1),
    ]
    for line in LINES:
        own = [record for record in records if record["line"] == line]
        cells = (_cell([record[column] for record in own]) for column in COLUMNS)
        lines += [f"| {line} | {len(own)} | {' | '.join(cells)} |"] if own else []
    path.write_text("\n".join(lines) + "\n")


def _cell(values: list[float]) -> str:
    error = f" ± {stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{fmean(values):.4f}{error}"


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
    return {"train": part(each), "val": part(10), "test": part(10), "oos_test": foreign}
