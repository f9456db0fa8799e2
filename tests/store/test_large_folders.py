"""Folders with larger files, or more directories, than any run has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mixupmp import Recipe, deep_ensemble, plan_for
from mixupmp.core.errors import BadRun
from mixupmp.core.plan import Plan
from mixupmp.store.load import load
from mixupmp.train.run import fit
from small_data import small_table


def small_plan() -> Plan:
    return plan_for(small_table(), deep_ensemble(2), "mlp", Recipe(epochs=2, learning_rate=0.05))


@pytest.mark.parametrize("engine", ["inline", "vectorized"])
@pytest.mark.parametrize("name", ["members/000.safetensors", f"checkpoints/001/000000000002-{'0' * 16}.safetensors"])
def test_files_larger_than_the_network_are_refused_unread(tmp_path: Path, engine: Any, name: str) -> None:
    run = tmp_path / "run"
    fit(small_plan(), engine=engine, run=run, members=[0])
    (run / "manifest.json").unlink()
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    with (run / name).open("ab") as file:
        file.truncate(2**40)  # sparse: it takes no room on the disk
    with pytest.raises(BadRun, match=f"{Path(name).name} has {2**40} bytes, more than the [0-9]+ that it can need"):
        fit(small_plan(), engine=engine, run=run, resume=True)


@contextmanager
def nested(folder: Path, depth: int) -> Iterator[None]:
    """Directories in directories; they are removed again, because pytest cannot remove so many."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    try:
        yield
    finally:
        subprocess.run(["rm", "-r", folder / "d"], check=True)


def test_thousands_of_nested_directories_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fit(small_plan(), engine="inline", run=folder)

    def resume(path: Path) -> None:
        fit(small_plan(), engine="inline", run=path, resume=True)

    with nested(folder, 1200):
        for read in (load, resume):
            with pytest.raises(BadRun, match="holds too many files or directories"):
                read(folder)
