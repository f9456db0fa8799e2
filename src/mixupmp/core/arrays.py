"""Images, series and videos as people have them, arrays or lists of PIL images, as the rows that a network takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.layouts import ARRAY_LAYOUTS, channels_first, check_layout, layout_of

Array = NDArray[Any]  # of numbers or text of any type
DEEPEST_PIXEL = 65535


@dataclass(frozen=True)
class ArrayLayout:
    """How arrays, or lists of PIL images, become rows with their channels first.

    Parameters
    ----------
    order
        Of the axes of an array, as "NHWC"; empty: as the rows have them.
    shape
        Of one row.
    pixels
        Whether they are uint8, to be divided by 255.
    deep
        Whether they are whole numbers up to 65,535, as uint16, which rows have divided by that.
    """

    order: str
    shape: tuple[int, ...]
    pixels: bool = False
    deep: bool = False

    def read(self, X: Any) -> Tensor:
        """Rows of X, which must be as those of the fit were."""
        found = _oriented(as_array(X), self.order, self.shape)
        if tuple(found.shape[1:]) != self.shape:
            must = f"of shape (rows, {', '.join(map(str, self.shape))}), as in fit"
            raise InvalidArgument("X", tuple(getattr(X, "shape", found.shape)), must)
        either = found.dtype == torch.bool and not self.deep
        if not either and found.is_floating_point() == (self.pixels or self.deep):
            kinds = ("floats", f"whole numbers from 0 to {255 if self.pixels else DEEPEST_PIXEL}")
            raise InvalidArgument("X", str(found.dtype), f"{kinds[self.pixels or self.deep]}, as in fit")
        return _as_numbers(found, self.pixels, self.deep)

    def __call__(self, X: Any) -> Tensor:
        """Rows of X, also where X is such rows already."""
        rows = isinstance(X, Tensor) and tuple(X.shape[1:]) == self.shape
        typed = rows and (X.dtype == torch.uint8 if self.pixels else X.is_floating_point())
        return X if typed else self.read(X)


def is_images(X: object) -> bool:
    """Whether X is a list of PIL images."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(hasattr(image, "getbands") for image in X)


def check_rectangular(X: object, name: str = "X") -> None:
    """Raise if X is a list of rows of different lengths."""
    lengths = {len(row) for row in X if hasattr(row, "__len__")} if isinstance(X, list | tuple) else set()
    if len(lengths) > 1:
        must = "rows of one length"
        raise InvalidArgument(name, f"rows of lengths {sorted(lengths)[:3]}", must, "Pad or cut them.")


def as_array(X: Any, name: str = "X") -> Tensor:
    """X as a tensor: an array, a tensor, nested lists or a list of PIL images."""
    if isinstance(X, Tensor):
        return as_tensor(X, name).detach().cpu()
    if is_images(X):
        sizes = sorted({(image.height, image.width, image.mode) for image in X})
        if len(sizes) > 1:
            raise BadData(f"images differ: {sizes[0]} and {sizes[1]} (height, width, mode). Resize or convert them.")
        wanted = {"P": "RGB", "PA": "RGB", "1": "L"}.get(X[0].mode)  # those of indices, and of bits
        X = np.stack([np.asarray(image if wanted is None else image.convert(wanted)) for image in X])
    check_rectangular(X, name)
    return as_tensor(np.require(X, None, ["C", "W"]) if isinstance(X, np.ndarray) else X, name)


def as_tensor(X: Any, name: str = "inputs") -> Tensor:
    """An array, a tensor or nested lists of numbers as a tensor of their own type."""
    must = "a tensor or an array of numbers"
    if isinstance(X, Tensor):
        check(not X.is_complex(), name, X.dtype, must)
        return X
    try:
        array = np.ascontiguousarray(X)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        tensor = torch.as_tensor(array) if array.dtype.kind in "biuf" else None
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgument(name, type(X).__name__, must, f"{str(error).rstrip('.')}.") from error
    if tensor is None:
        raise InvalidArgument(name, str(array.dtype), must)
    return tensor


