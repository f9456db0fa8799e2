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
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from mixupmp.core.errors import BadRun, MixupMPError
from mixupmp.core.files import read_json, write_json
from mixupmp.core.rows import Rows
from mixupmp.core.version import __version__
from mixupmp.metrics import evaluate
from mixupmp.paper.estimate import Estimate, clock
from mixupmp.paper.members import Cache, Piece, Wanted, pieces_of
from mixupmp.paper.worker import STOPPED, Stopped, train_all

Evaluation = dict[str, Any]


class NothingKept(MixupMPError):
    """There is nothing in the cache to report on."""


@dataclasses.dataclass
class Study:
    """What an experiment is given: a scale, the cache, a results folder, and how to talk to the user."""

    name: str
    scale: str
    cache: Cache
    results: Path
    workers: int = 2
    niceness: int = 0
    say: Callable[[str], None] = lambda text: None
    # Report only what the cache holds, and say what is missing: a look at a plan that is still running.
    partial: bool = False
    part: str = ""  # the dataset, where an experiment has several

    def on(self, part: str) -> Study:
        """The same study for one of its datasets, with a folder of its own."""
        return dataclasses.replace(self, part=part)

    @property
    def folder(self) -> Path:
        """Where this experiment writes at this scale."""
        path = self.results / self.name / self.scale / self.part
        path.mkdir(parents=True, exist_ok=True)
        return path

    def train(self, wanted: Sequence[Wanted]) -> None:
        """Train what is not in the cache, after saying how much that is and how long it will take."""
        pieces = pieces_of(wanted)
        missing = [piece for piece in pieces if not self.cache.has(piece)]
        total, left = _networks(pieces), _networks(missing)
        place = " ".join(filter(None, (self.name, self.part)))
        self.say(f"{place} ({self.scale}): {total} member-fits, {total - left} cached, {left} to train.")
        if not missing:
            return
        if self.partial:
            if left == total:
                raise NothingKept(
                    f"--partial: the cache {self.cache.path} has nothing of {place}. Leave --partial out."
                )
            return
        estimate = Estimate(missing, min(self.workers, len(missing)))
        self.say(f"Estimated time: {clock(estimate.seconds_left)} with {estimate.workers} at a time.")
        with _terminated_as_stopped():
            while missing:
                self._train(missing, estimate)
                missing = [piece for piece in missing if not self.cache.has(piece)]
                if missing:  # another process is at work on them
                    time.sleep(2)

    def _train(self, missing: list[Piece], estimate: Estimate) -> None:
        def heard(piece: Piece, said: str) -> None:
            estimate.done(piece)
            self.say(
                f"[{estimate.finished}/{estimate.total}] {piece.plan.method.name} seed {piece.plan.seed} "
                f"member {', '.join(map(str, piece.members))}: {said}; {clock(estimate.seconds_left)} left"
            )

        train_all(missing, self.cache, self.workers, heard, self.niceness)

    def available(self, wanted: Wanted) -> bool:
        """Whether every network of it is in the cache."""
        return all(self.cache.has(piece) for piece in wanted.pieces)

    def evaluate(self, wanted: Wanted, rows: Rows, label: str = "test") -> Evaluation:
        """Every measure on these rows, the training accuracy and the diverged members; kept in the cache."""
        return self.kept(wanted, f"evaluate {label} {rows.fingerprint()}", lambda: self._evaluate(wanted, rows))

    def _evaluate(self, wanted: Wanted, rows: Rows) -> Evaluation:
        posterior = self.cache.posterior(wanted)
        if posterior is None:
            return {**self.training(wanted)}
        return {**evaluate(posterior.member_probabilities(rows.inputs), rows.labels), **self.training(wanted)}

    def training(self, wanted: Wanted) -> Evaluation:
        """How the fits ended: training accuracy over the members that stayed finite, and how many did not."""
        summaries = [summary for summary, _ in self.cache.finished(wanted)]
        finite = [s.training_accuracy for s in summaries if s.training_accuracy is not None]
        return {
            "training_accuracy": sum(finite) / len(finite) if finite else None,
            "diverged": sum(s.diverged_at is not None for s in summaries),
            "networks": len(summaries),
            "seconds": sum(s.seconds for s in summaries),
        }

    def kept(self, wanted: Wanted, what: str, compute: Callable[[], Evaluation]) -> Evaluation:
        """The value of a computation on a posterior, computed once for ever."""
        name = hashlib.sha256(f"{wanted.key} {what}".encode()).hexdigest()[:24]
        path = self.cache.path / "evaluations" / name[:2] / f"{name}.json"
        if path.exists():
            return dict(read_json(path))
        value = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, value)
        return value

    def write(self, name: str, content: str | dict[str, Any] | list[Any]) -> Path:
        """Write a text or JSON file among the results."""
        path = self.folder / name
        text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
        path.write_text(text)
        return path

    def record(self, reduced: Sequence[str], seeds: Sequence[int], started: float, **more: Any) -> None:
        """`run.json`: what made these results."""
        data = f" --data {self.part}" if self.part else ""
        self.write(
            "run.json",
            {
                "command": f"mixupmp reproduce {self.name} --scale {self.scale}{data}",
                "called_as": " ".join(["mixupmp", *sys.argv[1:]]),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(time.time() - started, 1),
                "seeds": list(seeds),
                "reduced": list(reduced),
                "versions": {
                    "mixupmp": __version__,
                    "torch": torch.__version__,
                    "python": platform.python_version(),
                },
                "machine": {
                    "platform": platform.platform(),
                    "processor": platform.machine(),
                    "capability": torch.backends.cpu.get_cpu_capability(),
                    "workers": self.workers,
                },
                **more,
            },
        )


def read_results(results: Path, name: str, scale: str, file: str) -> Any:
    """What an experiment wrote, or None where it has not been run."""
    path = results / name / scale / file
    try:
        return read_json(path) if path.exists() else None
    except BadRun:
        return None


def _networks(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.members) for piece in pieces)


@contextmanager
def _terminated_as_stopped() -> Iterator[None]:
    """SIGTERM as an error, so that workers are told to write their checkpoints before we go."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(STOPPED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
