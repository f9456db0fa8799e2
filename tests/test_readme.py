"""What the README shows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_python_block_runs() -> None:
    (block,) = blocks("python")
    shown = "assert probabilities.shape == (143, 2) and doubt.shape == (143,)\n"
    assert subprocess.run([sys.executable, "-c", block + shown]).returncode == 0


def test_the_commands_run(tmp_path: Path) -> None:
    make, commands = blocks("bash")
    assert re.findall(r"^make (\w+)", make, re.MULTILINE) == ["demo", "test"]
    for line in commands.splitlines():
        program, *arguments = line.split()
        assert program == "mixupmp"
        done = subprocess.run(
            [sys.executable, "-m", "mixupmp", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_linked_files_are_there() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
