"""X and y as rows: from tables, arrays, dicts, tuples, lists of images, data frames, torch Datasets and DataLoaders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from mixupmp.core.arrays import Array, check_rectangular, is_images
from mixupmp.core.columns import describe, describe_frame, encode_columns, frame_columns, is_frame
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.fields import is_several
from mixupmp.core.foreign import Json
from mixupmp.core.layouts import check_layout
from mixupmp.core.rows import Rows, Standardize
from mixupmp.core.spec import encode
from mixupmp.core.streams import DatasetRows, IterableRows
from mixupmp.estimators.arrays import Layout, read_array, read_several, takes_tokens
from mixupmp.estimators.datasets import is_in_memory, labels_of, probe, read_all, stream_for, stream_inputs
from mixupmp.networks.factories import NetworkChoice

# A table, an array, a dict or tuple of arrays, a list of PIL images, a data frame, Rows, a torch Dataset or a
# DataLoader: distinguished when they are read.
Inputs = Any


@dataclass(frozen=True)
class FitInputs:
    """What a fit was given.

    Parameters
    ----------
    inputs
        Rows in memory, or a stream of them.
    sample
        Rows in memory, from which the scaling is computed: all, or some of a stream.
    """

    inputs: Tensor | DatasetRows | IterableRows
    labels: Array
    layout: Layout
    sample: Tensor


def read_fit(
    estimator: object,
    X: Inputs,
    y: object,
    *,
    numeric_y: bool = False,
    layout: str | None = None,
    in_memory: bool | None = None,
) -> FitInputs:
    """The rows and labels of a fit; scikit-learn checks a table, and notes its columns in the estimator.

    Parameters
    ----------
    layout
        Of X where its shape does not tell, see `core.layouts`.
    in_memory
        Whether a Dataset is read once into memory; None: only if it holds tensors.
    """
    check_layout(layout)
    stream = stream_for(X)
    if stream is not None:
        check(y is None, "y", type(y).__name__, f"left out, as {type(X).__name__} brings its own labels")
        if not (is_in_memory(stream) if in_memory is None else in_memory):
            return _read_stream(estimator, stream, layout, numeric_y)
        X, y = read_all(stream)
    elif isinstance(X, Rows):
        check(y is None, "y", type(y).__name__, "left out, as Rows brings its own labels")
        X, y = X.inputs, X.labels
    inputs, labels, found = _read(estimator, X, y, layout, numeric_y)
    return FitInputs(inputs, labels, found, inputs)


def _read(estimator: Any, X: Inputs, y: Any, layout: str | None, numeric_y: bool) -> tuple[Tensor, Array, Layout]:
    network: NetworkChoice = estimator.network
    if is_several(X):
        inputs, found = read_several(X)
    elif layout not in (None, "table") or is_images(X) or not is_table(X) or takes_tokens(X, network):
        tokens = layout is None and is_table(X) and not is_images(X)
        trained = getattr(estimator, "body", None) is not None
        inputs, found = read_array(X, "tokens" if tokens else layout, network, trained)
    else:
        return read_table(estimator, X, y, layout=None, numeric_y=numeric_y)
    check(y is not None, "y", None, "the label of every row, where X brings none")
    y = column_or_1d(np.asarray(y), warn=True)
    check_consistent_length(inputs, y)
    estimator.n_features_in_ = int(inputs[0].numel())
    return inputs, y, found


def _read_stream(
    estimator: object, stream: DatasetRows | IterableRows, layout: str | None, numeric_y: bool
) -> FitInputs:
    """A stream whose batches are read as a sample of its rows was; labels are known, or read in one pass."""
    X, y = probe(stream)
    sample, _, found = _read(estimator, X, y, layout, numeric_y)
    stream.pack = partial(read_batch, estimator, layout=found) if found.kind == "table" else found.read
    return FitInputs(stream, labels_of(stream), found, sample)


def is_table(X: Inputs) -> bool:
    """Whether X has rows and columns, and is therefore scikit-learn's to check."""
    return _dimensions(X) <= 2


def _dimensions(X: Inputs) -> int:
    """How many axes X has: its own, or one more than the first item of a list; 0 where that is not known."""
    if isinstance(X, list):
        return 1 + _dimensions(X[0]) if X else 1
    dimensions = getattr(X, "ndim", 0)
    return dimensions if isinstance(dimensions, int) else 0


def read_table(
    estimator: BaseEstimator, X: Inputs, y: object = "no_validation", *, layout: Layout | None, numeric_y: bool = False
) -> tuple[Tensor, Any, Layout]:
    """A 2-D table by scikit-learn's rules, as finite numbers, with y and the layout; None: a fit's, found here."""
    X = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    y = y.detach().cpu().numpy() if isinstance(y, Tensor) else y
    check_not_sentences(X)
    _check_labels(y)
    columns = None if layout is None else layout.columns
    centered = getattr(estimator, "body", None) is None  # a trained network takes its rows as they are
    if not is_frame(X) and hasattr(X, "to_pandas"):  # of polars, or a table of pyarrow
        X = X.to_pandas()
    frame = X if is_frame(X) and min(X.shape) > 0 else None
    if frame is not None:
        if columns is None:
            columns = describe_frame(frame, centered)
        X = frame.notna().astype(np.float32)  # scikit-learn checks names, their order and shape; values come below
    check_rectangular(X)
    more = {"y_numeric": True} if numeric_y else {}
    try:
        checked = validate_data(
            # Either is kept as it is; other types, and what is far from zero, need double precision.
            estimator,
            X,
            y,
            reset=layout is None,
            dtype=(np.float64, np.float32),
            ensure_all_finite="allow-nan",
            **more,
        )
    except ValueError as error:
        if not str(error).startswith("could not convert string"):
            raise
        hint = "Pass a data frame, pandas.DataFrame(X), whose columns of text become categories"
        raise BadData(f"X has text, but an array must be numbers: {error}. {hint}.") from error
    features, y = checked if isinstance(checked, tuple) else (checked, None)
    values = list(features.T) if frame is None else frame_columns(frame)
    if columns is None:
        columns = tuple(describe(str(place), column, True, centered) for place, column in enumerate(values))
    numbers = encode_columns(columns, values, len(features))
    check(numbers.shape[1] > 0, "X", "missing in every row and column", "a table with at least one value")
    found = layout or Layout("table", (numbers.shape[1],), columns=columns)
    return torch.from_numpy(numbers), y, found


