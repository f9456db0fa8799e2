"""The soak test itself works: a run is killed before its first operations, resumed, and compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_a_short_soak_kills_runs_and_loses_none(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    options = ["--minutes", "0.05", "--engine", "inline", "--out", str(table)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.soak", *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    _, kills, _, _, lost = (cell.strip() for cell in table.read_text().splitlines()[2].strip("|").split("|"))
    assert int(kills) >= 1
    assert lost == "0"
