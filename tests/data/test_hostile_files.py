"""Files that are damaged or made to harm: refused by name, before they cost memory or start anything."""

from __future__ import annotations

import gzip
import io
import os
import resource
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mixupmp.core.errors import BadData
from mixupmp.data import idx, load_path
from mixupmp.data.files import MIB, most_unpacked

pytest.importorskip("pandas")
Image = pytest.importorskip("PIL.Image")
MEMORY = 300 * MIB  # what refusing a file may take at most


def peak_of(path: Path, **options: int) -> int:
    """The bytes that refusing a file took at its worst."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    tracemalloc.start()
    try:
        with pytest.raises(BadData, match=path.name):
            load_path(path, **options)  # type: ignore[arg-type]
        return max(
            tracemalloc.get_traced_memory()[1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        )
    finally:
        tracemalloc.stop()


def image_folder(root: Path, content: bytes, name: str = "bad.png") -> Path:
    folder = root / "pets"
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), "red").save(folder / kind / f"{number}.png")
    (folder / "dog" / name).write_bytes(content)
    return folder


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_bomb(side: int) -> bytes:
    """A file of some kB that claims an RGB image of side x side."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    squeeze = zlib.compressobj(9)
    pixels = b"".join(squeeze.compress(bytes(1 + 3 * side)) for _ in range(side)) + squeeze.flush()
    parts = (png_chunk(b"IHDR", header), png_chunk(b"IDAT", pixels), png_chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_an_image_of_another_format_is_not_decoded_whatever_its_name(tmp_path: Path, monkeypatch) -> None:
    from PIL import EpsImagePlugin

    def ghostscript(*_: object, **__: object) -> None:
        pytest.fail("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", ghostscript)
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "EPS")
    with pytest.raises(BadData, match=r"bad\.png cannot be read as an image \(PNG, JPEG, WEBP, BMP, GIF, TIFF\)"):
        load_path(image_folder(tmp_path, buffer.getvalue()))


def test_an_image_of_too_many_pixels_is_refused_by_its_header(tmp_path: Path) -> None:
    bomb = png_bomb(8000)
    assert len(bomb) < 300_000
    folder = image_folder(tmp_path, bomb)
    tracemalloc.start()
    with pytest.raises(BadData, match=r"bad\.png has 8000 x 8000 pixels; at most 50,000,000"):
        load_path(folder, size=8)
    assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    tracemalloc.stop()


def test_orientation_and_transparency_are_honored(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
    lying = Image.new("RGB", (6, 4), "black")
    lying.paste("white", (0, 0, 2, 4))  # the left third, which is the top of the upright image
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise
    for number in range(3):
        lying.save(folder / "cat" / f"{number}.png", exif=exif)
        Image.new("RGBA", (4, 6), (0, 0, 0, 0)).save(folder / "dog" / f"{number}.png")  # black, but not to be seen
    dataset = load_path(folder, test_fraction=0.34)
    assert dataset.train.inputs.shape[1:] == (3, 6, 4), "upright"
    cat, dog = (dataset.train.inputs[dataset.train.labels == k][0] for k in (0, 1))
    assert cat[:, :2].eq(255).all()
    assert cat[:, 2:].eq(0).all()
    assert dog.eq(255).all(), "transparent pixels are white"


def gzip_of(path: Path, content: bytes, repeats: int, start: bytes = b"") -> Path:
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(start)
        for _ in range(repeats):
            file.write(content)
    return path


def test_compressed_files_that_unpack_to_too_much_are_refused(tmp_path: Path) -> None:
    block = bytes(16 * MIB)
    csv = gzip_of(tmp_path / "bomb.csv.gz", b"0,0,0,0\n" * (2 * MIB), 6, b"a,b,c,d\n")
    assert peak_of(csv) < MEMORY
    folder = tmp_path / "idx"
    folder.mkdir()
    shape = b"\0\0\x08\3" + struct.pack(">III", 6, 4096, 4096)
    for name in idx.FILES:
        gzip_of(folder / f"{name}.gz", block, 6 if name == idx.FILES[0] else 0, shape)
    with pytest.raises(BadData, match="would unpack"):
        load_path(folder)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (6, 16 * MIB)})
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + 6 * block)
    assert peak_of(tmp_path / "bomb.npz") < MEMORY


