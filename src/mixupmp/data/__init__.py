"""Data in memory: by name (`load`), by path (`load_path`), and corrupted test sets."""

from __future__ import annotations

import os
from pathlib import Path

from mixupmp.core.columns import Columns
from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import BadData, DataNotFound, check
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.core.split import split
from mixupmp.data import arrays, cifar, idx, sound_files, table_files, text_files
from mixupmp.data.catalog import DATASETS, DatasetEntry, load
from mixupmp.data.corrupted_sets import corrupted, find_corrupted, read_corrupted, write_corrupted
from mixupmp.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, unchanged_for_gray
from mixupmp.data.corruptions.sheet import contact_sheet
from mixupmp.data.files import file_in
from mixupmp.data.images import read_image_folder

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "SEVERITIES",
    "Dataset",
    "DatasetEntry",
    "Rows",
    "Standardize",
    "contact_sheet",
    "corrupt",
    "corrupted",
    "find_corrupted",
    "load",
    "load_path",
    "read_corrupted",
    "split",
    "unchanged_for_gray",
    "write_corrupted",
]


def load_path(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    text: str | None = None,
    size: int | tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    tokens: str = "words",
    encoder: Encoder | None = None,
) -> Dataset:
    """A dataset from a file or folder of your own.

    An `.npz` of arrays; a `.csv`, `.tsv` or `.parquet` table; sentences in a column of a `.csv`, `.tsv` or `.jsonl`; a
    folder of IDX files, of CIFAR's pickles, or of images or WAV files with one folder for each class.

    Parameters
    ----------
    path
        Of the file or folder.
    label
        The label column of a table; by default the last.
    text
        The column of a file that holds sentences.
    size
        The side, or (height, width), to which images of a folder are resized.
    test_fraction, seed
        The stratified share of rows that become the test set, where the data has none of its own (1: all of them), and
        the seed that chooses them.
    tokens
        What sentences are cut into: "words", or "pieces" of words.
    encoder
        How sentences, sounds, or a table's categories and missing values become numbers: the encoder of a fit; None:
        one for these training rows.

    Returns
    -------
    Dataset
    """
    path = Path(path).expanduser()
    check(0 < test_fraction <= 1, "test_fraction", test_fraction, "above 0, and at most 1")
    if not path.exists():
        raise DataNotFound(f"{path.absolute()} does not exist. Pass a file, a folder, or one of {', '.join(DATASETS)}.")
    name = path.name.lower() if path.is_file() else ""
    if text is not None:
        must = f"left out, for it names the column of sentences of {', '.join(text_files.ENDINGS)}"
        check(name.endswith(text_files.ENDINGS), "text", text, must, f"{path} is no such file.")
        return text_files.read_text(path, text, label, test_fraction, seed, tokens, encoder)
    check(tokens == "words", "tokens", tokens, "left out, for it cuts sentences, of which `text` names the column")
    is_table = name.endswith(table_files.ENDINGS)
    check(label is None or is_table, "label", label, "left out, for it names a table's column", f"{path} is no table.")
    check(size is None or path.is_dir(), "size", size, "left out, for it resizes images", f"{path} is no folder.")
    columns = encoder if isinstance(encoder, Columns) else None
    if is_table:
        return table_files.read_table(path, label, test_fraction, seed, columns)
    if path.is_dir():
        return _load_folder(path, size, test_fraction, seed, encoder)
    if path.suffix.lower() == ".npz":  # also a pipe, which its reader refuses
        return arrays.read_npz(path, test_fraction, seed, columns)
    raise BadData(f"{path} is of an unknown kind: it must be a folder, .npz, {', '.join(table_files.ENDINGS)}.")


def _load_folder(
    folder: Path, size: int | tuple[int, int] | None, test_fraction: float, seed: int, encoder: Encoder | None
) -> Dataset:
    """The file names in a folder tell its kind."""
    if all(file_in(folder, name) for name in idx.FILES):
        return idx.read_folder(folder, folder.name)
    if all((folder / name).is_file() for name in cifar.CIFAR10.files):
        return cifar.read_cifar10(folder)
    if all((folder / name).is_file() for name in cifar.CIFAR100.files):
        return cifar.read_cifar100(folder)
    if next(folder.rglob(f"*{sound_files.ENDING}"), None) is not None:
        check(size is None, "size", size, "left out, for it resizes images", f"{folder} holds sounds.")
        return sound_files.read_wav_folder(folder, test_fraction, seed, encoder)
    return read_image_folder(folder, size, test_fraction, seed)
