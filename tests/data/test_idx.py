from __future__ import annotations

import gzip
import re

import numpy as np
import pytest
import torch
from small_files import idx_bytes, real_or_skip, write_idx_folder

from mixupmp.core.errors import BadData
from mixupmp.data import Standardize, idx, load, load_path


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist"])
def test_mnist_is_read_plain_and_gzipped_from_each_folder(empty_root, folder, zipped):
    images = write_idx_folder(empty_root / folder)
    if zipped:
        for path in list((empty_root / folder).iterdir()):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    dataset = load("mnist", empty_root)
    assert torch.equal(dataset.train.inputs, torch.from_numpy(images).unsqueeze(1))
    assert dataset.train.labels.tolist() == [k % 10 for k in range(30)]
    assert dataset.standardize == Standardize((0.1307,), (0.3081,))


def test_fashion_mnist_has_names_and_its_own_folder(empty_root):
    write_idx_folder(empty_root / "FashionMNIST" / "raw")
    dataset = load("FMNIST", empty_root)
    assert dataset.name == "fashion-mnist"
    assert dataset.classes[9] == "Ankle boot"
    assert dataset.standardize == Standardize((0.2860,), (0.3530,))
    assert load_path(empty_root / "FashionMNIST" / "raw").classes == tuple("0123456789")


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kept", [0, 3, 7, 15, 16, 100, 495])
def test_a_truncated_file_is_named_with_its_sizes(tmp_path, kept, zipped):
    whole = idx_bytes(np.zeros((30, 4, 4), np.uint8))
    assert len(whole) == 496
    path = tmp_path / ("images.gz" if zipped else "images")
    path.write_bytes(gzip.compress(whole[:kept]) if zipped else whole[:kept])
    with pytest.raises(BadData, match=re.escape(str(path))) as caught:
        idx.read_idx(path)
    if kept >= 16:
        assert f"truncated: expected 496 bytes for shape (30, 4, 4), found {kept}" in str(caught.value)


def test_a_gzip_cut_short_is_named(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.arange(200, dtype=np.uint8).reshape(2, 10, 10)))[:-30])
    with pytest.raises(BadData, match=r"images\.gz cannot be read as a gzip file"):
        idx.read_idx(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG" + bytes(20), "not an IDX file: it starts with 89504e47"),
        (b"\0\0\x0d\1" + bytes(4), "type 0x0d"),
        (idx_bytes(np.zeros(3, np.uint8)) + b"!", "too long: expected 11 bytes .* found 12"),
    ],
)
def test_other_files_are_not_taken_for_idx(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadData, match=message):
        idx.read_idx(path)


def test_files_that_do_not_fit_each_other_are_named(empty_root):
    folder = empty_root / "mnist"
    write_idx_folder(folder)
    labels = folder / "t10k-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(np.zeros(29, np.uint8)))
    with pytest.raises(BadData, match="30 images but t10k-labels-idx1-ubyte has 29 labels"):
        load("mnist", empty_root)
    labels.write_bytes(idx_bytes(np.zeros((30, 1), np.uint8)))
    with pytest.raises(BadData, match="2 dimensions"):
        load("mnist", empty_root)
    labels.write_bytes(idx_bytes(np.full(30, 10, np.uint8)))
    with pytest.raises(BadData, match=r"0\.\.9 for 10 classes, found 10"):
        load("mnist", empty_root)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_files_have_the_published_size_and_scale(name):
    dataset = real_or_skip(name)
    assert dataset.train.inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test.inputs.shape == (10_000, 1, 28, 28)
    measured = Standardize.of(dataset.train.inputs)
    assert measured.mean == pytest.approx(dataset.standardize.mean, abs=1e-4)
    assert measured.deviation == pytest.approx(dataset.standardize.deviation, abs=1e-4)
