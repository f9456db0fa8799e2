"""Labels of any kind to class numbers, and the names of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData


def encode(where: str, *columns: NDArray[Any]) -> tuple[list[Tensor], tuple[str, ...]]:
    """Class numbers for each column of labels (say training and test), and the classes they have in common.

    Classes are sorted: numbers as numbers, text as text. The first column must hold every class, for nothing
    can be learned about a class that only turns up in the test rows.
    """
    tidy = [_tidy(column, where) for column in columns]
    values, numbers = np.unique(np.concatenate(tidy), return_inverse=True)
    ends = np.cumsum([len(column) for column in tidy])
    parts = np.split(numbers.astype(np.int64), ends[:-1])
    classes = tuple(str(value) for value in values)
    unseen = sorted(set(range(len(classes))) - set(np.unique(parts[0]).tolist()))
    if unseen:
        names = ", ".join(classes[k] for k in unseen[:5])
        raise BadData(f"{where}: of {names} there are test rows but no training rows.")
    return [torch.from_numpy(part) for part in parts], classes


def _tidy(labels: NDArray[Any], where: str) -> NDArray[Any]:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise BadData(f"{where}: labels must be one per row, got shape {labels.shape} (one-hot? take its argmax).")
    if labels.size == 0:
        raise BadData(f"{where}: there are no labels: it needs at least one row.")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise BadData(f"{where}: labels hold NaN or infinity: remove those rows.")
        if (labels != np.round(labels)).any():
            odd = float(labels[labels != np.round(labels)][0])
            raise BadData(f"{where}: labels must be classes, found the number {odd}. Is this the right label column?")
        return labels.astype(np.int64)
    if labels.dtype.kind == "S":
        return np.char.decode(labels, "utf-8")
    if labels.dtype.kind not in "biuU":
        raise BadData(f"{where}: labels of type {labels.dtype} cannot be classes: use text or whole numbers.")
    return labels
