"""Rows to predict: of a dataset, or of a file or folder of arrays, tables of features, images, sentences, sounds."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mixupmp.cli.output import remark
from mixupmp.cli.scoring import dataset_for
from mixupmp.core.arrays import Array
from mixupmp.core.columns import Columns
from mixupmp.core.errors import BadData, DataNotFound
from mixupmp.core.posterior import Task
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.data.arrays import as_inputs, load_arrays
from mixupmp.data.files import reading
from mixupmp.data.images import ENDINGS, WrongSize, read_image
from mixupmp.data.sound_files import ENDING as WAV
from mixupmp.data.sound_files import encoded_wave
from mixupmp.data.table_files import is_numeric_text, read_frame
from mixupmp.data.text_files import ENDINGS as TEXT_ENDINGS
from mixupmp.data.text_files import read_column
from mixupmp.store.folder import RunFolder

TAKEN = ".npy, .npz, .csv, .txt (a sentence on each line), .jsonl, .wav, an image, or a folder of images or .wav files"


def wanted_inputs(
    run: Path, task: Task, given: Path | None, resize: bool, data: str | None, root: str | None
) -> tuple[Tensor, tuple[str, ...]]:
    """The rows of --input or of --data, and the names of a folder's files, in the order of the rows."""
    if given is None:
        return test_inputs(run, data, root, task), ()
    known = RunFolder(run).config()["spec"].get("data") or {}
    names = tuple(file.relative_to(given).as_posix() for file in files_in(given))
    return read_inputs(given, task, resize, known.get("label"), known.get("text")), names


def test_inputs(run: Path, data: str | None, root: str | None, task: Task) -> Tensor:
    """The test rows of a dataset, or all rows of a file that has no test part; None: of what the run was fitted to."""
    return dataset_for(run, data, root, task.encoder).test.inputs


def files_in(path: Path) -> tuple[Path, ...]:
    """The images and sounds under a folder, by name; none for a file."""
    known = (p for p in path.rglob("*") if p.suffix.lower() in {*ENDINGS, WAV} and not p.name.startswith("."))
    return tuple(sorted(known)) if path.is_dir() else ()


def read_inputs(
    path: Path, task: Task, resize: bool = False, label: str | None = None, text: str | None = None
) -> Tensor:
    """The rows in a file, or in the files of a folder, in the shape that the task takes.

    Parameters
    ----------
    label
        The column of labels in the table that the run was fitted to, None for the last: a table with one column too
        many is taken without it.
    text
        The column of sentences in the file that the run was fitted to.
    """
    if path.is_dir():
        files = files_in(path)
        if not files:
            raise BadData(f"{path} holds no images and no .wav files.")
        return torch.cat([read_inputs(file, task, resize) for file in files])
    if not path.is_file():
        raise DataNotFound(f"{path} does not exist, or is not a file: --input takes {TAKEN}.")
    kind = path.suffix.lower()
    if kind == WAV:
        return encoded_wave(path, task)
    if kind == ".txt":
        return _sentences(path, task)
    if kind in ENDINGS:
        return _image(path, task, resize)
    if kind == ".csv" and isinstance(task.encoder, Columns) and not (task.encoder.plain and _bare_numbers(path)):
        return _encoded(path, task.encoder)
    if isinstance(task.encoder, Vocabulary) and path.name.lower().endswith(TEXT_ENDINGS):
        if text is None:
            raise BadData(f"{path} is a table; the run takes sentences: put one on each line of a .txt file.")
        return task.encoder(read_column(path, text))
    if kind not in (".npy", ".npz", ".csv"):
        raise BadData(f"{path} is of an unknown kind: --input takes {TAKEN}.")
    array = _csv(path, task, label) if kind == ".csv" else _npy(path) if kind == ".npy" else _npz(path)
    array = task.encoder.center(array) if isinstance(task.encoder, Columns) else array
    inputs = as_inputs(array, str(path), task.input_shape, task.pixels)
    expected = ", ".join(map(str, task.input_shape))
    if tuple(inputs.shape[1:]) != task.input_shape:
        found = tuple(inputs.shape)
        raise BadData(f"{path} holds rows of shape {found}; the run takes (rows, {expected}), without labels.")
    if len(inputs) == 0:
        raise BadData(f"{path} is empty: there is no row to predict.")
    images = len(task.input_shape) == 3 and task.pixels is not False
    if images and inputs.is_floating_point() and float(inputs.abs().max()) > 16:
        remark(
            f"note: {path} has images of floats up to {float(inputs.max()):g}; pixels of 0..255 must be whole numbers."
        )
    return inputs


