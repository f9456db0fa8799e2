"""Images, series, videos, tokens and several inputs of an estimator, in the form in which the network gets them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mixupmp.core import seeds
from mixupmp.core.columns import Column
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.fields import Fields
from mixupmp.data.layouts import channels_first, check_layout, layout_of
from mixupmp.networks.factories import NetworkChoice, required_arguments

DEEPEST_PIXEL = 65535
Kind = Literal["table", "images", "series", "video", "tokens", "fields"]
KINDS: dict[str, Kind] = {"NHW": "images", "NCT": "series", "NTC": "series"}


@dataclass(frozen=True)
class Layout:
    """The kind, shape and type of the rows of a fit, which those of a prediction must have too."""

    kind: Kind
    shape: tuple[int, ...]  # of one row, as the network sees it
    pixels: bool = False  # uint8, to be divided by 255
    columns: tuple[Column, ...] = ()  # of a table
    order: str = ""  # of the axes of X, as "NHWC"
    deep: bool = False  # whole numbers up to 65,535, as uint16, which the network sees divided by that
    fields: Fields | None = None  # of tokens and of several inputs

    def read(self, X: Any) -> Tensor:
        """Rows of X, which must be as those of the fit were."""
        if self.fields is not None:
            return self.fields.pack(_without_lists(X))
        found = _oriented(as_array(X), self.order, self.shape)
        if tuple(found.shape[1:]) != self.shape:
            must = f"of shape (rows, {', '.join(map(str, self.shape))}), as in fit"
            raise InvalidArgument("X", tuple(getattr(X, "shape", found.shape)), must)
        if found.is_floating_point() == (self.pixels or self.deep):
            kinds = ("floats", f"whole numbers from 0 to {255 if self.pixels else DEEPEST_PIXEL}")
            raise InvalidArgument("X", str(found.dtype), f"{kinds[self.pixels or self.deep]}, as in fit")
        return _as_numbers(found, self.pixels, self.deep)


def is_images(X: object) -> bool:
    """Whether X is a list of PIL images."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(hasattr(image, "getbands") for image in X)


def check_rectangular(X: object) -> None:
    """Raise if X is a list of rows of different lengths."""
    lengths = {len(row) for row in X if hasattr(row, "__len__")} if isinstance(X, list | tuple) else set()
    if len(lengths) > 1:
        must = "rows of one length"
        raise InvalidArgument("X", f"rows of lengths {sorted(lengths)[:3]}", must, "Pad or cut them.")


def as_array(X: Any) -> Tensor:
    """X as a tensor: an array, a tensor, nested lists or a list of PIL images."""
    if isinstance(X, Tensor):
        return X.detach().cpu()
    if is_images(X):
        sizes = sorted({(image.height, image.width, image.mode) for image in X})
        if len(sizes) > 1:
            raise BadData(f"images differ: {sizes[0]} and {sizes[1]} (height, width, mode). Resize or convert them.")
        palette = X[0].mode in ("P", "1", "PA")
        X = np.stack([np.asarray(image.convert("RGB") if palette else image) for image in X])
    check_rectangular(X)
    array = np.asarray(X)
    check(array.dtype.kind in "biuf", "X", array.dtype, "an array of numbers")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(array.astype(np.uint8) if array.dtype.kind == "b" else array, None, ["C", "W"]))


def read_several(X: Any) -> tuple[Tensor, Layout]:
    """A dict or tuple of arrays as packed rows."""
    X = _without_lists(X)
    fields = Fields.of(X)
    return fields.pack(X), Layout("fields", fields.shape, fields=fields)


