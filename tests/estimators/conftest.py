from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from mixupmp import Recipe

Pair = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture(scope="session")
def iris() -> Pair:
    return load_iris(return_X_y=True)


@pytest.fixture(scope="session")
def quick() -> Recipe:
    """A few full-batch steps: enough to tell iris apart."""
    return Recipe(epochs=40, batch_size=256, optimizer="adamw", learning_rate=2e-2, weight_decay=1e-3)
