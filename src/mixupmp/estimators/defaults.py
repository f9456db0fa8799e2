"""Recipes for data of any size, after experiments/default_recipes.py (one validation split of each dataset).

What a small dataset needs is steps, not epochs: a hundred rows make one step an epoch, sixty thousand make 469. For
tables, 300 steps or a rate of 3e-3 over-fit; between 80 and 150 steps that split does not decide (80 is better on wine,
noisy labels and diabetes, 150 on breast cancer and Friedman 1). 150 was kept after 80 had been seen to under-train wine
in the selection study, so it was not chosen on validation rows alone: see results/selection/README.md. For images,
2,000 steps at .05 were the best of four on digits. The recipe for fine-tuning is a convention, not a measurement.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from mixupmp.core.errors import check
from mixupmp.core.recipe import Recipe

TABLE = Recipe(batch_size=128, optimizer="adamw", learning_rate=1e-3, weight_decay=0.3)
IMAGES = Recipe(batch_size=128, learning_rate=0.05)
FINE_TUNE = Recipe(batch_size=64, optimizer="adamw", learning_rate=1e-4, weight_decay=1e-2)
TABLE_STEPS, IMAGE_STEPS, FINE_TUNE_STEPS = 150, 2000, 300
MOST_EPOCHS, FEWEST_EPOCHS = 1000, 20


def recipe_for(rows: int, images: bool, fine_tune: bool, epochs: int | None) -> Recipe:
    """The default recipe for so many rows; `epochs` overrides their number."""
    recipe, steps = (IMAGES, IMAGE_STEPS) if images else (TABLE, TABLE_STEPS)
    if fine_tune:
        recipe, steps = FINE_TUNE, FINE_TUNE_STEPS
    if epochs is None:
        steps_an_epoch = ceil(rows / (recipe.batch_size or rows))
        fewest = 3 if fine_tune else FEWEST_EPOCHS
        epochs = min(MOST_EPOCHS, max(fewest, ceil(steps / steps_an_epoch)))
    check(isinstance(epochs, int) and epochs >= 1, "epochs", epochs, "a whole number, at least 1, or None")
    return replace(recipe, epochs=epochs)
