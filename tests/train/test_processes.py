"""Members in worker processes: the same bits as in this one, and every failure told."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import TensorDataset

from mixupmp.core import seeds
from mixupmp.core.base_measures import Mixup
from mixupmp.core.batch import Batch
from mixupmp.core.errors import (
    BadData,
    BadRun,
    DataNotFound,
    InvalidArgument,
    MissingExtra,
    MixupMPError,
    UnknownName,
)
from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.methods import Method, ca_mixup_mc, deep_ensemble, dp_mp_perturbed, mc_dropout, mixup_mp
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.predictive import Predictive
from mixupmp.core.recipe import Recipe
from mixupmp.core.samplers import Ensemble
from mixupmp.store.folder import RunFolder
from mixupmp.train import pool, processes
from mixupmp.train.job import NO_CHECKPOINTS, FitInterrupted, Job
from mixupmp.train.member import StopTraining
from mixupmp.train.plans import plan_for
from mixupmp.train.pool import WorkerFailed
from mixupmp.train.progress import Callback
from mixupmp.train.run import fit
from small_data import small_images, small_table

SHORT = Recipe(epochs=2, batch_size=16, learning_rate=0.05)


class OwnNetwork(nn.Module):
    """A network of the test's own module."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Dropout(0.2), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


def own_factory() -> nn.Module:
    return OwnNetwork(7)


def lambda_plan() -> Plan:
    width = 5
    return plan_for(small_table(), mixup_mp(members=2, kernel=lambda x: x + torch.rand_like(x)),
                    lambda: OwnNetwork(width), SHORT)  # fmt: skip


def loader_plan() -> Plan:
    table = small_table()
    plan = plan_for(table, deep_ensemble(2), own_factory, SHORT)
    return replace(plan, train=TensorDataset(table.train.inputs, table.train.labels))


def weighted_plan() -> Plan:
    table = small_table()
    rows = replace(table.train, weights=torch.rand(60, generator=Generator().manual_seed(0)))
    return plan_for(table.with_train(rows), mixup_mp(members=2), "mlp", SHORT)


PLANS = {
    "mixup-mp on images": lambda: plan_for(small_images(), mixup_mp(members=3), "cnn", SHORT),
    "dropout": lambda: plan_for(small_table(), mc_dropout(3), "mlp", SHORT),
    "class-adjusted": lambda: plan_for(small_table(), ca_mixup_mc(members=3, validation_fraction=0.2), "mlp", SHORT),
    "drawn atoms": lambda: plan_for(small_table(), dp_mp_perturbed(members=3), "mlp", SHORT),
    "the test's own factory": lambda: plan_for(small_table(), deep_ensemble(2), own_factory, SHORT),
    "a lambda": lambda_plan,
    "a torch dataset": loader_plan,
    "row weights": weighted_plan,
}


def same(first: Posterior, second: Posterior) -> bool:
    pairs = zip(first.networks, second.networks, strict=True)
    return all(
        torch.equal(value, two.state_dict()[name]) for one, two in pairs for name, value in one.state_dict().items()
    )


@pytest.mark.parametrize("name", PLANS)
def test_workers_give_the_same_bits_as_this_process(name: str) -> None:
    plan = PLANS[name]()
    inline, workers = fit(plan, engine="inline"), fit(plan, engine="processes")
    assert len(inline.networks) == len(workers.networks)
    assert same(inline, workers)
    for one, two in zip(inline.summaries, workers.summaries, strict=True):
        assert (one.member, one.steps, one.training_accuracy) == (two.member, two.steps, two.training_accuracy)
        assert [record["loss"] for record in one.history] == [record["loss"] for record in two.history]


def test_workers_stay_for_the_next_fit() -> None:
    plan = PLANS["the test's own factory"]()
    fit(plan, engine="processes")
    before = {worker.process.pid for worker in pool._idle}
    fit(plan, engine="processes")
    assert {worker.process.pid for worker in pool._idle} == before
    assert before


class Recorded(Callback):
    def __init__(self) -> None:
        self.done: list[int] = []

    def on_member_end(self, summary: MemberSummary) -> None:
        self.done.append(summary.member)


