"""Members as tasks of a Ray cluster: the same fit, on whichever machines there are.

One task for each member, with its request for cores or a GPU. Where the run folder lies on storage that the workers
share, they write their checkpoints and results there and answer with a name and a hash; a member whose machine is
lost starts again elsewhere from its own checkpoint, and finished ones are not touched. Where there is no shared
storage, weights come back with the answer.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from mixupmp.core.errors import MixupMPError
from mixupmp.core.files import sha256, storage_errors
from mixupmp.core.member_summary import EpochRecord
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows
from mixupmp.store.folder import RunFolder
from mixupmp.train.environment import own_path
from mixupmp.train.job import NO_CHECKPOINTS, CheckpointInterval, Finished, Job, fit_member
from mixupmp.train.member import StopTraining
from mixupmp.train.processes import pickled, read_finished, replace_rows, temporary_folder, unpickled
from mixupmp.train.progress import Callback
from mixupmp.train.ray_cluster import connected, import_ray

RETRIES = 3  # of a member whose worker or machine was lost; an error in Python is not retried
_INTERVAL = 1.0  # seconds between a worker's reports to the driver


@dataclass(frozen=True)
class Storage:
    """Where a remote worker writes: the run folder, if it can find the driver's token there."""

    folder: str | None
    token: str
    checkpoints: CheckpointInterval
    keep_collapsed: bool = False

    @property
    def shared(self) -> bool:
        return self.folder is not None and (Path(self.folder) / f".{self.token}").exists()


def run(job: Job) -> list[Finished]:
    """Fit the job's members on the cluster."""
    ray = import_ray()
    with connected(job.address), _token(job.folder) as token:
        board = _start_board(ray)
        plan = ray.put(Portable.of(job.plan))
        storage = Storage(
            None if job.folder is None else str(job.folder.path.resolve()), token, job.checkpoints, job.keep_collapsed
        )
        gpus = 1 if job.plan.device != "cpu" else 0
        task = ray.remote(num_cpus=job.plan.recipe.threads, num_gpus=gpus, max_retries=RETRIES)(train)
        waiting = {task.remote(plan, member, storage, board): member for member in job.members}
        try:
            return _collect(ray, job, waiting, board)
        except ray.exceptions.RayTaskError:  # raised in a task, with a trace of its own
            raise
        except ray.exceptions.RayError as error:
            raise MixupMPError(
                f"the Ray cluster failed: {error} What a run folder holds is kept: resume it."
            ) from error


class Board:
    """An actor where workers leave their progress, and learn whether to stop."""

    def __init__(self) -> None:
        self.steps: dict[int, tuple[int, int, int, float]] = {}
        self.records: list[EpochRecord] = []
        self.stopping = False

    def report(self, member: int, step: int, total: int, loss: float) -> bool:
        """Store a member's progress; returns whether it is to stop."""
        self.steps[member] = (member, step, total, loss)
        return self.stopping

    def add_record(self, record: EpochRecord) -> None:
        self.records.append(record)

    def latest(self) -> tuple[list[tuple[int, int, int, float]], list[EpochRecord]]:
        """The progress of all members, and the records since the last call."""
        records, self.records = self.records, []
        return list(self.steps.values()), records

    def stop(self) -> None:
        self.stopping = True


def _start_board(ray: Any) -> Any:
    """On the driver's own machine: it is needed as long as the driver is, and must not be lost with a worker's."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()


class _BoardCallback(Callback):
    """Reports a member's progress to the board."""

    def __init__(self, ray: Any, board: Any) -> None:
        self.ray, self.board = ray, board
        self.reported_at = time.monotonic()
        self.answer: Any = None
        self.stopping = False

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        if time.monotonic() - self.reported_at < _INTERVAL:
            return
        self.reported_at = time.monotonic()
        if self.answer is not None and self.ray.wait([self.answer], timeout=0)[0]:
            self.stopping = self.ray.get(self.answer)
        self.answer = self.board.report.remote(member, step, total, loss)

    def on_epoch_end(self, record: EpochRecord) -> None:
        self.board.add_record.remote(record)

    def should_stop(self) -> bool:
        return self.stopping