def test_what_real_data_compress_to_is_read() -> None:
    assert most_unpacked(100) == 64 * MIB
    assert most_unpacked(9 * MIB) > 5 * 47 * MIB, "Fashion-MNIST unpacks to 47 MB from 26"
    assert most_unpacked(500 * MIB) == 20 * 500 * MIB


def test_an_array_that_claims_more_than_it_has_takes_no_memory(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40, 8)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(64))
    assert peak_of(tmp_path / "a.npz") < MEMORY


def npz_parts(tmp_path: Path) -> tuple[bytes, int]:
    path = tmp_path / "whole.npz"
    np.savez_compressed(path, x=np.arange(60.0).reshape(30, 2), y=np.arange(30) % 2)
    content = path.read_bytes()
    return content, content.index(b"x.npy") + 5


@pytest.mark.parametrize("fault", ["deflate", "name", "method", "encrypted", "header", "version"])
def test_a_damaged_npz_is_named(tmp_path: Path, fault: str) -> None:
    content, start = npz_parts(tmp_path)
    damaged = bytearray(content)
    if fault == "deflate":  # zlib.error
        damaged[start + 20 : start + 40] = b"\xff" * 20
    elif fault == "name":  # KeyError or BadZipFile: the directory names what is not there
        damaged[content.rindex(b"y.npy")] = ord("z")
    elif fault == "method":  # NotImplementedError
        damaged[content.index(b"PK\1\2") + 10] = 77
    elif fault == "encrypted":  # RuntimeError
        damaged[content.index(b"PK\1\2") + 8] |= 1
    path = tmp_path / "damaged.npz"
    if fault in ("header", "version"):
        text = (
            b"\x93NUMPY" + (b"\1\0" if fault == "header" else b"\7\0") + struct.pack("<H", 8) + b"{'a': (\n"
        )  # TokenError
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", text)
    else:
        path.write_bytes(damaged)
    with pytest.raises(BadData, match=r"damaged\.npz"):
        load_path(path)


DAMAGED = {
    "gzip": b"\x1f\x8b\x08\0" + b"\xff" * 60,
    "parquet": b"PAR1" + b"\xee" * 80 + b"PAR1",
    "zeros": b"\0" * 40,
    "quote": b'a,"b\n1',
}


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv", "t.tsv", "t.parquet"])
@pytest.mark.parametrize(
    "content", [b"\x1f\x8b\x08\0" + b"\xff" * 60, b"PAR1" + b"\xee" * 80 + b"PAR1", b"\0" * 40, b'a,"b\n1']
)
def test_a_damaged_table_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=name):
        load_path(tmp_path / name)


def test_a_gzip_whose_deflated_stream_is_damaged_is_named(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b"a,b\n" + b"1.5,2\n0.5,1\n" * 400))
    content[20:30] = b"\xff" * 10  # zlib.error, which is no OSError
    (tmp_path / "t.csv.gz").write_bytes(content)
    with pytest.raises(BadData, match=r"t\.csv\.gz"):
        load_path(tmp_path / "t.csv.gz")


def test_a_parquet_of_millions_of_equal_cells_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    block = pyarrow.table({name: np.zeros(4 * MIB) for name in "abcd"})
    with parquet.ParquetWriter(tmp_path / "t.parquet", block.schema) as writer:
        for _ in range(2):
            writer.write_table(block)
    assert (tmp_path / "t.parquet").stat().st_size < MIB
    with pytest.raises(BadData, match=r"t\.parquet would unpack"):
        load_path(tmp_path / "t.parquet")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["arrays.npz", "images/cat/0.png", "sounds/cat/0.wav"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_pipes_and_devices_are_refused_and_not_waited_for(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    with pytest.raises(BadData, match=rf"{path.name} is not a plain file"):
        load_path(path if path.parent == tmp_path else path.parents[1])
