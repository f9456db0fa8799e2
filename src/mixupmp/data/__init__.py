"""Data in memory: by name (`load`), by path (`load_path`), and the corrupted test sets of both."""

from __future__ import annotations

import os
from pathlib import Path

from mixupmp.core.errors import BadData, DataNotFound, UnknownName, check
from mixupmp.core.rows import Dataset, Rows, Standardize, split
from mixupmp.data import arrays, cifar, idx, image_folder, tables
from mixupmp.data.catalog import file_in
from mixupmp.data.cifar_c import corrupted, find_corrupted, read_corrupted
from mixupmp.data.clusters import clusters
from mixupmp.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, unchanged_for_gray
from mixupmp.data.corruptions.sheet import contact_sheet
from mixupmp.data.corruptions.write import write_corrupted
from mixupmp.data.digits import digits

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "SEVERITIES",
    "Dataset",
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

# Those that need no files first; the others take (root, download).
_BUILT_IN = {"digits": digits, "clusters": clusters}
_PUBLISHED = {
    "mnist": idx.mnist,
    "fashion-mnist": idx.fashion_mnist,
    "cifar10": cifar.cifar10,
    "cifar100": cifar.cifar100,
}
_ALIASES = {
    "fmnist": "fashion-mnist",
    "fashionmnist": "fashion-mnist",
    "fashion_mnist": "fashion-mnist",
    "cifar-10": "cifar10",
    "cifar-100": "cifar100",
}
DATASETS = (*_BUILT_IN, *_PUBLISHED)


def load(
    name: str = "digits", root: str | os.PathLike[str] | None = None, download: bool = False, seed: int = 0
) -> Dataset:
    """A dataset by its name, one of `DATASETS`.

    Published files are looked for under `root`, then $MIXUPMP_DATA, then the cache folder. The seed chooses the
    split of digits and the rows of clusters; the others come with their publisher's split.
    """
    known = name.lower()
    known = _ALIASES.get(known, known)
    if known in _BUILT_IN:
        return _BUILT_IN[known](seed)
    if known in _PUBLISHED:
        return _PUBLISHED[known](root, download)
    raise UnknownName("dataset", name, DATASETS)


def load_path(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    size: int | tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A dataset from a file or folder of the user's own.

    `.npz` arrays; `.csv`, `.tsv` and `.parquet` tables (`label` names the label column, by default the last);
    folders of IDX files, of CIFAR's pickles, or of images by class (`size` resizes them). Where the data has no
    test set of its own, a stratified `test_fraction` of the rows is taken, as the seed says.
    """
    path = Path(path).expanduser()
    check(0 < test_fraction < 1, "test_fraction", test_fraction, "between 0 and 1, both excluded")
    if not path.exists():
        raise DataNotFound(f"{path.absolute()} does not exist. Pass a file, a folder, or one of {', '.join(DATASETS)}.")
    is_table = path.name.lower().endswith(tables.ENDINGS) and path.is_file()
    check(label is None or is_table, "label", label, "left out, for it names a table's column", f"{path} is no table.")
    check(size is None or path.is_dir(), "size", size, "left out, for it resizes images", f"{path} is no folder.")
    if is_table:
        return tables.read_table(path, label, test_fraction, seed)
    if path.is_dir():
        return _load_folder(path, size, test_fraction, seed)
    if path.suffix.lower() == ".npz":
        return arrays.read_npz(path, test_fraction, seed)
    raise BadData(f"{path} is of an unknown kind: it must be a folder, .npz, {', '.join(tables.ENDINGS)}.")


def _load_folder(folder: Path, size: int | tuple[int, int] | None, test_fraction: float, seed: int) -> Dataset:
    """A folder says by the names in it what it holds."""
    if all(file_in(folder, name) for name in idx.FILES):
        return idx.read_folder(folder, folder.name)
    if all((folder / name).is_file() for name in cifar.CIFAR10.files):
        return cifar.read_cifar10(folder)
    if all((folder / name).is_file() for name in cifar.CIFAR100.files):
        return cifar.read_cifar100(folder)
    return image_folder.read_image_folder(folder, size, test_fraction, seed)
