"""Groups of members, in threads or in worker processes: a run keeps them, because the last bits depend on them."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import hashes
from torch import nn

from mixupmp import CheckpointInterval, Recipe, mixup_mp, plan_for
from mixupmp.core.plan import Plan
from mixupmp.data import load
from mixupmp.networks import MLP
from mixupmp.store.folder import RunFolder
from mixupmp.train import pool as processes
from mixupmp.train import run
from mixupmp.train.job import FitInterrupted
from mixupmp.train.pool import NotPicklable, WorkerFailed
from mixupmp.train.processes import store_plan
from mixupmp.train.progress import Callback
from mixupmp.train.run import fit
from mixupmp.train.vectorized import engine as vectorized
from mixupmp.train.vectorized.engine import VectorizedFit, split_members

RECIPE = Recipe(epochs=300, batch_size=None, learning_rate=0.05)


class Stop(Callback):
    """Has the run stopped when a member has made so many steps."""

    def __init__(self, member: int, step: int) -> None:
        self.member, self.step = member, step
        self.recorded_of: set[int] = set()

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        if member == self.member and step >= self.step:
            self.step = total + 1
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_end(self, record: dict[str, Any]) -> None:
        self.recorded_of.add(record["member"])


@pytest.fixture(scope="module", autouse=True)
def _two_cores() -> Iterator[None]:
    """Two groups, whatever machine this is."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (run, vectorized):
            patched.setattr(module, "cores", lambda: 2)
        yield


@pytest.fixture(scope="module")
def plan() -> Plan:
    """In which a group's size and a member's place in it do show in the last bits."""
    return plan_for(load("clusters"), mixup_mp(1.0, 1.0, 4), "mlp", RECIPE)


