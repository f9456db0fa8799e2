"""Arrays and labels to rows, and `.npy` and `.npz` files of them."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.column_warnings import warn_of_merged
from mixupmp.core.columns import Columns
from mixupmp.core.errors import BadData
from mixupmp.core.layouts import channels_first, layout_of
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.core.split import split
from mixupmp.data.files import check_unpacked, plain_file, reading

CHANNELS_FIRST = "let the channels come right after the rows"
SPLIT_KEYS = ("x_train", "y_train", "x_test", "y_test")


def as_inputs(
    array: Array, where: str, shape: tuple[int, ...] | None = None, known_pixels: bool | None = None
) -> Tensor:
    """An array as inputs: uint8 images (rows, channels, height, width), everything else float32.

    Images may come without channels or with the channels last (see `layout_of`). Integers within 0..255 in the shape of
    images are taken for pixels, where `known_pixels` does not say, and uint16 images for shares of 65,535. An array of
    rows of the given shape is taken as it comes.
    """
    if array.dtype.kind not in "biuf":
        raise BadData(f"{where}: inputs of type {array.dtype} are not numbers.")
    if array.ndim == 0:
        raise BadData(f"{where}: inputs are a single number: they must be rows.")
    if array.ndim == 1:
        array = array[:, None]
    if array.shape[1:] != shape:
        if array.ndim == 3 and array.dtype.kind in "iu":
            array = array[:, None]
        if array.ndim in (4, 5):
            array = array.transpose(channels_first(layout_of(array.shape, where, CHANNELS_FIRST)))
    pixels = array.ndim == 4 if known_pixels is None else known_pixels
    pixels = pixels and array.dtype.kind in "iu" and array.dtype != np.uint16 and array.size > 0
    if pixels and array.min() >= 0 and array.max() <= 255:
        return torch.from_numpy(np.array(array, np.uint8, order="C"))
    if array.ndim == 4 and array.dtype == np.uint16:
        return torch.from_numpy(np.array(array / 65535, np.float32, order="C"))
    with np.errstate(over="ignore"):  # what overflows float32 is infinite, and Rows.checked says where
        return torch.from_numpy(np.array(array, np.float32, order="C"))


def class_numbers(where: str, *columns: Array) -> tuple[list[Tensor], tuple[str, ...]]:
    """Class numbers for each column of labels (say training and test), and the names of the classes.

    Classes are sorted: numbers as numbers, text as text. The first column must hold every class, as nothing can be
    learned about a class that occurs in test rows only.
    """
    labels = [_as_labels(column, where) for column in columns]
    values, numbers = np.unique(np.concatenate(labels), return_inverse=True)
    parts = np.split(numbers.astype(np.int64), np.cumsum([len(column) for column in labels])[:-1])
    classes = tuple(str(value) for value in values)
    unseen = sorted(set(range(len(classes))) - set(np.unique(parts[0]).tolist()))
    if unseen:
        names = ", ".join(classes[k] for k in unseen[:5])
        raise BadData(f"{where}: of {names} there are test rows but no training rows.")
    return [torch.from_numpy(part) for part in parts], classes


def _as_labels(labels: Array, where: str) -> Array:
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
            hint = "Is this the right label column? For a regression, use mixupmp.MixupMPRegressor in Python."
            raise BadData(f"{where}: labels must be classes, found the number {odd}. {hint}")
        return labels.astype(np.int64)
    if labels.dtype.kind == "S":
        with reading(where, "UTF-8 labels"):
            return np.char.decode(labels, "utf-8")
    if labels.dtype.kind not in "biuU":
        raise BadData(f"{where}: labels of type {labels.dtype} cannot be classes: use text or whole numbers.")
    if labels.dtype.kind == "U":
        with reading(where, "labels of text"):  # a file may hold numbers that are no characters
            labels.tolist()
    return labels


def dataset_of(name: str, where: str, inputs: Tensor, labels: Array, fraction: float, seed: int) -> Dataset:
    """A dataset of one set of rows, of which a stratified share becomes the test set."""
    (numbers,), classes = class_numbers(where, labels)
    if len(inputs) != len(numbers):
        raise BadData(f"{where} has {len(inputs)} rows of inputs but {len(numbers)} labels.")
    train, test = split_off_test(Rows(inputs, numbers), len(classes), where, fraction, seed)
    return Dataset(name, train, test, classes, Standardize.of(train.inputs)).checked()


def split_off_test(rows: Rows, classes: int, where: str, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Training rows, and a stratified share for tests; with a share of 1 all rows, which may be of a single class."""
    whole = fraction == 1
    # Checked before the split, so that an error speaks of the user's own row numbers.
    rows.checked(max(2, classes) if whole else classes, where)
    return (rows.take(torch.arange(0)), rows) if whole else split(rows, fraction, seed)


