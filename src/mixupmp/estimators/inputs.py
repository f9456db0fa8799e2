"""X and y as tensors: from tables, images, tensors, data frames, Datasets and DataLoaders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data import Dataset as TorchDataset

from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.foreign import Json
from mixupmp.core.rows import Rows, Standardize
from mixupmp.core.spec import encode
from mixupmp.estimators.columns import Column, describe, describe_frame, encode_columns, frame_columns, is_frame

# A table, images, a tensor, a data frame, Rows, a torch Dataset or a DataLoader: distinguished when they are read.
Inputs = Any


@dataclass(frozen=True)
class Layout:
    """The kind, shape and type of the rows of a fit, which those of a prediction must have too."""

    kind: Literal["table", "images"]
    shape: tuple[int, ...]  # of one row, as the network sees it
    pixels: bool = False  # uint8, to be divided by 255
    columns: tuple[Column, ...] = ()  # of a table

    @property
    def numbers(self) -> bool:
        """Whether the network sees the columns as they are: no categories, and nothing was missing in the fit."""
        return all(column.kind == "number" and not column.missing for column in self.columns)


def unpack(X: Inputs, y: Any = None, *, ordered: bool = False) -> tuple[Any, Any]:
    """Rows, a torch Dataset or a DataLoader as a pair of tensors; anything else as it came.

    They bring their own labels, so `y` must be left out with them. `ordered` refuses a DataLoader that shuffles, as
    predictions come in the order of the rows.
    """
    if not isinstance(X, Rows | TorchDataset | DataLoader):
        return X, y
    check(y is None, "y", type(y).__name__, f"left out, as {type(X).__name__} brings its own labels")
    if isinstance(X, Rows):
        return X.inputs, X.labels
    if isinstance(X, DataLoader):
        if ordered and isinstance(X.sampler, RandomSampler):
            raise InvalidArgument(
                "X", X, "a DataLoader with shuffle=False", "Predictions come in the order of its rows."
            )
        return _collect(X)
    return _collect(DataLoader(X, batch_size=256))


def _collect(loader: DataLoader[Any]) -> tuple[Tensor, Tensor | None]:
    inputs, labels = [], []
    for item in loader:
        pair = item if isinstance(item, list | tuple) else (item,)
        if not all(isinstance(part, Tensor) for part in pair[:2]):
            raise BadData(f"a Dataset must give tensors (input, label), got {[type(p).__name__ for p in pair[:2]]}.")
        inputs.append(pair[0])
        labels += [torch.as_tensor(pair[1])] if len(pair) > 1 else []
    if not inputs:
        raise BadData("the Dataset is empty: it needs at least one row.")
    return torch.cat(inputs), torch.cat(labels) if labels else None


def is_table(X: Inputs) -> bool:
    """Whether X has rows and columns, and is therefore scikit-learn's to check."""
    dimensions = getattr(X, "ndim", None)
    return not (isinstance(dimensions, int) and dimensions > 2)


def read_table(
    estimator: BaseEstimator,
    X: Inputs,
    y: Any = "no_validation",
    *,
    layout: Layout | None,
    numeric_y: bool = False,
) -> tuple[Tensor, Any, Layout]:
    """A 2-D table by scikit-learn's rules, as finite numbers, with y and the layout; None: a fit's, found here."""
    X = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    y = y.detach().cpu().numpy() if isinstance(y, Tensor) else y
    columns = None if layout is None else layout.columns
    frame = X if is_frame(X) and min(X.shape) > 0 else None
    if frame is not None:
        if columns is None:
            columns = describe_frame(frame)
        X = frame.notna().astype(np.float32)  # scikit-learn checks names, their order and shape; values come below
    more = {"y_numeric": True} if numeric_y else {}
    checked = validate_data(
        estimator, X, y, reset=layout is None, dtype=np.float32, ensure_all_finite="allow-nan", **more
    )
    features, y = checked if isinstance(checked, tuple) else (checked, None)
    values = list(features.T) if frame is None else frame_columns(frame)
    if columns is None:
        columns = tuple(describe(str(place), column, True) for place, column in enumerate(values))
    numbers = encode_columns(columns, values, len(features))
    check(numbers.shape[1] > 0, "X", "missing in every row and column", "a table with at least one value")
    found = layout or Layout("table", (numbers.shape[1],), columns=columns)
    return torch.from_numpy(numbers), y, found


