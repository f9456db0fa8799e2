"""The experiment on intents: what counts as recall, and a table that grows with its repeats."""

from __future__ import annotations

from pathlib import Path

import torch

from mixupmp.paper.experiments.clinc import COLUMNS, FALSE_ALARMS, made_up, prepared, recall, write_table


def test_recall_is_taken_at_the_threshold_of_the_validation_sentences() -> None:
    known = torch.arange(101.0)
    assert recall(known, torch.tensor([94.0, 96.0, 99.0, 1.0]), 0.05) == 0.5
    assert recall(known, torch.tensor([94.0, 96.0, 99.0, 1.0]), 0.1) == 0.75


def test_the_table_has_means_and_standard_errors(tmp_path: Path) -> None:
    records = [{"line": "DE", "seed": seed, **dict.fromkeys(COLUMNS, value)} for seed, value in enumerate((0.5, 0.7))]
    write_table(records, tmp_path / "t.md")
    assert "| DE | 2 | " + " | ".join(["0.6000 ± 0.1000"] * len(COLUMNS)) in (tmp_path / "t.md").read_text()
    assert {f"recall_{rate:g}" for rate in FALSE_ALARMS} <= set(COLUMNS)


def test_the_vocabulary_is_that_of_the_training_sentences() -> None:
    dataset, held = prepared(made_up(intents=3, each=4))
    assert (len(dataset.train), len(dataset.test), len(held)) == (12, 30, 30)
    assert dataset.outside is not None
    assert bool((dataset.outside == 1).any())  # fillers that were never seen in training
