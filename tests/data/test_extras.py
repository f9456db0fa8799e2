"""What an optional dependency is needed for works without it up to there, and then says which to install."""

from __future__ import annotations

import sys

import pytest
import torch

from mixupmp.core.errors import MissingExtra
from mixupmp.data import contact_sheet, corrupt, load_path

IMAGES = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)


def table(folder):
    (folder / "a.csv").write_text("x,y\n1,a\n2,b\n")
    return load_path(folder / "a.csv")


def pictures(folder):
    (folder / "cat").mkdir()
    (folder / "cat" / "a.png").write_bytes(b"")
    return load_path(folder)


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("pandas", "tables", table),
        ("PIL", "images", pictures),
        ("PIL", "corruptions", lambda folder: corrupt(IMAGES, "jpeg_compression", 1)),
        ("matplotlib.figure", "plot", lambda folder: contact_sheet(IMAGES, folder / "a.png")),
    ],
)
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, package, extra, use):
    monkeypatch.setitem(sys.modules, package, None)  # what Python itself does for "cannot be imported"
    with pytest.raises(MissingExtra, match=rf"pip install 'mixupmp\[{extra}\]'"):
        use(tmp_path)
