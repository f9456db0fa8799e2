"""Images, series, videos, tokens and several inputs of an estimator, in the form in which the network gets them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mixupmp.core import seeds
from mixupmp.core.arrays import ArrayLayout, as_array, read_arrays, read_as_taken
from mixupmp.core.columns import Column
from mixupmp.core.errors import check
from mixupmp.core.fields import Fields
from mixupmp.core.given_network import takes, tokens
from mixupmp.networks.factories import NetworkChoice, required_arguments

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
        return ArrayLayout(self.order, self.shape, self.pixels, self.deep).read(X)


def read_several(X: Any) -> tuple[Tensor, Layout]:
    """A dict or tuple of arrays as packed rows."""
    X = _without_lists(X)
    fields = Fields.of(X)
    return fields.pack(X), Layout("fields", fields.shape, fields=fields)


def read_array(
    X: object, layout: str | None = None, network: NetworkChoice = None, trained: bool = False
) -> tuple[Tensor, Layout]:
    """An array of more than two axes, or of tokens; what is left open is decided by its shape, or by the network.

    An array of three axes is gray images, or else a series (rows, channels, time) where the given network takes the
    latter alone. A network that is trained takes arrays as they are, where it can: see `core.arrays`.
    """
    if layout == "tokens":
        array = as_array(X)
        check(len(array) > 0, "X", tuple(array.shape), "at least one row")
        fields = tokens(array)
        return fields.pack(array.long()), Layout("tokens", fields.shape, fields=fields)
    if trained and isinstance(network, nn.Module):
        rows, found = read_as_taken(X, layout, partial(takes, network))
    else:
        rows, found = read_arrays(X, layout, lambda first: prefers(network, first, first[:, None]))
    kind = KINDS.get(found.order, "images" if rows.ndim == 4 else "video")
    if not found.order and rows.ndim == 3:
        kind = "series"
    return rows, Layout(kind, found.shape, found.pixels, order=found.order, deep=found.deep)


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


def _without_lists(X: object) -> Any:
    """Nested lists in a dict or tuple as arrays."""
    if isinstance(X, Mapping):
        return {name: np.asarray(value) if isinstance(value, list) else value for name, value in X.items()}
    return X
