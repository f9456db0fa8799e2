from __future__ import annotations

import contextlib
import pickle
import re
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from small_files import real_or_skip

from mixupmp.core.errors import BadData
from mixupmp.data import Standardize, load, load_path
from mixupmp.data.plain_pickle import read_plain_pickle

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 3072), np.uint8)
LABELS = [k % 10 for k in range(20)]


def write_cifar10(folder: Path, protocol: int = 2, text: bool = False) -> None:
    key = (lambda s: s) if text else str.encode
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        content = {key("batch_label"): key(name), key("labels"): LABELS, key("data"): PIXELS}
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    names = {key("label_names"): [key(f"class {k}") for k in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_cifar10_is_read_whatever_wrote_it(empty_root, protocol, text):
    write_cifar10(empty_root / "cifar-10-batches-py", protocol, text)
    dataset = load("CIFAR-10", empty_root)
    assert dataset.train.inputs.shape == (100, 3, 32, 32)
    assert torch.equal(dataset.test.inputs.reshape(20, -1), torch.from_numpy(PIXELS))
    assert dataset.test.labels.tolist() == LABELS
    assert dataset.classes[3] == "class 3"
    assert load_path(empty_root / "cifar-10-batches-py").train.inputs.shape == (100, 3, 32, 32)


def python2_pickle(raw: bytes) -> bytes:
    """A dict as Python 2 wrote it in 2009: keys and pixels are byte strings, numpy.core is where arrays live."""

    def short(s: bytes) -> bytes:
        return b"U" + bytes([len(s)]) + s

    kind = (
        b"cnumpy\ndtype\n"
        + short(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + short(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b") + b"\x87R"
    state = b"(K\x01K\x02M\x00\x0c\x86" + kind + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    labels = b"](K\x03K\x07e"
    return b"\x80\x02}(" + short(b"data") + array + state + short(b"labels") + labels + b"u."


def test_a_pickle_of_python_2_is_read(tmp_path):
    raw = bytes(PIXELS[:2].tobytes())
    path = tmp_path / "batch"
    path.write_bytes(python2_pickle(raw))
    content = read_plain_pickle(path)
    assert content[b"labels"] == [3, 7]
    assert np.array_equal(content[b"data"], PIXELS[:2])


@pytest.mark.parametrize(
    "array", [PIXELS, np.asfortranarray(PIXELS), np.arange(6.0).reshape(2, 3), np.arange(4, dtype=">i4")]
)
@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("spelling", ["numpy.core", "numpy._core"])
def test_arrays_survive_in_both_of_numpys_spellings(tmp_path, array, protocol, spelling):
    content = pickle.dumps([array, "text", b"bytes", {1: 2}], protocol)
    if protocol == 2:  # text opcodes, where the name has no length before it
        content = content.replace(b"cnumpy._core.", b"c" + spelling.encode() + b".")
    path = tmp_path / "file"
    path.write_bytes(content)
    got, *rest = read_plain_pickle(path)
    assert np.array_equal(got, array)
    assert rest == ["text", b"bytes", {1: 2}]


class Touch:
    """What a hostile pickle looks like: loading it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_foreign_class_is_refused_by_name_and_nothing_runs(empty_root, protocol):
    folder = empty_root / "cifar-10-batches-py"
    write_cifar10(folder)
    made = empty_root / "made"
    (folder / "data_batch_3").write_bytes(pickle.dumps({b"data": Touch(made)}, protocol))
    with pytest.raises(BadData, match=r"data_batch_3 asks for \S+, which is not plain data"):
        load("cifar10", empty_root)
    assert not made.exists()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"cbuiltins\neval\n(S'1'\ntR.", "builtins.eval"),
        (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0bndarray.dot\x93.", "numpy.ndarray.dot"),
    ],
)
def test_famous_gadgets_are_refused_by_name(tmp_path, content, name):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadData, match=f"asks for {re.escape(name)}"):
        read_plain_pickle(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps({b"data": PIXELS})[:-500],
        b"c_codecs\nencode\n(V1+1\nVrot13\ntR.",
        pickle.dumps(np.array([{"an": "object"}], dtype=object), 2),
        pickle.dumps(PIXELS, 2).replace(b"K\x14M\x00\x0c", b"K\x15M\x00\x0c"),  # one row more than there are bytes
        b"]\x94h\x00a.",  # a list that holds itself
        b"Pelsewhere\n.",  # a persistent id
    ],
)
def test_damaged_pickles_are_bad_data(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadData, match=re.escape(str(path))):
        read_plain_pickle(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "holds a list"),
        ({b"data": PIXELS}, "has no labels .it has data"),
        ({b"data": PIXELS, b"labels": LABELS[:-1]}, "20 images but 19 labels"),
        ({b"data": PIXELS[:, :-1], b"labels": LABELS}, r"\(20, 3071\)"),
        ({b"data": PIXELS.astype(float), b"labels": LABELS}, "float64"),
        ({b"data": b"pixels", b"labels": LABELS}, "found bytes"),
        ({b"data": PIXELS, b"labels": ["a"] * 20}, "whole numbers"),
        ({b"data": PIXELS, b"labels": [10] * 20}, "found 10"),
    ],
)
def test_a_batch_of_the_wrong_form_is_named(empty_root, content, message):
    folder = empty_root / "cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(BadData, match=message):
        load("cifar10", empty_root)


def test_cifar100_takes_the_fine_labels(empty_root):
    folder = empty_root / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        content = {b"fine_labels": [k + 50 for k in range(20)], b"coarse_labels": [0] * 20, b"data": PIXELS}
        (folder / name).write_bytes(pickle.dumps(content, 2))
    names = {b"fine_label_names": [b"f%d" % k for k in range(100)], b"coarse_label_names": [b"c"] * 20}
    (folder / "meta").write_bytes(pickle.dumps(names, 2))
    dataset = load("cifar100", empty_root)
    assert len(dataset.classes) == 100
    assert dataset.train.labels.tolist() == list(range(50, 70))
    assert load_path(folder).classes[7] == "f7"


def test_the_real_cifar10():
    dataset = real_or_skip("cifar10")
    assert dataset.train.inputs.shape == (50_000, 3, 32, 32)
    assert dataset.test.labels.bincount().tolist() == [1000] * 10
    assert dataset.classes[0] == "airplane"
    measured = Standardize.of(dataset.train.inputs)  # loosely: copies kept as JPEG differ a little
    assert measured.mean == pytest.approx(dataset.standardize.mean, abs=1e-3)
    assert measured.deviation == pytest.approx(dataset.standardize.deviation, abs=3e-3)


@pytest.mark.parametrize(
    "content",
    [
        b"]r\xff\xff\xff\x0f.",  # a list, put into the memo at an index of 268 million
        b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b"abc.",  # a bytearray of 8 GB
        b"(lp0\n0" + b"(g0\ng0\nlp0\n0" * 60 + b"g0\n.",  # two of two of two ...
        b"Vx" + b"x" * 100_000 + b"\np0\n0(" + b"c_codecs\nencode\n(g0\nVlatin1\ntR" * 20_000 + b"l.",
    ],
)
def test_a_small_pickle_takes_no_gigabytes_and_no_hours(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(BadData):
        read_plain_pickle(tmp_path / "file")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"
