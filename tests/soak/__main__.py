"""Kill, starve and break small runs; resume them and compare their weights with those of undisturbed runs.

Usage: python -m tests.soak [--minutes 60] [--engine inline ...] [--counts counts.json] [--out table.md]

By turns, a MixupMP run is killed (SIGKILL) before its n-th file operation, n = 1, 2, 3, ..., until all are covered, and
a run of any method meets a fault at random: a kill at an operation or a moment (of the process, of a worker, of all at
once), a disk that is full from an operation on, or one that fails once. On Ray the operation is that of the calling
process until all of those are covered, then that of a worker: Ray starts its member again, and the run must come to its
end. Every third time a second fault meets the resumed run. Then it is resumed to its end. A run is lost if its weights
are not those of an undisturbed run, if `load` or `verify` refuses the folder, or if it ended in anything but an error
that says what happened. Engines share the time. With `--counts` a soak goes on from where the one before it was
stopped, at any moment.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tests.soak import program
from tests.soak.faults import AT_MOMENT, AT_OPERATION, IN_WORKER, KILLED, REFUSED, Fault, run

from mixupmp import load
from mixupmp.core.errors import InvalidArgument, MixupMPError
from mixupmp.core.files import sha256
from mixupmp.core.methods import method_names
from mixupmp.store.sign import verify
from mixupmp.train.run import Engine

ENGINES: tuple[Engine, ...] = ("inline", "vectorized", "processes", "ray")
IN_TURN = "mixup-mp"  # the method whose operations are covered one after another


def weights(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path) for path in sorted((folder / "members").glob("*.safetensors"))}


@dataclass
class Undisturbed:
    """Runs that nobody disturbs, each made when it is first asked for."""

    scratch: Path
    found: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def hashes(self, engine: Engine, method: str) -> dict[str, str]:
        """Of the weights; none where the engine refuses the method. All but `vectorized` must give the same."""
        maker: Engine = "vectorized" if engine == "vectorized" else "inline"
        if (maker, method) not in self.found:
            folder = self.scratch / f"{maker}-{method}"
            with suppress(InvalidArgument):
                program.main(folder, maker, method)  # here, so that whatever it imports is in every fork
            self.found[maker, method] = weights(folder)
        return self.found[maker, method]

    def seconds(self, engine: Engine) -> float:
        """That a run takes."""
        expected, folder, started = self.hashes(engine, IN_TURN), self.scratch / f"timed-{engine}", time.monotonic()
        code, _ = run(folder, engine, IN_TURN)
        assert code == 0, folder.with_suffix(".log").read_text()
        assert weights(folder) == expected, engine
        return time.monotonic() - started


@dataclass
class Tally:
    """What happened to the runs of one engine."""

    engine: Engine
    undisturbed: Undisturbed
    span: float  # seconds that such a run takes
    seconds: float = 0.0
    turns: int = 0
    next_operation: int = 1
    covered: bool = False
    next_in_worker: int = 1  # on Ray
    covered_in_worker: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    twice: int = 0
    methods: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, Any]:
        """All of it as JSON, for a soak that goes on from here."""
        names = ("turns", "next_operation", "covered", "next_in_worker", "covered_in_worker", "twice", "lost")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "faults": dict(self.faults), "methods": sorted(self.methods)}

    def go_on(self, counts: dict[str, Any]) -> None:
        for name, value in counts.items():
            setattr(self, name, {"faults": Counter, "methods": set}.get(name, lambda same: same)(value))

    @property
    def kills(self) -> int:
        return sum(count for kind, count in self.faults.items() if kind.startswith("kill"))

    @property
    def in_turn(self) -> Fault | None:
        """The kill that comes next, if not all operations have been covered."""
        if not self.covered:
            return Fault("kill", self.next_operation)
        return Fault(IN_WORKER, self.next_in_worker) if self.engine == "ray" and not self.covered_in_worker else None

    def had_turn(self, fault: Fault, happened: bool) -> None:
        """Go on to the next operation; one that a run does not come to is beyond its last."""
        if fault.kind == IN_WORKER:
            self.next_in_worker, self.covered_in_worker = self.next_in_worker + 1, not happened
        else:
            self.next_operation, self.covered = self.next_operation + 1, not happened


def next_faults(tally: Tally, chance: random.Random) -> tuple[str, list[Fault]]:
    """Of the next run: its method, and what happens to it when it is started and when it is resumed."""
    method, in_turn = IN_TURN, tally.in_turn
    if in_turn is not None and tally.turns % 2 == 0:
        faults = [in_turn]
    else:
        method, faults = chance.choice(sorted(method_names())), [random_fault(tally, chance)]
        while not tally.undisturbed.hashes(tally.engine, method):
            method = chance.choice(sorted(method_names()))
    if tally.turns % 3 == 2:
        faults.append(random_fault(tally, chance))
    return method, faults


def random_fault(tally: Tally, chance: random.Random) -> Fault:
    kinds = (*AT_OPERATION, *AT_MOMENT) if tally.engine in ("processes", "ray") else (*AT_OPERATION, "kill parent")
    kind = chance.choice(kinds)
    return Fault(kind, chance.randrange(1, 150) if kind in AT_OPERATION else chance.uniform(0, tally.span))


def disturb(tally: Tally, folder: Path, chance: random.Random) -> None:
    """One more disturbed and resumed run."""
    method, faults = next_faults(tally, chance)
    what, met = f"{tally.engine}, {method}", 0
    in_turn = tally.in_turn
    for number, fault in enumerate(faults):
        code, happened = run(folder, tally.engine, method, fault)
        if number == 0 and method == IN_TURN and fault == in_turn:
            tally.had_turn(fault, happened)
        what += f"; {fault}: exit code {code}"
        if code not in (0, KILLED, REFUSED):
            tally.lost.append(f"{what}\n{_end_of_log(folder)}")
        tally.faults[fault.kind] += happened
        met += happened
    tally.turns += 1
    tally.twice += met > 1
    tally.methods.add(method)
    finish(tally, folder, method, what)


def finish(tally: Tally, folder: Path, method: str, what: str) -> None:
    """Resume to the end, and compare. Ray's runs go on inline, which gives the same bits and takes less time."""
    code, _ = run(folder, "inline" if tally.engine == "ray" else tally.engine, method)
    if code != 0:
        tally.lost.append(f"{what}; the resumed run ended with exit code {code}\n{_end_of_log(folder)}")
    elif weights(folder) != tally.undisturbed.hashes(tally.engine, method):
        tally.lost.append(f"{what}; the weights differ from those of an undisturbed run")
    else:
        try:
            load(folder)
            verify(folder)
        except MixupMPError as error:
            tally.lost.append(f"{what}; {error}")