def test_results_are_in_the_members_order_and_each_is_announced() -> None:
    progress = Recorded()
    plan = plan_for(small_table(), deep_ensemble(5), own_factory, SHORT)
    posterior = fit(plan, engine="processes", members=(4, 0, 2), progress=progress)
    assert [summary.member for summary in posterior.summaries] == [4, 0, 2]
    assert sorted(progress.done) == [0, 2, 4]
    assert same(posterior, fit(plan, engine="inline", members=(4, 0, 2)))


@dataclass(frozen=True)
class Troublesome:
    """Blends, and trouble for one member, known by the seed of its generator; never in this process."""

    kind: str
    spoilt: int | None  # None: all members
    spared: int  # a process

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        batch = Mixup(1.0).sample(seen, count, generator)
        if os.getpid() == self.spared or self.spoilt not in (None, generator.initial_seed()):
            return batch
        if self.kind == "nan":
            batch.inputs.fill_(float("nan"))
        elif self.kind == "ours":
            raise InvalidArgument("color", "green", "blue", "Paint it.")
        elif self.kind == "error":
            raise KeyError("lost")
        elif self.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return batch


def troubled(kind: str, member: int | None = 1, members: int = 4) -> Plan:
    spoilt = None if member is None else seeds.derive(0, member, "draws")
    method = Method("troubled", Predictive(1.0, Troublesome(kind, spoilt, os.getpid())), Ensemble(members))
    return plan_for(small_table(), method, own_factory, SHORT)


def test_a_member_that_diverges_in_a_worker_is_left_out() -> None:
    posterior = fit(troubled("nan"), engine="processes")
    assert posterior.notes == ("member 1 diverged at step 1; left out",)
    assert "3 of 4" in repr(posterior)


@pytest.mark.parametrize("member", [1, None])
def test_our_errors_come_out_of_a_worker_as_they_are(member: int | None) -> None:
    with pytest.raises(InvalidArgument, match=r"color must be blue, got 'green' \(str\)\. Paint it\."):
        fit(troubled("ours", member), engine="processes")


@pytest.mark.parametrize("member", [1, None])
def test_other_errors_are_told_with_their_trace(member: int | None) -> None:
    with pytest.raises(WorkerFailed, match=r"(?s)of member \d:.*in sample.*KeyError: 'lost'"):
        fit(troubled("error", member), engine="processes")


def test_killed_workers_are_told_and_the_next_fit_works() -> None:
    """All of them at once, as happens for lack of memory."""
    with pytest.raises(WorkerFailed, match=r"died with exit code -9 \(killed by signal 9: most often for lack of mem"):
        fit(troubled("killed", None), engine="processes")
    assert all(worker.process.poll() is None for worker in pool._idle)
    plan = PLANS["the test's own factory"]()
    assert same(fit(plan, engine="processes"), fit(plan, engine="inline"))


def test_a_stop_reaches_the_workers_and_leaves_their_checkpoints(tmp_path: Path) -> None:
    plan = plan_for(small_table(), deep_ensemble(2), own_factory, replace(SHORT, epochs=100_000, schedule="constant"))
    folder = RunFolder(tmp_path)
    asked: list[bool] = []

    def stop() -> bool:
        asked.append(True)
        return len(asked) > 12  # a second or so of polling

    with pytest.raises(StopTraining):
        processes.run(Job(plan, (0, 1), folder, NO_CHECKPOINTS, stop=stop))
    assert all(len(folder.checkpoints(member).steps()) == 1 for member in (0, 1))
    assert all(worker.process.poll() is None for worker in pool._idle)
    short = PLANS["the test's own factory"]()
    assert same(fit(short, engine="processes"), fit(short, engine="inline"))


def test_what_cannot_be_sent_to_a_worker_is_named() -> None:
    lock = threading.Lock()
    plan = plan_for(small_table(), deep_ensemble(2, kernel=lambda x: (lock, x)[1]), own_factory, SHORT)
    with pytest.raises(InvalidArgument, match="plan must be one that can be sent to another process"):
        fit(plan, engine="processes")


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("name", 3, "four", "Count again."),
        UnknownName("network", "cnm", ["cnn", "mlp"]),
        MissingExtra("ray", "ray", "A cluster"),
        MixupMPError("plain"),
        BadData("bad"),
        BadRun("run"),
        DataNotFound("nowhere"),
        FitInterrupted(Path("run"), 15),
        WorkerFailed("gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_survives_being_sent(error: Any) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
