"""CIFAR-10-C and CIFAR-100-C: one `.npy` for each corruption, the five severities one after another."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mixupmp.core.errors import BadData, DataNotFound, UnknownName, check
from mixupmp.core.rows import Dataset, Rows
from mixupmp.data.arrays import as_inputs
from mixupmp.data.catalog import Source, locate
from mixupmp.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from mixupmp.data.corruptions.write import made_from
from mixupmp.data.download import Remote


def _source(folders: tuple[str, ...], page: str = "", remotes: tuple[Remote, ...] = ()) -> Source:
    files = (*(f"{name}.npy" for name in CORRUPTIONS), "labels.npy")
    return Source(folders[0], page, folders, files, remotes)


def _zenodo(name: str, record: int, md5: str) -> Source:
    bases = (f"https://zenodo.org/records/{record}/files/",)
    page = f"https://zenodo.org/records/{record}"
    return _source((name, name.lower()), page, (Remote(f"{name}.tar", md5, bases),))


CIFAR10_C = _zenodo("CIFAR-10-C", 2535967, "56bf5dcef84df0e2308c6dcbcbbd8499")
CIFAR100_C = _zenodo("CIFAR-100-C", 3555552, "11f0ed0f1191edbf9fa23466ae6021d3")


def find_corrupted(
    dataset: str, root: str | os.PathLike[str] | None = None, download: bool = False, name: str | None = None
) -> Path | None:
    """The folder with a dataset's corrupted test set in the published layout, or None where there is none.

    For CIFAR these are the published files (2.9 GB, downloaded only where that is asked for); for any dataset a
    folder ROOT/<name>-c written by `write_corrupted` is found as well. All 19 files must be there, or the one that
    `name` names.
    """
    published = {"cifar10": CIFAR10_C, "cifar100": CIFAR100_C}.get(dataset)
    if published is not None and download:
        return locate(published, root, download)
    for source in filter(None, (published, _source((f"{dataset}-c", f"{dataset}-C")))):
        try:
            return locate(source if name is None else replace(source, files=(f"{name}.npy", "labels.npy")), root)
        except DataNotFound:
            continue
    return None


def corrupted(
    dataset: Dataset, name: str, severity: int, root: str | os.PathLike[str] | None = None, seed: int = 0
) -> Rows:
    """The test rows of a dataset under one corruption at one severity.

    Published files are used where they are, with the labels that lie beside them; so is a copy written by
    `write_corrupted`, if it was made from these very rows with this seed. Otherwise the rows are made here.
    """
    if name not in CORRUPTIONS:
        raise UnknownName("corruption", name, CORRUPTIONS)
    folder = find_corrupted(dataset.name, root, name=name)
    if folder is None or not made_from(folder, dataset, seed):
        return Rows(corrupt(dataset.test.inputs, name, severity, seed), dataset.test.labels, dataset.test.weights)
    rows = read_corrupted(folder, name, severity).checked(len(dataset.classes), f"{folder / name}.npy")
    if rows.inputs.shape[1:] != dataset.test.inputs.shape[1:]:
        ours, theirs = tuple(dataset.test.inputs.shape[1:]), tuple(rows.inputs.shape[1:])
        raise BadData(f"{folder / name}.npy has images of shape {theirs}, but {dataset.name} has {ours}.")
    return rows


def read_corrupted(folder: Path, name: str, severity: int) -> Rows:
    """One corruption at one severity: a fifth of the rows of `<name>.npy`, with the labels beside it."""
    check(severity in SEVERITIES, "severity", severity, "one of 1, 2, 3, 4, 5")
    images, labels = _array(folder / f"{name}.npy"), _array(folder / "labels.npy")
    if images.ndim not in (3, 4) or images.dtype != np.uint8:
        raise BadData(f"{folder / name}.npy must be uint8 (rows, height, width, channels), found {_form(images)}.")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise BadData(f"{folder}/labels.npy must be one whole number per row, found {_form(labels)}.")
    if len(images) != len(labels) or len(images) == 0 or len(images) % 5:
        counts = f"{len(images)} images and {len(labels)} labels"
        raise BadData(f"{folder / name}.npy: {counts}; there must be as many of both, five blocks of them.")
    rows = len(images) // 5
    block = slice((severity - 1) * rows, severity * rows)
    if images.ndim == 3:
        images = images[..., None]
    pixels = np.ascontiguousarray(images[block].transpose(0, 3, 1, 2))
    return Rows(as_inputs(pixels, str(folder)), torch.from_numpy(labels[block].astype(np.int64)))


def _array(path: Path) -> NDArray[Any]:
    """An array on disk, of which only what is used will be read."""
    if not path.is_file():
        raise DataNotFound(f"{path} is not there: {path.parent} lacks this file of the published layout.")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise BadData(f"{path} cannot be read, it may be truncated: {error}") from error
    return array


def _form(array: NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"