@pytest.fixture(scope="module")
def whole(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in threads that nobody disturbed."""
    folder = tmp_path_factory.mktemp("groups") / "whole"
    fit(plan, engine="vectorized", run=folder)
    return folder


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorized, "WARM", 0.0)
    monkeypatch.setattr(vectorized, "COLD", 0.0)


def interrupted(plan: Plan, folder: Path, member: int, step: int) -> None:
    with pytest.raises(FitInterrupted):
        fit(
            plan,
            engine="vectorized",
            run=folder,
            checkpoints=CheckpointInterval(epochs=10),
            progress=Stop(member, step),
        )


def test_members_are_split_evenly() -> None:
    assert split_members((0, 1, 2, 3, 4), 2) == [(0, 2, 4), (1, 3)]
    assert split_members((3, 5), 4) == [(3,), (5,)]


def test_a_finished_member_keeps_its_place(plan: Plan, whole: Path, tmp_path: Path) -> None:
    """As after a kill while members were being finished: the others must not move up."""
    interrupted(plan, tmp_path / "run", 0, 40)
    for file in (whole / "members").glob("000*"):
        (tmp_path / "run" / "members").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / "run" / "members")
    progress = Stop(0, 10**9)
    fit(plan, engine="vectorized", run=tmp_path / "run", resume=True, progress=progress)
    assert hashes(tmp_path / "run") == hashes(whole)
    assert progress.recorded_of == {1, 2, 3}  # nothing is told of the one that is finished


@pytest.mark.usefixtures("in_processes")
def test_processes_give_the_bits_of_threads(plan: Plan, whole: Path, tmp_path: Path) -> None:
    progress = Stop(0, 10**9)
    posterior = fit(plan, engine="vectorized", run=tmp_path / "run", progress=progress)
    assert processes.idle_workers() >= 2
    assert hashes(tmp_path / "run") == hashes(whole)
    assert [summary.member for summary in posterior.summaries] == [0, 1, 2, 3]
    assert progress.recorded_of == {0, 1, 2, 3}


def test_stopped_in_processes_and_gone_on_with_in_threads(
    plan: Plan, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(vectorized, "WARM", 0.0)
        patched.setattr(vectorized, "COLD", 0.0)
        interrupted(plan, folder, 1, 20)
    shutil.rmtree(folder / "checkpoints" / "001")  # one group is not as far as the other
    monkeypatch.setattr(vectorized, "WARM", 1e9)
    fit(plan, engine="vectorized", run=folder, resume=True)
    assert hashes(folder) == hashes(whole)


@pytest.mark.usefixtures("in_processes")
def test_stopped_in_threads_and_gone_on_with_in_processes(plan: Plan, whole: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vectorized, "WARM", 1e9)
        patched.setattr(vectorized, "COLD", 1e9)
        interrupted(plan, tmp_path / "run", 0, 40)
    fit(plan, engine="vectorized", run=tmp_path / "run", resume=True)
    assert hashes(tmp_path / "run") == hashes(whole)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process cannot be kept to some cores here")
def test_a_run_keeps_its_groups_on_fewer_cores(plan: Plan, whole: Path, tmp_path: Path) -> None:
    interrupted(plan, tmp_path / "run", 0, 40)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        fit(plan, engine="vectorized", run=tmp_path / "run", resume=True)
    finally:
        os.sched_setaffinity(0, before)
    assert hashes(tmp_path / "run") == hashes(whole)


@pytest.mark.usefixtures("in_processes")
def test_what_cannot_be_sent_to_a_process_is_trained_here(tmp_path: Path) -> None:
    lock = threading.Lock()

    def kernel(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        with lock:
            return inputs + 0

    short = Recipe(epochs=2, batch_size=None, learning_rate=0.05)
    held = plan_for(load("clusters"), mixup_mp(1.0, 1.0, 2, kernel=kernel), "mlp", short)
    with pytest.raises(NotPicklable):
        store_plan(held, tmp_path)
    assert len(fit(held, engine="vectorized").summaries) == 2


class KillsAWorker(Callback):
    """Kills the worker of a member, once it has moved."""

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        for worker in team:
            if worker.call is not None and str(member) in worker.call[1]:
                worker.process.kill()


team: list[processes.Worker] = []


@pytest.mark.usefixtures("in_processes")
def test_a_killed_worker_is_named_by_its_members(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = processes.Worker.submit

    def remembered(worker: processes.Worker, index: int, call: processes.Call) -> None:
        team.append(worker)
        submit(worker, index, call)

    monkeypatch.setattr(processes.Worker, "submit", remembered)
    with pytest.raises(WorkerFailed, match=r"member (0, 2|1, 3) died with exit code -9"):
        fit(plan, engine="vectorized", run=tmp_path / "run", progress=KillsAWorker())


def test_members_come_in_the_order_they_were_asked_for(plan: Plan) -> None:
    posterior = fit(plan, engine="vectorized", members=(2, 0))
    assert [summary.member for summary in posterior.summaries] == [2, 0]


def test_checkpoints_beyond_the_common_start_give_way(plan: Plan, whole: Path, tmp_path: Path) -> None:
    """A member that was ahead of its group starts again with it; what is written then must not be taken for old."""
    folder = tmp_path / "run"
    every = CheckpointInterval(epochs=10)
    with pytest.raises(FitInterrupted):
        fit(plan, engine="vectorized", run=folder, members=(0,), checkpoints=every, progress=Stop(0, 200))
    for _ in range(2):
        progress = Stop(2, 60)
        with pytest.raises(FitInterrupted):
            fit(plan, engine="vectorized", run=folder, resume=True, checkpoints=every, progress=progress)
        steps = RunFolder(folder).checkpoints(0).steps()
        assert steps == RunFolder(folder).checkpoints(2).steps()
        assert len(set(steps)) == 2
    fit(plan, engine="vectorized", run=folder, resume=True)
    assert hashes(folder) == hashes(whole)


def test_finishing_some_members_keeps_the_checkpoints_of_others(plan: Plan, tmp_path: Path) -> None:
    interrupted(plan, tmp_path / "run", 0, 40)
    before = RunFolder(tmp_path / "run").checkpoints(0).steps()
    fit(plan, engine="vectorized", run=tmp_path / "run", resume=True, members=(1,))
    assert RunFolder(tmp_path / "run").checkpoints(0).steps() == before != []


def test_groups_are_made_on_the_one_thread_they_are_trained_on() -> None:
    """What is drawn for a future has other last bits on two threads, and a worker has one."""
    threads = []

    def factory() -> nn.Module:
        threads.append(torch.get_num_threads())
        return MLP(2, 5)

    made = plan_for(load("clusters"), mixup_mp(1.0, 1.0, 2), factory, RECIPE)
    torch.set_num_threads(2)
    try:
        VectorizedFit(made, [(0,), (1,)]).close()
    finally:
        torch.set_num_threads(1)
    assert threads == [1, 1]
