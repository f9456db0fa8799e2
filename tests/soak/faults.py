"""Runs of the program in a process of their own, with a fault at a file operation or at a moment."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil
from tests.soak import program
from tests.soak.inject import sitecustomize

from mixupmp.core.errors import MixupMPError
from mixupmp.train.run import Engine

TIMEOUT = 300.0  # seconds for one run; longer counts as lost
AT_OPERATION = ("kill", "full disk", "failing disk")
IN_WORKER = "kill in a worker"  # at an operation of one of Ray's workers, whose member Ray then starts again
AT_MOMENT = ("kill parent", "kill worker", "kill group")
KILLED, REFUSED, CRASHED = -signal.SIGKILL, 2, 1  # exit codes


@dataclass(frozen=True)
class Fault:
    """What happens to a run: at its n-th file operation, or after so many seconds."""

    kind: str
    place: float

    def __str__(self) -> str:
        return (
            f"{self.kind} at operation {self.place}"
            if self.kind in (*AT_OPERATION, IN_WORKER)
            else f"{self.kind} after {self.place:.2f} s"
        )


def run(folder: Path, engine: Engine, method: str, fault: Fault | None = None) -> tuple[int, bool]:
    """The program's exit code, and whether the fault came before its end.

    It is a fork of this process, which has imported everything: a kill then takes a fraction of a second.
    """
    process = os.fork()
    if process == 0:
        _become_program(folder, engine, method, fault)
    at_moment = fault is not None and fault.kind in AT_MOMENT
    happened, started = False, time.monotonic()
    while True:
        finished, status = os.waitpid(process, os.WNOHANG)
        if finished:
            code = os.waitstatus_to_exitcode(status)
            if fault is not None and fault.kind == IN_WORKER:
                return code, _mark(folder).exists()
            return code, happened or (fault is not None and not at_moment and code != 0)
        elapsed = time.monotonic() - started
        if at_moment and not happened and elapsed > fault.place:
            happened = _kill(process, fault.kind)
        if elapsed > TIMEOUT:
            _kill(process, "kill group")
        time.sleep(0.002)


def _mark(folder: Path) -> Path:
    """The file that is there once a worker of this run was killed."""
    return folder.with_suffix(".killed")


def _kill(process: int, kind: str) -> bool:
    """Kill the run's own process, one that it started, or all of them; whether there was one."""
    if kind == "kill worker":
        workers = _descendants(process, workers_only=True)
        chosen = random.sample(workers, min(1, len(workers)))
    else:
        chosen = [process, *(_descendants(process) if kind == "kill group" else [])]
    for number in chosen:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:  # it ended by itself a moment ago
            continue
    return bool(chosen)


def _descendants(process: int, workers_only: bool = False) -> list[int]:
    """Processes that it started; `workers_only` leaves out those that are the Ray cluster itself."""
    try:
        found = psutil.Process(process).children(recursive=True)
        return [child.pid for child in found if not workers_only or _is_worker(" ".join(child.cmdline()))]
    except psutil.NoSuchProcess:
        return []


def _is_worker(command: str) -> bool:
    return "mixupmp.train.worker" in command or command.startswith(("ray::train", "ray::Board"))


def _become_program(folder: Path, engine: Engine, method: str, fault: Fault | None) -> NoReturn:
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = CRASHED
    try:
        if fault is not None and fault.kind in AT_OPERATION:
            sys.path.insert(0, str(Path(sitecustomize.__file__).parent))  # worker processes start with this path
            os.environ[sitecustomize.VARIABLE] = f"{fault.kind} {fault.place:.0f}"
            sitecustomize.install(fault.kind, int(fault.place))
        if fault is not None and fault.kind == IN_WORKER:  # Ray's processes start with this environment
            inject = str(Path(sitecustomize.__file__).parent)
            os.environ["PYTHONPATH"] = os.pathsep.join([inject, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
            os.environ[sitecustomize.VARIABLE] = f"kill {fault.place:.0f}"
            os.environ[sitecustomize.ONCE] = str(_mark(folder))
        program.main(folder, engine, method)
        code = 0
    except MixupMPError as error:
        code = REFUSED
        print(error, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - it goes to the log, and the exit code tells of it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
