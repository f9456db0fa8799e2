"""One target tried with many cases: each must end in success or in one of this package's errors, in time and memory."""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.fuzz.target import Check, Target

from mixupmp.core.errors import MixupMPError

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 10.0  # CPU time of this process for one case
WAITING = 120.0  # seconds by the clock for one case: it waits for something, as a machine is not that busy
MEMORY = 2**30  # bytes beyond what the process had before its first case
KEPT, LONGEST = 200, 2**14  # of the contents that were read, to change them further


class Hang(BaseException):
    """A case took too long. No `Exception`, so that no reader takes it for damage to a file."""


class TooMuchMemory(BaseException):
    """A case took more than `MEMORY`."""


@dataclass
class Trial:
    """Counts of one target, and a case for each different failure."""

    name: str
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    cpu: float = 0.0  # seconds of the slowest case
    wall: float = 0.0
    memory: int = 0
    failures: dict[str, bytes] = field(default_factory=dict)
    read: list[bytes] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.accepted + self.refused + self.failed

    @property
    def counts(self) -> dict[str, float]:
        """As JSON, for a run that adds to them."""
        return {name: getattr(self, name) for name in ("accepted", "refused", "failed", "cpu", "wall", "memory")}

    def run(self, check: Check, content: bytes) -> None:
        """Try one case, and note how it ended."""
        before, cpu, wall = _peak(), time.process_time(), time.perf_counter()
        try:
            with warnings.catch_warnings(), _limited(SECONDS):
                warnings.simplefilter("ignore")
                accepted = _accepted(check, content)
            _check_memory(_peak() - before)
            self.accepted += accepted
            self.refused += not accepted
            if accepted and len(content) < LONGEST:
                self.read = [*self.read[1 - KEPT :], content]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - this is what is looked for
            self.failed += 1
            self.fail(_signature(error), content)
        self.cpu = max(self.cpu, time.process_time() - cpu)
        self.wall = max(self.wall, time.perf_counter() - wall)
        self.memory = max(self.memory, _peak() - before)

    def fail(self, signature: str, content: bytes) -> None:
        """Keep the shortest case of a failure."""
        known = self.failures.get(signature)
        if known is None or len(content) < len(known):
            self.failures[signature] = content


def try_cases(
    target: Target, check: Check, trial: Trial, count: int, number: int, note: Callable[[bytes], None], around: int = 0
) -> None:
    """Try `count` cases drawn by Hypothesis, and after each `around` that are near it or near any that was read.

    `number` seeds them, and `note` is given each before it is tried.
    """
    chance = random.Random(number)

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.cases())
    def each(content: bytes) -> None:
        case = content
        for _ in range(1 + around):
            note(case)
            trial.run(check, case)
            start = chance.choice(trial.read) if trial.read and chance.random() < 0.7 else content
            case = target.near(start, chance)

    each()


def corpus(name: str) -> list[Path]:
    """Cases that failed once."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())


def keep(name: str, content: bytes) -> Path:
    """Add a case to the corpus."""
    path = CORPUS / name / hashlib.sha256(content).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _accepted(check: Check, content: bytes) -> bool:
    try:
        check(content)
    except MixupMPError:
        return False
    return True


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _check_memory(grown: int) -> None:
    if grown > MEMORY:
        raise TooMuchMemory(f"{grown:,} bytes")


def _signature(error: BaseException) -> str:
    """The kind of an error and the innermost place of this package that it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/src/mixupmp/" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else f"a check: {str(error)[:200]}"
    return f"{type(error).__name__} in {place}"


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def hang(number: int, frame: FrameType | None) -> None:
        what = f"{seconds:.0f} CPU seconds" if number == signal.SIGPROF else f"{WAITING:.0f} s"
        raise Hang(f"longer than {what}")

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, WAITING))
    before = [(number, signal.signal(number, hang)) for _, number, _ in timers]
    for timer, _, span in timers:
        signal.setitimer(timer, span)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)
