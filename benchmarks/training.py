"""Rows about training: the CNN's epoch, the 2-D figure, Wide-ResNet, more members, checkpoints."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import Row, gemm_peak, interleaved, on_threads
from benchmarks.usual import PlainCNN, mixup_member_epoch, with_blends
from mixupmp import CheckpointInterval, Dataset, Recipe, Rows, Standardize, deep_ensemble, mixup_mp, plan_for
from mixupmp.core.fast.dropout import FeatureDropout
from mixupmp.core.recipe import paper_clusters
from mixupmp.data import load
from mixupmp.networks import ResNet18, named
from mixupmp.networks.resnet import BasicBlock
from mixupmp.train.job import Job, fit_member
from mixupmp.train.pool import _idle
from mixupmp.train.run import fit


def images(rows: int, shape: tuple[int, int, int]) -> Dataset:
    """Random images of this size: how long a step takes does not depend on what is in them."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(256, (rows, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (rows,), generator=generator)
    scaling = Standardize((0.2860,) * shape[0], (0.3530,) * shape[0])
    return Dataset("random", Rows(inputs, labels), Rows(inputs[:10], labels[:10]), tuple("0123456789"), scaling)


ONE_EPOCH = Recipe(epochs=1, learning_rate=0.01, schedule="constant")


def cnn_epoch(quick: bool) -> Iterator[Row]:
    """MixupMP r=1, B=4, the CNN, one epoch of Fashion-MNIST-sized data; and its share of the machine's peak."""
    data = images(6_000 if quick else 60_000, (1, 28, 28))
    plan = plan_for(data, mixup_mp(1.0, 1.0, 4), "cnn", ONE_EPOCH)
    network = PlainCNN()
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    threads = torch.get_num_threads()

    def usual() -> None:
        mixup_member_epoch(data.train.inputs, data.train.labels, network, optimizer)

    fit(dataclasses.replace(plan, train=data.train.take(torch.arange(256))), engine="processes")  # workers are up
    ours, theirs = interleaved(2 if quick else 3, lambda: fit(plan, engine="processes"), on_threads(2, usual))
    torch.set_num_threads(threads)
    yield Row(
        "MixupMP r=1, B=4, CNN, one epoch of 28x28 images",
        "members one after another, DataLoader of 4 workers, PIL",
        ours, 4 * theirs, "5x, aim for 6x", at_least=5,
        details={"rows": len(data.train), "seconds a member-epoch, usual": theirs},
    )  # fmt: skip
    peak = gemm_peak(2)
    achieved = 4 * _step_flops() * (len(data.train) / 128) / ours
    yield Row(
        "the same, achieved FLOP/s", "the machine's 2-thread GEMM peak", peak, achieved, "40%", at_least=0.4,
        details={"achieved GFLOP/s": achieved / 1e9, "peak GFLOP/s": peak / 1e9},
    )  # fmt: skip


def _step_flops() -> int:
    """Of one step of 128 + 128 rows, forward and backward, as the plain network defines it."""
    counter = FlopCounterMode(display=False)
    inputs = torch.randn(256, 1, 28, 28)
    with counter:
        functional.cross_entropy(PlainCNN()(inputs), torch.zeros(256, dtype=torch.long)).backward()
    return int(counter.get_total_flops())


def clusters(quick: bool) -> Iterator[Row]:
    """The 2-D figure: B=10, MLP [16, 32, 16], 870 + 870 rows, full-batch steps."""
    data, steps = load("clusters"), 200 if quick else 1_000
    recipe = dataclasses.replace(paper_clusters(), epochs=steps)
    plan = plan_for(data, mixup_mp(1.0, 1.0, 10), "mlp", recipe)
    inputs, targets = data.train.inputs, functional.one_hot(data.train.labels, 5).float()
    networks = [named("mlp", (2,), 5)() for _ in range(10)]
    optimizers = [torch.optim.SGD(network.parameters(), 0.5) for network in networks]

    def plain() -> None:
        for network, optimizer in zip(networks, optimizers, strict=True):
            for _ in range(steps):
                rows, mixed = with_blends(inputs, targets)
                optimizer.zero_grad()
                functional.cross_entropy(network(rows), mixed).backward()
                optimizer.step()

    # As in a session that has fitted before: workers are waiting. A fit as short as this does not start them.
    fit(dataclasses.replace(plan, recipe=dataclasses.replace(recipe, epochs=1)), engine="processes")
    ours, theirs = interleaved(2 if quick else 3, lambda: fit(plan, engine="vectorized"), on_threads(1, plain))
    yield Row(
        f"2-D figure: B=10, MLP, 870+870 rows, {steps} full-batch steps",
        "a plain loop over members, one thread", ours, theirs, "10x", at_least=10,
        details={"milliseconds a step of ten members": 1e3 * ours / steps},
    )  # fmt: skip


def wide_resnet(quick: bool) -> Iterator[Row]:
    """Wide-ResNet 16-2, B=2, batches of 64 + 64."""
    steps = 3 if quick else 20
    data = images(64 * steps, (3, 32, 32))
    recipe = dataclasses.replace(ONE_EPOCH, batch_size=64)
    plan = plan_for(data, mixup_mp(1.0, 1.0, 2), "wrn-16-2", recipe)
    networks = [named("wrn-16-2", (3, 32, 32), 10)() for _ in range(2)]
    optimizers = [torch.optim.SGD(n.parameters(), 0.01, momentum=0.9, weight_decay=5e-4) for n in networks]
    inputs = data.standardize(data.train.inputs)
    targets = functional.one_hot(data.train.labels, 10).float()

    def plain() -> None:
        for network, optimizer in zip(networks, optimizers, strict=True):
            for rows, classes in zip(inputs.split(64), targets.split(64), strict=True):
                blended, mixed = with_blends(rows, classes)
                optimizer.zero_grad()
                functional.cross_entropy(network(blended), mixed).backward()
                optimizer.step()

    ours, theirs = interleaved(2, lambda: fit(plan, engine="processes"), on_threads(2, plain))
    yield Row(
        f"Wide-ResNet 16-2, B=2, batch 64+64, {steps} steps", "the same network in a plain loop on 2 threads",
        ours, theirs, "1.3x", at_least=1.3,
    )  # fmt: skip


