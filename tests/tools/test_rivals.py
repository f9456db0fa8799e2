"""What the command that measures rivals makes of failures and of a run that was stopped."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.rivals.__main__ import _measured_before, reason_of, rows_of

GOOD = {"acc": 0.5, "nll": 1.0, "ece": 0.1, "cpu_seconds": 2.0}


def contender() -> None:
    """a library: its method"""
    raise NotImplementedError


def test_the_reason_of_a_failure_is_its_exception() -> None:
    printed = "Traceback:\n  File x\nValueError: no such sharding\n-----\nFor simplicity, frames were removed.\n"
    assert reason_of(printed, 1) == "ValueError: no such sharding"
    assert reason_of("killed\n", 1) == "killed"
    assert reason_of("", -9) == "it ended with code -9 and no message"


def test_a_seed_that_failed_is_in_the_table_beside_those_that_did_not() -> None:
    table = rows_of({"contender": [GOOD, "ValueError: no", {**GOOD, "acc": 0.7}]}, {"contender": contender})
    assert table[2] == "| a library: its method | did not run, 1 of 3: ValueError: no | | | | |"
    assert table[3].startswith("| a library: its method | 60.00 (10.00) | 1.000 (0.000) |")


def test_a_stopped_run_goes_on_after_what_was_measured_and_tries_failures_again(tmp_path: Path) -> None:
    given = Namespace(out=tmp_path, data="digits", rows=400, epochs=40, resume=True)
    assert _measured_before(given) == {}
    before = {"settings": {"rows": 400, "epochs": 40}, "results": {"digits": {"one": [GOOD, "an error", GOOD]}}}
    (tmp_path / "digits.json").write_text(json.dumps(before))
    assert _measured_before(given) == {"digits": {"one": [GOOD]}}
    given.rows = 500
    with pytest.raises(SystemExit, match="was measured with"):
        _measured_before(given)
