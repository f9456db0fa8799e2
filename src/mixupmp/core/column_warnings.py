"""What is said about the columns of a table: to the user's own line, or to the one who asked a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

from mixupmp.core.user_line import warn_at_user_line

DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?([./-])\d\d?\2\d{2,4}( .*)?")  # as text
FEWEST_DISTINCT, DISTINCT = 20, 0.9  # values that are so many, and so large a share of rows, are taken for identifiers
SAMPLED = 10_000  # values of a column, of which distinct ones are counted
_COLLECTED: ContextVar[list[str] | None] = ContextVar("column_warnings", default=None)


class ColumnWarning(UserWarning):
    """A column holds what the fit has not seen, as a new category or missing values, or what a network cannot use."""


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """What `ColumnWarning` would say in this thread or asynchronous task, in a list: for answers to others."""
    texts: list[str] = []
    token = _COLLECTED.set(texts)
    try:
        yield texts
    finally:
        _COLLECTED.reset(token)


def warn(text: str) -> None:
    """Give a `ColumnWarning`, or add its text to those that are collected."""
    collected = _COLLECTED.get()
    if collected is None:
        warn_at_user_line(text, ColumnWarning)
    else:
        collected.append(text)


def warn_of_merged(name: str, numbers: NDArray[np.float64], offset: float = 0.0) -> None:
    """Say where at most half of a column's distinct values are left when it has become float32."""
    some = numbers[:: len(numbers) // SAMPLED + 1]
    with np.errstate(over="ignore"):  # what is infinite then is refused elsewhere
        distinct, left = len(np.unique(some)), len(np.unique((some - offset).astype(np.float32)))
    if 0 < 2 * left <= distinct:
        warn(
            f"column {name!r} has {distinct} distinct values, of which {left} are left in single precision: "
            "subtract an offset, rescale it, or split it into several columns, as a time into days and seconds."
        )


def warn_of_numbers(name: str, found: NDArray[np.str_], counts: NDArray[np.int64]) -> bool:
    """Whether most values of a column of text are numbers, but not all: then it says which are not."""
    import pandas

    others = np.isnan(pandas.to_numeric(found.astype(object), errors="coerce"))
    rows = int(counts[others].sum())
    if not 0 < 2 * rows < counts.sum():
        return False
    listed = ", ".join(map(repr, found[others][:3].tolist())) + (" and others" if others.sum() > 3 else "")
    warn(
        f"column {name!r} is taken as categories, because not all values are numbers: {rows} of {counts.sum()} are "
        f"{listed}. Where such a value stands for a missing one, leave the cell empty."
    )
    return True


def warn_of_unlearnable(name: str, found: list[str], rows: int) -> None:
    """Say where categories are dates, or nearly as many as rows, so that nothing carries over to new ones."""
    if all(map(DATE.fullmatch, found)):
        warn(f"column {name!r} has dates as text, each of which is a category: turn them into numbers, such as days.")
    elif len(found) >= max(FEWEST_DISTINCT, DISTINCT * rows):
        warn(
            f"column {name!r} has {len(found)} different categories in {rows} rows, as identifiers and free text have: "
            "leave it out, or turn it into numbers."
        )
