"""A run on disk: complete, self-describing, and safe to come back to.

run/
  config.json              the plan in full, and what made it (versions, machine, command)
  members/000.safetensors  a finished network's weights
  members/000.json         how its fit ended, its history, and the hash of its weights
  checkpoints/000/         the last two states of a network that is not finished
  posterior.safetensors    what a Laplace posterior has beyond its network
  metrics.jsonl            the histories of all members, a line for each epoch
  evaluations.jsonl        what the posterior was found to be worth, a line for each evaluation
  README.md                the model card: all of this in words
  manifest.json            SHA-256 of every file of a finished run
  lock                     held by the process that works on it
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from mixupmp.core.errors import BadRun, MixupMPError
from mixupmp.core.files import read_json, sha256, write_atomically, write_json
from mixupmp.core.posterior import Posterior, Summary
from mixupmp.store.card import model_card
from mixupmp.store.checkpoint import Checkpoints
from mixupmp.store.manifest import add_to_manifest, write_manifest

FORMAT = 1


class RunLocked(MixupMPError):
    """Another process works on this run."""


class RunChanged(MixupMPError):
    """A run was to be resumed with another configuration, other data or another version."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path, settings: dict[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.settings = settings  # what the plan was made from, where that can be said: a resume makes it again

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    def config(self) -> dict[str, Any]:
        """What is written down of this run."""
        return checked_config(read_json(self.config_path), self.path)

    def create(self, config: dict[str, Any]) -> None:
        """Make the folder and write its configuration; an existing run is never written over."""
        if self.config_path.exists():
            raise BadRun(f"{self.path} holds a run already: resume it, or choose another folder.")
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            left = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else ["a file"]
            if set(left) != {"lock"}:
                raise BadRun(f"{self.path} is not empty ({', '.join(left[:3])}): choose another folder.")
        (self.path / "members").mkdir(parents=True, exist_ok=True)
        settings = {} if self.settings is None else {"settings": self.settings}
        write_json(self.config_path, {"format": FORMAT, **config, **settings})

    def checkpoints(self, member: int) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints" / f"{member:03d}")

    def finish_member(self, summary: Summary, weights: dict[str, Tensor]) -> None:
        """Keep a finished member, and let go of its checkpoints. One that diverged leaves its story and no weights."""
        record: dict[str, Any] = {**dataclasses.asdict(summary), "sha256": None}
        members = self.path / "members"
        members.mkdir(parents=True, exist_ok=True)
        if summary.diverged_at is None:
            path = members / f"{summary.member:03d}.safetensors"
            write_atomically(path, save(weights))
            record["sha256"] = sha256(path)
        write_json(members / f"{summary.member:03d}.json", record)
        self.checkpoints(summary.member).remove()

    def summary(self, member: int) -> Summary | None:
        """How this member ended, or None while it has not."""
        path = self.path / "members" / f"{member:03d}.json"
        if not path.exists():
            return None
        record = read_json(path)
        record.pop("sha256")
        return Summary(**record)

    def weights(self, member: int) -> dict[str, Tensor]:
        """A finished member's weights, checked against its hash."""
        path = self.path / "members" / f"{member:03d}.safetensors"
        expected = read_json(path.with_suffix(".json"))["sha256"]
        if not path.exists():
            raise BadRun(f"{path} is missing.")
        if sha256(path) != expected:
            raise BadRun(f"{path} is damaged: its SHA-256 is not the one written down. Restore it, or fit it again.")
        return load(path.read_bytes())

    def finish_posterior(self, summaries: list[Summary], posterior: Posterior) -> None:
        """Write the metrics of all members, what the posterior adds to them, and the manifest that seals the run."""
        if tensors := posterior.tensors():
            write_atomically(self.path / "posterior.safetensors", save({k: v.contiguous() for k, v in tensors.items()}))
        lines = [json.dumps(record) for summary in summaries for record in summary.history]
        write_atomically(self.path / "metrics.jsonl", ("\n".join(lines) + "\n").encode() if lines else b"")
        checkpoints = self.path / "checkpoints"
        if not any(entry.is_dir() for entry in checkpoints.glob("*")):  # of members that are still to be finished
            shutil.rmtree(checkpoints, ignore_errors=True)
        self._write_card()
        write_manifest(self.path)

    def evaluations(self) -> list[dict[str, Any]]:
        """What the posterior was found to be worth: {"on": which rows, "metrics": {name: value}}."""
        path = self.path / "evaluations.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def add_evaluation(self, on: str, metrics: Mapping[str, float | None]) -> None:
        """Keep an evaluation with a finished run and show it on the card; one on the same rows gives way to it."""
        kept = [evaluation for evaluation in self.evaluations() if evaluation["on"] != on]
        lines = [json.dumps(evaluation) for evaluation in [*kept, {"on": on, "metrics": dict(metrics)}]]
        write_atomically(self.path / "evaluations.jsonl", ("\n".join(lines) + "\n").encode())
        self._write_card()
        add_to_manifest(self.path, ("evaluations.jsonl", "README.md"))

    def _write_card(self) -> None:
        numbers = sorted(int(path.stem) for path in (self.path / "members").glob("*.json"))
        stories = [story for number in numbers if (story := self.summary(number)) is not None]
        card = model_card(self.config(), stories, self.evaluations())
        write_atomically(self.path / "README.md", card.encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run. The lock is the kernel's, so it goes with the process: a stale one cannot be left behind."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise RunLocked(f"{self.path} is in use by {holder}. Wait for it, or choose another folder.") from None
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    @contextmanager
    def member_locked(self, member: int) -> Iterator[None]:
        """Wait for, and hold, one member of the run: two processes never write its checkpoints at once."""
        path = self.path / "checkpoints" / f"{member:03d}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def checked_config(config: Any, folder: Path) -> dict[str, Any]:
    """A run's configuration, if it is one that this version reads."""
    version = config.get("format") if isinstance(config, dict) else None
    if not isinstance(version, int):
        raise BadRun(f"{folder / 'config.json'} names no format: this is not a run folder of mixupmp.")
    if version > FORMAT:
        raise BadRun(f"{folder} has format {version}, this version reads up to {FORMAT}: upgrade mixupmp.")
    return dict(config)


def check_writable(path: Path) -> None:
    """Fail before training, not after, where a folder cannot be made or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BadRun(f"{path} cannot be written to: {reason}. Choose another folder, or make room there.") from error


def differences(before: Any, after: Any, where: str = "") -> list[str]:
    """What differs between two configurations, a line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[str] = []
        for key in sorted(before.keys() | after.keys()):
            place = f"{where}.{key}" if where else key
            found += differences(before.get(key), after.get(key), place)
        return found
    return [] if before == after else [f"{where}: was {before!r}, is {after!r}"]
