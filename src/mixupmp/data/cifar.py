"""CIFAR-10 and CIFAR-100 in their publisher's "python version"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from mixupmp.core.errors import BadData
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.data.download import Remote
from mixupmp.data.files import Published, Root, locate
from mixupmp.data.plain_pickle import read_plain_pickle

PIXELS = 3 * 32 * 32
CIFAR10_SCALE = Standardize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100_SCALE = Standardize((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_BASES = ("https://www.cs.toronto.edu/~kriz/",)

CIFAR10 = Published(
    title="CIFAR-10 (python version)",
    page=_PAGE,
    folders=("cifar-10-batches-py", "CIFAR10/cifar-10-batches-py", "cifar10/cifar-10-batches-py"),
    files=(*(f"data_batch_{k}" for k in range(1, 6)), "test_batch", "batches.meta"),
    remotes=(Remote("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", _BASES),),
)
CIFAR100 = Published(
    title="CIFAR-100 (python version)",
    page=_PAGE,
    folders=("cifar-100-python", "CIFAR100/cifar-100-python", "cifar100/cifar-100-python"),
    files=("train", "test", "meta"),
    remotes=(Remote("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", _BASES),),
)


def _read(path: Path, *keys: str) -> list[Any]:
    """The values of these keys in one pickle, whichever Python's strings the keys were written as."""
    content = read_plain_pickle(path)
    if not isinstance(content, dict):
        raise BadData(f"{path} holds a {type(content).__name__}, not CIFAR's dict.")
    named = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    missing = [key for key in keys if key not in named]
    if missing:
        found = ", ".join(map(str, named)) or "nothing"
        raise BadData(f"{path} has no {', '.join(missing)} (it has {found}): is it a file of the other CIFAR?")
    return [named[key] for key in keys]


def _rows(paths: list[Path], label_key: str) -> Rows:
    images, labels = [], []
    for path in paths:
        data, numbers = _read(path, "data", label_key)
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
            shape = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
            raise BadData(f"{path}: data must be uint8 (rows, {PIXELS}), found {shape}.")
        if not isinstance(numbers, list) or not all(isinstance(k, int) for k in numbers):
            raise BadData(f"{path}: {label_key} must be a list of whole numbers.")
        if len(numbers) != len(data):
            raise BadData(f"{path} has {len(data)} images but {len(numbers)} labels.")
        images.append(data)
        labels.extend(numbers)
    pixels = torch.from_numpy(np.concatenate(images)).view(-1, 3, 32, 32)
    return Rows(pixels, torch.tensor(labels, dtype=torch.int64))


def _classes(path: Path, key: str) -> tuple[str, ...]:
    (names,) = _read(path, key)
    return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names)


def read_cifar10(folder: Path) -> Dataset:
    """The folder cifar-10-batches-py."""
    train = _rows([folder / name for name in CIFAR10.files[:5]], "labels")
    classes = _classes(folder / "batches.meta", "label_names")
    return Dataset("cifar10", train, _rows([folder / "test_batch"], "labels"), classes, CIFAR10_SCALE).checked()


def read_cifar100(folder: Path) -> Dataset:
    """The folder cifar-100-python, with its 100 fine classes."""
    train, test = (_rows([folder / name], "fine_labels") for name in ("train", "test"))
    classes = _classes(folder / "meta", "fine_label_names")
    return Dataset("cifar100", train, test, classes, CIFAR100_SCALE).checked()


def cifar10(root: Root = None, download: bool = False, seed: int = 0) -> Dataset:
    """CIFAR-10: 50,000 and 10,000 color 32 x 32 images of 10 classes (Krizhevsky, 2009)."""
    return read_cifar10(locate(CIFAR10, root, download))


def cifar100(root: Root = None, download: bool = False, seed: int = 0) -> Dataset:
    """CIFAR-100: 50,000 and 10,000 color 32 x 32 images of 100 classes (Krizhevsky, 2009)."""
    return read_cifar100(locate(CIFAR100, root, download))
