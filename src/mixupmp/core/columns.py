"""Columns of a table as numbers: categories as indicators, missing values as the median and an indicator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.errors import BadData

# What pandas calls columns of objects that are numbers.
NUMBERS = ("integer", "floating", "mixed-integer-float", "boolean", "empty")
MOST_CATEGORIES = 100  # of one column; rarer ones share an indicator
# A column whose median is so many typical distances from zero is centered before it becomes float32, which has 24 bits:
# at least half of them are left for the distances. Other columns stay as they are, bit for bit.
FAR = 2.0**12
LARGEST = float(np.finfo(np.float32).max)
SAMPLED = 10_000  # values of a column, of which distinct ones are counted


class ColumnWarning(UserWarning):
    """A column holds what the fit has not seen, as a new category or missing values, or what a network cannot use."""


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Parameters
    ----------
    kind
        "number": itself, with `fill` where it is missing. "category": an indicator for each of `categories`, in their
        order. "empty": nothing, as every value was missing in the fit.
    fill
        The median of the fit's values.
    missing
        Whether values were missing in the fit: one more indicator says where.
    other
        Whether there were more categories than `MOST_CATEGORIES`: one more indicator says where it is one of the rest,
        or a new one.
    offset
        Subtracted from numbers in double precision, where float32 could not tell values so far from zero apart.
    """

    name: str
    kind: Literal["number", "category", "empty"]
    fill: float = 0.0
    missing: bool = False
    categories: tuple[str, ...] = ()
    other: bool = False
    offset: float = field(default=0.0, metadata={"later": True})

    @property
    def offsets(self) -> list[float]:
        """What is subtracted from each column of numbers that this one becomes."""
        if self.kind == "number":
            return [self.offset, 0.0] if self.missing else [self.offset]
        return [0.0] * (len(self.categories) + self.other + self.missing)

    def encode(self, values: object) -> list[NDArray[np.float32]]:
        """The columns of numbers that this one becomes."""
        if self.kind == "empty":
            return []
        absent = missing_in(values)
        if absent.any() and not self.missing:
            how = f"taken as {self.fill:g}, the median" if self.kind == "number" else "without any category"
            _warn(f"column {self.name!r} has missing values, which it had not in fit: they are {how}.")
        indicator = [absent.astype(np.float32)] if self.missing else []
        if self.kind == "number":
            numbers = np.where(absent, self.fill, as_numbers(values, self.name))
            return [(numbers - self.offset).astype(np.float32), *indicator]
        text = as_text(values)
        found = [(text == category) & ~absent for category in self.categories]
        new = ~absent & ~np.isin(text, self.categories)
        if self.other:
            found.append(new)
        elif new.any():
            _warn(
                f"column {self.name!r} has the new category {str(text[new][0])!r}, unseen in fit: such rows are "
                "without any category there."
            )
        return [part.astype(np.float32) for part in found] + indicator


