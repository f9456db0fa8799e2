"""Text: sentences with labels from CSV, TSV and JSON Lines, and CLINC150."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import BadData, InvalidArgument, check_known
from mixupmp.core.fields import Fields
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.tokenizers import Vocabulary, vocabulary_of
from mixupmp.data.arrays import class_numbers, split_off_test
from mixupmp.data.files import Published, Root, locate, read_gzip, reading

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz")
CLINC150 = Published(
    title="CLINC150",
    page="https://github.com/clinc/oos-eval (data/data_full.json)",
    folders=("clinc150", "oos-eval/data"),
    files=("data_full.json",),
    remotes=(),
)


def read_text(
    path: Path,
    text: str,
    label: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    tokens: str = "words",
    encoder: Encoder | None = None,
) -> Dataset:
    """A column of sentences and one of labels.

    Parameters
    ----------
    text
        The column, or key, of the sentences.
    label
        That of the labels; None: the last column other than `text`, where all records have the same columns.
    tokens, encoder
        What sentences are cut into, as in the training rows; or the vocabulary of another fit.
    """
    records = _records(path)
    others = [str(name) for name in records[0] if name != text]
    if label is None and others:
        odd = next((row for row, record in enumerate(records) if record.keys() != records[0].keys()), None)
        if odd is not None:
            must = f"given (--label) where records differ: {path.name} has other keys in row {odd} than in row 0"
            raise InvalidArgument("label", label, must)
        label = others[-1]
    sentences, labels = (_column(records, name, path) for name in (text, label))
    (numbers,), classes = class_numbers(str(path), np.array(labels))
    rows = Rows(torch.arange(len(numbers)).unsqueeze(1), numbers)
    train, test = split_off_test(rows, len(classes), str(path), test_fraction, seed)
    known = (train if len(train) else test).inputs[:, 0].tolist()
    vocabulary = _vocabulary([sentences[row] for row in known], tokens, encoder)
    inputs = vocabulary(sentences)
    train, test = (Rows(inputs[part.inputs[:, 0]], part.labels) for part in (train, test))
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return Dataset(name, train, test, classes, Fields.of(inputs), vocabulary).checked()


def read_column(path: Path, name: str) -> list[str]:
    """One column of a file of text."""
    return _column(_records(path), name, path)


def _column(records: list[dict[str, object]], name: str | None, path: Path) -> list[str]:
    names = [str(known) for known in records[0]]
    check_known(f"column of {path.name}", name, names)
    return [_cell(record, name, row, path) for row, record in enumerate(records)]


def _records(path: Path) -> list[dict[str, object]]:
    """The rows of a file by column name."""
    with reading(path, "text by column"):
        content = (read_gzip(path) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8-sig")
        kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
        if kind == "jsonl":
            # Not splitlines: a JSON string may hold U+2028, and a quoted cell a line break of any kind.
            records = [_json(line) for line in content.split("\n") if line.strip()]
        else:
            lines = io.StringIO(content, newline="")
            records = list(csv.DictReader(lines, delimiter="\t" if kind == "tsv" else ","))
    if not records or not all(isinstance(record, dict) for record in records):
        raise BadData(f"{path} has no rows with named columns: it needs a heading, or a JSON object on each line.")
    for row, record in enumerate(records):
        if surplus := record.get(None):  # csv's key for cells beyond the heading
            cells, columns = len(record) - 1 + len(surplus), len(record) - 1
            fix = f"put text that holds a {'tab' if kind == 'tsv' else 'comma'} in double quotes."
            raise BadData(f"{path}: row {row} has {cells} cells for {columns} columns: {fix}")
    return records


def _json(text: str | bytes) -> Any:
    content = json.loads(text)
    json.dumps(content, ensure_ascii=False).encode()  # "\\ud800" is JSON, but no text that a run could write
    return content


def _cell(record: dict[str, object], name: str | None, row: int, path: Path) -> str:
    value = record.get(str(name))
    if value is None or str(value).strip() == "":
        raise BadData(f"{path}: the column {name} is empty in row {row}: drop such rows.")
    if not isinstance(value, str | int | float):
        raise BadData(f"{path}: the column {name} in row {row} is a {type(value).__name__}, not text or a number.")
    return str(value)


def clinc150_parts(root: Root = None) -> dict[str, list[tuple[str, str]]]:
    """CLINC150's parts by name, each a list of (sentence, intent): train, val, test, oos_train, oos_val, oos_test."""
    path = locate(CLINC150, root) / CLINC150.files[0]
    with reading(path, "CLINC150's JSON"):
        content = _json(path.read_bytes())
        return {part: [(str(sentence), str(intent)) for sentence, intent in content[part]] for part in _PARTS}


_PARTS = ("train", "val", "test", "oos_train", "oos_val", "oos_test")


def clinc150(
    root: Root = None,
    download: bool = False,
    seed: int = 0,
    tokens: str = "words",
    encoder: Encoder | None = None,
) -> Dataset:
    """CLINC150: requests to an assistant, 150 intents; 15,000 and 4,500 of them, as published (Larson et al., 2019).

    `Dataset.outside` has the 1,000 out-of-scope requests of the test set; `clinc150_parts` has all parts.
    """
    parts = clinc150_parts(root)
    vocabulary = _vocabulary([sentence for sentence, _ in parts["train"]], tokens, encoder)
    intents = [np.array([intent for _, intent in parts[name]]) for name in ("train", "test")]
    (train, test), classes = class_numbers("clinc150", *intents)
    names = ("train", "test", "oos_test")
    trained, tested, outside = (vocabulary([sentence for sentence, _ in parts[name]]) for name in names)
    rows = Rows(trained, train), Rows(tested, test)
    return Dataset("clinc150", *rows, classes, Fields.of(trained), vocabulary, outside).checked()


def _vocabulary(sentences: Sequence[str], tokens: str, encoder: Encoder | None) -> Vocabulary:
    return encoder if isinstance(encoder, Vocabulary) else vocabulary_of(sentences, tokens)