def read_images(X: Inputs) -> tuple[Tensor, Layout]:
    """Images with their channels first: uint8 where the pixels are whole numbers, float32 otherwise."""
    images = X.detach().cpu() if isinstance(X, Tensor) else torch.from_numpy(np.ascontiguousarray(_numeric(X)))
    check(len(images) > 0, "X", tuple(images.shape), "at least one row")
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[3] in (1, 3) and images.shape[1] not in (1, 3):
        images = images.permute(0, 3, 1, 2).contiguous()
    pixels = not images.is_floating_point()
    if pixels and images.dtype != torch.uint8:
        low, high = int(images.min()), int(images.max())
        check(low >= 0 and high <= 255, "X", (low, high), "pixels from 0 to 255 where they are whole numbers")
        images = images.to(torch.uint8)
    images = images if pixels else images.float()
    if not pixels and not bool(torch.isfinite(images).all()):
        raise BadData("X contains NaN or infinity: remove or impute those rows.")
    return images, Layout("images", tuple(images.shape[1:]), pixels)


def read_fit(
    estimator: BaseEstimator, X: Inputs, y: Any, *, numeric_y: bool = False
) -> tuple[Tensor, NDArray[Any], Layout]:
    """The rows and labels of a fit; scikit-learn checks a table, and notes its columns in the estimator."""
    X, y = unpack(X, y)
    if is_table(X):
        return read_table(estimator, X, y, layout=None, numeric_y=numeric_y)
    inputs, layout = read_images(X)
    check(y is not None, "y", None, "the label of every row, where X brings none")
    y = column_or_1d(np.asarray(y), warn=True)
    check_consistent_length(inputs, y)
    estimator.n_features_in_ = int(inputs[0].numel())
    return inputs, y, layout


def _numeric(X: Inputs) -> NDArray[Any]:
    array = np.asarray(X)
    check(array.dtype.kind in "biuf", "X", array.dtype, "an array of numbers")
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def read_again(estimator: BaseEstimator, X: Inputs, layout: Layout) -> Tensor:
    """Rows to predict, of the same layout as those of the fit."""
    X, _ = unpack(X, ordered=True)
    if layout.kind == "table":
        return read_table(estimator, X, layout=layout)[0]
    check(not is_table(X), "X", getattr(X, "shape", X), f"images of shape (rows, {_listed(layout.shape)})")
    inputs, found = read_images(X)
    check(found.shape == layout.shape, "X", tuple(inputs.shape), f"of shape (rows, {_listed(layout.shape)}), as in fit")
    if found.pixels != layout.pixels:
        kinds = ("floats", "whole numbers from 0 to 255")
        raise InvalidArgument("X", str(inputs.dtype), f"{kinds[layout.pixels]}, as the images of fit were")
    return inputs


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


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
    return Standardize(tuple(mean.tolist()), tuple(torch.where(deviation > 1e-12, deviation, 1.0).tolist()))


def encode_labels(labels: NDArray[Any]) -> Json:
    """An array of class labels of any type that scikit-learn takes."""
    values = labels.view(np.int64) if labels.dtype.kind in "mM" else labels
    known = (bool, int, float, str, type(None))
    listed = values.tolist()
    if not all(isinstance(value, known) for value in listed):
        raise InvalidArgument("classes_", listed[0], "numbers, text, truth values or dates, to be saved")
    return {"dtype": labels.dtype.str, "values": encode(listed)}


def decode_labels(document: Json) -> NDArray[Any]:
    """The array that `encode_labels` was given."""
    dtype = np.dtype(document["dtype"])
    values = [float(value) if dtype.kind == "f" else value for value in document["values"]]
    if dtype.kind in "mM":
        return np.array(values, np.int64).view(dtype)
    return np.array(values, dtype)
