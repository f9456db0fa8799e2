"""Arrays to rows, and `.npz` files of them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData
from mixupmp.core.rows import Dataset, Rows, Standardize, split
from mixupmp.data.labels import encode

SPLIT_KEYS = ("x_train", "y_train", "x_test", "y_test")


def as_inputs(array: NDArray[Any], where: str) -> Tensor:
    """An array as inputs: uint8 images (rows, channels, height, width), everything else float32.

    Images may come without channels or with the channels last. Whole numbers within 0..255 in the shape of images
    are taken for pixels.
    """
    if array.dtype.kind not in "biuf":
        raise BadData(f"{where}: inputs of type {array.dtype} are not numbers.")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 3 and array.dtype.kind in "iu":
        array = array[:, None]
    if array.ndim == 4 and array.shape[3] in (1, 3) and array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim == 4 and array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() <= 255:
        return torch.from_numpy(np.array(array, np.uint8, order="C"))
    with np.errstate(over="ignore"):  # what overflows float32 is infinite, and Rows.checked says where
        return torch.from_numpy(np.array(array, np.float32, order="C"))


def dataset_of(name: str, where: str, inputs: Tensor, labels: NDArray[Any], fraction: float, seed: int) -> Dataset:
    """A dataset of one set of rows, of which a stratified share becomes the test set."""
    if len(inputs) != len(labels):
        raise BadData(f"{where} has {len(inputs)} rows of inputs but {len(labels)} labels.")
    (numbers,), classes = encode(where, labels)
    # Checked before the split, so that an error speaks of the user's own row numbers.
    rows = Rows(inputs, numbers).checked(len(classes), where)
    train, test = split(rows, fraction, seed)
    return Dataset(name, train, test, classes, Standardize.of(train.inputs)).checked()


def _content(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:  # numpy leaves a damaged file open where it opens it itself
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise BadData(f"{path} is a single array, not an .npz of several.")
            return {key.lower(): content[key] for key in content.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, BadData):
            raise
        hint = "save labels as text or numbers, such as y.astype(str)" if "pickle" in str(error) else "save it again"
        raise BadData(f"{path} cannot be read ({error}): {hint}.") from error


def read_npz(path: Path, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """An `.npz` of X_train, y_train, X_test, y_test, or of X, y, which is then split. Case does not matter."""
    content = _content(path)
    where = str(path)
    if {"x", "y"} <= content.keys():
        return dataset_of(path.stem, where, as_inputs(content["x"], where), content["y"], test_fraction, seed)
    missing = [key for key in SPLIT_KEYS if key not in content]
    if missing:
        found = ", ".join(content) or "nothing"
        raise BadData(f"{path} must hold X_train, y_train, X_test, y_test or X, y; it holds {found}.")
    train_x, train_y, test_x, test_y = (content[key] for key in SPLIT_KEYS)
    (train_labels, test_labels), classes = encode(where, train_y, test_y)
    train = Rows(as_inputs(train_x, where), train_labels)
    test = Rows(as_inputs(test_x, where), test_labels)
    if train.inputs.dtype != test.inputs.dtype:
        raise BadData(f"{path}: X_train is {train_x.dtype} but X_test {test_x.dtype}: use one scale for both.")
    train.checked(len(classes), f"{where} training")  # before its mean is taken
    return Dataset(path.stem, train, test, classes, Standardize.of(train.inputs)).checked()
