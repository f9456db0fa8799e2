from __future__ import annotations

import numpy as np
import pytest
import torch

from mixupmp.core.errors import BadData, DataNotFound, InvalidArgument
from mixupmp.data import CORRUPTIONS, find_corrupted, read_corrupted

RNG = np.random.default_rng(0)


def published(folder, images, labels):
    folder.mkdir(parents=True)
    for name in CORRUPTIONS:
        np.save(folder / f"{name}.npy", images)
    np.save(folder / "labels.npy", labels)
    return folder


def test_a_severity_is_its_fifth_of_the_rows(empty_root):
    images = RNG.integers(0, 256, (50, 32, 32, 3), np.uint8)
    labels = np.tile(np.arange(10, dtype=np.uint8), 5)
    folder = published(empty_root / "CIFAR-10-C", images, labels)
    assert find_corrupted("cifar10", empty_root) == folder
    assert find_corrupted("cifar100", empty_root) is None
    for severity in range(1, 6):
        rows = read_corrupted(folder, "fog", severity)
        expected = images[10 * (severity - 1) : 10 * severity].transpose(0, 3, 1, 2)
        assert torch.equal(rows.inputs, torch.from_numpy(expected.copy()))
        assert rows.labels.tolist() == list(range(10))
        assert rows.labels.dtype == torch.int64


@pytest.mark.parametrize("shape", [(20, 8, 8), (20, 8, 8, 1), (20, 3, 3, 1), (20, 1, 3, 3)])
def test_other_sizes_and_gray_are_read(empty_root, shape):
    folder = published(empty_root / "digits-c", RNG.integers(0, 256, shape, np.uint8), np.zeros(20, np.int64))
    assert find_corrupted("digits", empty_root) == folder
    height, width, channels = (*shape[1:], 1)[:3]
    assert read_corrupted(folder, "fog", 5).inputs.shape == (4, channels, height, width)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((50, 32, 32, 3)), np.zeros(50, int), "float64"),
        (np.zeros((50, 32, 32, 3), np.uint8), np.zeros(45, int), "50 images and 45 labels"),
        (np.zeros((51, 32, 32, 3), np.uint8), np.zeros(51, int), "five blocks"),
        (np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, int), "0 images"),
        (np.zeros((50, 3072), np.uint8), np.zeros(50, int), "uint8 .50, 3072"),
        (np.zeros((50, 32, 32, 3), np.uint8), np.zeros(50), "whole number"),
        (np.array([{}] * 5), np.zeros(5, int), "cannot be read"),
    ],
)
def test_files_of_the_wrong_form_are_named(tmp_path, images, labels, message):
    folder = published(tmp_path / "c", images, labels)
    with pytest.raises(BadData, match=message):
        read_corrupted(folder, "fog", 1)


def test_truncated_and_missing_files_and_bad_severities(tmp_path):
    folder = published(tmp_path / "c", np.zeros((50, 32, 32, 3), np.uint8), np.zeros(50, int))
    path = folder / "fog.npy"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadData, match=r"fog\.npy cannot be read as an array: .* It may be truncated"):
        read_corrupted(folder, "fog", 1)
    with pytest.raises(DataNotFound, match=r"smog\.npy"):
        read_corrupted(folder, "smog", 1)
    for severity in (0, 6, 1.5):
        with pytest.raises(InvalidArgument, match="severity"):
            read_corrupted(folder, "snow", severity)
