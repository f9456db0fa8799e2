from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi import HTTPException
from hypothesis import given, settings
from hypothesis import strategies as st

from mixupmp import Categorical, Standardize, Task
from mixupmp.cli.inputs import read_inputs
from mixupmp.core.column_warnings import ColumnWarning, collected_warnings
from mixupmp.core.columns import Column, Columns
from mixupmp.core.encoders import Spectrogram
from mixupmp.core.fields import Fields
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.web.serve.inputs import form_file, from_image, from_json, from_npy, from_wave, takes
from mixupmp.web.serve.schemas import Limits

from .models import image_posterior, images, table_posterior

LIMITS = Limits(rows=10, pixels=10_000)
IMAGES, TABLE = image_posterior().task, table_posterior().task
COLOR = image_posterior(channels=3).task


def npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


def picture(size: tuple[int, int], mode: str = "L", kind: str = "PNG") -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.new(mode, size, 7).save(content, kind)
    return content.getvalue()


def test_all_ways_in_give_the_same_rows() -> None:
    rows = images(2)
    for given_rows in (rows.tolist(), rows[:, 0].tolist()):
        body = str({"inputs": given_rows}).replace("'", '"').encode()
        assert torch.equal(from_json(body, IMAGES, LIMITS), rows)
    assert torch.equal(from_npy(npy(rows.numpy()), IMAGES, LIMITS), rows)
    assert torch.equal(from_npy(npy(np.asfortranarray(rows.numpy())), IMAGES, LIMITS), rows)
    assert torch.equal(from_npy(npy(rows.numpy().astype(">i4")), IMAGES, LIMITS), rows)
    assert torch.equal(from_npy(npy(rows.permute(0, 2, 3, 1).numpy()), IMAGES, LIMITS), rows)
    single = str({"inputs": rows[0, 0].tolist()}).replace("'", '"').encode()
    assert torch.equal(from_json(single, IMAGES, LIMITS), rows[:1])


# Scaled as a dataset of sentences is, which packs its tokens.
TEXT = Task(
    Categorical(2), Fields.of(torch.zeros(1, 4, dtype=torch.int64)), (4,), ("a", "b"), Vocabulary(("hello", "world"), 4)
)


def test_sentences_are_rows_where_the_model_takes_them() -> None:
    found = from_json(b'{"inputs": ["Hello, world", "bye"]}', TEXT, LIMITS)
    assert found.tolist() == [[2, 1, 3, 0], [1, 0, 0, 0]]
    assert (takes(TEXT), takes(TABLE)) == ("sentences", "numbers")
    with pytest.raises(HTTPException, match="at most 10"):
        from_json(str({"inputs": ["hello"] * 11}).replace("'", '"').encode(), TEXT, LIMITS)
    with pytest.raises(HTTPException, match="no text"):
        from_json(b'{"inputs": ["Hello"]}', TABLE, LIMITS)
    with pytest.raises(HTTPException, match=r"no text|one length"):
        from_json(b'{"inputs": ["Hello", 3]}', TEXT, LIMITS)


COLUMNS = Columns((Column("size", "number", 2.0, True), Column("color", "category", categories=("blue", "red"))))
ROW = {"size": 1, "color": "red"}
MIXED = Task(Categorical(2), Standardize(), (4,), ("a", "b"), COLUMNS)


def test_rows_of_a_table_may_have_text_and_nulls_where_the_model_takes_them() -> None:
    assert takes(MIXED) == "columns"
    wanted = torch.tensor([[1.5, 0.0, 0.0, 1.0], [2.0, 1.0, 1.0, 0.0]])
    named = b'{"inputs": [{"color": "red", "size": 1.5, "id": 7}, {"size": null, "color": "blue"}]}'
    for body in (b'{"inputs": [[1.5, "red"], [null, "blue"]]}', named):
        assert torch.equal(from_json(body, MIXED, LIMITS), wanted)
    assert torch.equal(from_json(b'{"inputs": [1.5, "red"]}', MIXED, LIMITS), wanted[:1])
    assert torch.equal(from_json(b'{"inputs": {"size": 1.5, "color": "red"}}', MIXED, LIMITS), wanted[:1])


def test_numbers_far_from_zero_are_centered_before_they_become_float32() -> None:
    columns = Columns((Column("time", "number", 1.7e9, offset=1.7e9), Column("size", "number")))
    task = Task(Categorical(2), Standardize(), (2,), ("a", "b"), columns)
    wanted = torch.tensor([[3.0, 0.5]])
    assert torch.equal(from_json(b'{"inputs": [{"time": 1700000003, "size": 0.5}]}', task, LIMITS), wanted)
    body = io.BytesIO()
    np.save(body, np.array([[1.7e9 + 3, 0.5]]))
    assert torch.equal(from_npy(body.getvalue(), task, LIMITS), wanted)


