"""The recipes that are taken where none is given."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_iris

from mixupmp.core.errors import MixupMPError
from mixupmp.estimators import DeepEnsembleClassifier
from mixupmp.train.plans import FEWEST_EPOCHS, IMAGE_STEPS, TABLE_STEPS, recipe_for


@pytest.mark.parametrize("rows", [10, 127, 128, 129, 1000])
@pytest.mark.parametrize("images", [True, False])
def test_small_data_get_steps_enough(rows: int, images: bool) -> None:
    recipe = recipe_for(rows, images)
    steps = recipe.epochs * -(-rows // 128)
    wanted = IMAGE_STEPS if images else TABLE_STEPS
    assert wanted <= steps or recipe.epochs == 1000
    assert steps < wanted + max(8, wanted // 5) or recipe.epochs == FEWEST_EPOCHS


def test_large_data_get_epochs_enough_and_an_answer_given_is_kept() -> None:
    assert recipe_for(10**6, images=False).epochs == FEWEST_EPOCHS
    assert recipe_for(10**6, images=True, given={"epochs": 3}).epochs == 3
    assert recipe_for(10**6, images=True, fine_tune=True).epochs == 3
    with pytest.raises(MixupMPError, match="epochs must be"):
        recipe_for(10, images=True, given={"epochs": 0})


def test_the_default_classifier_learns_a_table() -> None:
    X, y = load_iris(return_X_y=True)
    assert DeepEnsembleClassifier(2, random_state=0).fit(X[::2], y[::2]).score(X, y) > 0.9
