"""Images through Pillow: the one decoder for folders, files and requests, and folders with a folder for each class."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check, extra
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.data.arrays import class_numbers, dataset_of
from mixupmp.data.files import plain_file, reading

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"))
# By content and not by name. Pillow knows many more formats, some of which start other programs (EPS: Ghostscript).
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
GRAY = frozenset(("1", "L", "LA"))
DEEP = frozenset(("I", "F", "I;16", "I;16B", "I;16L", "I;16N"))
MOST_PIXELS = 50_000_000  # of an image before it is resized: 150 MB of RGB, while a file of 20 kB may claim a GB
TRANSPOSED = frozenset((5, 6, 7, 8))  # values of EXIF's orientation that exchange height and width
ORIENTATION = 0x0112


class WrongSize(ValueError):
    """An image that is not of the expected size, and may not be resized."""

    def __init__(self, found: tuple[int, int], wanted: tuple[int, int]) -> None:
        self.found, self.wanted = (f"{height} x {width}" for height, width in (found, wanted))
        super().__init__(f"{self.found}, not {self.wanted}")


class TooManyPixels(BadData):
    """An image that claims more pixels than are decoded."""

    def __init__(self, name: str, size: tuple[int, int], most: int) -> None:
        self.size = size
        super().__init__(f"{name} has {size[0]} x {size[1]} pixels; at most {most:,} are decoded: resize it first.")


def open_image(source: Path | bytes, name: str = "", most_pixels: int = MOST_PIXELS) -> Image.Image:
    """Open an image in one of `FORMATS`, reading its header alone; refused if it has more than `most_pixels`."""
    with extra("pillow", "images", "reading images"):
        from PIL import Image
    name = name or str(source)
    with reading(name, f"an image ({', '.join(FORMATS)})"), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own bound is the lower one
        image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else plain_file(source), formats=FORMATS)
        if image.width * image.height > most_pixels:
            image.close()
            raise TooManyPixels(name, image.size, most_pixels)
    return image


def pixels_of(image: Image.Image, channels: int, size: tuple[int, int], name: str, resize: bool = True) -> Tensor:
    """An opened image as uint8 (channels, height, width): upright by its EXIF orientation, transparency on white.

    Parameters
    ----------
    size
        (height, width).
    resize
        Whether an image of another size is resized; if not, `WrongSize` is raised.
    """
    from PIL import Image, ImageOps

    with reading(name, "an image: it is damaged"):
        upright = ImageOps.exif_transpose(image)
        if upright.has_transparency_data:
            layer = upright.convert("RGBA")
            upright = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
        plain = upright.convert("L" if channels == 1 else "RGB")
        found = (plain.height, plain.width)
        if found != size and resize:
            plain = plain.resize((size[1], size[0]))
        array = np.array(plain).reshape(plain.height, plain.width, channels)
    if found != size and not resize:
        raise WrongSize(found, size)
    return torch.from_numpy(array).permute(2, 0, 1).contiguous()


def read_image(
    source: Path | bytes, shape: tuple[int, ...], resize: bool, name: str = "", most_pixels: int = MOST_PIXELS
) -> Tensor:
    """One image, from a path or the content of a file, as a batch of one row: (1, channels, height, width)."""
    channels, height, width = shape
    with open_image(source, name, most_pixels) as image:
        return pixels_of(image, channels, (height, width), name or str(source), resize).unsqueeze(0)


def read_image_folder(
    folder: Path, size: int | tuple[int, int] | None = None, test_fraction: float = 0.2, seed: int = 0
) -> Dataset:
    """Images in folders named after their classes, under train/ and test/ (or val/), or else split here.

    They are gray if all files are gray, RGB otherwise.

    Parameters
    ----------
    size
        A side or (height, width) to which all are resized; without it they must be of one size already.
    """
    if isinstance(size, int):
        size = (size, size)
    good = size is None or (len(size) == 2 and all(isinstance(side, int) and side > 0 for side in size))
    check(good, "size", size, "a positive side, or (height, width)")
    train = folder / "train"
    test = next((folder / name for name in ("test", "val", "valid") if (folder / name).is_dir()), None)
    if not train.is_dir() or test is None:
        files, labels = files_by_class(folder, ENDINGS, "images")
        images = _read(files, *_common_form(files, size))
        return dataset_of(folder.name, str(folder), images, np.array(labels), test_fraction, seed)
    (train_files, train_names), (test_files, test_names) = (
        files_by_class(part, ENDINGS, "images") for part in (train, test)
    )
    form = _common_form(train_files + test_files, size)
    (train_y, test_y), classes = class_numbers(str(folder), np.array(train_names), np.array(test_names))
    rows = Rows(_read(train_files, *form), train_y), Rows(_read(test_files, *form), test_y)
    return Dataset(folder.name, *rows, classes, Standardize.of(rows[0].inputs)).checked()


def files_by_class(folder: Path, endings: frozenset[str], kind: str) -> tuple[list[Path], list[str]]:
    """Every file under a folder's class folders, with its class; in an order that no file system changes."""
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not classes:
        raise BadData(f"{folder} has no folders of {kind}: it needs one folder for each class.")
    files, labels = [], []
    for place in classes:
        found = sorted(p for p in place.rglob("*") if p.suffix.lower() in endings and not p.name.startswith("."))
        if not found:
            raise BadData(f"{place} holds no {kind} ({', '.join(sorted(endings))}): fill or remove this class.")
        files += found
        labels += [place.name] * len(found)
    return files, labels


def _common_form(files: list[Path], size: tuple[int, int] | None) -> tuple[int, tuple[int, int]]:
    """Channels and (height, width) of all, from the files' headers alone."""
    gray = True
    common, first = size, files[0]
    for path in files:
        with open_image(path) as image, reading(path, "an image"):
            mode, found = image.mode, (image.height, image.width)
            if image.getexif().get(ORIENTATION) in TRANSPOSED:
                found = found[::-1]
        if mode in DEEP:
            raise BadData(f"{path} has more than 8 bits a channel (mode {mode}): convert it to 8 bits first.")
        gray = gray and mode in GRAY
        common = common or found
        if size is None and found != common:
            here, there = f"{found[0]} x {found[1]}", f"{common[0]} x {common[1]}"
            raise BadData(f"images differ in size: {first} is {there}, {path} is {here}. Pass size= to resize them.")
    assert common is not None  # there is at least one file
    return (1 if gray else 3), common


def _read(files: list[Path], channels: int, size: tuple[int, int]) -> Tensor:
    images = torch.empty((len(files), channels, *size), dtype=torch.uint8)
    for place, path in zip(images, files, strict=True):
        with open_image(path) as image:
            place.copy_(pixels_of(image, channels, size, str(path)))
    return images