def train(portable: Portable, member: int, storage: Storage, board: Any) -> tuple[str, Any]:
    """The Ray task: fit one member on a worker."""
    ray = import_ray()
    if ray.get(board.report.remote(member, 0, 1, float("nan"))):
        return "stopped", None  # it was scheduled after the driver was asked to stop
    callback, shared, plan = _BoardCallback(ray, board), storage.shared, portable.unpacked()
    torch.set_num_threads(plan.recipe.threads)
    with temporary_folder() as scratch:
        folder = RunFolder(storage.folder if shared and storage.folder is not None else scratch / "run")
        checkpoints = storage.checkpoints if shared else NO_CHECKPOINTS  # one that is lost with its machine is no use
        if folder.summary(member) is None:
            job = Job(plan, (member,), folder, checkpoints, callback, callback.should_stop)
            job.keep_collapsed = storage.keep_collapsed
            try:
                fit_member(job, member)
            except StopTraining:
                return "stopped", None
        if shared:
            path = folder.path / "members" / f"{member:03d}.safetensors"
            return "written", sha256(path) if path.exists() else None
        summary, weights = read_finished(folder, member)
        return "sent", (summary, {name: value.numpy() for name, value in weights.items()})


def _collect(ray: Any, job: Job, waiting: dict[Any, int], board: Any) -> list[Finished]:
    """Take results as they come, call callbacks, and pass on a request to stop."""
    finished: dict[int, Finished] = {}
    stopped = asked = False
    while waiting:
        done, _ = ray.wait(list(waiting), timeout=0.2)
        for reference in done:
            member = waiting.pop(reference)
            kind, content = _answer(ray, reference, member)
            if kind == "stopped":
                stopped = True
            else:
                finished[member] = _take(job, member, kind, content)
        steps, records = ray.get(board.latest.remote())
        for record in records:
            job.callback.on_epoch_end(record)
        for step in steps:
            if step[0] in waiting.values():
                job.callback.on_step(*step)
        if not asked and job.stop():
            asked = True
            ray.get(board.stop.remote())
    if stopped:
        raise StopTraining
    return [finished[member] for member in job.members]


def _answer(ray: Any, reference: Any, member: int) -> tuple[str, Any]:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MixupMPError | ray.exceptions.RayError):
            raise error.cause from None
        raise
    except ray.exceptions.WorkerCrashedError as error:
        raise MixupMPError(f"member {member} was given up after {RETRIES} retries: {error}") from error


def _take(job: Job, member: int, kind: str, content: Any) -> Finished:
    if kind == "written":
        assert job.folder is not None
        finished = read_finished(job.folder, member)
        job.callback.on_member_end(finished[0])
        return finished
    summary, arrays = content
    return job.finish(summary, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


class Portable(NamedTuple):
    """A plan for the object store: its arrays apart, which workers of one machine map and share.

    The rest is unpickled by the task rather than by Ray, because the task knows where the user's modules are. A worker
    starts without the driver's path: a file in the current folder is not imported in place of an installed module.
    """

    path: list[str]
    plan: bytes
    buffers: list[np.ndarray]  # of arrays in the plan
    rows: dict[str, np.ndarray]

    @classmethod
    def of(cls, plan: Plan) -> Portable:
        rows: dict[str, np.ndarray] = {}
        if isinstance(plan.train, Rows):
            tensors = {name: getattr(plan.train, name) for name in ("inputs", "labels", "weights")}
            rows = {name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items() if tensor is not None}
            plan = replace_rows(plan, Rows(torch.empty(0), torch.empty(0)))
        buffers: list[np.ndarray] = []
        content = pickled(plan, lambda buffer: buffers.append(np.asarray(buffer.raw())))
        return cls(own_path(), content, buffers, rows)

    def unpacked(self) -> Plan:
        sys.path[:0] = [entry for entry in self.path if entry not in sys.path]
        plan = unpickled(self.plan, self.buffers)
        if not self.rows:
            return plan
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable.*")  # rows are only ever read
            return replace_rows(plan, Rows(**{name: torch.from_numpy(array) for name, array in self.rows.items()}))


@contextlib.contextmanager
def _token(folder: RunFolder | None) -> Iterator[str]:
    token = secrets.token_hex(16)
    if folder is None:
        yield token
        return
    path = folder.path / f".{token}"
    with storage_errors(path):
        path.touch()
    try:
        yield token
    finally:
        with storage_errors(path, "removed"):
            path.unlink(missing_ok=True)
