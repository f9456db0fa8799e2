from __future__ import annotations

import numpy as np
import pytest
import torch

from mixupmp.core.errors import BadData, DataNotFound, InvalidArgument
from mixupmp.core.methods import deep_ensemble
from mixupmp.data import load_path
from mixupmp.train.plans import plan_for

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(40, 3))
LABELS = np.arange(40) % 4


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_a_split_of_ones_own_is_kept(tmp_path):
    path = saved(tmp_path / "a.npz", X_train=TABLE[:30], y_train=LABELS[:30], X_test=TABLE[30:], y_test=LABELS[30:])
    dataset = load_path(path)
    assert dataset.name == "a"
    torch.testing.assert_close(dataset.test.inputs, torch.from_numpy(TABLE[30:]).float())
    assert dataset.test.labels.tolist() == LABELS[30:].tolist()
    assert dataset.classes == ("0", "1", "2", "3")
    torch.testing.assert_close(dataset.standardize(dataset.train.inputs).mean(0), torch.zeros(3), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("x", "y"), [("X", "y"), ("x", "y"), ("X", "Y")])
def test_rows_without_a_split_are_split_evenly(tmp_path, x, y):
    path = saved(tmp_path / "a.npz", **{x: TABLE, y: LABELS})
    dataset = load_path(path, test_fraction=0.5, seed=1)
    assert dataset.test.labels.bincount().tolist() == [5, 5, 5, 5]
    assert torch.equal(dataset.test.inputs, load_path(path, test_fraction=0.5, seed=1).test.inputs)
    assert not torch.equal(dataset.test.inputs, load_path(path, test_fraction=0.5, seed=2).test.inputs)


def test_all_rows_for_a_test_leave_none_to_train_on(tmp_path):
    path = saved(tmp_path / "a.npz", x=TABLE, y=np.full(40, 7))
    dataset = load_path(path, test_fraction=1)
    assert len(dataset.train) == 0
    torch.testing.assert_close(dataset.test.inputs, torch.from_numpy(TABLE).float())
    assert dataset.classes == ("7",)
    with pytest.raises(BadData, match="no training rows"):
        plan_for(load_path(saved(path, x=TABLE, y=LABELS), test_fraction=1), deep_ensemble())


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array(["dog", "cat", "cow", "ant"] * 10), ("ant", "cat", "cow", "dog")),
        (np.array([b"dog", b"cat"] * 20), ("cat", "dog")),
        (np.array([10, 9, -1, 100] * 10), ("-1", "9", "10", "100")),
        (np.array([2.0, 1.0] * 20), ("1", "2")),
        (np.array([True, False] * 20), ("False", "True")),
        ((np.arange(40) % 2)[:, None], ("0", "1")),
    ],
)
def test_labels_of_any_kind_become_classes(tmp_path, labels, classes):
    dataset = load_path(saved(tmp_path / "a.npz", x=TABLE, y=labels))
    assert dataset.classes == classes
    flat = (
        [x.decode() if isinstance(x, bytes) else str(x) for x in labels.astype(int).flat]
        if labels.dtype.kind == "f"
        else [x.decode() if isinstance(x, bytes) else str(x) for x in labels.ravel().tolist()]
    )
    for row, label in zip(dataset.train.inputs, dataset.train.labels, strict=True):
        at = int(np.argmin(np.abs(TABLE - row.numpy()).sum(1)))
        assert dataset.classes[int(label)] == flat[at]


@pytest.mark.parametrize(
    ("shape", "kind", "expected", "dtype"),
    [
        ((40, 8, 8), np.uint8, (1, 8, 8), torch.uint8),
        ((40, 8, 7, 3), np.uint8, (3, 8, 7), torch.uint8),
        ((40, 3, 8, 7), np.uint8, (3, 8, 7), torch.uint8),
        ((40, 1, 8, 8), np.int64, (1, 8, 8), torch.uint8),
        ((40, 8, 8, 1), np.float32, (1, 8, 8), torch.float32),
        ((40, 5), np.uint8, (5,), torch.float32),
        ((40,), np.float64, (1,), torch.float32),
    ],
)
def test_images_are_known_by_their_shape(tmp_path, shape, kind, expected, dtype):
    array = RNG.integers(0, 256, shape).astype(kind)
    dataset = load_path(saved(tmp_path / "a.npz", x=array, y=LABELS))
    assert dataset.train.inputs.shape[1:] == expected
    assert dataset.train.inputs.dtype == dtype
    if shape == (40, 8, 7, 3):
        assert any(np.array_equal(dataset.test.inputs[0].permute(1, 2, 0).numpy(), image) for image in array)


