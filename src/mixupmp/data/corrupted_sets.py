"""Corrupted test sets on disk, in the published layout of CIFAR-10-C and CIFAR-100-C (Hendrycks & Dietterich, 2019).

One `.npy` for each corruption, (5 rows, height, width, channels) uint8 with the five severities one after another, and
labels.npy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.errors import BadData, DataNotFound, check, check_known
from mixupmp.core.files import replacing
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.threads import pinned_threads
from mixupmp.data.arrays import as_inputs
from mixupmp.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, unchanged_for_gray
from mixupmp.data.download import Remote
from mixupmp.data.files import Published, Root, locate, reading

MANIFEST = "corruptions.json"


def _published(folders: tuple[str, ...], page: str = "", remotes: tuple[Remote, ...] = ()) -> Published:
    files = (*(f"{name}.npy" for name in CORRUPTIONS), "labels.npy")
    return Published(folders[0], page, folders, files, remotes)


def _zenodo(name: str, record: int, md5: str) -> Published:
    page = f"https://zenodo.org/records/{record}"
    return _published((name, name.lower()), page, (Remote(f"{name}.tar", md5, (f"{page}/files/",)),))


PUBLISHED = {
    "cifar10": _zenodo("CIFAR-10-C", 2535967, "56bf5dcef84df0e2308c6dcbcbbd8499"),
    "cifar100": _zenodo("CIFAR-100-C", 3555552, "11f0ed0f1191edbf9fa23466ae6021d3"),
}


def find_corrupted(dataset: str, root: Root = None, download: bool = False, name: str | None = None) -> Path | None:
    """The folder with a dataset's corrupted test set in the published layout, or None where there is none.

    The published files of CIFAR, or a folder ROOT/<dataset>-c that `write_corrupted` wrote.

    Parameters
    ----------
    download
        Fetch the published files (2.9 GB).
    name
        The one corruption whose file must be there; by default all 19 must be.
    """
    published = PUBLISHED.get(dataset)
    if published is not None and download:
        return locate(published, root, download)
    for source in filter(None, (published, _published((f"{dataset}-c", f"{dataset}-C")))):
        try:
            return locate(source if name is None else replace(source, files=(f"{name}.npy", "labels.npy")), root)
        except DataNotFound:
            continue
    return None


def corrupted(dataset: Dataset, name: str, severity: int, root: Root = None, seed: int = 0) -> Rows:
    """The test rows of a dataset under one corruption at one severity.

    Read from the published files with their own labels, or from a copy that `write_corrupted` made of these very rows
    with this seed; otherwise computed.
    """
    check_known("corruption", name, CORRUPTIONS)
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
    return Rows(as_inputs(pixels, str(folder), pixels.shape[1:]), torch.from_numpy(labels[block].astype(np.int64)))


def _array(path: Path) -> Array:
    """An array on disk, of which only what is used is read."""
    if not path.is_file():
        raise DataNotFound(f"{path} is not there: {path.parent} lacks this file of the published layout.")
    with reading(path, "an array", "It may be truncated."):
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _form(array: Array) -> str:
    return f"{array.dtype} {array.shape}"


def write_corrupted(
    dataset: Dataset,
    folder: str | os.PathLike[str],
    seed: int = 0,
    workers: int = 1,
    written: Callable[[str], None] | None = None,
) -> Path:
    """Write the test set under all 19 corruptions, in the published layout.

    Each file is written atomically, so that an interrupted call continues where it was. A folder that holds anything
    else is refused.

    Parameters
    ----------
    workers
        Threads, each for one corruption at a time.
    written
        Called with the name of each corruption whose file is there.
    """
    folder = Path(folder)
    check(workers >= 1, "workers", workers, "at least 1")
    images = dataset.test.inputs.cpu()
    corrupt(images[:1], "jpeg_compression", 1)  # wrong images or a missing Pillow show before anything is written
    _claim(folder, _manifest(dataset, seed))
    labels = dataset.test.labels.repeat(len(SEVERITIES)).cpu().numpy()
    small = labels.astype(np.uint8 if len(dataset.classes) <= 256 else np.int64)
    _save(folder / "labels.npy", small.shape, small.dtype, [small])
    shape = (len(SEVERITIES) * len(images), *images.permute(0, 2, 3, 1).shape[1:])
    names = [name for name in CORRUPTIONS if not _complete(folder / f"{name}.npy", shape)]
    done = written or (lambda name: None)
    for name in CORRUPTIONS:
        if name not in names:
            done(name)
    if workers == 1:
        for name in names:
            _write(images, folder, name, seed)
            done(name)
    else:
        _write_in_threads(images, folder, names, seed, workers, done)
    return folder


def _manifest(dataset: Dataset, seed: int) -> dict[str, Any]:
    gray = dataset.test.inputs.shape[1] == 1
    return {
        "dataset": dataset.name,
        "test_rows": dataset.test.fingerprint(),
        "seed": seed,
        "unchanged_for_gray": [name for name in CORRUPTIONS if gray and unchanged_for_gray(name)],
        "note": "generated by mixupmp after the published parameters; not the published CIFAR-C files",
    }


def made_from(folder: Path, dataset: Dataset, seed: int) -> bool:
    """Whether a folder's files fit a dataset: published ones always, those written here if made from these rows."""
    found = _read_manifest(folder)
    return found is None or not _differing(found, _manifest(dataset, seed))


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise BadData(f"{path} is damaged ({error}): remove this folder or choose another.") from error
    return found if isinstance(found, dict) else {}


def _differing(found: dict[str, object], manifest: dict[str, object]) -> list[str]:
    return [key for key in manifest if found.get(key) != manifest[key]]


def _claim(folder: Path, manifest: dict[str, object]) -> None:
    """Mark the folder as this corrupted copy, or refuse it where it is something else."""
    found = _read_manifest(folder)
    if found is None:
        if any(folder.glob("*.npy")):
            raise BadData(f"{folder} holds .npy files that were not written here: choose another folder.")
        with replacing(folder / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=2).encode() + b"\n")
    elif differing := _differing(found, manifest):
        raise BadData(f"{folder} holds another corrupted copy ({', '.join(differing)} differ): choose another folder.")


def _complete(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether a whole file of this shape is there."""
    if not path.is_file():
        return False
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:
        return False
    return array.shape == shape and array.dtype == np.uint8


def _save(path: Path, shape: tuple[int, ...], kind: np.dtype[Any], blocks: Any) -> None:
    """An `.npy` file from blocks of its rows, of which one at a time need be in memory."""
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    with replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block).data)


def _write(images: Tensor, folder: Path, name: str, seed: int) -> None:
    blocks = (corrupt(images, name, severity, seed).permute(0, 2, 3, 1).numpy() for severity in SEVERITIES)
    shape = (len(SEVERITIES) * len(images), *images.permute(0, 2, 3, 1).shape[1:])
    _save(folder / f"{name}.npy", shape, np.dtype(np.uint8), blocks)


def _write_in_threads(
    images: Tensor, folder: Path, names: list[str], seed: int, workers: int, done: Callable[[str], None]
) -> None:
    """Write these files in threads: torch releases Python's lock, and no process has to be started or given images."""
    with pinned_threads(1), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            started = {pool.submit(_write, images, folder, name, seed): name for name in names}
            for future in as_completed(started):
                future.result()
                done(started[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
