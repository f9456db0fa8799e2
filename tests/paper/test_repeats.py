"""Repeats: an interrupted experiment goes on where it was, and its table grows with the repeats that are done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from mixupmp.core.methods import Method, deep_ensemble
from mixupmp.core.rows import Dataset, Rows
from mixupmp.paper.experiments.blends import shifted_scores
from mixupmp.paper.experiments.clinc import scores
from mixupmp.paper.members import Cache
from mixupmp.paper.repeats import Record, Repeats, calibrated_scores
from mixupmp.paper.study import Study

LINES = {"DE": deep_ensemble(2), "DE of three": deep_ensemble(3)}


def study(folder: Path, partial: bool = False) -> Study:
    return Study("sounds", "smoke", Cache(folder / "cache"), folder / "results", partial=partial)


def test_it_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []

    def score(method: Method, seed: int) -> Record:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((method.sampler.members, seed))
        return {"acc": 0.5 + 0.2 * seed}

    repeats = Repeats("Sounds", "Two members.", LINES, ("acc",), 2, score)
    with pytest.raises(KeyboardInterrupt):
        repeats.run(study(tmp_path))
    table = study(tmp_path).folder / "README.md"
    assert "| DE | 1 | 0.5000 |" in table.read_text()  # of the repeat that is complete
    done.clear()
    repeats.run(study(tmp_path, partial=True))
    assert done == []
    assert "| DE | 2 | 0.6000 ± 0.1000 |" in table.read_text()
    repeats.run(study(tmp_path))
    assert done == [(3, 1)]
    assert "| DE of three | 2 | 0.6000 ± 0.1000 |" in table.read_text()
    assert '"seeds": [\n  0,\n  1\n ]' in (table.parent / "run.json").read_text()


def test_numbers_of_another_precision_are_not_taken_for_those_that_were_asked_for(tmp_path: Path) -> None:
    done: list[int] = []

    def score(method: Method, seed: int) -> Record:
        done.append(method.sampler.members)
        return {"acc": 0.5 + 0.1 * len(done)}

    repeats = Repeats("Sounds", "Two members.", LINES, ("acc",), 1, score)
    plain = study(tmp_path)
    repeats.run(plain)
    repeats.run(replace(plain, precision="bfloat16"))
    repeats.run(replace(plain, compiled=True))
    assert done == [2, 3] * 3
    assert "| DE | 1 | 1.0000 |" in (plain.folder / "README.md").read_text()
    repeats.run(plain)
    assert done == [2, 3] * 3
    assert "| DE | 1 | 0.6000 |" in (plain.folder / "README.md").read_text()
    assert len(list((plain.folder / "repeats").glob("*.json"))) == 2  # where they always were


class OnGpu:
    """A tensor that has to be fetched before anything is computed of it."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def cpu(self) -> Tensor:
        return self.values


def test_scores_are_computed_on_the_cpu() -> None:
    rows = Rows(torch.zeros(20, 1), torch.arange(20) % 2)
    generator = torch.Generator().manual_seed(0)
    given = OnGpu(torch.rand(20, 2, generator=generator).softmax(1))
    posterior = SimpleNamespace(probabilities=lambda inputs: given, summaries=[SimpleNamespace(training_accuracy=1.0)])
    record, temperature = calibrated_scores(posterior, rows, rows)
    assert 0 <= record["acc"] <= 1
    assert 0 <= shifted_scores(posterior, rows, temperature)["shifted_acc"] <= 1
    dataset = Dataset("sentences", rows, rows, ("a", "b"), outside=rows.inputs)
    assert 0 <= scores(posterior, dataset, rows, rows.inputs)["auroc"] <= 1