@pytest.mark.parametrize("wanted", [True, False])
def test_text_in_a_column_of_numbers_is_read_as_in_a_csv_file(tmp_path: Path, wanted: bool) -> None:
    pandas = pytest.importorskip("pandas")
    columns = Columns.of(pandas.DataFrame({"member": [True, False, None], "age": [30.0, 40.0, 50.0]}))
    task = Task(Categorical(2), Standardize(), (3,), ("no", "yes"), columns)
    for member in (str(wanted), str(wanted).upper(), str(wanted).lower(), str(int(wanted))):
        (tmp_path / "row.csv").write_text(f"member,age\n{member},31.5\n{member},\n,NA\n")
        with pytest.warns(ColumnWarning, match="'age' has missing values"):
            expected = read_inputs(tmp_path / "row.csv", task)
        body = {"inputs": [[member, "31.5"], [json.loads(member.lower()), ""], ["", "NA"]]}
        with pytest.warns(ColumnWarning, match="'age' has missing values"):
            assert torch.equal(from_json(json.dumps(body).encode(), task, LIMITS), expected)
        assert expected[0].tolist() == [float(wanted), 0.0, 31.5]


@pytest.mark.parametrize("text", ["big", "1\r2", '1"\n2', "1\x002", "Truee", "\ufeff", "1,2", "'"])
def test_text_that_is_no_number_is_refused_in_a_column_of_numbers(text: str) -> None:
    with pytest.raises(HTTPException, match="must be numbers") as raised:
        from_json(json.dumps({"inputs": [[1.0, "red"], [text, "red"]]}).encode(), MIXED, LIMITS)
    assert raised.value.status_code == 422


def test_what_a_fit_has_not_seen_is_said_to_the_one_who_asks() -> None:
    with collected_warnings() as said:
        from_json(b'{"inputs": [[1.5, "pink"], [1.0, null]]}', MIXED, LIMITS)
    assert len(said) == 2
    assert "column 'color' has missing values" in said[0]
    assert "column 'color' has the new category 'pink'" in said[1]
    with pytest.warns(ColumnWarning, match="pink"):  # outside of the block as ever
        from_json(b'{"inputs": [[1.5, "pink"]]}', MIXED, LIMITS)


@pytest.mark.parametrize(
    "inputs",
    [
        [{"size": 1}],
        [ROW, {"size": 1}],
        [ROW, {"Size": 1, "color": "red"}],
        [[1, "red"], {}],
        [[1.0]],
        [["big", "red"]],
        [[1e39, "red"]],
        [[[1], "red"]],
        [[1, "red"], 3],
        [[10**400, "red"]],
    ],
)
def test_rows_that_are_not_of_the_columns_are_refused(inputs: list[object]) -> None:
    with pytest.raises(HTTPException) as raised:
        from_json(json.dumps({"inputs": inputs}).encode(), MIXED, LIMITS)
    assert raised.value.status_code == 422


def test_a_sound_is_a_row_where_the_model_takes_them() -> None:
    body = io.BytesIO()
    with wave.open(body, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.arange(3000, dtype="<i2").tobytes())
    spectrogram = Spectrogram(8000, 0.25)
    sound = Task(Categorical(2), Standardize(), (1, 64, 16), ("a", "b"), spectrogram)
    wanted = spectrogram([torch.arange(2000) / 2**15])
    assert torch.equal(from_wave(body.getvalue(), sound), wanted)
    assert takes(sound) == "sounds"
    for content, task, match in ((b"RIFF", sound, "WAV"), (body.getvalue(), TABLE, "the run takes rows of shape")):
        with pytest.raises(HTTPException, match=match):
            from_wave(content, task)


