"""A run to evaluate and to predict with, fitted once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import mixupmp


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    said = mixupmp(
        "fit", "--network", "mlp", "--epochs", "3", "--members", "2", "--ratio", "1", "--no-calibrate", "--out", folder
    )
    assert said.code == 0, said
    return folder


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
