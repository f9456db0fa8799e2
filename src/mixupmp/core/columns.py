"""Columns of a table as numbers: categories as indicators, missing values as the median and an indicator."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.column_warnings import warn, warn_of_merged, warn_of_numbers, warn_of_unlearnable
from mixupmp.core.errors import BadData

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# What pandas calls columns of objects that are numbers.
NUMBERS = ("integer", "floating", "mixed-integer-float", "boolean", "empty")
# ... and of what is neither a number nor a category.
REFUSED = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period", "complex")
SYNONYMS = {"1": "True", "0": "False", "True": "1", "False": "0"}
MOST_CATEGORIES = 100  # of one column; rarer ones share an indicator
# A column whose median is so many typical distances from zero is centered before it becomes float32, which has 24 bits:
# at least half of them are left for the distances. Other columns stay as they are, bit for bit.
FAR = 2.0**12
LARGEST = float(np.finfo(np.float32).max)


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

    @property
    def synonyms(self) -> dict[str, str]:
        """Categories by other words for them: truth values may be written as numbers, and numbers as truth values."""
        known = {a: b for a, b in SYNONYMS.items() if b in self.categories}
        return {a: b for a, b in known.items() if a not in self.categories}

    def encode(self, values: object) -> list[NDArray[np.float32]]:
        """The columns of numbers that this one becomes."""
        if self.kind == "empty":
            return []
        if self.kind == "number":
            values = as_in_a_file(values)
        absent = missing_in(values)
        if absent.any() and not self.missing:
            how = f"taken as {self.fill:g}, the median" if self.kind == "number" else "without any category"
            warn(f"column {self.name!r} has missing values, which it had not in fit: they are {how}.")
        indicator = [absent.astype(np.float32)] if self.missing else []
        if self.kind == "number":
            numbers = np.where(absent, self.fill, as_numbers(values, self.name))
            return [(numbers - self.offset).astype(np.float32), *indicator]
        text = as_text(values)
        for new_name, known in self.synonyms.items():
            text = np.where(text == new_name, known, text)
        found = [(text == category) & ~absent for category in self.categories]
        new = ~absent & ~np.isin(text, self.categories)
        if self.other:
            found.append(new)
        elif new.any():
            warn(
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

    def center(self, rows: Array) -> Array:
        """Rows of an array, with categories and missing values encoded already, centered as those of the fit."""
        offsets = [offset for column in self.columns for offset in column.offsets]
        fits = rows.ndim == 2 and rows.shape[1] == len(offsets) and self.centered
        return rows.astype(np.float64) - offsets if fits else rows

    @classmethod
    def of(cls, frame: DataFrame) -> Columns:
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
        warn(f"column {name!r} is missing in every row, and is left out.")
        return Column(name, "empty")
    if numeric:
        numbers = as_numbers(values, name)[~absent]
        median = float(np.median(numbers))
        offset = median if centered and _is_far(median, numbers) else 0.0
        warn_of_merged(name, numbers, offset)
        return Column(name, "number", median, bool(absent.any()), offset=offset)
    found, counts = np.unique(as_text(values)[~absent], return_counts=True)
    chosen = str(getattr(values, "dtype", "")) == "category"
    if chosen or not warn_of_numbers(name, found, counts):
        warn_of_unlearnable(name, found.tolist(), int(counts.sum()))
    common = sorted(found[np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]].tolist())
    return Column(name, "category", 0.0, bool(absent.any()), tuple(common), len(found) > MOST_CATEGORIES)


def _is_far(median: float, numbers: NDArray[np.float64]) -> bool:
    """Whether numbers are so much closer to their median than to zero that float32 has too few bits for them."""
    distances = np.abs(numbers - median)
    distances = distances[distances > 0]
    return len(distances) > 0 and abs(median) > FAR * float(np.median(distances))


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


def as_in_a_file(values: Any) -> Any:
    """A column with text in it as pandas reads it from a CSV file: "True" is true, and "NA" is missing."""
    if isinstance(values, np.ndarray) or not any(isinstance(value, str) for value in values):
        return values
    import pandas

    content = values.to_csv(index=False, header=False, quoting=csv.QUOTE_ALL)
    return pandas.read_csv(io.StringIO(content), header=None)[0]


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
            "or make the value a missing one."
        )
    return numbers


def as_text(values: Any) -> NDArray[np.str_]:
    """A column as text: 1.0 is "1", as whole numbers become floats where some are missing."""
    return np.asarray([str(int(v) if isinstance(v, float) and v.is_integer() else v) for v in values], dtype=str)


def is_frame(X: object) -> TypeGuard[DataFrame]:
    """Whether X is a pandas data frame."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def frame_columns(X: DataFrame) -> list[Array | Series[Any]]:
    """The columns of a data frame; numbers as arrays."""
    parts = [X.iloc[:, place] for place in range(X.shape[1])]
    return [part.to_numpy() if getattr(part.dtype, "kind", "O") in "biuf" and _plain(part) else part for part in parts]


def describe_frame(X: DataFrame, centered: bool = True) -> tuple[Column, ...]:
    """How to encode each column of a data frame: those of numbers and truth values, and all others as categories."""
    from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype

    described = []
    for name, part, values in zip(X.columns, (X.iloc[:, k] for k in range(X.shape[1])), frame_columns(X), strict=True):
        found = infer_dtype(part, skipna=True)
        if found in REFUSED:
            kind = found if part.dtype == object else part.dtype
            hint = "turn it into real numbers, such as days since a fixed date, or into categories, first"
            raise BadData(f"column {str(name)!r} is of type {kind}: {hint}.")
        categorical = str(part.dtype) == "category"
        numeric = not categorical and (is_numeric_dtype(part.dtype) or is_bool_dtype(part.dtype))
        if not numeric and not categorical and part.dtype == object:
            numeric = found in NUMBERS
        described.append(describe(str(name), values, numeric, centered))
    return tuple(described)


def _plain(part: Series[Any]) -> bool:
    return isinstance(part.dtype, np.dtype)
