"""A network, a dataset and a metric of one file and one line each: in the help, a run that loads, a table, a report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FILE = """
import torch
from torch import nn
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
"""
PROGRAM = """
import json, sys
from pathlib import Path
import pieces
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
    assert "Sureness" in fit
    assert "sureness" in evaluate_help
    assert "Sureness ↑" in table
    assert '"sureness"' in as_json
    assert parts[-1].startswith("done 0.")
