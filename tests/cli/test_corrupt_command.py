"""`mixupmp corrupt`: a copy that is found, a picture, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import mixupmp, refused

from mixupmp.data import CORRUPTIONS, find_corrupted, load


def test_a_copy_in_the_published_layout_is_found_again(tmp_path: Path) -> None:
    said = mixupmp("corrupt", "--data", "digits", "--out", tmp_path / "digits-c", "--workers", "1", "--json")
    assert said.code == 0, said.err
    rows = len(load("digits").test)
    assert said.json["rows"] == rows
    for name in CORRUPTIONS:
        images = np.load(tmp_path / "digits-c" / f"{name}.npy", mmap_mode="r")
        assert images.shape == (5 * rows, 8, 8, 1)
    assert find_corrupted("digits", tmp_path) == tmp_path / "digits-c"


def test_a_contact_sheet_alone(tmp_path: Path) -> None:
    said = mixupmp("corrupt", "--data", "digits", "--sheet", tmp_path / "sheet.png")
    assert said.code == 0, said.err
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert "3 images" in said.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "digits"), "--out must be a folder for the copy"),
        (("--data", "digits", "--sheet", "sheet.doc"), "path must be a .png"),
        (("--data", "cifar11", "--out", "x"), "cifar10"),
        (("--data", "digits", "--out", "x", "--workers", "0"), "workers must be at least 1"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(mixupmp("corrupt", *words), told)
    assert list(tmp_path.iterdir()) == []
