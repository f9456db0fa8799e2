"""A piece of each kind, of one file and one line: in the help, a run that loads and is saved, a table, a report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FILE = """
import copy
from dataclasses import dataclass

import torch
from torch import nn
from mixupmp.core import seeds
from mixupmp.core.batch import Batch
from mixupmp.core.methods import Method
from mixupmp.core.posterior import Posterior
from mixupmp.core.predictive import Predictive
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.split import split

class Linear(nn.Module):
    def __init__(self, features, outputs, dropout=0.0):
        super().__init__()
        self.layer = nn.Linear(features, outputs)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))

def coins(root, download, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(120) % 2
    inputs = torch.randn(120, 3, generator=generator) + 2 * labels[:, None]
    train, test = split(Rows(inputs, labels), 0.5, seed)
    return Dataset("coins", train, test, ("heads", "tails")).checked()

def true_probability(probabilities, labels):
    return probabilities.gather(1, labels[:, None]).squeeze(1)

@dataclass(frozen=True)
class Reversed:
    scale: float = 1.0

    def sample(self, seen, count, generator):
        rows = torch.randint(len(seen.inputs), (count,), generator=generator)
        return Batch(self.scale * seen.inputs[rows].flip(1), seen.targets[rows], seen.weights[rows])

@dataclass(frozen=True)
class Noise:
    members: int = 3
    scale: float = 0.1
    networks = 1

    def posterior(self, networks, task, data, seed):
        return NoisePosterior(networks, task, self, seed)

class NoisePosterior(Posterior):
    def __init__(self, networks, task, sampler, seed):
        super().__init__(networks, task, 1)
        self.members_, self.seed = [copy.deepcopy(networks[0]) for _ in range(sampler.members)], seed
        for number, network in enumerate(self.members_):
            generator = seeds.generator(seed, number, "noise")
            for value in network.parameters():
                value.add_(sampler.scale * torch.randn(value.shape, generator=generator))

    @property
    def members(self):
        return len(self.members_)

    def _outputs(self, inputs):
        return torch.stack([network(inputs) for network in self.members_])

def noisy_network(ratio: float = 1.0, members: int = 3) -> Method:
    "A network with noise on its weights."
    return Method("noisy-network", Predictive(ratio, Reversed()), Noise(members))
"""
PROGRAM = """
import json, sys
import torch
from pathlib import Path
import pieces
from mixupmp.core import methods
from mixupmp.core.base_measures import BASE_MEASURES
from mixupmp.core.sampler_catalog import SAMPLERS
BASE_MEASURES["reversed"] = pieces.Reversed()
SAMPLERS[pieces.NoisePosterior] = pieces.Noise
methods.ALL_METHODS += (pieces.noisy_network,)

from mixupmp.data.catalog import DATASETS, DatasetEntry
from mixupmp.metrics.catalog import METRICS, Metric
from mixupmp.networks.catalog import NETWORKS, NetworkEntry

NETWORKS["linear"] = NetworkEntry("linear", pieces.Linear, lambda shape: {"features": shape[0]}, images=False)
DATASETS["coins"] = DatasetEntry("coins", pieces.coins)
METRICS["sureness"] = Metric("sureness", "Sureness", "sureness", True, per_row=pieces.true_probability, standard=True)

from mixupmp.cli import main

def run(*arguments):
    print("#", arguments[0], flush=True)
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code == 0, arguments

run("fit", "--help")
settings = "--data coins --network linear --epochs 2 --members 2 --engine inline --out r"
run("fit", *settings.split())
run("evaluate", "--help")
run("evaluate", "r")
run("evaluate", "r", "--metrics", "sureness,acc", "--json")
run("report", "r", "--out", "report.html")
assert "Sureness" in Path("report.html").read_text()

import mixupmp
inputs = mixupmp.data.load("coins").test
posterior = mixupmp.load("r")
answer = mixupmp.metrics.evaluate(posterior.member_probabilities(inputs.inputs), inputs.labels)
print("# done", answer["sureness"])

run("fit", *f"{settings}2 --method martingale-posterior --base reversed --ratio 1".split())
run("fit", *f"{settings}3 --method noisy-network --ratio 1".replace("--members 2", "--members 4").split())
run("report", "r2", "r3", "--out", "report2.html")
assert "Reversed" in Path("report2.html").read_text()
noisy = mixupmp.load("r3")
mixupmp.save(noisy, "saved")
outputs = noisy.member_outputs(inputs.inputs)
assert len(outputs) == 4 and not torch.equal(outputs[0], outputs[1])
assert torch.equal(outputs, mixupmp.load("saved").member_outputs(inputs.inputs))
print("# saved")
"""


def test_one_file_and_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "pieces.py").write_text(FILE)
    (tmp_path / "program.py").write_text(PROGRAM)
    wide = {**os.environ, "COLUMNS": "200"}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=wide, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("# ")
    fit_help, fit, evaluate_help, table, as_json = parts[1:6]
    assert "coins" in fit_help
    assert "linear" in fit_help
    assert "reversed" in fit_help
    assert "Sureness" in fit
    assert "sureness" in evaluate_help
    assert "Sureness ↑" in table
    assert '"sureness"' in as_json
    assert any(part.startswith("done 0.") for part in parts)
    assert parts[-1].startswith("saved")
