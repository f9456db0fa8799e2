from __future__ import annotations

import torch

from mixupmp.core.batch import Batch, concatenate


def rows(count: int, start: float) -> Batch:
    values = torch.arange(count, dtype=torch.float32) + start
    return Batch(values.view(-1, 1), torch.stack([values, -values], 1), values + 1)


def test_reweighting_changes_only_the_weights() -> None:
    batch = rows(3, 0)
    twice = batch.reweighted(2.0)
    assert torch.equal(twice.weights, torch.tensor([2.0, 4.0, 6.0]))
    assert twice.inputs is batch.inputs
    assert twice.targets is batch.targets
    assert torch.equal(batch.weights, torch.tensor([1.0, 2.0, 3.0]))  # the first is left as it was


def test_concatenating_keeps_the_rows_in_order() -> None:
    both = concatenate(rows(2, 0), rows(3, 10))
    assert both.inputs.flatten().tolist() == [0, 1, 10, 11, 12]
    assert both.targets[:, 1].tolist() == [0, -1, -10, -11, -12]
    assert both.weights.tolist() == [1, 2, 11, 12, 13]