def load_arrays(source: Path | bytes, name: str = "") -> Array | dict[str, Array]:
    """The array of an `.npy`, or those of an `.npz` by lower-case name; no pickles, and no more than the file holds.

    Parameters
    ----------
    source
        A path, or the content of a file.
    name
        What errors call it; by default the path.
    """
    name = name or str(source)
    opened = io.BytesIO(source) if isinstance(source, bytes) else plain_file(source).open("rb")
    with reading(name, "an array"), opened as file:
        if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            return _read_npy(file, file.seek(0, io.SEEK_END), name)
        arrays = {}
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                check_unpacked(f"{name} ({entry.filename})", entry.compress_size, entry.file_size)
                with archive.open(entry) as member:
                    key = entry.filename.removesuffix(".npy").lower()
                    arrays[key] = _read_npy(member, entry.file_size, name)
        return arrays


def _read_npy(file: IO[bytes], size: int, name: str) -> Array:
    """One array; its header is checked against the bytes that are there before memory is asked for."""
    file.seek(0)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(file))
    if read_header is None:
        raise BadData(f"{name} holds an array with named fields: save plain arrays.")
    shape, _, dtype = read_header(file)
    needed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if dtype.hasobject:
        raise BadData(f"{name} cannot be read as an array: it holds objects. Save text or numbers, as y.astype(str).")
    if needed > there:
        raise BadData(f"{name} cannot be read: an array of shape {shape} needs {needed:,} bytes and has {there:,}.")
    file.seek(0)
    return npy.read_array(file, allow_pickle=False)


def read_npz(path: Path, test_fraction: float = 0.2, seed: int = 0, columns: Columns | None = None) -> Dataset:
    """An `.npz` of X_train, y_train, X_test, y_test, or of X, y, which is then split. Case does not matter.

    Rows of a table are centered as `columns` says: that of a fit.
    """
    content = load_arrays(path)
    where = str(path)
    if not isinstance(content, Mapping):
        raise BadData(f"{path} is a single array, not an .npz of several.")
    if {"x", "y"} <= content.keys():
        return dataset_of(path.stem, where, _rows(content["x"], where, columns), content["y"], test_fraction, seed)
    if any(key not in content for key in SPLIT_KEYS):
        found = ", ".join(content) or "nothing"
        raise BadData(f"{path} must hold X_train, y_train, X_test, y_test or X, y; it holds {found}.")
    train_x, train_y, test_x, test_y = (content[key] for key in SPLIT_KEYS)
    (train_labels, test_labels), classes = class_numbers(where, train_y, test_y)
    train, test = (Rows(_rows(x, where, columns), y) for x, y in ((train_x, train_labels), (test_x, test_labels)))
    if train.inputs.dtype != test.inputs.dtype:
        raise BadData(f"{path}: X_train is {train_x.dtype} but X_test {test_x.dtype}: use one scale for both.")
    train.checked(len(classes), f"{where} training")  # before its mean is taken
    return Dataset(path.stem, train, test, classes, Standardize.of(train.inputs)).checked()


def _rows(array: Array, where: str, columns: Columns | None) -> Tensor:
    if columns is not None:
        array = columns.center(array)
    elif array.ndim == 2 and array.dtype.kind in "iuf":
        for place, values in enumerate(array.T):
            warn_of_merged(str(place), values)
    return as_inputs(array, where)
