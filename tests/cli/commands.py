"""The command line, called as its user calls it."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixupmp.cli import main


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def mixupmp(*words: str | Path) -> Said:
    """Run a command in this process: everything but the interpreter's start is real."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Said(code, out.getvalue(), err.getvalue())


def mixupmp_process(*words: str | Path, cwd: Path) -> Said:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "mixupmp", *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=240
    )
    return Said(done.returncode, done.stdout, done.stderr)


def refused(said: Said, *words: str) -> None:
    """Exit code 2, one clear complaint with these words, no traceback, and nothing on stdout."""
    assert said.code == 2, said
    assert said.out == ""
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err, said.err
