"""A run on disk: complete, self-describing, and safe to continue.

run/
  config.json              the plan in full, and what made it (versions, machine, command)
  members/000.safetensors  weights of a finished member
  members/000.json         summary of its fit: steps, history, and the SHA-256 of its weights
  checkpoints/000/         the newest two states of a member in training
  checkpoints/000.lock     held by the process that trains it
  posterior.safetensors    what a Laplace posterior has beyond its network
  detector.safetensors     scores of rows that were held out, for out-of-distribution detection
  metrics.jsonl            histories of all members, a line for each epoch
  evaluations.jsonl        metrics of the posterior, a line for each evaluation
  evaluation.safetensors   predictions on the test rows, for reports
  README.md                the model card
  manifest.json            SHA-256 of every file of a finished run
  manifest.sig             optional signature of the manifest
  lock                     held by the process that works on the run
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from mixupmp.core.errors import BadRun, MixupMPError, is_whole
from mixupmp.core.files import JSON_LIMIT, TEMPORARY, Directory, parse_json
from mixupmp.core.foreign import Json
from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.posterior import Posterior
from mixupmp.store.card import model_card
from mixupmp.store.checkpoint import Checkpoints
from mixupmp.store.lock import SOFT, locked
from mixupmp.store.manifest import update, write_manifest
from mixupmp.store.tensors import parse_tensors

FORMAT = 2
EVALUATION = "evaluation.safetensors"
DETECTOR = "detector.safetensors"


class RunChanged(MixupMPError):
    """A run was to be resumed with another configuration, other data or another version."""


class RunFolder:
    """The files of one run.

    Parameters
    ----------
    settings : what the spec says beyond the plan (where its rows come from, engine, checkpoints), for a resume.
    detector : content of detector.safetensors, for a new run.
    """

    def __init__(
        self, path: str | Path, settings: dict[str, object] | None = None, detector: bytes | None = None
    ) -> None:
        self.path = Path(path)
        self.files = Directory(self.path)
        self.settings, self.detector = settings, detector

    def is_started(self) -> bool:
        """Whether there is a configuration to resume from."""
        return self.files.exists("config.json")

    def is_unused(self) -> bool:
        """Whether the folder is missing, empty, or has only what a kill before config.json was written left."""
        return not self._foreign()

    def config(self) -> dict[str, Json]:
        """Content of config.json."""
        if self.path.is_dir() and not self.is_started() and self.is_unused():
            raise BadRun(f"{self.path} holds no run yet: start one there, with mixupmp fit --out {self.path}")
        return checked_config(self.files.json("config.json"), self.path)

    def create(self, config: dict[str, object]) -> None:
        """Make the folder and write its configuration; an existing run is never overwritten."""
        if self.path.is_dir() and self.is_started():
            raise BadRun(f"{self.path} holds a run already: resume it, or choose another folder.")
        if foreign := self._foreign():
            raise BadRun(f"{self.path} is not empty ({', '.join(foreign[:3])}): choose another folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        self.files.remove_temporary()
        if self.detector is not None:  # before config.json: a run that has started has it
            self.files.write(DETECTOR, self.detector)
        self.files.write_json("config.json", {"format": FORMAT, **config})

    def _foreign(self) -> list[str]:
        if self.path.exists() and not self.path.is_dir():
            return ["a file"]
        found = [
            name
            for name in self.files.entries()
            if name not in ("lock", SOFT.format("lock"), DETECTOR) and not TEMPORARY.fullmatch(name)
        ]
        return [] if found == ["members"] and not self.files.entries("members") else found

    def checkpoints(self, member: int, limit: int | None = None) -> Checkpoints:
        return Checkpoints(self.files, f"checkpoints/{member:03d}", limit)

    def finish_member(self, summary: MemberSummary, weights: dict[str, Tensor]) -> None:
        """Keep a finished member and remove its checkpoints. One that diverged has a summary and no weights."""
        name = f"members/{summary.member:03d}"
        record: dict[str, object] = {**dataclasses.asdict(summary), "sha256": None}
        if summary.diverged_at is None and weights:
            content = save(weights)
            self.files.write(f"{name}.safetensors", content)
            record["sha256"] = hashlib.sha256(content).hexdigest()
        self.files.write_json(f"{name}.json", record)
        self.checkpoints(summary.member).remove()

    def summary(self, member: int) -> MemberSummary | None:
        """How this member's fit ended, or None while it has not."""
        return self._record(member)[0] if self.files.exists(f"members/{member:03d}.json") else None

    def weights(self, member: int, limit: int | None = None) -> dict[str, Tensor]:
        """Weights of a finished member, of at most `limit` bytes, compared with their hash."""
        name = f"members/{member:03d}.safetensors"
        content = self.files.read(name, limit)
        if hashlib.sha256(content).hexdigest() != self._record(member)[1]:
            raise BadRun(
                f"{self.path / name} is damaged: its SHA-256 is not the recorded one. Restore it, or fit it again."
            )
        return parse_tensors(content, self.path / name)[0]

    def _record(self, member: int) -> tuple[MemberSummary, str | None]:
        name = f"members/{member:03d}.json"
        return parse_member(self.files.json(name), self.path / name)

    def finish_posterior(self, summaries: list[MemberSummary], posterior: Posterior) -> None:
        """Write the histories of all members, the posterior's own tensors, the card and the manifest."""
        if tensors := posterior.tensors():
            self.files.write("posterior.safetensors", save({k: v.contiguous() for k, v in tensors.items()}))
        lines = [json.dumps(record) for summary in summaries for record in summary.history]
        self.files.write("metrics.jsonl", "".join(f"{line}\n" for line in lines).encode())
        if self.files.exists(EVALUATION):  # of other members, or never sealed
            self.files.remove(EVALUATION)
        for subdirectory in ("", "members"):
            self.files.remove_temporary(subdirectory)
        if not any((self.path / "checkpoints" / name).is_dir() for name in self.files.entries("checkpoints")):
            self.files.remove_directory("checkpoints")  # only locks are left: no member is in training
        self.files.write("README.md", self._card(self.evaluations()))
        write_manifest(self.path)

    def evaluations(self) -> list[dict[str, Json]]:
        """Metrics of the posterior, as {"on": which rows, "metrics": {name: value}}."""
        name = "evaluations.jsonl"
        if not self.files.exists(name):
            return []
        lines = self.files.read(name, JSON_LIMIT).splitlines()
        found = [parse_json(line, self.path / name) for line in lines]
        for evaluation in found:
            metrics = evaluation.get("metrics") if isinstance(evaluation, dict) else None
            if not isinstance(metrics, dict) or not isinstance(evaluation.get("on"), str) or not _numbers(metrics):
                raise BadRun(f"{self.path / name} is damaged: each line must hold 'on' and numbers in 'metrics'.")
        return found

    def add_evaluation(self, on: str, metrics: Mapping[str, float | None]) -> None:
        """Add an evaluation to a finished run and its card; an earlier one on the same rows is replaced."""
        kept = [evaluation for evaluation in self.evaluations() if evaluation["on"] != on]
        kept.append({"on": on, "metrics": dict(metrics)})
        lines = "".join(f"{json.dumps(evaluation)}\n" for evaluation in kept)
        update(self.path, {"evaluations.jsonl": lines.encode(), "README.md": self._card(kept)})

    def _card(self, evaluations: list[dict[str, object]]) -> bytes:
        members = [name.removesuffix(".json") for name in self.files.entries("members") if name.endswith(".json")]
        summaries = [self._record(int(name))[0] for name in sorted(members, key=int)]
        return model_card(self.config(), summaries, evaluations).encode()

    def locked(self) -> AbstractContextManager[None]:
        """Hold the run; `RunLocked` where another process does."""
        return locked(self.files, "lock")

    def member_locked(
        self, member: int, timeout: float | None = None, on_wait: Callable[[str], None] | None = None
    ) -> AbstractContextManager[None]:
        """Wait for, and hold, one member: two processes never write its checkpoints at once.

        `on_wait` is called with a description of the other process if the wait takes longer than a second.
        """
        return locked(self.files, f"checkpoints/{member:03d}.lock", timeout, on_wait)


