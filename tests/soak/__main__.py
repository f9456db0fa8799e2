"""Kill small runs before each of their file operations in turn, then at random moments; resume and compare.

Usage: python -m tests.soak [--minutes 60] [--engine inline ...] [--out table.md]

For n = 1, 2, 3, ... a run is killed (SIGKILL) before its n-th file operation, and every third time once more when it is
resumed. Then it is resumed to its end. Its weights must have the hashes of an undisturbed run, and `load` must accept
the folder. When a run ends before its n-th operation, all are covered, and kills come at random moments.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import torch
from tests.soak import program
from tests.soak.inject import sitecustomize

from mixupmp import load
from mixupmp.core.errors import MixupMPError
from mixupmp.core.files import sha256
from mixupmp.store.sign import verify

ENGINES = ("inline", "vectorized", "processes")
TIMEOUT = 300.0  # seconds for one run; longer counts as lost


@dataclass
class Tally:
    """What happened to the runs of one engine."""

    engine: str
    hashes: dict[str, str]
    next_operation: int = 1
    covered: bool = False
    at_operations: int = 0
    at_random: int = 0
    lost: list[str] = field(default_factory=list)


def run(folder: Path, engine: str, before: int | None = None, after: float | None = None) -> int:
    """Exit code of the program; it is killed before an operation, or after so many seconds.

    It is a fork of this process, which has imported everything: a kill then takes a fraction of a second.
    """
    process = os.fork()
    if process == 0:
        _become_program(folder, engine, before)
    ends = time.monotonic() + (TIMEOUT if after is None else after)
    while True:
        finished, status = os.waitpid(process, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            os.kill(process, signal.SIGKILL)
            ends = float("inf")
        time.sleep(0.002)


def _become_program(folder: Path, engine: str, before: int | None) -> NoReturn:
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if before is not None:
        sys.path.insert(0, str(Path(sitecustomize.__file__).parent))  # worker processes start with this path
        os.environ["SOAK_KILL_BEFORE"] = str(before)
        sitecustomize.install(before)
    code = 1
    try:
        program.main(folder, engine)
        code = 0
    except BaseException:  # noqa: BLE001 - it goes to the log, and the exit code tells of it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def weights(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path) for path in sorted((folder / "members").glob("*.safetensors"))}


def finish(tally: Tally, folder: Path, what: str) -> None:
    """Resume to the end, and compare."""
    code = run(folder, tally.engine)
    if code != 0:
        log = folder.with_suffix(".log").read_text(errors="replace")
        tally.lost.append(f"{what}: the resumed run ended with exit code {code}\n{log[-1500:]}")
    elif weights(folder) != tally.hashes:
        tally.lost.append(f"{what}: the weights differ from those of an undisturbed run")
    else:
        try:
            load(folder)
            verify(folder)
        except MixupMPError as error:
            tally.lost.append(f"{what}: {error}")


def disturb(tally: Tally, folder: Path, chance: random.Random, span: float) -> None:
    """One more killed and resumed run."""
    if tally.covered:
        delay = chance.uniform(0, span)
        run(folder, tally.engine, after=delay)
        tally.at_random += 1
        finish(tally, folder, f"killed after {delay:.2f} s")
        return
    number = tally.next_operation
    tally.next_operation += 1
    if run(folder, tally.engine, before=number) == 0:
        tally.covered = True
        return
    tally.at_operations += 1
    what = f"killed before operation {number}"
    if number % 3 == 0:
        second = chance.randrange(1, 20)
        if run(folder, tally.engine, before=second) != 0:
            tally.at_operations += 1
            what += f", then before operation {second}"
    finish(tally, folder, what)


def table(tallies: Sequence[Tally]) -> str:
    lines = ["| engine | kills before a file operation | all operations covered | kills at random | lost |"]
    lines.append("| --- | ---: | --- | ---: | ---: |")
    for tally in tallies:
        covered = "yes" if tally.covered else f"the first {tally.next_operation - 1}"
        lines.append(f"| {tally.engine} | {tally.at_operations} | {covered} | {tally.at_random} | {len(tally.lost)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--engine", action="append", choices=ENGINES, help="may be given several times; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fork has no other threads
    chance, tallies, spans = random.Random(options.seed), [], {}
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        program.main(Path(scratch) / "imports", "inline")  # whatever is imported at first use is now in every fork
        for engine in options.engine or ENGINES:
            folder, started = Path(scratch) / f"undisturbed-{engine}", time.monotonic()
            assert run(folder, engine) == 0, folder.with_suffix(".log").read_text()
            tallies.append(Tally(engine, weights(folder)))
            spans[engine] = time.monotonic() - started
        turn, ends = 0, time.monotonic() + 60 * options.minutes  # of kills: a busy machine takes seconds to get here
        while time.monotonic() < ends:
            tally = tallies[turn % len(tallies)]
            folder = Path(scratch) / f"{tally.engine}-{turn}"
            disturb(tally, folder, chance, spans[tally.engine])
            shutil.rmtree(folder, ignore_errors=True)
            turn += 1
            if sys.stderr.isatty():
                print(f"\r{turn} runs, {sum(len(t.lost) for t in tallies)} lost", end="", file=sys.stderr)
    text = table(tallies)
    print(text)
    for tally in tallies:
        for loss in tally.lost:
            print(f"{tally.engine}: {loss}", file=sys.stderr)
    if options.out is not None:
        options.out.write_text(text)
    return 1 if any(tally.lost for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
