"""The program that is disturbed: start or resume a small run to its end, and evaluate it."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch

from mixupmp import CheckpointInterval, Recipe, plan_for
from mixupmp.core.methods import method_named, method_names
from mixupmp.core.rows import Dataset, Rows
from mixupmp.store.folder import RunFolder
from mixupmp.train.run import Engine, fit


def rows(count: int, generator: torch.Generator) -> Rows:
    labels = torch.arange(count) % 3
    return Rows(torch.randn(count, 4, generator=generator) + labels[:, None], labels)


def main(folder: Path, engine: Engine, method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    dataset = Dataset("clusters", rows(96, generator), rows(30, generator), ("a", "b", "c"))
    takes_members = "members" in inspect.signature(method_names()[method]).parameters
    drawn = method_named(method, members=2 if takes_members else None)
    plan = plan_for(dataset, drawn, "mlp", Recipe(epochs=4, batch_size=32, learning_rate=0.05))
    posterior = fit(plan, engine=engine, run=folder, resume=True, checkpoints=CheckpointInterval(epochs=1))
    correct = posterior.probabilities(dataset.test.inputs).argmax(1) == dataset.test.labels
    RunFolder(folder).add_evaluation("test rows", {"acc": float(correct.float().mean())})
