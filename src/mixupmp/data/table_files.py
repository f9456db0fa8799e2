"""Tables: CSV, TSV and Parquet, through pandas."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mixupmp.core.arrays import Array
from mixupmp.core.columns import Columns
from mixupmp.core.errors import BadData, MissingExtra, check_known
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.data.arrays import as_inputs, class_numbers, dataset_of, split_off_test
from mixupmp.data.files import check_unpacked, read_gzip, reading

if TYPE_CHECKING:
    import pandas

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def read_table(
    path: Path,
    label: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    columns: Columns | None = None,
) -> Dataset:
    """A table of columns and one of labels: the last, unless `label` names another.

    Categories become indicators, and missing values medians with an indicator, as the training rows have them, or as
    `columns` says: that of a fit. Columns are known by their names, unless those are numbers too.
    """
    frame = read_frame(path)
    names = [str(name) for name in frame.columns]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadData(f"{path} has several columns called {', '.join(twice)}: rename them.")
    frame.columns = names
    if len(frame) == 0 or len(names) < 2:
        others = [f" Is {mark!r} its separator? Save it with commas." for mark in ";\t|" if mark in "".join(names)]
        counts = f"{len(frame)} rows and {len(names)} column{'s' * (len(names) != 1)}"
        raise BadData(f"{path} has {counts}: it needs rows, a label and a feature.{''.join(others[:1])}")
    label = names[-1] if label is None else label
    check_known(f"column of {path.name}", label, names)
    features = frame.drop(columns=label)
    labels, name = _labels(frame[label], label, path), path.name.removesuffix(".gz").rpartition(".")[0]
    bare = columns is None and is_numeric_text(features.columns) and _is_numeric(features)
    if bare and not Columns.of(features).centered:
        inputs = as_inputs(features.to_numpy(np.float64), str(path))
        return dataset_of(name, str(path), inputs, labels, test_fraction, seed)
    (numbers,), classes = class_numbers(str(path), labels)
    places = Rows(torch.arange(len(numbers)).unsqueeze(1), numbers)
    if test_fraction < 1 and not 0 < round(test_fraction * len(places)) <= len(places) - len(classes):
        counts = f"{len(places)} rows of {len(classes)} classes"
        raise BadData(f"{path} has {counts}: too few to keep a share of {test_fraction:g} for a test; add rows.")
    train, test = split_off_test(places, len(classes), str(path), test_fraction, seed)
    try:
        columns = columns or Columns.of(features.iloc[(train if len(train) else test).inputs[:, 0].numpy()])
        inputs = columns(features)
    except BadData as error:
        raise BadData(f"{path}: {error}") from error
    if inputs.shape[1] == 0:
        raise BadData(f"{path} has no value in any column but {label}: a table needs at least one.")
    train, test = (Rows(inputs[part.inputs[:, 0]], part.labels) for part in (train, test))
    return Dataset(name, train, test, classes, Standardize.of(train.inputs), columns).checked()


def read_frame(path: Path) -> pandas.DataFrame:
    """The table as it is."""
    try:
        import pandas

        with reading(path, "a table"):
            if path.suffix == ".parquet":
                _check_parquet(path)
                frame = pandas.read_parquet(path)
                for name in frame:
                    frame[name].to_numpy()  # text that is no UTF-8 is found only now
                return frame
            content = io.BytesIO(read_gzip(path)) if path.suffix == ".gz" else path
            return pandas.read_csv(content, sep="\t" if ".tsv" in path.suffixes else ",", compression=None)
    except ImportError as error:
        raise MissingExtra(error.name or "pandas", "tables", f"reading the table {path.name}") from error


def _check_parquet(path: Path) -> None:
    """Refuse a file whose cells, at 8 bytes each, are far more than its size: a run of equal values takes no space."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        cells = file.metadata.num_rows * file.metadata.num_columns
    check_unpacked(path, path.stat().st_size, 8 * cells)


def is_numeric_text(cells: Iterable[str]) -> bool:
    """Whether these are numbers, and so no headings."""
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def _is_numeric(features: pandas.DataFrame) -> bool:
    """Whether all columns are numbers or truth values, and nothing is missing."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    kinds = all(is_numeric_dtype(features[n]) or is_bool_dtype(features[n]) for n in features)
    # Complex numbers count as numeric for pandas, but not for a network.
    real = not any(getattr(features[n].dtype, "kind", "") == "c" for n in features)
    return kinds and real and not bool(features.isna().any(axis=None))


def _labels(column: pandas.Series[Any], name: str, path: Path) -> Array:
    if column.isna().any():
        row = int(np.flatnonzero(column.isna().to_numpy())[0])
        raise BadData(f"{path}: the label column {name} is empty in row {row}: drop such rows.")
    values = column.to_numpy()
    return values if getattr(values.dtype, "kind", "O") in "biuf" else np.array([str(value) for value in values])