def parse_member(record: object, path: Path) -> tuple[MemberSummary, str | None]:
    """Summary of a member and the hash of its weights, from the content of the JSON file at this path."""
    fields = {field.name for field in dataclasses.fields(MemberSummary)}
    later = {"collapsed", "one_class", "keep"}  # earlier runs do not say these
    required = fields - later | {"sha256"}
    if not isinstance(record, dict) or not required <= record.keys() <= fields | {"sha256"}:
        raise BadRun(f"{path} is not a member's summary: it must have exactly the keys sha256, {', '.join(fields)}.")
    values = dict(record)
    digest = values.pop("sha256")
    counts = [values[name] for name in ("member", "steps", "epochs")]
    right = (
        all(is_whole(value, 0) for value in counts)
        and _is_float(values["seconds"])
        and (values["training_accuracy"] is None or _is_float(values["training_accuracy"]))
        and (values["diverged_at"] is None or is_whole(values["diverged_at"], 0))
        and all(isinstance(values.get(name, False), bool) for name in later)
        and (digest is None or isinstance(digest, str))
        and is_history(values["history"])
    )
    if not right:
        raise BadRun(f"{path} is damaged: a value has the wrong type. Restore it from a copy, or fit it again.")
    return MemberSummary(**values), digest


def is_history(value: object) -> bool:
    """Whether this is a list of records, one an epoch, that hold numbers."""
    return isinstance(value, list) and all(
        isinstance(entry, dict) and is_whole(entry.get("epoch"), 0) and _numbers(entry) for entry in value
    )