def _end_of_log(folder: Path) -> str:
    return folder.with_suffix(".log").read_text(errors="replace")[-2500:]


def _covered(following: int, all_of_them: bool) -> str:
    return f"all {following - 2}" if all_of_them else f"the first {following - 1}"


def table(tallies: Sequence[Tally]) -> str:
    kinds = (*AT_OPERATION, IN_WORKER, *AT_MOMENT)
    names = ["kill at an operation", "full disk", "failing disk", "kill at a Ray worker's operation", *AT_MOMENT]
    lines = [f"| engine | {' | '.join(names)} | kills | two in a row | operations covered | methods | lost |"]
    lines.append("| --- |" + " ---: |" * (len(names) + 2) + " --- | ---: | ---: |")
    for tally in tallies:
        counts = " | ".join(str(tally.faults[kind]) for kind in kinds)
        covered = _covered(tally.next_operation, tally.covered)
        if tally.engine == "ray":
            covered += f"; of a worker {_covered(tally.next_in_worker, tally.covered_in_worker)}"
        lines.append(
            f"| {tally.engine} | {counts} | {tally.kills} | {tally.twice} | {covered} | {len(tally.methods)} | "
            f"{len(tally.lost)} |"
        )
    kills, faults = sum(t.kills for t in tallies), sum(t.faults.total() for t in tallies)
    return "\n".join(lines) + f"\n\n{kills} kills, {faults} faults, {sum(len(t.lost) for t in tallies)} lost.\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--engine", action="append", choices=ENGINES, help="may be given several times; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counts", type=Path, help="file that counts are added to")
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fork has no other threads
    known = json.loads(options.counts.read_text()) if options.counts and options.counts.exists() else {}
    chance = random.Random(f"{options.seed} {sum(each['turns'] for each in known.values())}")
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        scratch = Path(name)
        undisturbed = Undisturbed(scratch)
        chosen = [engine for engine in ENGINES if engine in (options.engine or ENGINES)]
        tallies = [Tally(engine, undisturbed, undisturbed.seconds(engine)) for engine in chosen]
        for tally in tallies:
            tally.go_on(known.get(tally.engine, {}))
        turn, ends = 0, time.monotonic() + 60 * options.minutes  # of faults: a busy machine takes seconds to get here
        while time.monotonic() < ends:
            tally, started = min(tallies, key=lambda each: each.seconds), time.monotonic()
            folder = scratch / f"{tally.engine}-{turn}"
            disturb(tally, folder, chance)
            shutil.rmtree(folder, ignore_errors=True)
            tally.seconds += time.monotonic() - started
            turn += 1
            if options.counts is not None:
                known |= {tally.engine: tally.counts}
                options.counts.with_suffix(".new").write_text(json.dumps(known, indent=1) + "\n")
                options.counts.with_suffix(".new").replace(options.counts)
            if sys.stderr.isatty():
                print(f"\r{turn} runs, {sum(len(t.lost) for t in tallies)} lost", end="", file=sys.stderr)
    text = table(tallies)
    print(text)
    for tally in tallies:
        for loss in tally.lost:
            print(loss, file=sys.stderr)
    if options.out is not None:
        options.out.write_text(text)
    return 1 if any(tally.lost for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
