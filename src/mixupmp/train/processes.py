"""The engine "processes": each member, or each vectorized group, in a worker process.

The plan is written to a temporary folder for the workers: its tensors as files that they all map, so that a second
worker needs no second copy of the data, and the rest pickled by value. Only processes of this user read it; it is never
read from a run folder.
"""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from mixupmp.core.errors import BadRun
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows
from mixupmp.core.threads import cores
from mixupmp.store.folder import RunFolder
from mixupmp.train import pool
from mixupmp.train.job import NO_CHECKPOINTS, CheckpointInterval, Finished, Job, fit_member
from mixupmp.train.pool import Call, NotPicklable
from mixupmp.train.progress import Callback

_ARRAYS = ("inputs", "labels", "weights")
Members = tuple[int, ...]
Train = Callable[[Job, list[Members]], list[Finished]]  # fits groups of members, each as one program


def run(job: Job) -> list[Finished]:
    """Fit each member in a worker."""
    return _run(job, [((member,), None) for member in job.members], job.plan.recipe.threads)


def run_groups(job: Job, groups: list[Members], train: Train) -> list[Finished]:
    """Fit each group of members as one program in a worker, by `train`."""
    return _run(job, [(tuple(m for m in group if m in job.members), group) for group in groups], 1, train)


class _Settings(NamedTuple):
    """What a worker needs beside the plan and the members."""

    folder: Path
    checkpoints: CheckpointInterval
    keep_collapsed: bool
    train: Train | None  # of groups


def _run(
    job: Job, parts: list[tuple[Members, Members | None]], threads: int, train: Train | None = None
) -> list[Finished]:
    with temporary_folder() as scratch:
        folder = job.folder or RunFolder(scratch / "run")
        plan = store_plan(job.plan, scratch)
        # Without a run folder there is nothing to resume.
        checkpoints = job.checkpoints if job.folder is not None else NO_CHECKPOINTS
        settings = _Settings(folder.path.resolve(), checkpoints, job.keep_collapsed, train)
        calls = [
            Call(_fit, (plan, members, group, settings), f"member {', '.join(map(str, members))}")
            for members, group in parts
        ]
        workers = min(len(calls), max(1, cores() // threads))
        pool.run(calls, workers=workers, threads=threads, callback=job.callback, stop=job.stop)
        return [read_finished(folder, member) for member in job.members]


def _fit(callback: Callback, path: Path, members: Members, group: Members | None, settings: _Settings) -> None:
    """What a worker does: fit these members one by one, or those of a vectorized group together."""
    plan = load_plan(path)
    job = Job(plan, members, RunFolder(settings.folder), settings.checkpoints, callback, callback.should_stop)
    job.keep_collapsed = settings.keep_collapsed
    if group is not None and settings.train is not None:
        settings.train(job, [group])
        return
    for member in members:
        fit_member(job, member)


def read_finished(folder: RunFolder, member: int, limit: int | None = None) -> Finished:
    """A finished member from its run folder, with weights of at most `limit` bytes; none where it diverged."""
    summary = folder.summary(member)
    assert summary is not None
    return summary, folder.weights(member, limit) if summary.diverged_at is None else {}


def store_plan(plan: Plan, folder: Path) -> Path:
    """Write a plan for workers; returns the file for `load_plan`."""
    if isinstance(plan.train, Rows):
        for name in _ARRAYS:
            tensor = getattr(plan.train, name)
            if tensor is not None:
                with _writing(folder / f"{name}.npy") as path:
                    np.save(path, tensor.contiguous().cpu().numpy())
        empty = torch.empty(0, *plan.task.input_shape)
        plan = replace_rows(plan, Rows(empty, torch.empty(0, dtype=torch.int64)))
    content = pickled(plan)
    with _writing(folder / "plan.pickle") as path:
        path.write_bytes(content)
    return path


def pickled(plan: Plan, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """The plan for another process; arrays in it go to `buffer_callback`, if there is one."""
    try:
        return cloudpickle.dumps(plan, buffer_callback=buffer_callback)
    except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
        must = "one that can be sent to another process"
        raise NotPicklable("plan", plan.method.name, must, f"{error}. Use the engine 'inline'.") from error


def unpickled(content: bytes, buffers: Sequence[np.ndarray] = (), name: str = "plan") -> Plan:
    """The plan from another process, as `pickled` returned it."""
    try:
        plan: Plan = pickle.loads(content, buffers=buffers)
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything, or not be found here
        must = "one that another process can read"
        hint = f"{type(error).__name__}: {error}. Use the engine 'inline'."
        raise NotPicklable("plan", name, must, hint) from None
    return plan


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """Name the temporary file that could not be written, and how to choose another place."""
    try:
        yield path
    except OSError as error:
        # numpy's `tofile` raises an OSError without errno when the disk is full.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BadRun(
            f"{path} could not be written for the worker processes: {reason}. Make room, set TMPDIR to a folder on a "
            "larger disk, or use the engine 'inline'."
        ) from error


def load_plan(path: Path) -> Plan:
    """Read a plan that `store_plan` wrote."""
    plan = unpickled(path.read_bytes(), name=path.name)
    found = {name: path.parent / f"{name}.npy" for name in _ARRAYS}
    if not found["inputs"].exists():
        return plan
    return replace_rows(plan, Rows(**{name: _mapped(file) for name, file in found.items() if file.exists()}))


def replace_rows(plan: Plan, train: Rows) -> Plan:
    """The plan with other training rows, which are not checked: they were when the plan was made."""
    changed = copy.copy(plan)
    object.__setattr__(changed, "train", train)
    return changed


def _mapped(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder with this process's name in its own; those of processes that were killed are removed."""
    prefix = f"mixupmp-{socket.gethostname()}-"
    _remove_leftovers(Path(tempfile.gettempdir()), prefix)
    with _writing(Path(tempfile.gettempdir())):
        made = tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", ignore_cleanup_errors=True)
    with made as path:
        yield Path(path)


def _remove_leftovers(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*-*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not folder.is_symlink() and not _alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)  # another user's cannot be removed, and stays


def _alive(process: int) -> bool:
    if os.name != "posix":  # there, signal 0 would be Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
