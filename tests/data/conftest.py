"""A data root of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def empty_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with nothing in it, and no other one to be found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MIXUPMP_DATA", raising=False)
    root = tmp_path / "root"
    root.mkdir()
    return root