def read_array(X: object, layout: str | None = None, network: NetworkChoice = None) -> tuple[Tensor, Layout]:
    """An array of more than two axes, or of tokens; what is left open is decided by its shape, or by the network.

    An array of three axes is gray images, or else a series (rows, channels, time) where the given network takes the
    latter alone.
    """
    array = as_array(X)
    check(len(array) > 0, "X", tuple(array.shape), "at least one row")
    check_layout(layout, array.ndim)
    if layout == "tokens":
        return _tokens(array)
    if layout is None and array.ndim > 3:
        check(array.ndim < 6, "X", tuple(array.shape), "an array of at most five axes")
        layout = "NHWC" if is_images(X) else layout_of(tuple(array.shape))
    if layout is None:
        series = array.is_floating_point() and not is_images(X) and prefers(network, array[:2], array[:2, None])
        layout = "NCT" if series else "NHW"
    oriented = _oriented(array, layout)
    low, high = (0, 0) if oriented.is_floating_point() else (int(oriented.min()), int(oriented.max()))
    hint = "Pass others as floats, X.astype('float32'), or tokens with layout='tokens'."
    must = f"pixels from 0 to 255, or {DEEPEST_PIXEL} for uint16, where they are whole numbers"
    check(low >= 0 and high <= DEEPEST_PIXEL, "X", (low, high), must, hint)
    deep = not oriented.is_floating_point() and (high > 255 or array.dtype == torch.uint16)
    pixels = not oriented.is_floating_point() and not deep
    rows = _as_numbers(oriented, pixels, deep)
    kind = KINDS.get(layout, "images" if array.ndim == 4 else "video")
    return rows, Layout(kind, tuple(rows.shape[1:]), pixels, order=layout, deep=deep)


def takes_tokens(X: Any, network: NetworkChoice) -> bool:
    """Whether X is rows of whole numbers, and the given network takes them as they are and not as floats."""
    whole = isinstance(X, Tensor) and not X.is_floating_point() and X.dtype != torch.bool
    whole = whole or (isinstance(X, np.ndarray) and X.dtype.kind in "iu")
    if not whole or X.ndim != 2 or len(X) == 0:
        return False
    rows = as_array(X[:2]).long()
    return prefers(network, rows, rows.float())


def prefers(network: NetworkChoice, rows: Tensor, others: Tensor) -> bool:
    """Whether a user's network takes these two rows, and does not take the others."""
    builds = callable(network) and not isinstance(network, nn.Module) and required_arguments(network) == 0
    if not isinstance(network, nn.Module) and not builds:
        return False
    build: Callable[[], object] = (lambda: copy.deepcopy(network)) if isinstance(network, nn.Module) else network  # type: ignore[assignment]
    return not _takes(build, others) and _takes(build, rows)


def _takes(build: Callable[[], Any], rows: Tensor) -> bool:
    with seeds.global_seed(0), torch.no_grad():
        built = build()
        try:
            built.eval()(rows.float() if rows.is_floating_point() else rows)
        except Exception:  # noqa: BLE001 - whatever a user's network raises, it does not take them
            return False
    return True


def _tokens(array: Tensor) -> tuple[Tensor, Layout]:
    must = "whole numbers, with layout='tokens'"
    check(not array.is_floating_point() and array.dtype != torch.bool, "X", array.dtype, must)
    fields = Fields.of(array.long())
    return fields.pack(array.long()), Layout("tokens", fields.shape, fields=fields)


def _oriented(array: Tensor, order: str, shape: tuple[int, ...] | None = None) -> Tensor:
    """The array with its channels first; rows that have the given shape already are taken as they come."""
    turned = array.permute(channels_first(order)) if len(order) == array.ndim else array
    if shape is not None and tuple(turned.shape[1:]) != shape and tuple(array.shape[1:]) == shape:
        turned = array
    if turned.ndim == 3 and (order == "NHW" or (shape is not None and len(shape) == 3)):
        turned = turned[:, None]
    return turned.contiguous() if turned.dtype != torch.uint16 else turned.to(torch.int32).contiguous()


def _as_numbers(array: Tensor, pixels: bool, deep: bool) -> Tensor:
    """Pixels as uint8, deep ones as shares of 65,535, all else as finite float32."""
    if pixels:
        if array.dtype != torch.uint8:
            low, high = int(array.min()), int(array.max())
            check(low >= 0 and high <= 255, "X", (low, high), "pixels from 0 to 255 where they are whole numbers")
        return array.to(torch.uint8)
    numbers = array.float() / DEEPEST_PIXEL if deep else array.float()
    if not bool(torch.isfinite(numbers).all()):
        raise BadData("X contains NaN or infinity: remove or impute those rows.")
    return numbers


def _without_lists(X: object) -> Any:
    """Nested lists in a dict or tuple as arrays."""
    if isinstance(X, Mapping):
        return {name: np.asarray(value) if isinstance(value, list) else value for name, value in X.items()}
    return X