def check_not_sentences(X: Inputs) -> None:
    """Raise if X is a list, an array or a series of texts."""
    flat = isinstance(X, list | tuple) or getattr(X, "ndim", None) == 1
    if flat and len(X) > 0 and isinstance(next(iter(X)), str):
        instead = "mixupmp.data.load_path(FILE, text=COLUMN) reads sentences, and mixupmp.fit fits a network to them"
        raise InvalidArgument("X", "sentences", "a table, images, series or tokens", f"{instead}: see guides/tokens.")


_NO_LABEL = ("nan", "<NA>", "NaT")


def _check_labels(y: object) -> None:
    """Refuse labels among which there is None, NaN or pandas' NA, of which scikit-learn says no row or no reason."""
    given = np.asarray(y)
    if given.dtype.kind != "O" or given.ndim != 1:
        return
    missing = [label is None or (not isinstance(label, str) and str(label) in _NO_LABEL) for label in given]
    if any(missing):
        more = f" and {sum(missing) - 1} more rows" if sum(missing) > 1 else ""
        raise BadData(f"y has no label in row {missing.index(True)}{more}, but None, NaN or NA: drop such rows.")


def read_again(estimator: BaseEstimator, X: Inputs, layout: Layout) -> Tensor | Iterator[Tensor]:
    """Rows to predict, of the same layout as those of the fit; block by block where they are streamed."""
    shuffled = isinstance(X, DataLoader) and isinstance(X.sampler, RandomSampler)
    if shuffled:
        raise InvalidArgument("X", X, "a DataLoader with shuffle=False", "Predictions come in the order of its rows.")
    stream = stream_for(X)
    if stream is not None:
        count = 1 if layout.fields is None else len(layout.fields.fields)
        return (read_batch(estimator, batch, layout) for batch in stream_inputs(stream, count))
    return read_batch(estimator, X.inputs if isinstance(X, Rows) else X, layout)


def read_batch(estimator: BaseEstimator, X: Inputs, layout: Layout) -> Tensor:
    """Rows in memory, of the same layout as those of the fit."""
    if layout.kind == "table":
        return read_table(estimator, X, layout=layout)[0]
    if layout.fields is None and not is_images(X):
        must = f"an array of shape (rows, {', '.join(map(str, layout.shape))}), as in fit"
        check(not is_table(X), "X", getattr(X, "shape", X), must)
    return layout.read(X)


def unpack(X: Inputs, y: Any = None) -> tuple[Any, Any]:
    """Rows, a torch Dataset or a DataLoader as a pair of inputs and labels in memory; anything else as it came."""
    stream = stream_for(X)
    if stream is None and not isinstance(X, Rows):
        return X, y
    check(y is None, "y", type(y).__name__, f"left out, as {type(X).__name__} brings its own labels")
    return (X.inputs, X.labels) if stream is None else read_all(stream)


def standardizer(inputs: Tensor, weights: Tensor | None) -> Standardize:
    """Mean and deviation by column or channel; rows count by their weights, so that weight two is the row twice."""
    if weights is None or inputs.dtype == torch.uint8:
        return Standardize.of(inputs)
    share = (weights.double() / weights.double().sum()).view(-1, 1)
    columns = inputs.double().flatten(2).mean(2) if inputs.ndim > 2 else inputs.double()
    mean = (columns * share).sum(0)
    centered = inputs.double() - mean.view(1, -1, *(1,) * (inputs.ndim - 2))
    squares = centered.square().flatten(2).mean(2) if inputs.ndim > 2 else centered.square()
    deviation = (squares * share).sum(0).sqrt()
    return Standardize.from_moments(mean.tolist(), deviation.tolist())


_LABEL_DTYPE = re.compile(r"[<>|][biufOUSmM]\d*(\[\w+\])?")  # numpy would parse more, at any length


def encode_labels(labels: Array) -> Json:
    """An array of class labels of any type that scikit-learn takes."""
    values = labels.view(np.int64) if labels.dtype.kind in "mM" else labels
    known = (bool, int, float, str, type(None))
    listed = values.tolist()
    if not all(isinstance(value, known) for value in listed):
        raise InvalidArgument("classes_", listed[0], "numbers, text, truth values or dates, to be saved")
    return {"dtype": labels.dtype.str, "values": encode(listed)}


def decode_labels(document: Json) -> Array:
    """The array that `encode_labels` was given."""
    name, values = document["dtype"], document["values"]
    check(bool(_LABEL_DTYPE.fullmatch(name)), "dtype", name, "that of numbers, text, truth values or dates")
    dtype = np.dtype(name)
    longest = max((len(str(value)) for value in values), default=0)
    check(dtype.itemsize <= 16 + 4 * longest, "dtype", name, "no longer than the longest label")
    values = [float(value) if dtype.kind == "f" else value for value in values]
    if dtype.kind in "mM":
        return np.array(values, np.int64).view(dtype)
    return np.array(values, dtype)
