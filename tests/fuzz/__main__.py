"""Fuzz whatever reads what others may have written, with Hypothesis.

Usage: python -m tests.fuzz [--minutes 10] [--target csv ...] [--seed 0] [--counts counts.json] [--out table.md]

Every case must end in success or in a `MixupMPError` within 10 CPU seconds and 1 GB. Each target runs in a
process of its own: a case that kills it, or that it does not come back from, is known from a file that both processes
map. Cases that fail are added to tests/fuzz/corpus, which `make test` tries again. With `--counts` those of several
runs, each with a seed of its own, add up.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NoReturn

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.trial import WAITING, Trial, keep, try_cases

BATCH, AROUND = 20, 24  # cases that Hypothesis draws between two looks at the clock, and others around each
ROUND = 60.0  # seconds of each target, by turns
SILENCE = 5 * WAITING  # seconds without a new case: the process hangs outside of Python
SPACE = 4 * 2**30  # of addresses beyond those in use, in case memory is taken faster than it is measured


class LastCase:
    """The case that is being tried, in memory that both processes see."""

    def __init__(self, size: int = 2**24) -> None:
        self.memory = mmap.mmap(-1, size)

    def note(self, content: bytes) -> None:
        kept = content[: len(self.memory) - 16]
        count = int.from_bytes(self.memory[:8], "little") + 1
        self.memory[:16] = count.to_bytes(8, "little") + len(kept).to_bytes(8, "little")
        self.memory[16 : 16 + len(kept)] = kept

    @property
    def count(self) -> int:
        return int.from_bytes(self.memory[:8], "little")

    @property
    def content(self) -> bytes:
        return self.memory[16 : 16 + int.from_bytes(self.memory[8:16], "little")]


def explore(target: Target, seconds: float, seed: int) -> Trial:
    """Try a target for so long, in as many processes as it kills."""
    target.cases()  # so that what takes time to make is there in every fork
    total, ends, number = Trial(target.name), time.monotonic() + seconds, seed
    while time.monotonic() < ends:
        last, scratch = LastCase(), Path(tempfile.mkdtemp(prefix="fuzz-", dir=_memory_disk()))
        result = scratch / "result"
        process = os.fork()
        if process == 0:
            _become_worker(target, scratch, ends, number, last)
        status = _wait(process, last)
        part = Trial(target.name)
        if result.exists():
            part = pickle.loads(result.read_bytes())
        else:
            part.failed = 1
            part.fail(f"the process ended with {status} at case {last.count}", last.content)
        shutil.rmtree(scratch)
        _add(total, part)
        number += 1_000_000
    return total


def _memory_disk() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _become_worker(target: Target, scratch: Path, ends: float, number: int, last: LastCase) -> NoReturn:
    code = 1
    try:
        place, trial = scratch / "files", Trial(target.name, read=target.valid())
        place.mkdir()
        check = target.prepare(place)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + SPACE, used + SPACE))
        while time.monotonic() < ends:
            try_cases(target, check, trial, BATCH, number, last.note, AROUND)
            number += 1
        (scratch / "part").write_bytes(pickle.dumps(trial))
        (scratch / "part").rename(scratch / "result")
        code = 0
    except BaseException:  # noqa: BLE001 - the parent sees the exit code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(process: int, last: LastCase) -> str:
    count, since = -1, time.monotonic()
    while True:
        finished, status = os.waitpid(process, os.WNOHANG)
        if finished:
            code = os.waitstatus_to_exitcode(status)
            return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        if last.count != count:
            count, since = last.count, time.monotonic()
        elif time.monotonic() - since > SILENCE:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return f"no answer for {SILENCE:.0f} s"
        time.sleep(0.05)


def _add(total: Trial, part: Trial) -> None:
    total.accepted += part.accepted
    total.refused += part.refused
    total.failed += part.failed
    for name in ("cpu", "wall", "memory"):
        setattr(total, name, max(getattr(total, name), getattr(part, name)))
    for signature, content in part.failures.items():
        total.fail(signature, content)


def table(trials: list[Trial]) -> str:
    lines = ["| target | cases | accepted | refused | failed | most CPU time of a case | by the clock | most memory |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    lines += [
        f"| {trial.name} | {trial.cases:,} | {trial.accepted:,} | {trial.refused:,} | {trial.failed:,} | "
        f"{trial.cpu:.2f} s | {trial.wall:.2f} s | {trial.memory / 2**20:.0f} MB |"
        for trial in trials
    ]
    cases, failed = sum(trial.cases for trial in trials), sum(trial.failed for trial in trials)
    return "\n".join([*lines, f"| all | {cases:,} | | | {failed:,} | | | |"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=[t.name for t in TARGETS], help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counts", type=Path, help="file that counts are added to")
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    chosen = [target for target in TARGETS if not options.target or target.name in options.target]
    known = json.loads(options.counts.read_text()) if options.counts and options.counts.exists() else {}
    trials = {target.name: Trial(target.name, **known.get(target.name, {})) for target in TARGETS}
    ends, number = time.monotonic() + 60 * options.minutes, options.seed
    while time.monotonic() < ends:
        for target in chosen:
            seconds = min(ROUND, 60 * options.minutes / len(chosen))
            _add(trials[target.name], part := explore(target, seconds, number))
            print(f"{part.name}: {part.cases:,} cases, {part.failed:,} failed", file=sys.stderr)
            for signature, content in part.failures.items():
                print(f"  {signature}: {keep(part.name, content)}", file=sys.stderr)
            if options.counts is not None:
                found = {name: trial.counts for name, trial in trials.items() if trial.cases}
                options.counts.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n")
                options.counts.with_suffix(".new").replace(options.counts)
        number += 1000
    text = table([trial for trial in trials.values() if trial.cases])
    print(text)
    if options.out is not None:
        options.out.write_text(text)
    return 1 if any(trial.failed for trial in trials.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
