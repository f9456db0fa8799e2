"""Real runs in real processes, for the tests that kill them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from mixupmp import DatasetRows, Recipe, Rows, deep_ensemble, mixup_mp, plan_for
from mixupmp.core.files import sha256
from mixupmp.core.plan import Plan
from mixupmp.data import load
from mixupmp.train.progress import Callback

SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, {here!r})
import runs
from mixupmp.train.job import CheckpointInterval
from mixupmp.train.job import FitInterrupted
from mixupmp.train.run import fit
from mixupmp.train.vectorized import engine as vectorized
every, loud = CheckpointInterval(epochs=1), runs.Loud()
engine, _, where = {engine!r}.partition(" in ")
if where == "processes":
    vectorized.COLD = 0.0
try:
    fit(runs.plan({kind!r}), engine=engine, run={folder!r}, resume=True, checkpoints=every, progress=loud)
except FitInterrupted as stopped:
    print(stopped, file=sys.stderr)
    sys.exit(stopped.code)
"""


class Loud(Callback):
    """Says on standard output when the first step has been made, so that a test knows when to kill."""

    said = False

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        if not self.said:
            self.said = True
            print("moving", flush=True)


class Crops(TorchDataset[tuple[Tensor, int]]):
    """Rows with a live random crop, drawn from torch's global generator."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        down, across = torch.randint(3, (2,)).tolist()
        padded = torch.nn.functional.pad(self.rows.inputs[index], (1, 1, 1, 1))
        return padded[:, down : down + 8, across : across + 8], int(self.rows.labels[index])


def plan(kind: str) -> Plan:
    """Small fits that take a second or two: CNNs with Mixup, one streamed, a longer one without, an MLP."""
    digits = load("digits")
    digits = digits.with_train(digits.train.take(torch.arange(256)))
    if kind == "streamed":
        recipe = Recipe(epochs=8, batch_size=32, learning_rate=0.02)
        in_memory = plan_for(digits, mixup_mp(1.0, 1.0, 2), "cnn", recipe)
        return replace(in_memory, train=DatasetRows(Crops(digits.train), workers=2))
    if kind == "mlp":
        return plan_for(digits, mixup_mp(1.0, 1.0, 3), "mlp", Recipe(epochs=60, batch_size=32, learning_rate=0.02))
    epochs = {"cnn": 40, "four": 60, "long": 400}[kind]
    method = {"cnn": mixup_mp(1.0, 1.0, 2), "four": mixup_mp(1.0, 1.0, 4), "long": deep_ensemble(2)}[kind]
    return plan_for(digits, method, "cnn", Recipe(epochs=epochs, batch_size=32, learning_rate=0.02))


def start(folder: Path, kind: str = "cnn", engine: str = "inline") -> subprocess.Popen[str]:
    """Start, or go on with, a run in a process of its own; `engine` may be "vectorized in processes"."""
    script = SCRIPT.format(here=str(Path(__file__).parent), kind=kind, engine=engine, folder=str(folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_until_moving(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "moving\n", f"{line!r}; {process.stderr and process.stderr.read()}"


def hashes(folder: Path) -> dict[str, str]:
    """The hash of each finished member's weights."""
    return {file.name: sha256(file) for file in sorted((folder / "members").glob("*.safetensors"))}
