"""MNIST's IDX format, plain or gzipped: MNIST, Fashion-MNIST and notMNIST."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mixupmp.core.arrays import Array
from mixupmp.core.errors import BadData
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.data.arrays import class_numbers, dataset_of
from mixupmp.data.download import Remote
from mixupmp.data.files import Published, Root, file_in, locate, read_gzip, reading

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
MNIST_SCALE = Standardize((0.1307,), (0.3081,))
FASHION_SCALE = Standardize((0.2860,), (0.3530,))


def _remotes(bases: tuple[str, ...], md5s: tuple[str, ...]) -> tuple[Remote, ...]:
    return tuple(Remote(f"{name}.gz", md5, bases) for name, md5 in zip(FILES, md5s, strict=True))


MNIST = Published(
    title="MNIST",
    page="http://yann.lecun.com/exdb/mnist/",
    folders=("MNIST/raw", "MNIST", "mnist/raw", "mnist"),
    files=FILES,
    remotes=_remotes(
        # The author's page often refuses downloads, so PyTorch's copy of the same files comes first.
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
)
FASHION_MNIST = Published(
    title="Fashion-MNIST",
    page="https://github.com/zalandoresearch/fashion-mnist (or Debian's package dataset-fashion-mnist)",
    folders=("FashionMNIST/raw", "FashionMNIST", "fashion-mnist/raw", "fashion-mnist", "fashion_mnist", "fmnist"),
    files=FILES,
    remotes=_remotes(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    elsewhere=(Path("/usr/share/datasets/fashion-mnist"),),
)


NOTMNIST = Published(
    title="notMNIST",
    page="http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html (10,000 of its images in MNIST's format)",
    folders=("notMNIST/raw", "notMNIST", "notmnist"),
    files=FILES[2:],
    remotes=(),
)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in one IDX file of unsigned bytes; a wrong magic number or length is an error that says which."""
    with reading(path, "a gzip file", "Download it again."):
        content = read_gzip(path) if path.suffix == ".gz" else path.read_bytes()
    if len(content) < 4 or content[:2] != b"\0\0":
        raise BadData(f"{path} is not an IDX file: it starts with {content[:4].hex() or 'nothing'}, not 0000.")
    kind, dimensions = content[2], content[3]
    if kind != 0x08 or dimensions == 0:
        raise BadData(f"{path} is an IDX file of type {kind:#04x} with {dimensions} dimensions; only bytes (0x08) fit.")
    header = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[k : k + 4], "big") for k in range(4, min(header, len(content)), 4))
    expected = header + math.prod(shape)
    if len(content) < header or len(content) != expected:
        state = "truncated" if len(content) < expected else "too long"
        raise BadData(f"{path} is {state}: expected {expected} bytes for shape {shape}, found {len(content)}.")
    if 0 in shape:  # the other dimensions may be larger than any array
        raise BadData(f"{path} holds no rows: its shape is {shape}.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _rows(folder: Path, images: str, labels: str) -> tuple[Array, Array]:
    """One pair of files, whose dimensions and lengths must fit each other."""
    arrays = []
    for name, dimensions in ((images, 3), (labels, 1)):
        path = file_in(folder, name)
        if path is None:
            raise BadData(f"{folder} has no {name} or {name}.gz.")
        array = read_idx(path)
        if array.ndim != dimensions:
            raise BadData(f"{path} has {array.ndim} dimensions, {name} must have {dimensions}.")
        arrays.append(array)
    if len(arrays[0]) != len(arrays[1]):
        raise BadData(f"{folder}: {images} has {len(arrays[0])} images but {labels} has {len(arrays[1])} labels.")
    return arrays[0], arrays[1]


def read_folder(folder: Path, name: str, classes: tuple[str, ...] = (), scale: Standardize | None = None) -> Dataset:
    """The four IDX files of a folder; without given classes, those that occur."""
    (train_x, train_y), (test_x, test_y) = _rows(folder, *FILES[:2]), _rows(folder, *FILES[2:])
    if classes:
        train_labels, test_labels = (torch.from_numpy(y.astype(np.int64)) for y in (train_y, test_y))
    else:
        (train_labels, test_labels), classes = class_numbers(str(folder), train_y, test_y)
    train, test = (torch.from_numpy(x.copy()).unsqueeze(1) for x in (train_x, test_x))
    rows = Rows(train, train_labels), Rows(test, test_labels)
    return Dataset(name, *rows, classes, scale or Standardize.of(train)).checked()


def mnist(root: Root = None, download: bool = False, seed: int = 0) -> Dataset:
    """MNIST: 60,000 and 10,000 gray 28 x 28 handwritten digits (LeCun et al., 1998)."""
    classes = tuple(str(k) for k in range(10))
    return read_folder(locate(MNIST, root, download), "mnist", classes, MNIST_SCALE)


def fashion_mnist(root: Root = None, download: bool = False, seed: int = 0) -> Dataset:
    """Fashion-MNIST: 60,000 and 10,000 gray 28 x 28 images of clothes (Xiao et al., 2017)."""
    return read_folder(locate(FASHION_MNIST, root, download), "fashion-mnist", FASHION, FASHION_SCALE)


def notmnist(root: Root = None, download: bool = False, seed: int = 0) -> Dataset:
    """notMNIST: 10,000 gray 28 x 28 letters A to J of many typefaces (Bulatov, 2011).

    They come without a split: a stratified half is for training, the other for testing.
    """
    images, labels = _rows(locate(NOTMNIST, root), *FILES[2:])
    inputs = torch.from_numpy(images.copy()).unsqueeze(1)
    letters = np.array(list("ABCDEFGHIJ"))[labels % 10]
    return dataset_of("notmnist", "notMNIST", inputs, letters, 0.5, seed)
