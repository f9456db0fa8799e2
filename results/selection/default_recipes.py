"""How the estimators' default recipes were chosen: NLL on validation rows, by number of steps and learning rate.

    python experiments/default_recipes.py > results/selection/default_recipes.md

A quarter of each dataset is left out before anything is tried; three tenths of the rest are the validation rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import torch
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_wine,
    make_classification,
    make_friedman1,
)
from sklearn.model_selection import train_test_split

from mixupmp import Recipe
from mixupmp.estimators import MixupMPClassifier, MixupMPRegressor

RATIOS = (0.0, 1.0)
TABLE_GRID = [(steps, rate) for steps in (80, 150, 300) for rate in (1e-3, 3e-3)]
IMAGE_GRID = [(steps, rate) for steps in (500, 2000) for rate in (0.02, 0.05)]


def tables() -> dict[str, tuple[type, Any]]:
    noisy = make_classification(600, 20, n_informative=6, n_classes=3, flip_y=0.15, random_state=1)
    return {
        "breast cancer": (MixupMPClassifier, load_breast_cancer(return_X_y=True)),
        "wine": (MixupMPClassifier, load_wine(return_X_y=True)),
        "15 % wrong labels": (MixupMPClassifier, noisy),
        "diabetes": (MixupMPRegressor, load_diabetes(return_X_y=True)),
        "Friedman 1": (MixupMPRegressor, make_friedman1(500, noise=1.0, random_state=0)),
    }


def images() -> dict[str, tuple[type, Any]]:
    digits = load_digits()
    return {"digits": (MixupMPClassifier, ((digits.images * 15).astype("uint8"), digits.target))}


def scores(estimator: type, data: Any, recipe: Recipe, steps: int) -> Iterator[float]:
    inputs, _, labels, _ = train_test_split(*data, test_size=0.25, random_state=0)
    train, held, known, unknown = train_test_split(inputs, labels, test_size=0.3, random_state=1)
    epochs = ceil(steps / ceil(len(train) / 128))
    for ratio in RATIOS:
        model = estimator(ratio=ratio, members=2, recipe=recipe, epochs=epochs, random_state=0)
        yield model.fit(train, known).evaluate(held, unknown)["nll"]


def table(title: str, data: dict[str, tuple[type, Any]], grid: list[tuple[int, float]], base: dict[str, Any]) -> None:
    print(f"\n## {title}: validation NLL for r = 0 / r = 1\n")
    print(f"| steps | learning rate | {' | '.join(data)} |\n|---:|---:|{'---:|' * len(data)}")
    for steps, rate in grid:
        recipe = Recipe(batch_size=128, learning_rate=rate, **base)
        cells = [" / ".join(f"{s:.3f}" for s in scores(*data[name], recipe, steps)) for name in data]
        print(f"| {steps} | {rate:g} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    print("# Default recipes\n\nCommand: `python experiments/default_recipes.py`")
    table("Tables, MLP, AdamW", tables(), TABLE_GRID, {"optimizer": "adamw", "weight_decay": 0.3})
    table("Images, CNN, SGD", images(), IMAGE_GRID, {})


if __name__ == "__main__":
    main()
