"""The load test of `make load`, for a few seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_slow_and_cancelling_clients_get_right_answers_and_none_is_lost_at_sigterm() -> None:
    command = [sys.executable, "-m", "tests.load", "--minutes", "0.2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ended with: no fault" in done.stdout
