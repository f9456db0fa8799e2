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
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mixupmp.core.errors import MissingExtra, MixupMPError
from mixupmp.core.files import sha256
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Summary
from mixupmp.core.rows import Rows
from mixupmp.store.folder import RunFolder
from mixupmp.train.job import Every, Finished, Job, Record, fit_member
from mixupmp.train.member import Interrupted
from mixupmp.train.stored_plan import with_train

RETRIES = 3  # of a member whose worker or machine was lost; an error in Python is not retried
_LOOK = 1.0  # seconds between a worker's questions to the driver


@dataclass(frozen=True)
class Order:
    """What a task is told beside the plan and its member."""

    folder: str | None
    token: str  # lies in the folder: a worker that can read it there shares the driver's storage
    every: Every
    threads: int


def run(job: Job) -> list[Finished]:
    """Train the job's members on the cluster."""
    ray = _ray()
    with connected(job.address), _token(job.folder) as token:
        board = _board(ray)
        plan = ray.put(_portable(job.plan))
        order = Order(None if job.folder is None else str(job.folder.path.resolve()), token, job.every,
                      job.plan.recipe.threads)  # fmt: skip
        gpus = 1 if job.plan.device != "cpu" else 0
        task = ray.remote(num_cpus=order.threads, num_gpus=gpus, max_retries=RETRIES)(train)
        waiting = {task.remote(plan, member, order, board): member for member in job.members}
        return _collect(ray, job, waiting, board)


class Board:
    """Where workers leave their progress, and find whether to stop. An actor of the cluster."""

    def __init__(self) -> None:
        self.news: dict[int, tuple[int, int, int, float]] = {}
        self.records: list[Record] = []
        self.stopping = False

    def moved(self, member: int, step: int, total: int, loss: float) -> bool:
        """Take a member's progress; answer whether it is to stop."""
        self.news[member] = (member, step, total, loss)
        return self.stopping

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def latest(self) -> tuple[list[tuple[int, int, int, float]], list[Record]]:
        """Where members are, and what they recorded since this was last asked."""
        records, self.records = self.records, []
        return list(self.news.values()), records

    def stop(self) -> None:
        self.stopping = True


def _board(ray: Any) -> Any:
    """On the driver's own machine: it is wanted as long as the driver is, and must not be lost with a worker's."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()


class _Line:
    """A worker's line to the board."""

    def __init__(self, ray: Any, board: Any) -> None:
        self.ray, self.board = ray, board
        self.looked = time.monotonic()
        self.answer: Any = None
        self.stopping = False

    def moved(self, member: int, step: int, total: int, loss: float) -> None:
        if time.monotonic() - self.looked < _LOOK:
            return
        self.looked = time.monotonic()
        if self.answer is not None and self.ray.wait([self.answer], timeout=0)[0]:
            self.stopping = self.ray.get(self.answer)
        self.answer = self.board.moved.remote(member, step, total, loss)

    def recorded(self, record: Record) -> None:
        self.board.recorded.remote(record)

    def finished(self, summary: Summary) -> None: ...

    def say(self, text: str) -> None: ...

    def stop(self) -> bool:
        return self.stopping


def train(portable: tuple[Plan, dict[str, Any]], member: int, order: Order, board: Any) -> tuple[str, Any]:
    """The task: one member, on a worker."""
    torch.set_num_threads(order.threads)
    ray = _ray()
    if ray.get(board.moved.remote(member, 0, 1, float("nan"))):
        return "interrupted", None  # it came to its turn after the driver was asked to stop
    line = _Line(ray, board)
    shared = _shares_storage(order)
    with tempfile.TemporaryDirectory(prefix="mixupmp-") as scratch:
        folder = RunFolder(order.folder if shared and order.folder is not None else scratch)
        every = order.every if shared else Every(None, None)  # a checkpoint that dies with its machine helps nobody
        summary = folder.summary(member)
        if summary is None:
            job = Job(_unpacked(portable), (member,), folder, every, line, line.stop)
            try:
                summary, _ = fit_member(job, member)
            except Interrupted:
                return "interrupted", None
        path = folder.path / "members" / f"{member:03d}.safetensors"
        if shared:
            return "kept", sha256(path) if path.exists() else None
        weights = folder.weights(member) if summary.diverged_at is None else {}
        return "sent", (summary, {name: value.numpy() for name, value in weights.items()})


def _collect(ray: Any, job: Job, waiting: dict[Any, int], board: Any) -> list[Finished]:
    """Take results as they come, show progress, pass a request to stop on."""
    finished: dict[int, Finished] = {}
    interrupted = told = False
    while waiting:
        done, _ = ray.wait(list(waiting), timeout=0.2)
        for reference in done:
            member = waiting.pop(reference)
            kind, content = _answer(ray, reference, member)
            if kind == "interrupted":
                interrupted = True
            else:
                finished[member] = _take(job, member, kind, content)
        moved, records = ray.get(board.latest.remote())
        for record in records:
            job.progress.recorded(record)
        for news in moved:
            if news[0] in waiting.values():
                job.progress.moved(*news)
        if job.stop() and not told:
            told = True
            ray.get(board.stop.remote())
    if interrupted:
        raise Interrupted
    return [finished[member] for member in job.members]


def _answer(ray: Any, reference: Any, member: int) -> tuple[str, Any]:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MixupMPError):
            raise error.cause from None
        raise
    except ray.exceptions.WorkerCrashedError as error:
        raise MixupMPError(f"member {member} was given up after {RETRIES} retries: {error}") from error


def _take(job: Job, member: int, kind: str, content: Any) -> Finished:
    if kind == "kept":
        assert job.folder is not None
        summary = job.folder.summary(member)
        assert summary is not None
        weights = job.folder.weights(member) if summary.diverged_at is None else {}
        job.progress.finished(summary)
        return summary, weights
    summary, arrays = content
    weights = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    job.finish(summary, weights)
    return summary, weights


def _portable(plan: Plan) -> tuple[Plan, dict[str, Any]]:
    """A plan for the object store: its rows as arrays, which workers of one machine map and share."""
    if not isinstance(plan.train, Rows):
        return plan, {}
    arrays = {name: getattr(plan.train, name) for name in ("inputs", "labels", "weights")}
    kept = {name: tensor.contiguous().cpu().numpy() for name, tensor in arrays.items() if tensor is not None}
    return with_train(plan, Rows(torch.empty(0), torch.empty(0))), kept


def _unpacked(portable: tuple[Plan, dict[str, Any]]) -> Plan:
    plan, arrays = portable
    if not arrays:
        return plan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # rows are only ever read
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return with_train(plan, Rows(**tensors))


@contextlib.contextmanager
def _token(folder: RunFolder | None) -> Iterator[str]:
    token = secrets.token_hex(16)
    if folder is None:
        yield token
        return
    path = folder.path / f".{token}"
    path.touch()
    try:
        yield token
    finally:
        path.unlink(missing_ok=True)


def _shares_storage(order: Order) -> bool:
    return order.folder is not None and (Path(order.folder) / f".{order.token}").exists()


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join the cluster at this address, or the one already joined, or start one on this machine for the while."""
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    # Ray would otherwise limit OpenMP to num_cpus by itself and say so; threads are pinned by the recipe.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(address=address, log_to_driver=False, logging_level="warning", include_dashboard=False)
    try:
        yield
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "The engine 'ray'") from error
    return ray
