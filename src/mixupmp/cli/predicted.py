"""Predictions as a value, and the files they are written to."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mixupmp.cli.output import csv_file, json_file
from mixupmp.core.errors import BadData
from mixupmp.core.files import write_atomically


@dataclass(frozen=True)
class Predicted:
    """What a posterior says about each row."""

    classes: tuple[str, ...]
    probabilities: Tensor  # (rows, classes)
    entropy: Tensor
    mutual_information: Tensor
    files: tuple[str, ...] = ()  # of a folder, one for each row

    @property
    def numbers(self) -> Tensor:
        """The number of the most probable class of each row."""
        return self.probabilities.argmax(1)

    def records(self, most: int | None = None) -> list[dict[str, Any]]:
        """A dictionary for each row."""
        columns = (self.numbers, self.probabilities, self.entropy, self.mutual_information)
        lines = zip(*(column[:most].tolist() for column in columns), strict=True)
        return [
            {
                "row": row,
                **({"file": self.files[row]} if self.files else {}),
                "predicted": self.classes[number],
                "entropy": entropy,
                "mutual_information": information,
                "probabilities": dict(zip(self.classes, probabilities, strict=True)),
            }
            for row, (number, probabilities, entropy, information) in enumerate(lines)
        ]


def write_predicted(predicted: Predicted, path: Path) -> None:
    """Write predictions in the format of the file's ending, whole or not at all."""
    write = {".npy": _npy, ".npz": _npz, ".json": _json, ".csv": _csv}[path.suffix]
    try:
        write_atomically(path, write(predicted))
    except OSError as error:
        raise BadData(f"{path} cannot be written: {error.strerror}.") from error


def _columns(predicted: Predicted) -> dict[str, Any]:
    return {
        **({"file": np.array(predicted.files)} if predicted.files else {}),
        "predicted": predicted.numbers.numpy(),
        "entropy": predicted.entropy.numpy(),
        "mutual_information": predicted.mutual_information.numpy(),
        "probabilities": predicted.probabilities.numpy(),
    }


def _npy(predicted: Predicted) -> bytes:
    """One structured array: np.load(file)["probabilities"] and so on."""
    columns = _columns(predicted)
    kinds = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
    table = np.empty(len(predicted.entropy), kinds)
    for name, column in columns.items():
        table[name] = column
    content = io.BytesIO()
    np.save(content, table, allow_pickle=False)
    return content.getvalue()


def _npz(predicted: Predicted) -> bytes:
    content = io.BytesIO()
    np.savez(content, **_columns(predicted), classes=np.array(predicted.classes))
    return content.getvalue()


def _json(predicted: Predicted) -> bytes:
    return json_file(predicted.records())


def _csv(predicted: Predicted) -> bytes:
    records = predicted.records()
    for record in records:
        record |= {f"p_{name}": share for name, share in record.pop("probabilities").items()}
    return csv_file(records)