NAN = TABLE.copy()
NAN[7, 1] = np.nan
HUGE = TABLE.copy()
HUGE[5, 0] = 1e300


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": TABLE, "y": LABELS[:-1]}, "40 rows of inputs but 39 labels"),
        ({"x": TABLE, "y": LABELS * 0}, "1 class"),
        ({"x": TABLE[:0], "y": LABELS[:0]}, "no labels"),
        ({"x": NAN, "y": LABELS}, "NaN or infinity .first in row 7"),
        ({"x": HUGE, "y": LABELS}, "NaN or infinity .first in row 5"),
        ({"x": TABLE, "y": LABELS + 0.5}, "found the number 0.5"),
        ({"x": TABLE, "y": np.where(LABELS == 0, np.nan, LABELS)}, "labels hold NaN"),
        ({"x": TABLE, "y": np.eye(4)[LABELS]}, "argmax"),
        ({"x": TABLE.astype(str), "y": LABELS}, "not numbers"),
        ({"x": TABLE, "y": LABELS.astype(complex)}, "complex128"),
        ({"x": TABLE, "y": LABELS.astype(object)}, r"astype\(str\)"),
        ({"inputs": TABLE, "y": LABELS}, "it holds inputs, y"),
        ({"x_train": TABLE, "y_train": LABELS, "x_test": TABLE}, "must hold"),
        (
            {"x_train": TABLE, "y_train": LABELS, "x_test": TABLE[:, :2], "y_test": LABELS},
            r"\(3,\) but test rows \(2,\)",
        ),
        ({"x_train": TABLE, "y_train": LABELS, "x_test": TABLE, "y_test": LABELS + 1}, "of 4 there are test rows"),
        ({"x_train": TABLE, "y_train": LABELS, "x_test": NAN, "y_test": LABELS}, "test inputs hold NaN"),
        ({"x_train": TABLE, "y_train": LABELS[:5], "x_test": NAN, "y_test": LABELS[:2]}, "40 rows of inputs but 5"),
    ],
)
def test_arrays_that_cannot_be_used_are_named(tmp_path, arrays, message):
    path = saved(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadData, match=message) as caught:
        load_path(path)
    assert "a" in str(caught.value)


def test_images_and_scaled_images_do_not_mix(tmp_path):
    images = RNG.integers(0, 256, (40, 1, 4, 4)).astype(np.uint8)
    path = saved(tmp_path / "a.npz", X_train=images, y_train=LABELS, X_test=images / 255, y_test=LABELS)
    with pytest.raises(BadData, match="uint8 but X_test float64"):
        load_path(path)


def test_damaged_missing_and_unknown_files_are_named(tmp_path):
    path = saved(tmp_path / "a.npz", x=TABLE, y=LABELS)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadData, match=r"a\.npz cannot be read"):
        load_path(path)
    np.save(tmp_path / "b.npy", TABLE)
    with pytest.raises(BadData, match=r"b\.npy is of an unknown kind"):
        load_path(tmp_path / "b.npy")
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(BadData, match="a single array"):
        load_path(tmp_path / "b.npz")
    with pytest.raises(DataNotFound, match=r"nowhere\.npz does not exist"):
        load_path(tmp_path / "nowhere.npz")


def test_options_that_do_not_belong_are_refused(tmp_path):
    path = saved(tmp_path / "a.npz", x=TABLE, y=LABELS)
    with pytest.raises(InvalidArgument, match="label"):
        load_path(path, label="species")
    with pytest.raises(InvalidArgument, match="size"):
        load_path(path, size=32)
    with pytest.raises(InvalidArgument, match="test_fraction"):
        load_path(path, test_fraction=1.5)


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (np.float64(3), LABELS),
        (TABLE, np.int64(1)),
        (np.float64(3), np.int64(1)),
        (TABLE, np.full(40, 0x7FFFFFFF, np.uint32).view("<U1")),
    ],
)
def test_single_numbers_and_text_of_no_characters_are_refused(tmp_path, inputs, labels):
    with pytest.raises(BadData, match=r"a\.npz"):
        load_path(saved(tmp_path / "a.npz", X=inputs, y=labels))