def test_numbers_that_are_no_pixels_stay_as_they_are() -> None:
    found = from_json(b'{"inputs": [[0.5, -1, 2, 300, 1e3]]}', TABLE, LIMITS)
    assert found.tolist() == [[0.5, -1, 2, 300, 1000]]
    assert from_json(b'{"inputs": [1, 2, 3, 4, 5]}', TABLE, LIMITS).dtype == torch.float32
    halves = torch.rand(2, 8, 8).tolist()
    assert from_json(str({"inputs": halves}).replace("'", '"').encode(), IMAGES, LIMITS).dtype == torch.float32


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b"null", b"{", b'{"inputs": []}', b'{"inputs": 3}', b'{"inputs": [NaN, 1, 1, 1, 1]}',
        b'{"inputs": [1e999, 1, 1, 1, 1]}', b'{"inputs": [-Infinity, 1, 1, 1, 1]}', b'{"inputs": [1e39, 1, 1, 1, 1]}',
        b'{"inputs": [1, 2]}', b'{"inputs": [[1, 2], [3]]}', b'{"inputs": ["a", "b", "c", "d", "e"]}',
        b'{"inputs": [true, true, true, true, true]}', b'{"inputs": [null, 1, 1, 1, 1]}',
        b'{"inputs": [1, 2, 3, 4, 5], "more": 1}', b'{"inputs": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"inputs": [1' + b"0" * 400 + b", 1, 1, 1, 1]}", b"\xff\xfe", b'{"inputs": {"a": 1}}',
    ],
)  # fmt: skip
def test_bad_json_is_refused(body: bytes) -> None:
    with pytest.raises(HTTPException) as refused:
        from_json(body, TABLE, LIMITS)
    assert refused.value.status_code == 422
    assert refused.value.detail


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(HTTPException) as refused:
        from_npy(npy(np.zeros((11, 5))), TABLE, LIMITS)
    assert refused.value.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x93NUMPY", npy(np.array([{"a": 1}], dtype=object)), npy(np.zeros((1, 5)))[:-1],
        npy(np.zeros((1, 5))) + b"x",
        npy(np.zeros((2, 5), dtype=complex)), npy(np.full((1, 5), np.nan)), npy(np.full((1, 5), 1e300)),
        npy(np.array(["a"] * 5)), npy(np.zeros((1, 5))).replace(b"(1, 5)", b"(9**9,"),
        npy(np.zeros((1, 5))).replace(b"(1, 5), }", b"(10**15,)}"), npy(np.zeros((0, 5))), npy(np.float64(3)),
        b"\x93NUMPY\x03\x00" + b"\xff" * 100, b"\x93NUMPY\x02\x00" + b"\xff" * 100,
    ],
)  # fmt: skip
def test_bad_arrays_are_refused(body: bytes) -> None:
    with pytest.raises(HTTPException) as refused:
        from_npy(body, TABLE, LIMITS)
    assert refused.value.status_code == 422


def test_images_are_brought_into_the_models_channels_and_size() -> None:
    assert from_image(picture((8, 8)), IMAGES, LIMITS, False).tolist() == torch.full((1, 1, 8, 8), 7).tolist()
    assert from_image(picture((8, 8), "RGB", "JPEG"), IMAGES, LIMITS, False).shape == (1, 1, 8, 8)
    assert from_image(picture((8, 8)), COLOR, LIMITS, False).shape == (1, 3, 8, 8)
    assert from_image(picture((20, 30)), IMAGES, LIMITS, True).shape == (1, 1, 8, 8)
    with pytest.raises(HTTPException, match="resize"):
        from_image(picture((20, 30)), IMAGES, LIMITS, False)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"GIF89a", 422), (picture((8, 8))[:40], 422), (picture((200, 200)), 413), (b"", 422)],
)
def test_bad_images_are_refused(body: bytes, status: int) -> None:
    with pytest.raises(HTTPException) as refused:
        from_image(body, IMAGES, LIMITS, True)
    assert refused.value.status_code == status


def test_a_table_takes_no_images() -> None:
    with pytest.raises(HTTPException, match="not images"):
        from_image(picture((8, 8)), TABLE, LIMITS, True)


def test_the_file_of_a_form_is_found_whole() -> None:
    content = bytes(range(256)) + b"\r\n--other\r\n\r\n"
    head = b'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\nContent-Type: Image/PNG\r\n\r\n'
    body = head + file + content + b"\r\n--b--\r\n"
    for told in ("multipart/form-data; boundary=b", 'multipart/form-data; boundary="b"; charset=x'):
        assert form_file(told, body) == ("image/png", content)
    right, wrong = "multipart/form-data; boundary=b", "multipart/form-data; boundary=c"
    for told, spoilt in (("multipart/form-data", body), (wrong, body), (right, head)):
        with pytest.raises(HTTPException, match="form"):
            form_file(told, spoilt)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_do_worse_than_be_refused(body: bytes, magic: bool) -> None:
    for read in (from_json, from_npy):
        try:
            rows = read((b"\x93NUMPY\x01\x00v\x00" if magic else b"") + body, TABLE, LIMITS)
        except HTTPException:
            continue
        assert rows.shape[1:] == (5,)