def read_arrays(
    X: object, layout: str | None, series: Callable[[Tensor], bool] = lambda rows: False, name: str = "X"
) -> tuple[Tensor, ArrayLayout]:
    """Rows of an array of more than two axes, or of PIL images; where no layout is given, the shape decides.

    An array of three axes is gray images, unless `series` says that its first rows are (channels, time).
    """
    array = as_array(X, name)
    check(len(array) > 0, name, tuple(array.shape), "at least one row")
    check_layout(layout, array.ndim)
    if layout is None and array.ndim > 3:
        check(array.ndim < 6, name, tuple(array.shape), "an array of at most five axes")
        layout = "NHWC" if is_images(X) else layout_of(tuple(array.shape), name)
    if layout is None:
        layout = "NCT" if array.is_floating_point() and not is_images(X) and series(array[:2]) else "NHW"
    return _rows_of(array, layout, name)


def read_as_taken(
    X: object, layout: str | None, takes: Callable[[Tensor], bool], name: str = "X"
) -> tuple[Tensor, ArrayLayout]:
    """Rows for a trained network, for which `takes` says whether it takes the first of them.

    Where no layout is given, arrays are passed on as they are, if the network takes them so; else in the only layout
    in which it does; else they are read as for a network that is yet to be trained. Three axes of whole numbers are
    gray images, with an axis for their channel, if the network takes them so.
    """
    array = as_array(X, name)
    array = array.float() if array.dtype == torch.bool else array  # 0 and 1, not 1 of 255
    check(len(array) > 0, name, tuple(array.shape), "at least one row")
    if layout is None and not is_images(X):
        gray = array.ndim == 3 and not array.is_floating_point()
        for order in ("NHW", "") if gray else ("",):
            if takes(_rows_of(array[:2], order, name)[0]):
                return _rows_of(array, order, name)
        known = [order for order in ARRAY_LAYOUTS if len(order) == array.ndim]
        taken = [order for order in known if takes(_rows_of(array[:2], order, name)[0])]
        layout = taken[0] if len(taken) == 1 else None
    rows, found = read_arrays(X if is_images(X) else array, layout, name=name)
    cube = found.order.endswith("C") and len(set(found.shape)) == 1
    must = "an array with its channels first, where all axes of a row are of one length"
    check(not cube, name, tuple(array.shape), must, "Transpose it.")
    return rows, found


def _rows_of(array: Tensor, order: str, name: str) -> tuple[Tensor, ArrayLayout]:
    oriented = _oriented(array, order)
    low, high = (0, 0) if oriented.is_floating_point() else (int(oriented.min()), int(oriented.max()))
    hint = "Pass others as floats, X.astype('float32'), or tokens with layout='tokens'."
    must = f"pixels from 0 to 255, or {DEEPEST_PIXEL} for uint16, where they are whole numbers"
    check(low >= 0 and high <= DEEPEST_PIXEL, name, (low, high), must, hint)
    deep = not oriented.is_floating_point() and (high > 255 or array.dtype == torch.uint16)
    pixels = not oriented.is_floating_point() and not deep
    rows = _as_numbers(oriented, pixels, deep, name)
    return rows, ArrayLayout(order, tuple(rows.shape[1:]), pixels, deep)


def _oriented(array: Tensor, order: str, shape: tuple[int, ...] | None = None) -> Tensor:
    """The array with its channels first; rows that have the given shape already are taken as they come."""
    turned = array.permute(channels_first(order)) if len(order) == array.ndim else array
    if shape is not None and tuple(turned.shape[1:]) != shape and tuple(array.shape[1:]) == shape:
        turned = array
    if turned.ndim == 3 and (order == "NHW" or (shape is not None and len(shape) == 3)):
        turned = turned[:, None]
    return turned.contiguous() if turned.dtype != torch.uint16 else turned.to(torch.int32).contiguous()


def _as_numbers(array: Tensor, pixels: bool, deep: bool, name: str = "X") -> Tensor:
    """Pixels as uint8, deep ones as shares of 65,535, all else as finite float32."""
    if pixels:
        if array.dtype != torch.uint8:
            low, high = int(array.min()), int(array.max())
            check(low >= 0 and high <= 255, name, (low, high), "pixels from 0 to 255 where they are whole numbers")
        return array.to(torch.uint8)
    numbers = array.float() / DEEPEST_PIXEL if deep else array.float()
    if not bool(torch.isfinite(numbers).all()):
        raise BadData(f"{name} contains NaN or infinity: remove or impute those rows.")
    return numbers
