"""Sentences by column, and CLINC150."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from mixupmp.core.errors import BadData, DataNotFound, InvalidArgument, UnknownName
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.data import load, load_path

LINES = [
    ("pay my bill", "pay"),
    ("what is my balance", "ask"),
    ("please pay it", "pay"),
    ("say, my balance", "ask"),
]


def write_csv(path: Path, repeats: int = 5) -> Path:
    rows = "".join(f'{number},"{text}",{label}\n' for number in range(repeats) for text, label in LINES)
    path.write_text("number,sentence,label\n" + rows, encoding="utf-8")
    return path


def test_a_csv_of_sentences(tmp_path: Path) -> None:
    data = load_path(write_csv(tmp_path / "texts.csv"), text="sentence")
    assert data.classes == ("ask", "pay")
    assert (len(data.train), len(data.test)) == (16, 4)
    assert data.train.inputs.dtype == torch.int64
    assert isinstance(data.encoder, Vocabulary)
    shown = {data.encoder.text(row) for row in torch.cat([data.train.inputs, data.test.inputs])}
    assert shown == {"pay my bill", "what is my balance", "please pay it", "say , my balance"}


def test_json_lines_gzipped_with_another_label_column(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"intent": label, "text": text, "id": 3}) for text, label in LINES * 5)
    path = tmp_path / "texts.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    data = load_path(path, text="text", label="intent")
    assert data.name == "texts"
    assert data.classes == ("ask", "pay")


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_separators_within_a_sentence_end_no_line(tmp_path: Path, separator: str) -> None:
    lines = [(f"one{separator}two", "ab"[n % 2]) for n in range(10)]
    objects = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in lines)
    content = "\r\n".join(objects).replace("\x0b", "\\u000b").replace("\x1c", "\\u001c")
    (tmp_path / "t.jsonl").write_bytes(content.encode())
    (tmp_path / "t.csv").write_bytes(("text,label\n" + "".join(f"{t},{c}\n" for t, c in lines)).encode())
    for name in ("t.jsonl", "t.csv"):
        data = load_path(tmp_path / name, text="text")
        assert (len(data.train), len(data.test), data.classes) == (8, 2, ("a", "b"))


def test_the_vocabulary_is_the_training_rows_alone(tmp_path: Path) -> None:
    rows = "".join(f"common word w{n} w{n},{'ab'[n % 2]}\n" for n in range(40))
    (tmp_path / "t.csv").write_text("text,label\n" + rows)
    data = load_path(tmp_path / "t.csv", text="text", test_fraction=0.25)
    assert isinstance(data.encoder, Vocabulary)
    assert len(data.encoder.words) == 2 + 30
    assert (data.test.inputs == 1).sum(1).tolist() == [2] * 10


@pytest.mark.parametrize(
    ("content", "options", "error", "match"),
    [
        ("text,label\na,x\n", {"text": "words"}, UnknownName, "column of t.csv 'words'"),
        ("text\na\n", {"text": "text"}, UnknownName, "column"),
        ("text,label\n", {"text": "text"}, BadData, "no rows"),
        ("text,label\na,x\n,y\n", {"text": "text"}, BadData, "empty in row 1"),
        ("text,label\na\n", {"text": "text"}, BadData, "label is empty in row 0"),
        ("text,label\na,x\nb, c,y\n", {"text": "text"}, BadData, "row 1 has 3 cells for 2 columns: put text that"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, content: str, options: dict[str, str], error: type[Exception], match: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(error, match=match):
        load_path(tmp_path / "t.csv", **options)  # type: ignore[arg-type]


def test_records_with_other_keys_need_the_name_of_the_label(tmp_path: Path) -> None:
    records = [{"text": text, "label": label} for text, label in LINES * 5]
    records[0]["extra"] = "7"
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(InvalidArgument, match=r"label must be given .*other keys in row 1 than in row 0"):
        load_path(tmp_path / "t.jsonl", text="text")
    assert load_path(tmp_path / "t.jsonl", text="text", label="label").classes == ("ask", "pay")


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\nnot json\n')
    (tmp_path / "l.jsonl").write_text("[1, 2]\n")
    (tmp_path / "s.jsonl").write_text('{"text": "a", "label": "\\ud800"}\n' * 5)  # half a character
    (tmp_path / "x.npz").write_bytes(b"")
    for name, error in (("t.jsonl", BadData), ("l.jsonl", BadData), ("s.jsonl", BadData), ("x.npz", InvalidArgument)):
        with pytest.raises(error, match=name):
            load_path(tmp_path / name, text="text")


def test_clinc150_as_published(tmp_path: Path) -> None:
    parts = {"train": LINES * 3, "val": LINES, "test": LINES[:2]}
    parts |= {"oos_train": [], "oos_val": [], "oos_test": [("is my dog well", "oos")]}
    (tmp_path / "clinc150").mkdir()
    (tmp_path / "clinc150" / "data_full.json").write_text(json.dumps(parts))
    data = load("clinc150", tmp_path)
    assert (len(data.train), len(data.test), data.classes) == (12, 2, ("ask", "pay"))
    assert isinstance(data.encoder, Vocabulary)
    assert data.outside is not None
    assert data.encoder.text(data.outside[0]) == "is my [?] [?]"


def test_it_is_not_downloaded(empty_root: Path) -> None:
    with pytest.raises(DataNotFound, match=r"To get it: fetch it from https://github.com/clinc/oos-eval"):
        load("clinc150", empty_root, download=True)
