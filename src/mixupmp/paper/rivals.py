"""The classifiers of the table benchmark: this package's own as they come, and what people would otherwise use.

All take data frames, with columns of type `category` for what is not a number; those that know numbers only get an
indicator for each category.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mixupmp.decide.search import Search
from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier
from mixupmp.paper.tabular import Classifier

if TYPE_CHECKING:
    from pandas import DataFrame


def ours(seed: int, search: Search | None = None) -> dict[str, Callable[[], Classifier]]:
    """MixupMP as it comes, or with this search, and the deep ensemble with the same tuning."""
    if search is None:
        deep_ensemble = lambda: DeepEnsembleClassifier(random_state=seed)  # noqa: E731
    else:
        deep_ensemble = lambda: MixupMPClassifier(0.0, search=search, random_state=seed)  # noqa: E731
    return {"MixupMP": lambda: MixupMPClassifier(search=search, random_state=seed), "deep ensemble": deep_ensemble}


def rivals(seed: int, say: Callable[[str], None]) -> dict[str, Callable[[], Classifier]]:
    """The others at their own defaults, by name; those that are not installed are left out, with a word."""
    found: dict[str, Callable[[], Classifier]] = {
        "logistic regression": lambda: make_pipeline(_numbers(StandardScaler()), LogisticRegression(max_iter=1000)),
        "random forest": lambda: make_pipeline(_numbers("passthrough"), _forest(seed)),
        "random forest, calibrated": lambda: make_pipeline(
            _numbers("passthrough"), CalibratedClassifierCV(_forest(seed), method="sigmoid", cv=5)
        ),
        "gradient boosting (scikit-learn)": lambda: HistGradientBoostingClassifier(random_state=seed),
    }
    try:
        from lightgbm import LGBMClassifier

        found["LightGBM"] = lambda: LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1)
    except ImportError:
        say("LightGBM is not installed: it is left out (pip install lightgbm).")
    try:
        from catboost import CatBoostClassifier

        found["CatBoost"] = lambda: _CatBoost(CatBoostClassifier, seed)
    except ImportError:
        say("CatBoost is not installed: it is left out (pip install catboost).")
    return found


def slow_rivals(seed: int, say: Callable[[str], None]) -> dict[str, Callable[[], Classifier]]:
    """RealMLP (Holzmüller et al. 2024) and TabM (Gorishniy et al. 2025) at pytabkit's tuned defaults.

    They train for 256 epochs: 19 and 124 s for 400 rows of breast cancer on one busy core.
    """
    try:
        from pytabkit import RealMLP_TD_Classifier, TabM_D_Classifier
    except ImportError:
        say("pytabkit is not installed: RealMLP and TabM are left out (pip install pytabkit).")
        return {}
    options: dict[str, Any] = {"device": "cpu", "n_threads": 1, "random_state": seed, "verbosity": 0}
    return {"RealMLP": lambda: RealMLP_TD_Classifier(**options), "TabM": lambda: TabM_D_Classifier(**options)}


def _forest(seed: int) -> RandomForestClassifier:
    return RandomForestClassifier(random_state=seed)


def _numbers(scaling: Any) -> Any:
    """Numbers scaled, categories as indicators."""
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
        remainder=scaling,
        sparse_threshold=0.0,
    )


class _CatBoost:
    """CatBoost, with the columns that are categories named."""

    def __init__(self, kind: Any, seed: int) -> None:
        self.model = kind(random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False)

    def fit(self, X: DataFrame, y: Any) -> _CatBoost:
        """As CatBoost does."""
        self.model.fit(X, y, cat_features=list(X.select_dtypes("category").columns))
        self.classes_ = np.asarray(self.model.classes_)
        return self

    def predict_proba(self, X: DataFrame) -> Any:
        """(rows, classes)."""
        return self.model.predict_proba(X)