def _numbers(values: Mapping[str, object]) -> bool:
    return all(value is None or _is_float(value) for value in values.values())


def _is_float(value: object) -> bool:
    """Whether this is a number that a float can hold; JSON has whole numbers of any length."""
    if isinstance(value, bool) or not isinstance(value, int):
        return isinstance(value, float)
    return abs(value) <= sys.float_info.max


_KINDS = {"spec": dict, "fingerprints": dict, "versions": dict, "machine": dict, "wanted": int, "notes": list}
_NAMES = {dict: "an object", int: "a whole number", list: "a list"}


def checked_config(config: Any, folder: Path) -> dict[str, Json]:
    """Check that the content of a config.json is one that this version reads."""
    path = folder / "config.json"
    version = config.get("format") if isinstance(config, dict) else None
    if not isinstance(version, int):
        raise BadRun(f"{path} names no format: this is not a run folder of mixupmp.")
    if version == 1:
        raise BadRun(
            f"{folder} was written by mixupmp 0.1.0 (format 1), which this version does not read. Fit it again, or use "
            "it with the version that wrote it: pip install mixupmp==0.1.0."
        )
    if version > FORMAT:
        raise BadRun(f"{folder} has format {version}, this version reads up to {FORMAT}: upgrade mixupmp.")
    for key, kind in _KINDS.items():
        if (key in config or key == "spec") and type(config.get(key)) is not kind:
            raise BadRun(f"{path} is damaged: {key!r} must be {_NAMES[kind]}, got a {type(config.get(key)).__name__}.")
    if missing := [key for key in ("method", "network", "task", "seed") if key not in config["spec"]]:
        raise BadRun(f"{path} is damaged: its spec lacks {', '.join(missing)}.")
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


def differences(before: object, after: object, where: str = "") -> list[str]:
    """What differs between two configurations, a line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[str] = []
        for key in sorted(before.keys() | after.keys()):
            place = f"{where}.{key}" if where else key
            found += differences(before.get(key), after.get(key), place)
        return found
    return [] if before == after else [f"{where}: was {before!r}, is {after!r}"]
