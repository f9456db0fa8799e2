"""The README's example over ten divisions of the digits, beside what else one would try.

python results/quick-start/splits.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupmp import DeepEnsembleClassifier, MixupMPClassifier

CLASSIFIERS = {
    "MixupMPClassifier": lambda: MixupMPClassifier(random_state=0),
    "DeepEnsembleClassifier": lambda: DeepEnsembleClassifier(random_state=0),
    "logistic regression, standardized": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "random forest": lambda: RandomForestClassifier(random_state=0),
    "gradient boosting (scikit-learn)": lambda: HistGradientBoostingClassifier(random_state=0),
}
SPLITS = 10


def main() -> None:
    """Print the mean test NLL of each classifier, with its standard error, and each division's."""
    X, y = load_digits(return_X_y=True)
    found: dict[str, list[float]] = {name: [] for name in CLASSIFIERS}
    for seed in range(SPLITS):
        X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=400, random_state=seed)
        for name, make in CLASSIFIERS.items():
            found[name].append(log_loss(y_test, make().fit(X_train, y_train).predict_proba(X_test)))
    for name, values in found.items():
        error = np.std(values, ddof=1) / SPLITS**0.5
        print(f"| {name} | {np.mean(values):.4f} | {error:.4f} | {' '.join(f'{value:.3f}' for value in values)} |")


if __name__ == "__main__":
    main()
