"""Test the built wheel and sdist as a user gets them: `python -m tools.wheel_test`.

From an empty folder, in an environment of its own: install torch and the wheel, run what the README shows, and print
the seconds, CPU seconds and bytes of each step. Then: no extra would change the torch that is installed. The wheel is
built from the sdist, so that both are tested.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from tools.building import REPOSITORY, build_sdist, build_wheel, copy_sources, unpack

COMMANDS = (
    "mixupmp --help",
    "mixupmp methods",
    "mixupmp reproduce list",
    "mixupmp demo --seeds 1",
)
WITH_PLOT = "mixupmp reproduce illustration-r --scale smoke --results results --cache cache"


class Environment:
    """A virtual environment and an empty folder, in which steps are run and measured."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder / "environment", folder / "work"
        self.bytes = 0
        self.programs = self.folder / ("Scripts" if os.name == "nt" else "bin")
        self.work.mkdir()

    def run(self, step: str, *command: str) -> str:
        """Run a program of the environment in the empty folder; what it printed."""
        started, used = time.monotonic(), _cpu_seconds()
        # Nothing of the repository, its environment or its settings.
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MIXUPMP", "VIRTUAL"))
        }
        own["PATH"] = f"{self.programs}{os.pathsep}{own['PATH']}"
        done = subprocess.run(command, cwd=self.work, env=own, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{step} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        seconds, cpu, before = time.monotonic() - started, _cpu_seconds() - used, self.bytes
        self.bytes = _bytes(self.folder) + _bytes(self.work)
        print(f"{seconds:8.1f} s {cpu:7.1f} CPU s {(self.bytes - before) / 1e6:9.1f} MB  {step}", flush=True)
        return done.stdout

    def pip(self, step: str, *arguments: str) -> str:
        """Run pip in it."""
        return self.run(step, str(self.programs / "python"), "-m", "pip", "--disable-pip-version-check", *arguments)

    def frozen(self) -> dict[str, str]:
        """What is installed, by name."""
        listed = json.loads(self.pip("what is installed", "list", "--format", "json"))
        return {entry["name"]: entry["version"] for entry in listed}


def _cpu_seconds() -> float:
    """Of the programs that were run and have ended, as a machine may be busy; zero on Windows."""
    times = os.times()
    return times.children_user + times.children_system


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def readme(language: str) -> list[str]:
    """The blocks of one language in the README."""
    return re.findall(rf"```{language}\n(.*?)```", (REPOSITORY / "README.md").read_text("utf-8"), re.DOTALL)


def extras(wheel: Path) -> list[str]:
    """The names of the wheel's extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return re.findall(r"^Provides-Extra: (.+)$", archive.read(name).decode(), re.MULTILINE)


def check_extras(environment: Environment, wheel: Path) -> None:
    """Refuse an extra with which pip would install another torch."""
    for extra in extras(wheel):
        report = environment.work / f"{extra}.json"
        wanted = ("install", "--dry-run", "--quiet", "--report", str(report), f"{wheel}[{extra}]")
        environment.pip(f"the extra {extra}, tried", *wanted)
        would = {entry["metadata"]["name"].lower() for entry in json.loads(report.read_text())["install"]}
        if "torch" in would:
            sys.exit(f"the extra {extra} would change the torch that is installed")


def run_examples(environment: Environment) -> None:
    """What the README shows, and every page's command that needs no extra."""
    (example,) = readme("python")
    environment.run("the README's example", "python", "-c", example)
    for line in [line for block in readme("bash") for line in block.splitlines()]:
        if line.startswith("mixupmp "):
            environment.run(line, *line.split())
    report = (environment.work / "report.html").read_text("utf-8")
    if "<svg" not in report:
        sys.exit("the report has no figures")
    for line in COMMANDS:
        environment.run(line, *line.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="", help="the version of torch [that of constraints.txt]")
    parser.add_argument("--keep", type=Path, help="keep the wheel and the sdist in this folder")
    given = parser.parse_args()
    pinned = re.search(r"^torch==(.+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    with tempfile.TemporaryDirectory(prefix="mixupmp-wheel-") as name:
        folder = Path(name)
        out = given.keep or folder / "dist"
        sdist = build_sdist(copy_sources(folder / "sources"), out)
        wheel = build_wheel(unpack(sdist, folder / "unpacked"), out)  # so that the sdist is tested too
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB; {sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB")
        environment = Environment(folder)
        environment.run("python -m venv", sys.executable, "-m", "venv", str(environment.folder))
        torch = f"torch=={given.torch or pinned[1]}"
        environment.pip(f"pip install {torch}", "install", "--quiet", torch)
        environment.pip("pip install mixupmp", "install", "--quiet", str(wheel))
        installed = environment.frozen()
        run_examples(environment)
        check_extras(environment, wheel)
        environment.pip("pip install 'mixupmp[plot]'", "install", "--quiet", f"{wheel}[plot]")
        environment.run(WITH_PLOT, *WITH_PLOT.split())
        print(f"works with Python {sys.version.split()[0]}, torch {installed['torch']}")


if __name__ == "__main__":
    main()
