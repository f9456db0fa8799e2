"""Corrupted copies on disk, and the contact sheet."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import torch

from mixupmp.core.errors import BadData, InvalidArgument, UnknownName
from mixupmp.data import (
    CORRUPTIONS,
    Dataset,
    Rows,
    contact_sheet,
    corrupt,
    corrupted,
    find_corrupted,
    load,
    read_corrupted,
    write_corrupted,
)


def small(channels: int = 1, rows: int = 6, name: str = "digits") -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (rows, channels, 8, 8), dtype=torch.uint8, generator=generator)
    part = Rows(images, torch.arange(rows) % 3)
    return Dataset(name, part, part, ("a", "b", "c"))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_copy_has_the_published_layout_and_is_found(empty_root, channels):
    dataset = small(channels)
    seen: list[str] = []
    folder = write_corrupted(dataset, empty_root / "digits-c", written=seen.append)
    assert seen == list(CORRUPTIONS)
    assert {p.name for p in folder.iterdir()} == {*(f"{n}.npy" for n in CORRUPTIONS), "labels.npy", "corruptions.json"}
    assert np.load(folder / "labels.npy").tolist() == [0, 1, 2, 0, 1, 2] * 5
    for name in CORRUPTIONS:
        array = np.load(folder / f"{name}.npy")
        assert array.shape == (30, 8, 8, channels)
        assert array.dtype == np.uint8
        for severity in (1, 5):
            expected = corrupt(dataset.test.inputs, name, severity)
            assert torch.equal(read_corrupted(folder, name, severity).inputs, expected)
    manifest = json.loads((folder / "corruptions.json").read_text())
    assert manifest["unchanged_for_gray"] == (["saturate"] if channels == 1 else [])
    assert find_corrupted("digits", empty_root) == folder


def test_two_threads_write_the_same_bytes(tmp_path):
    dataset = small()
    one, two = write_corrupted(dataset, tmp_path / "one"), write_corrupted(dataset, tmp_path / "two", workers=2)
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    dataset = small()
    folder = tmp_path / "copy"

    def stop(name: str) -> None:
        if name == CORRUPTIONS[4]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_corrupted(dataset, folder, written=stop)
    there = {p.name: p.stat().st_mtime_ns for p in folder.glob("*_*.npy")}
    assert sorted(there) == sorted(f"{name}.npy" for name in CORRUPTIONS[:5])
    cut = folder / f"{CORRUPTIONS[0]}.npy"  # damage, as from a failing disk
    cut.write_bytes(cut.read_bytes()[:500])
    time.sleep(0.01)
    write_corrupted(dataset, folder)
    for name, written in there.items():
        assert ((folder / name).stat().st_mtime_ns == written) == (name != cut.name)
    assert torch.equal(
        read_corrupted(folder, CORRUPTIONS[0], 1).inputs, corrupt(dataset.test.inputs, CORRUPTIONS[0], 1)
    )
    assert not list(folder.glob(".*"))


def test_other_folders_are_left_alone(tmp_path):
    dataset = small()
    write_corrupted(dataset, tmp_path / "copy")
    with pytest.raises(BadData, match=r"another corrupted copy .seed differ"):
        write_corrupted(dataset, tmp_path / "copy", seed=1)
    with pytest.raises(BadData, match="test_rows differ"):
        write_corrupted(small(rows=5), tmp_path / "copy")
    theirs = tmp_path / "published"
    theirs.mkdir()
    np.save(theirs / "fog.npy", np.zeros(3))
    with pytest.raises(BadData, match="not written here"):
        write_corrupted(dataset, theirs)
    assert np.array_equal(np.load(theirs / "fog.npy"), np.zeros(3))
    (tmp_path / "copy" / "corruptions.json").write_text("{")
    with pytest.raises(BadData, match="damaged"):
        write_corrupted(dataset, tmp_path / "copy")


def test_what_has_no_images_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidArgument, match="images"):
        write_corrupted(load("clusters"), tmp_path / "copy")
    with pytest.raises(InvalidArgument, match="workers"):
        write_corrupted(small(), tmp_path / "copy", workers=0)
    assert not (tmp_path / "copy").exists()


def test_a_copy_is_used_only_for_the_rows_it_was_made_from(empty_root):
    dataset = small()
    folder = write_corrupted(dataset, empty_root / "digits-c")
    marked = np.load(folder / "fog.npy")
    marked[:] = 77
    np.save(folder / "fog.npy", marked)
    assert bool((corrupted(dataset, "fog", 3, empty_root).inputs == 77).all())
    for other, seed in ((small(rows=5), 0), (dataset, 1)):
        rows = corrupted(other, "fog", 3, empty_root, seed)
        assert torch.equal(rows.inputs, corrupt(other.test.inputs, "fog", 3, seed))
        assert torch.equal(rows.labels, other.test.labels)
    with pytest.raises(UnknownName, match="Did you mean 'fog'"):
        corrupted(dataset, "foggy", 1, empty_root)


def test_published_files_are_used_where_they_are_even_a_single_one(empty_root):
    dataset = small(3, name="cifar10")
    folder = empty_root / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "fog.npy", np.full((10, 8, 8, 3), 5, np.uint8))
    np.save(folder / "labels.npy", np.array([2, 1] * 5, np.uint8))
    rows = corrupted(dataset, "fog", 2, empty_root)
    assert (int(rows.inputs.unique()), rows.labels.tolist()) == (5, [2, 1])
    assert torch.equal(corrupted(dataset, "snow", 2, empty_root).inputs, corrupt(dataset.test.inputs, "snow", 2))
    np.save(folder / "fog.npy", np.full((10, 32, 32, 3), 5, np.uint8))
    with pytest.raises(BadData, match=r"\(3, 32, 32\), but cifar10 has \(3, 8, 8\)"):
        corrupted(dataset, "fog", 2, empty_root)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_contact_sheet_is_a_picture(tmp_path, channels):
    image_module = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    path = contact_sheet(small(channels).test.inputs[:2], tmp_path / "sheet.png")
    with image_module.open(path) as picture:
        assert picture.width > 1000
        assert len(picture.convert("L").getcolors()) > 50
    with pytest.raises(InvalidArgument, match="path"):
        contact_sheet(small().test.inputs, tmp_path / "sheet.bmp")
    with pytest.raises(InvalidArgument, match="at least one"):
        contact_sheet(small().test.inputs[:0], tmp_path / "none.png")