@dataclass(frozen=True)
class Columns:
    """Rows of a table, by their columns' names, as rows of numbers: with categories and missing values, if any."""

    columns: tuple[Column, ...]

    @property
    def plain(self) -> bool:
        """Whether rows are the columns as they are: no categories, and nothing was missing in the fit."""
        return all(column.kind == "number" and not column.missing for column in self.columns)

    @property
    def centered(self) -> bool:
        """Whether some column is centered before it becomes float32."""
        return any(column.offset for column in self.columns)

    def center(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows of an array, with categories and missing values encoded already, centered as those of the fit."""
        offsets = [offset for column in self.columns for offset in column.offsets]
        fits = rows.ndim == 2 and rows.shape[1] == len(offsets) and self.centered
        return rows.astype(np.float64) - offsets if fits else rows

    @classmethod
    def of(cls, frame: Any) -> Columns:
        """As the columns of a data frame of training rows are."""
        return cls(describe_frame(frame))

    def __call__(self, rows: Any) -> Tensor:
        """(rows, columns of numbers) of a data frame, or of a list of rows: by column name, or in the order of the fit.

        Columns that the fit had not are left alone; one that is not there, also in a single row, is refused: a row's
        answer does not depend on the rows beside it.
        """
        import pandas

        names = [column.name for column in self.columns]
        if not is_frame(rows):
            if not all(
                isinstance(row, Mapping) or (isinstance(row, list | tuple) and len(row) == len(names)) for row in rows
            ):
                raise BadData(f"rows must be {', '.join(names)}: by name, or {len(names)} values in this order.")
            for row in rows:
                if isinstance(row, Mapping):
                    _check_names(names, set(map(str, row)))
            rows = pandas.DataFrame(
                [row if isinstance(row, Mapping) else dict(zip(names, row, strict=True)) for row in rows]
            )
        rows = rows.rename(columns=str)
        _check_names(names, set(rows))
        return torch.from_numpy(encode_columns(self.columns, frame_columns(rows[names]), len(rows)))


def _check_names(names: Sequence[str], found: Set[str]) -> None:
    absent = [name for name in names if name not in found]
    if absent:
        raise BadData(f"the column {absent[0]!r} is not there; those of the fit are {', '.join(names)}.")


def describe(name: str, values: object, numeric: bool, centered: bool = True) -> Column:
    """How to encode a column, from the rows of a fit; `centered`: whether numbers may get an offset."""
    absent = missing_in(values)
    if absent.all():
        _warn(f"column {name!r} is missing in every row, and is left out.")
        return Column(name, "empty")
    if numeric:
        numbers = as_numbers(values, name)[~absent]
        median = float(np.median(numbers))
        offset = median if centered and _is_far(median, numbers) else 0.0
        warn_of_merged(name, numbers, offset)
        return Column(name, "number", median, bool(absent.any()), offset=offset)
    found, counts = np.unique(as_text(values)[~absent], return_counts=True)
    common = sorted(found[np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]].tolist())
    return Column(name, "category", 0.0, bool(absent.any()), tuple(common), len(found) > MOST_CATEGORIES)


def _is_far(median: float, numbers: NDArray[np.float64]) -> bool:
    """Whether numbers are so much closer to their median than to zero that float32 has too few bits for them."""
    distances = np.abs(numbers - median)
    distances = distances[distances > 0]
    return len(distances) > 0 and abs(median) > FAR * float(np.median(distances))


def warn_of_merged(name: str, numbers: NDArray[Any], offset: float = 0.0) -> None:
    """Say where at most half of a column's distinct values are left when it has become float32."""
    some = numbers[:: len(numbers) // SAMPLED + 1]
    with np.errstate(over="ignore"):  # what is infinite then is refused elsewhere
        distinct, left = len(np.unique(some)), len(np.unique((some - offset).astype(np.float32)))
    if 0 < 2 * left <= distinct:
        _warn(
            f"column {name!r} has {distinct} distinct values, of which {left} are left in single precision: "
            "subtract an offset, rescale it, or split it into several columns, as a time into days and seconds."
        )


def encode_columns(columns: Sequence[Column], values: Sequence[object], rows: int) -> NDArray[np.float32]:
    """The table as numbers, (rows, columns of numbers)."""
    parts = [part for column, given in zip(columns, values, strict=True) for part in column.encode(given)]
    return np.stack(parts, 1) if parts else np.zeros((rows, 0), np.float32)


def missing_in(values: Any) -> NDArray[np.bool_]:
    """Where a column is NaN, None, NaT or pandas' NA."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return np.isnan(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biu":
        return np.zeros(len(values), bool)
    import pandas

    return np.asarray(pandas.isna(values))


def as_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """A column as float64, NaN where it is missing; infinities, and what float32 cannot hold, are refused."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "biuf"):
        try:
            values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadData(f"column {name!r} must be numbers: {error}.") from error
    numbers: NDArray[np.float64] = values.astype(np.float64)
    too_large = np.abs(numbers) > LARGEST
    if too_large.any():
        row = int(np.flatnonzero(too_large)[0])
        raise BadData(
            f"column {name!r} has infinity, or a value too large for dtype('float32'), in row {row}: remove that row, "
            "or write NaN for a missing value."
        )
    return numbers


def as_text(values: Any) -> NDArray[np.str_]:
    """A column as text: 1.0 is "1", as whole numbers become floats where some are missing."""
    return np.asarray([str(int(v) if isinstance(v, float) and v.is_integer() else v) for v in values], dtype=str)


def is_frame(X: object) -> bool:
    """Whether X is a pandas data frame."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def frame_columns(X: Any) -> list[Any]:
    """The columns of a data frame; numbers as arrays."""
    parts = [X.iloc[:, place] for place in range(X.shape[1])]
    return [part.to_numpy() if getattr(part.dtype, "kind", "O") in "biuf" and _plain(part) else part for part in parts]


def describe_frame(X: Any, centered: bool = True) -> tuple[Column, ...]:
    """How to encode each column of a data frame: those of numbers and truth values, and all others as categories."""
    from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype

    described = []
    for name, part, values in zip(X.columns, (X.iloc[:, k] for k in range(X.shape[1])), frame_columns(X), strict=True):
        if getattr(part.dtype, "kind", "O") in "mMc":
            raise BadData(f"column {str(name)!r} is of type {part.dtype}: turn it into numbers or categories first.")
        categorical = str(part.dtype) == "category"
        numeric = not categorical and (is_numeric_dtype(part.dtype) or is_bool_dtype(part.dtype))
        if not numeric and not categorical and part.dtype == object:
            numeric = infer_dtype(part, skipna=True) in NUMBERS
        described.append(describe(str(name), values, numeric, centered))
    return tuple(described)


def _plain(part: Any) -> bool:
    return isinstance(part.dtype, np.dtype)


_COLLECTED: ContextVar[list[str] | None] = ContextVar("column_warnings", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """What `ColumnWarning` would say in this thread or asynchronous task, in a list: for answers to others."""
    texts: list[str] = []
    token = _COLLECTED.set(texts)
    try:
        yield texts
    finally:
        _COLLECTED.reset(token)


def _warn(text: str) -> None:
    collected = _COLLECTED.get()
    if collected is None:
        warnings.warn(text, ColumnWarning, stacklevel=6)
    else:
        collected.append(text)
