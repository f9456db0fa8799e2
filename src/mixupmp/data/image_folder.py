"""A folder of images, one folder a class, through Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.errors import BadData, MissingExtra, check
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.data.arrays import dataset_of
from mixupmp.data.labels import encode

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"))
GRAY = frozenset(("1", "L", "LA"))
DEEP = frozenset(("I", "F", "I;16", "I;16B", "I;16L", "I;16N"))


def read_image_folder(
    folder: Path, size: int | tuple[int, int] | None = None, test_fraction: float = 0.2, seed: int = 0
) -> Dataset:
    """Images in folders named after their classes, under train/ and test/ (or val/) or else split here.

    `size` is a side or (height, width) to which all are resized; without it they must be of one size already.
    They are gray if all are gray files, RGB otherwise.
    """
    if isinstance(size, int):
        size = (size, size)
    good = size is None or (len(size) == 2 and all(isinstance(side, int) and side > 0 for side in size))
    check(good, "size", size, "a positive side, or (height, width)")
    train = folder / "train"
    test = next((folder / name for name in ("test", "val", "valid") if (folder / name).is_dir()), None)
    if not train.is_dir() or test is None:
        files, labels = _listed(folder)
        images = _read(files, *_form(files, size))
        return dataset_of(folder.name, str(folder), images, np.array(labels), test_fraction, seed)
    (train_files, train_names), (test_files, test_names) = _listed(train), _listed(test)
    form = _form(train_files + test_files, size)
    (train_y, test_y), classes = encode(str(folder), np.array(train_names), np.array(test_names))
    rows = Rows(_read(train_files, *form), train_y), Rows(_read(test_files, *form), test_y)
    return Dataset(folder.name, *rows, classes, Standardize.of(rows[0].inputs)).checked()


def _listed(folder: Path) -> tuple[list[Path], list[str]]:
    """Every image under a folder's class folders, with its class; in an order that no file system changes."""
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not classes:
        raise BadData(f"{folder} has no folders of images: it needs one folder for each class.")
    files, labels = [], []
    for place in classes:
        found = sorted(p for p in place.rglob("*") if p.suffix.lower() in ENDINGS and not p.name.startswith("."))
        if not found:
            raise BadData(f"{place} holds no images ({', '.join(sorted(ENDINGS))}): fill or remove this class.")
        files += found
        labels += [place.name] * len(found)
    return files, labels


def _open(path: Path) -> Image.Image:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtra("pillow", "images", "reading a folder of images") from error
    try:
        return Image.open(path)
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise BadData(f"{path} is not an image that can be read: {error}") from error


def _form(files: list[Path], size: tuple[int, int] | None) -> tuple[int, tuple[int, int]]:
    """Channels and (height, width) of all, from the files' headers alone."""
    gray = True
    common, first = size, files[0]
    for path in files:
        with _open(path) as image:
            mode, found = image.mode, (image.height, image.width)
        if mode in DEEP:
            raise BadData(f"{path} has more than 8 bits a channel (mode {mode}): convert it to 8 bits first.")
        gray = gray and mode in GRAY
        if common is None:
            common = found
        if size is None and found != common:
            here, there = f"{found[0]} x {found[1]}", f"{common[0]} x {common[1]}"
            raise BadData(f"images differ in size: {first} is {there}, {path} is {here}. Pass size= to resize them.")
    assert common is not None  # there is at least one file
    return (1 if gray else 3), common


def _read(files: list[Path], channels: int, size: tuple[int, int]) -> Tensor:
    images = np.empty((len(files), *size, channels), np.uint8)
    for place, path in zip(images, files, strict=True):
        with _open(path) as image:
            try:
                pixels = image.convert("L" if channels == 1 else "RGB")
            except (OSError, ValueError, SyntaxError) as error:  # Pillow's way of saying truncated or broken
                raise BadData(f"{path} is damaged: {error}") from error
        if (pixels.height, pixels.width) != size:
            pixels = pixels.resize((size[1], size[0]))
        place[:] = np.asarray(pixels).reshape(place.shape)
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


class WrongSize(ValueError):
    """An image that is not of the size that is taken, and may not be scaled."""

    def __init__(self, found: tuple[int, int], wanted: tuple[int, int]) -> None:
        self.found, self.wanted = (f"{height} x {width}" for height, width in (found, wanted))
        super().__init__(f"{self.found}, not {self.wanted}")


def image_row(image: Image.Image, shape: tuple[int, ...], resize: bool) -> Tensor:
    """An opened image as the one row of a batch of this shape: its channels, and its size if it may be scaled."""
    channels, height, width = shape
    pixels = image.convert("L" if channels == 1 else "RGB")
    if (pixels.height, pixels.width) != (height, width):
        if not resize:
            raise WrongSize((pixels.height, pixels.width), (height, width))
        pixels = pixels.resize((width, height))
    array = np.asarray(pixels).reshape(height, width, channels)
    return torch.from_numpy(array.transpose(2, 0, 1).copy()).unsqueeze(0)