def _npy(path: Path) -> Array:
    loaded = load_arrays(path)
    if isinstance(loaded, dict):
        raise BadData(f"{path} is an archive of arrays: name it .npz.")
    return loaded


def _npz(path: Path) -> Array:
    """The array X, or X_test, or the only one there is."""
    content = load_arrays(path)
    if not isinstance(content, dict):
        return content
    for name in ("x", "x_test"):
        if name in content:
            return content[name]
    if len(content) == 1:
        return next(iter(content.values()))
    raise BadData(f"{path} holds {', '.join(content) or 'nothing'}: it must hold X, X_test, or a single array.")


def _csv(path: Path, task: Task, label: str | None) -> Array:
    """Numbers with commas between them; a first line that is not numbers is a heading."""
    with reading(path, "a table of numbers"):
        lines = path.read_text("utf-8-sig").splitlines()
        names = next(csv.reader(lines[:1]), [])
        heading = not is_numeric_text(names[:-1] or names)  # labels may be words
        if len(lines) <= heading:
            raise BadData(f"{path} is empty: there is no row to predict.")
        columns = list(range(len(names)))
        if (len(names) - 1,) == task.input_shape:
            left_out = names.index(label) if heading and label in names else len(names) - 1
            columns.remove(left_out)
            remark(f"note: {path} has the labels too: column {names[left_out] if heading else left_out} is left out.")
        return np.loadtxt(lines[heading:], delimiter=",", ndmin=2, usecols=columns, quotechar='"')


def _bare_numbers(path: Path) -> bool:
    """Whether the first line has no headings: then columns are taken in their order."""
    with reading(path, "a table"), path.open(encoding="utf-8-sig", newline="") as file:
        return is_numeric_text(next(csv.reader(file), []))


def _encoded(path: Path, columns: Columns) -> Tensor:
    """A table with a heading, whose columns are those of the fit by name; others, such as labels, are left out."""
    frame = read_frame(path)
    known = {column.name for column in columns.columns}
    if others := [str(name) for name in frame.columns if name not in known]:
        are = f"column {others[0]} is" if len(others) == 1 else f"columns {', '.join(others)} are"
        remark(f"note: {path} has more than the fit: {are} left out.")
    try:
        inputs = columns(frame)
    except BadData as error:
        raise BadData(f"{path}: {error}") from error
    if len(inputs) == 0:
        raise BadData(f"{path} is empty: there is no row to predict.")
    return inputs


def _sentences(path: Path, task: Task) -> Tensor:
    """A sentence on each line that is not empty."""
    if not isinstance(task.encoder, Vocabulary):
        raise BadData(f"{path} is text; the run takes rows of shape {task.input_shape}.")
    with reading(path, "UTF-8 text"):
        lines = path.read_text("utf-8").rstrip().split("\n")  # not at U+2028, which may be within a sentence
    sentences = [line for line in lines if line.strip()]
    if not sentences:
        raise BadData(f"{path} is empty: there is no sentence to predict.")
    if len(sentences) < len(lines):
        remark(f"note: {len(lines) - len(sentences)} empty lines of {path} are left out, and not counted as rows")
    return task.encoder(sentences)


def _image(path: Path, task: Task, resize: bool) -> Tensor:
    if len(task.input_shape) != 3 or task.input_shape[0] not in (1, 3):
        raise BadData(f"{path} is an image; the run takes rows of shape {task.input_shape}.")
    try:
        return read_image(path, task.input_shape, resize)
    except WrongSize as error:
        raise BadData(f"{path} is {error.found}, the run takes images of {error.wanted}: give --resize.") from None
