"""Words or pieces of words for CLINC150: one TextCNN, judged on the published validation sentences; run from the top.

.venv/bin/python results/futures/tokens.py
"""

from __future__ import annotations

import time

import numpy as np
import torch

from mixupmp import deep_ensemble, fit, plan_for
from mixupmp.core.fields import Fields
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.tokenizers import vocabulary_of
from mixupmp.data.arrays import class_numbers
from mixupmp.data.text_files import clinc150_parts
from mixupmp.metrics import detection, evaluate, predictive_entropy

SEEDS = (0, 1, 2)
parts = clinc150_parts()
(train, val), classes = class_numbers("clinc150", *(np.array([y for _, y in parts[name]]) for name in ("train", "val")))
torch.set_num_threads(1)
print(
    "| tokens | numbers | length | ACC | NLL | out-of-scope AUROC | CPU seconds |\n|---|---:|---:|---:|---:|---:|---:|"
)
for tokens in ("words", "pieces"):
    vocabulary = vocabulary_of([sentence for sentence, _ in parts["train"]], tokens)
    rows = {name: vocabulary([sentence for sentence, _ in parts[name]]) for name in ("train", "val", "oos_val")}
    whole = Rows(rows["train"], train), Rows(rows["val"], val)
    dataset = Dataset("clinc150", *whole, classes, Fields.of(rows["train"]), vocabulary).checked()
    found = []
    for seed in SEEDS:
        started = time.process_time()
        posterior = fit(plan_for(dataset, deep_ensemble(1), None, {"epochs": 4}, seed=seed), engine="inline")
        spent = time.process_time() - started
        inside, outside = (posterior.probabilities(rows[name]).double() for name in ("val", "oos_val"))
        scores = evaluate(inside, val)
        auroc = detection(predictive_entropy(inside), predictive_entropy(outside)).auroc
        found.append((100 * float(scores["acc"] or 0), float(scores["nll"] or 0), auroc, spent))
    acc, nll, auroc, spent = (float(mean) for mean in np.mean(found, 0))
    line = f"| {tokens} | {vocabulary.size} | {vocabulary.length} | {acc:.1f} | {nll:.3f} | {auroc:.3f} | {spent:.0f} |"
    print(line, flush=True)
