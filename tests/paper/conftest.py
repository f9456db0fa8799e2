from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mixupmp.paper.members import Cache
from mixupmp.paper.study import Study


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Study]:
    """A study with a cache and a results folder of its own; what it says is in `said`."""

    def make(name: str = "test", workers: int = 1) -> Study:
        said: list[str] = []
        made = Study(name, "smoke", Cache(tmp_path / "cache"), tmp_path / "results", workers, say=said.append)
        made.said = said  # type: ignore[attr-defined]
        return made

    return make