def dropout(quick: bool) -> Iterator[Row]:
    """Training steps of a small residual network with dropout, one thread; the masks take their time in turns."""
    inputs = torch.randn(128, 16, 16, 16).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (128,))
    rivals = []
    for kind in (FeatureDropout, nn.Dropout):
        network = ResNet18(16, 10, 16, 0.3).to(memory_format=torch.channels_last)
        for block in network.modules():
            if isinstance(block, BasicBlock):
                block.dropout = kind(0.3)
        rivals.append(partial(_steps, network, inputs, labels, 3 if quick else 20))
    ours, theirs = interleaved(2 if quick else 5, *rivals)
    masks = [partial(functional.dropout, inputs, 0.3), partial(FeatureDropout(0.3), inputs)]
    slow, fast = (seconds / 128 for seconds in interleaved(20, *masks))
    yield Row(
        "small ResNet with dropout, a training step of 128", "the same with nn.Dropout",
        ours, theirs, "1.2x", at_least=1.2, details={"mask, seconds an image": {"torch": slow, "ours": fast}},
    )  # fmt: skip


def _steps(network: nn.Module, inputs: Tensor, labels: Tensor, count: int) -> None:
    """Steps of SGD."""
    optimizer = torch.optim.SGD(network.parameters(), 0.01, fused=True)
    for _ in range(count):
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()


def more_members(quick: bool) -> Iterator[Row]:
    """B=8 against B=4: time, and the memory of the workers."""
    data = images(3_000 if quick else 12_000, (1, 28, 28))
    plans = [plan_for(data, mixup_mp(1.0, 1.0, members), "cnn", ONE_EPOCH) for members in (8, 4)]
    memory: dict[str, int] = {}

    def eight() -> None:
        _forget_peaks()
        fit(plans[0], engine="processes")
        memory["8"] = _workers_memory()

    def four() -> None:
        _forget_peaks()
        fit(plans[1], engine="processes")
        memory["4"] = _workers_memory()

    four()
    many, few = interleaved(2 if quick else 3, eight, four)
    yield Row(
        "cost of members: B=8", "B=4, same engine", many, few, "at most 2.1x", at_most=2.1,
        details={"workers' peak memory, MiB": {b: kib / 1024 for b, kib in memory.items()}},
    )  # fmt: skip


def _forget_peaks() -> None:
    """So that what an earlier row needed is not counted."""
    for worker in _idle:
        Path(f"/proc/{worker.process.pid}/clear_refs").write_text("5")


def _workers_memory() -> int:
    """The sum of the idle workers' peak resident memory, in KiB."""
    total = 0
    for worker in _idle:
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        total += int(status.split("VmHWM:")[1].split()[0])
    return total


def checkpointing(quick: bool) -> Iterator[Row]:
    """A checkpoint after every epoch against none."""
    data = images(3_000 if quick else 6_000, (1, 28, 28))
    plan = plan_for(data, deep_ensemble(1), "cnn", dataclasses.replace(ONE_EPOCH, epochs=3))

    def run(checkpoints: CheckpointInterval) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            fit(plan, engine="inline", run=Path(scratch) / "run", checkpoints=checkpoints)

    # Many short turns: the cost is smaller than the machine's noise over a few seconds.
    often, never = interleaved(
        4 if quick else 12,
        lambda: run(CheckpointInterval(epochs=1, seconds=None)),
        lambda: run(CheckpointInterval(None, None)),
    )
    yield Row(
        "checkpointing after every epoch", "none", often, never, "at most 1.03x", at_most=1.03,
        details={"rows an epoch": len(data.train)},
    )  # fmt: skip


def frozen_body(quick: bool) -> Iterator[Row]:
    """Four heads on a frozen body, whose features are computed once, against running it at every step.

    Of the latter, one member's first epochs are timed: all epochs of all members cost the same.
    """
    data, epochs, timed = images(1_000 if quick else 5_000, (1, 28, 28)), 50, 2
    layers = (nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.MaxPool2d(2))
    body = nn.Sequential(*layers)
    network = nn.Sequential(body.requires_grad_(False), nn.Flatten(), nn.Linear(512, 10))
    recipe = Recipe(epochs=epochs, optimizer="adamw", learning_rate=1e-3)
    plan = plan_for(data, deep_ensemble(4), network, recipe)
    few = dataclasses.replace(plan, recipe=dataclasses.replace(recipe, epochs=timed))

    processor = {"once": float("inf"), "at every step": float("inf")}  # seconds of all threads

    def run(name: str, work: Callable[[], Any], times: float = 1) -> None:
        started = time.process_time()
        work()
        processor[name] = min(processor[name], times * (time.process_time() - started))

    fit(few)  # imports what the first step needs
    all_of_them = 4 * epochs / timed
    once, some = interleaved(
        1 if quick else 3,
        lambda: run("once", lambda: fit(plan, engine="vectorized")),
        lambda: run("at every step", lambda: fit_member(Job(few, (0,)), 0), all_of_them),
    )
    yield Row(
        f"4 heads on a frozen body, {len(data.train):,} rows, {epochs} epochs",
        "the body at every step",
        once,
        some * all_of_them,
        "20x",
        at_least=20,
        details={"timed of the latter": f"{timed} epochs of one member", "CPU seconds": processor},
    )
