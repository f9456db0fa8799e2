"""scikit-learn's own checks, on small networks. What is expected to fail is said why, one by one."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixupmp import Recipe
from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier, MixupMPRegressor, PosteriorClassifier
from mixupmp.networks import MLP

RECIPE = Recipe(epochs=30, batch_size=64, optimizer="adamw", learning_rate=5e-2, weight_decay=1e-3)


class Small:
    """A factory whose name is the same in every process: tests are distributed to several by their names."""

    def __call__(self, shape: tuple[int, ...], outputs: int) -> MLP:
        return MLP(shape[0], outputs, hidden=(16,))

    def __repr__(self) -> str:
        return "small"


small = Small()


def expected(estimator: Any) -> dict[str, str]:
    """One check, for one of three reasons. `test_weights.py` holds each to what it can promise instead."""
    reason = {
        # Weighted rows are repeated rows to the rounding of float32 (1e-6); the check asks for 1e-7.
        DeepEnsembleClassifier: "networks are trained in float32",
        # The bootstrap draws a weight for every row, so a repeated row draws twice.
        PosteriorClassifier: "the bootstrap draws a weight for every row",
        # Pairs are drawn among rows: another number of rows is another draw.
        MixupMPClassifier: "Mixup draws random pairs of rows",
        MixupMPRegressor: "Mixup draws random pairs of rows",
    }[type(estimator)]
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@pytest.mark.filterwarnings("ignore::mixupmp.estimators.base.WorseThanConstant")  # their targets are noise
@parametrize_with_checks(
    [
        MixupMPClassifier(ratio=0.5, members=2, network=small, recipe=RECIPE, engine="inline"),
        DeepEnsembleClassifier(members=2, network=small, recipe=RECIPE, engine="inline"),
        PosteriorClassifier("bayesian-bootstrap", network=small, recipe=RECIPE, engine="inline"),
        MixupMPRegressor(ratio=0.2, members=2, network=small, recipe=RECIPE, engine="inline"),
    ],
    expected_failed_checks=expected,
)
def test_scikit_learn_s_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)
