"""Members as tasks of a Ray cluster: the same fit, on whichever machines there are.

One task for each member, with its request for cores or a GPU. Where the run folder lies on storage that the workers
share, they write their checkpoints and results there and answer with a name and a hash; a member whose machine is
lost starts again elsewhere from its own checkpoint, and finished ones are not touched. Where there is no shared
storage, weights come back with the answer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mixupmp.core.errors import MissingExtra, MixupMPError
from mixupmp.core.files import sha256, storage_errors
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows
from mixupmp.store.folder import RunFolder
from mixupmp.train.job import NO_CHECKPOINTS, CheckpointInterval, Finished, Job, fit_member
from mixupmp.train.member import StopTraining
from mixupmp.train.processes import read_finished, replace_rows, temporary_folder
from mixupmp.train.progress import Callback, EpochRecord

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
    ray = _ray()
    with connected(job.address), _token(job.folder) as token:
        board = _start_board(ray)
        plan = ray.put(_portable(job.plan))
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


def train(portable: tuple[Plan, dict[str, Any]], member: int, storage: Storage, board: Any) -> tuple[str, Any]:
    """The Ray task: fit one member on a worker."""
    ray = _ray()
    if ray.get(board.report.remote(member, 0, 1, float("nan"))):
        return "stopped", None  # it was scheduled after the driver was asked to stop
    callback, shared, plan = _BoardCallback(ray, board), storage.shared, _unpacked(portable)
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


def _portable(plan: Plan) -> tuple[Plan, dict[str, Any]]:
    """A plan for the object store: its rows as arrays, which workers of one machine map and share."""
    if not isinstance(plan.train, Rows):
        return plan, {}
    arrays = {name: getattr(plan.train, name) for name in ("inputs", "labels", "weights")}
    kept = {name: tensor.contiguous().cpu().numpy() for name, tensor in arrays.items() if tensor is not None}
    return replace_rows(plan, Rows(torch.empty(0), torch.empty(0))), kept


def _unpacked(portable: tuple[Plan, dict[str, Any]]) -> Plan:
    plan, arrays = portable
    if not arrays:
        return plan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # rows are only ever read
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return replace_rows(plan, Rows(**tensors))


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


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to the cluster at this address, or use the one that is connected, or start one on this machine.

    One that is started here listens on the loopback interface only: whoever reaches a Ray port can run code.
    """
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    # Ray would otherwise limit OpenMP to num_cpus by itself and say so; threads are pinned by the recipe.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with contextlib.nullcontext() if address or os.environ.get("RAY_ADDRESS") else _loopback_only():
        try:
            ray.init(address=address, log_to_driver=False, logging_level="warning", include_dashboard=False)
        except Exception as error:  # a plain Exception, where a node does not start in time
            raise MixupMPError(
                f"there is no Ray cluster: {error} Check its address, or use another engine: engine='processes'."
            ) from error
        try:
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Let Ray take 127.0.0.1 for this machine's address, as it does where it supports no clusters (macOS, Windows)."""
    from ray._private import ray_constants

    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "The engine 'ray'") from error
    return ray
