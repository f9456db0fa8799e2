"""One experiment at one scale: what it trains, what it evaluates, and where it writes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from mixupmp.core.errors import MixupMPError
from mixupmp.core.files import read_json, write_atomically, write_json
from mixupmp.core.member_summary import left_out
from mixupmp.core.posterior import Posterior
from mixupmp.core.threads import pinned_threads
from mixupmp.core.version import __version__
from mixupmp.paper.estimate import Estimate, clock
from mixupmp.paper.members import Cache, Piece, Wanted, pieces_of
from mixupmp.paper.protocols import TEXT
from mixupmp.paper.protocols import Protocol as PaperProtocol
from mixupmp.paper.settings import Setting
from mixupmp.paper.worker import ELSEWHERE, STOPPED, Stopped, run_on, train_all
from mixupmp.train.pool import Call
from mixupmp.train.progress import Callback

Evaluation = dict[str, Any]
Pair = tuple[Wanted, "Evaluator"]
BATCH = 4  # pieces for each worker between two looks at what can be evaluated


class NothingCached(MixupMPError):
    """There is nothing in the cache to report on."""


class Evaluator(Protocol):
    """What is computed of a posterior. It is sent to worker processes, so it must be picklable."""

    @property
    def key(self) -> str:
        """What the result depends on besides the posterior; part of the name it is cached under."""
        ...

    def __call__(self, posterior: Posterior) -> Evaluation: ...


@dataclasses.dataclass
class Study:
    """What an experiment is given: a scale, a protocol, the cache, a results folder, and how to talk to the user.

    Parameters
    ----------
    workers
        How many members are trained, and posteriors evaluated, at a time.
    devices
        What each worker trains and evaluates on, in turn: with as many workers as GPUs, each GPU has one at a time.
    partial
        Report only what the cache holds, and list what is missing.
    part
        The dataset, where an experiment has several.
    """

    name: str
    scale: str
    cache: Cache
    results: Path
    workers: int = 2
    say: Callable[[str], None] = lambda text: None
    partial: bool = False
    part: str = ""
    protocol: PaperProtocol = TEXT
    devices: tuple[str, ...] = ("cpu",)
    precision: str = "float32"
    compiled: bool = False
    started: float = dataclasses.field(default_factory=time.time)

    def on(self, part: str) -> Study:
        """The same study for one of its datasets, with a folder of its own."""
        return dataclasses.replace(self, part=part, started=time.time())

    def quietly(self) -> Study:
        """The same study without a word to the user."""
        return dataclasses.replace(self, say=lambda text: None)

    def setting(self, setting: Setting) -> Setting:
        """The setting under this study's protocol, device and precision."""
        return setting.under(self.protocol, self.devices[0], self.precision, self.compiled)

    @property
    def folder(self) -> Path:
        """Where this experiment writes at this scale."""
        path = results_folder(self.results, self.name, self.scale, self.part, self.protocol.name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def train(self, wanted: Sequence[Wanted], on_progress: Callable[[], None] = lambda: None) -> None:
        """Train what is not in the cache, after saying how much that is and how long it will take.

        `on_progress` is called whenever some more are finished.
        """
        pieces = pieces_of(wanted)
        missing = [piece for piece in pieces if not self.cache.has(piece)]
        total, left = _networks(pieces), _networks(missing)
        place = " ".join(filter(None, (self.name, self.part)))
        self.say(f"{place} ({self.scale}): {total} member-fits, {total - left} cached, {left} to train.")
        if not missing:
            return
        if self.partial:
            if left == total:
                raise NothingCached(
                    f"--partial: the cache {self.cache.path} has nothing of {place}. Leave --partial out."
                )
            return
        for device in self.devices:
            missing[0].on(device)  # an error where this machine has no such device, before anything is trained
        estimate = Estimate(missing, min(self.workers, len(missing)))
        self.say(f"Estimated time: {clock(estimate.seconds_left)} with {estimate.workers} at a time.")
        with _terminated_as_stopped():
            while missing:
                for start in range(0, len(missing), BATCH * self.workers):
                    self._train(missing[start : start + BATCH * self.workers], estimate)
                    on_progress()
                missing = [piece for piece in missing if not self.cache.has(piece)]
                if missing:  # another process is at work on them
                    time.sleep(2)

    def _train(self, missing: list[Piece], estimate: Estimate) -> None:
        def report(piece: Piece, outcome: str) -> None:
            if outcome == ELSEWHERE:
                if estimate.waits_for(piece):
                    members = ", ".join(map(str, piece.members))
                    self.say(f"Waiting for another process to train {piece.plan.method.name} member {members}.")
                return
            estimate.done(piece)
            self.say(
                f"[{estimate.finished}/{estimate.total}] {piece.plan.method.name} seed {piece.plan.seed} "
                f"member {', '.join(map(str, piece.members))}: {outcome}; {clock(estimate.seconds_left)} left"
            )

        train_all(missing, self.cache, self.devices, self.workers, report)

    def available(self, wanted: Wanted) -> bool:
        """Whether every network of it is in the cache."""
        return all(self.cache.has(piece) for piece in wanted.pieces)

    def evaluate(self, pairs: Sequence[Pair], on_progress: Callable[[], None] = lambda: None) -> list[Evaluation]:
        """Each posterior's evaluation, computed once for ever, side by side in worker processes.

        Beside what the evaluator returns, each has its key, the repeat's seed and how its fits ended. A posterior of
        which no member stayed finite has those alone. `on_progress` is called whenever another one is computed.
        """
        calls = [partial(_evaluation, self.cache, *pair) for pair in pairs if not self.evaluated(*pair)]
        run_on(self.devices, self.workers, calls, lambda *_: on_progress())
        return [self.kept.get(_key(*pair)) or dict(read_json(_place(self.cache, *pair))) for pair in pairs]

    def evaluated(self, wanted: Wanted, evaluator: Evaluator) -> bool:
        """Whether this evaluation is in the results or in the cache, so that it needs no weights."""
        return _key(wanted, evaluator) in self.kept or _place(self.cache, wanted, evaluator).exists()

    @cached_property
    def kept(self) -> dict[str, Evaluation]:
        """The evaluations among the results, by key: a machine that has these, and no weights, goes on from there."""
        files = self.results.glob(f"*/{self.scale}*/**/evaluations.json")
        found = (one for file in files for line in read_json(file) for one in line["repeats"])
        return {one["key"]: one for one in found if "key" in one}

    def write(self, name: str, content: str | dict[str, Any] | list[Any]) -> Path:
        """Write a text or JSON file among the results."""
        path = self.folder / name
        text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
        write_atomically(path, text.encode())  # all experiments of a scale read it, and it is written while others run
        return path

    @property
    def command(self) -> str:
        """What computes these results again, on devices of the same kind."""
        words = ["mixupmp", "reproduce", self.name, "--scale", self.scale]
        words += ["--data", self.part] if self.part else []
        words += ["--protocol", self.protocol.name] if self.protocol is not TEXT else []
        words += [word for device in self.devices if self.devices != ("cpu",) for word in ("--device", device)]
        words += ["--precision", self.precision] if self.precision != "float32" else []
        return " ".join([*words, "--compile"] if self.compiled else words)

    def record(self, differences: Sequence[str], seeds: Sequence[int], **more: object) -> None:
        """`run.json`: what made these results, and every difference from the paper."""
        self.write(
            "run.json",
            {
                "command": self.command,
                "called_as": " ".join(["mixupmp", *sys.argv[1:]]),
                "date": _now(),
                "seconds": round(time.time() - self.started, 1),
                "seeds": list(seeds),
                "protocol": self.protocol.name,
                "precision": self.precision,
                "differences": list(differences),
                "versions": _versions(),
                "machine": {**_machine(), "workers": self.workers, "devices": list(self.devices)},
                **more,
            },
        )


def results_folder(results: Path, name: str, scale: str, part: str = "", protocol: str = TEXT.name) -> Path:
    """Where an experiment writes; results under another protocol than the text's lie in folders of their own."""
    return results / name / (scale if protocol == TEXT.name else f"{scale}-{protocol}") / part


def training_of(cache: Cache, wanted: Wanted, keep_collapsed: bool = False) -> Evaluation:
    """How the fits ended: training accuracy over the members of the posterior, and how many are not part of it."""
    summaries = [summary for summary, _ in cache.finished(wanted, keep_collapsed)]
    out = left_out(summaries)
    kept = [s.training_accuracy for s in summaries if s.member not in out and s.training_accuracy is not None]
    diverged = sum(s.diverged_at is not None for s in summaries)
    return {
        "seed": wanted.plan.seed,
        "training_accuracy": sum(kept) / len(kept) if kept else None,
        "diverged": diverged,
        "collapsed": len(out) - diverged,
        "networks": len(summaries),
        "seconds": sum(s.seconds for s in summaries),
    }


def _key(wanted: Wanted, evaluator: Evaluator) -> str:
    return hashlib.sha256(f"{wanted.key} {evaluator.key}".encode()).hexdigest()[:24]


def _place(cache: Cache, wanted: Wanted, evaluator: Evaluator) -> Path:
    name = _key(wanted, evaluator)
    return cache.path / "evaluations" / name[:2] / f"{name}.json"


def _evaluation(cache: Cache, wanted: Wanted, evaluator: Evaluator, device: str) -> Call:
    return Call(_evaluate, (cache, wanted, evaluator, device), f"evaluation of {wanted.plan.method.name}")


def _evaluate(callback: Callback, cache: Cache, wanted: Wanted, evaluator: Evaluator, device: str) -> None:
    """Evaluate one posterior into the cache; runs in a worker process."""
    with pinned_threads(1):  # as many processes as cores
        posterior = cache.posterior(wanted, device=device)
        found = {} if posterior is None else evaluator(posterior)
    path = _place(cache, wanted, evaluator)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {"date": _now(), **_versions(), **_machine()}
    write_json(path, {"key": path.stem, **found, **training_of(cache, wanted), "made": made})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {"mixupmp": __version__, "torch": torch.__version__, "python": platform.python_version()}


def _machine() -> dict[str, str]:
    """What weights depend on beside the seed: another processor rounds otherwise, and training amplifies it."""
    found = {"platform": platform.platform(), "processor": _processor()}
    return {**found, "capability": torch.backends.cpu.get_cpu_capability()}


def _processor() -> str:
    """The model's name where the system tells, as Linux does; else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _networks(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.members) for piece in pieces)


@contextmanager
def _terminated_as_stopped() -> Iterator[None]:
    """SIGTERM as an error, so that workers write their checkpoints before this process ends."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(STOPPED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
