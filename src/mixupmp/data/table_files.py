"""Tables: CSV, TSV and Parquet, through pandas."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixupmp.core.errors import BadData, MissingExtra, UnknownName
from mixupmp.core.rows import Dataset
from mixupmp.data.arrays import as_inputs, dataset_of
from mixupmp.data.files import check_unpacked, read_gzip, reading

if TYPE_CHECKING:
    import pandas

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def read_table(path: Path, label: str | None = None, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """A table of numeric columns and one column of labels: the last, unless `label` names another."""
    frame = _frame(path)
    names = [str(name) for name in frame.columns]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadData(f"{path} has several columns called {', '.join(twice)}: rename them.")
    frame.columns = names
    label = names[-1] if label is None and names else label
    if label not in names:
        raise UnknownName(f"column of {path.name}", str(label), names)
    if len(frame) == 0 or len(names) < 2:
        raise BadData(f"{path} has {len(frame)} rows and {len(names)} columns: it needs rows, a label and a feature.")
    features = frame.drop(columns=label)
    _check_numeric(features, path)
    inputs = as_inputs(features.to_numpy(np.float64), str(path))
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return dataset_of(name, str(path), inputs, _labels(frame[label], label, path), test_fraction, seed)


def _frame(path: Path) -> pandas.DataFrame:
    try:
        import pandas

        with reading(path, "a table"):
            if path.suffix == ".parquet":
                _check_parquet(path)
                return pandas.read_parquet(path)
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


def _check_numeric(features: pandas.DataFrame, path: Path) -> None:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    # Complex numbers count as numeric for pandas, but not for a network.
    text = [n for n in features if not (is_numeric_dtype(features[n]) or is_bool_dtype(features[n]))]
    text += [n for n in features if getattr(features[n].dtype, "kind", "") == "c"]
    if text:
        raise BadData(
            f"{path}: these columns are not numbers: {', '.join(map(str, text))}. "
            "Encode or drop them first, or name the label column if it is one of them."
        )
    empty = [str(name) for name in features if features[name].isna().any()]
    if empty:
        row = int(np.flatnonzero(features.isna().any(axis=1).to_numpy())[0])
        raise BadData(f"{path}: missing values (NaN) in {', '.join(empty)} (first in row {row}): drop or impute them.")


def _labels(column: pandas.Series[Any], name: str, path: Path) -> NDArray[Any]:
    if column.isna().any():
        row = int(np.flatnonzero(column.isna().to_numpy())[0])
        raise BadData(f"{path}: the label column {name} is empty in row {row}: drop such rows.")
    values = column.to_numpy()
    return values if getattr(values.dtype, "kind", "O") in "biuf" else np.array([str(value) for value in values])
