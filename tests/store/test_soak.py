"""The endurance test of `make soak`, for a few seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_runs_killed_at_their_first_file_operations_end_with_the_same_bits(engine: str) -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.02", "--engine", engine]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.strip().splitlines()[-1].split()[0]) >= 1, done.stdout
