"""Files of data, by the reader that `--data` and `load_path` use."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from tests.fuzz.mutate import joined, mutated
from tests.fuzz.nearby import GZIP, near_bytes, near_gzip, near_image, near_values, near_zip, png_chunks, png_of
from tests.fuzz.target import Check, Target

from mixupmp.data import Dataset, load_path
from mixupmp.data.cifar import CIFAR10, PIXELS
from mixupmp.data.idx import FILES
from mixupmp.data.images import read_image

NUMERIC = (
    arrays.integer_dtypes() | arrays.unsigned_integer_dtypes() | arrays.floating_dtypes() | arrays.boolean_dtypes()
)
TEXT = arrays.unicode_string_dtypes(max_len=3) | arrays.byte_string_dtypes(max_len=3)
DTYPES = st.one_of(NUMERIC, NUMERIC, TEXT, arrays.complex_number_dtypes(), arrays.datetime64_dtypes())
ARRAYS = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6))


def _checked(dataset: Dataset) -> None:
    """A dataset that was accepted can be trained on."""
    for rows in (dataset.train, dataset.test):
        assert not rows.inputs.is_floating_point() or bool(torch.isfinite(rows.inputs).all())
        assert 0 <= int(rows.labels.min()) <= int(rows.labels.max()) < len(dataset.classes)
        assert len(rows.inputs) == len(rows.labels)


def _idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def _idx_seeds() -> list[bytes]:
    images = np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4)
    return [_idx(images), _idx(np.arange(6, dtype=np.uint8) % 3), _idx(images[:0])]


def _near_idx(content: bytes, chance: random.Random) -> bytes:
    """Mostly as many bytes as the header says."""
    return (near_values if chance.random() < 0.7 else near_bytes)(content, chance)


def _idx_valid() -> list[bytes]:
    return [packed for seed in _idx_seeds()[:2] for packed in (seed, _gzip([seed]))]


def _prepare_idx(scratch: Path) -> Check:
    images, labels, _ = _idx_seeds()
    for name in FILES:
        (scratch / name).write_bytes(images if "images" in name else labels)

    def check(content: bytes) -> None:
        name = FILES[0] if len(content) > 40 else FILES[1]
        plain, packed = scratch / name, scratch / f"{name}.gz"
        original = plain.read_bytes()
        if content.startswith(GZIP):
            plain.unlink()
            packed.write_bytes(content)
        else:
            plain.write_bytes(content)
        try:
            _checked(load_path(scratch))
        finally:
            packed.unlink(missing_ok=True)
            plain.write_bytes(original)

    return check


def _gzip(parts: list[bytes]) -> bytes:
    return b"".join(gzip.compress(part, mtime=0) for part in parts)


def _packed(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """As they are, in a gzip file, and as a damaged gzip file."""
    return st.one_of(
        mutated(seeds), mutated(seeds), joined([[seed] for seed in seeds], _gzip), mutated([_gzip([s]) for s in seeds])
    )


def _batch(rows: int = 2, protocol: int = 2, keys: type = bytes) -> bytes:
    content = {"data": np.full((rows, PIXELS), 7, np.uint8), "labels": [0, 1][:rows], "batch_label": "x"}
    named = {key.encode() if keys is bytes else key: value for key, value in content.items()}
    return pickle.dumps(named, protocol)


def _pickles() -> st.SearchStrategy[bytes]:
    values = st.recursive(
        st.none()
        | st.integers()
        | st.text(max_size=5)
        | st.binary(max_size=9)
        | ARRAYS
        | st.sampled_from([dict, print]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "labels"]), inner),
        max_leaves=5,
    )
    content = st.fixed_dictionaries({"data": values, "labels": values})
    return st.builds(pickle.dumps, content, st.integers(0, 5))


def _prepare_cifar(scratch: Path) -> Check:
    for name in CIFAR10.files:
        (scratch / name).write_bytes(_batch())
    (scratch / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a", b"b"]}, 2))

    def check(content: bytes) -> None:
        name = "batches.meta" if b"label_names" in content else "data_batch_1"
        original = (scratch / name).read_bytes()
        (scratch / name).write_bytes(content)
        try:
            _checked(load_path(scratch))
        finally:
            (scratch / name).write_bytes(original)

    return check


def _cifar_cases() -> st.SearchStrategy[bytes]:
    seeds = [_batch(), _batch(1, 0), _batch(2, 5, str), pickle.dumps({b"label_names": [b"a", b"b"]}, 2)]
    return st.one_of(mutated(seeds), mutated(seeds), _pickles())


def _npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


NAMES = ("X.npy", "y.npy")


def _zip(parts: list[bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, part in enumerate(parts):
            archive.writestr(zipfile.ZipInfo(NAMES[number] if number < 2 else f"{number}.npy"), part)
    return content.getvalue()


def _npz_cases() -> st.SearchStrategy[bytes]:
    parts = [
        [_npy(np.linspace(0, 1, 40).reshape(10, 4)), _npy(np.arange(10) % 2)],
        [_npy(np.arange(10 * 64, dtype=np.uint8).reshape(10, 8, 8)), _npy(np.array(list("abababccab")))],
        [_npy(np.zeros((10, 2))), _npy(np.array([{}] * 10, dtype=object))],
    ]
    whole = [_zip(part) for part in parts]
    built = st.tuples(ARRAYS, ARRAYS).map(lambda pair: _zip([_npy(array) for array in pair]))
    return st.one_of(joined(parts, _zip), joined(parts, _zip), mutated(whole), built)


def _prepare_file(name: str) -> Callable[[Path], Check]:
    def prepare(scratch: Path) -> Check:
        def check(content: bytes) -> None:
            path = scratch / (f"{name}.gz" if name == "table.csv" and content.startswith(GZIP) else name)
            path.write_bytes(content)
            _checked(load_path(path))

        return check

    return prepare


def _csv_cases() -> st.SearchStrategy[bytes]:
    lines = [f"{k},{k * 0.5},{'ab'[k % 2]}" for k in range(10)]
    seeds = [
        "\n".join(["x,z,label", *lines]).encode(),
        "\n".join(["x,label", *(f"{k},{k % 3}" for k in range(9))]).encode(),
    ]
    odd = (
        "",
        "NaN",
        "inf",
        "1e999",
        "-1e400",
        "9" * 400,
        "0x1F",
        "1_000",
        "1;2",
        '"',
        '"a\nb"',
        "True",
        "2020-01-01",
        "1+2j",
    )
    cell = st.sampled_from(odd) | st.integers().map(str) | st.floats().map(repr) | st.text(max_size=4)
    rows = st.lists(st.lists(cell, max_size=4).map(",".join), min_size=1, max_size=12).map("\n".join)
    table = rows.map(lambda text: f"x,z,label\n{text}".encode("utf-8", "surrogatepass"))
    return st.one_of(_packed(seeds), table)


def _parquet(table: pyarrow.Table) -> bytes:
    content = io.BytesIO()
    pyarrow.parquet.write_table(table, content)
    return content.getvalue()


def _parquet_cases() -> st.SearchStrategy[bytes]:
    columns: list[dict[str, object]] = [
        {"x": list(range(10)), "label": ["a", "b"] * 5},
        {"x": [0.5] * 10, "z": [None, *range(9)], "label": [k % 2 for k in range(10)]},
        {"x": [[1, 2]] * 10, "label": ["a", "b"] * 5},
        {"x": [{"a": 1}] * 10, "label": [None] * 10},
        {"x": [b"\xff"] * 10, "label": [1.5] * 10},
        {"x": [10**12] * 10, "label": [True, False] * 5},
    ]
    return mutated([_parquet(pyarrow.table(each)) for each in columns])


def _images() -> list[bytes]:
    image = Image.radial_gradient("L").resize((12, 10))
    exif = Image.Exif()
    exif[0x0112] = 6
    found = []
    for kind, mode in (
        *(("PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
        *(("JPEG", "L"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("WEBP", "RGBA"), ("BMP", "P"), ("BMP", "RGB")),
        *(("GIF", "P"), ("TIFF", "L"), ("TIFF", "RGB"), ("TIFF", "F")),
    ):
        content = io.BytesIO()
        options = {"exif": exif} if kind in ("PNG", "JPEG", "WEBP") else {}
        image.convert(mode).save(content, kind, **options)
        found.append(content.getvalue())
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"):
        content = io.BytesIO()
        image.save(content, "TIFF", compression=compression)
        found.append(content.getvalue())
    return found


def _image_cases() -> st.SearchStrategy[bytes]:
    seeds = _images()
    chunks = [png_chunks(seed) for seed in seeds if seed.startswith(b"\x89PNG")]
    return st.one_of(mutated(seeds), mutated(seeds), joined(chunks, png_of))


def _prepare_image(scratch: Path) -> Check:
    for kind in ("cat", "dog"):
        (scratch / kind).mkdir()
        for number in range(3):
            Image.new("RGB", (8, 8), "red").save(scratch / kind / f"{number}.png")

    def check(content: bytes) -> None:
        (scratch / "cat" / "0.png").write_bytes(content)
        _checked(load_path(scratch, size=8, test_fraction=0.34))
        assert read_image(content, (3, 8, 8), resize=True, name="image").shape == (1, 3, 8, 8)

    return check


TARGETS = (
    Target("idx", _prepare_idx, lambda: _packed(_idx_seeds()), near_gzip(_near_idx), _idx_valid),
    Target("cifar", _prepare_cifar, _cifar_cases),
    Target("npz", _prepare_file("arrays.npz"), _npz_cases, near_zip),
    Target("csv", _prepare_file("table.csv"), _csv_cases, near_gzip(near_bytes)),
    Target("parquet", _prepare_file("table.parquet"), _parquet_cases),
    Target("image", _prepare_image, _image_cases, near_image),
)
