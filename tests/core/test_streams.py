"""Rows that are streamed: live transforms that repeat exactly, for a member, an epoch and an item."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import Dataset as TorchDataset

from mixupmp import Categorical, Plan, Recipe, Standardize, Task, bayesian_bootstrap, deep_ensemble, fit, mixup_mp
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.fields import parted
from mixupmp.core.recipe import some_rows
from mixupmp.core.split import split
from mixupmp.core.streams import DatasetRows, IterableRows, stream_of
from mixupmp.train.member import MemberFit, StopTraining
from mixupmp.train.plans import make_plan

ROWS = 40
TASK = Task(Categorical(2), Standardize(), (3,))
RECIPE = Recipe(epochs=3, batch_size=4, learning_rate=0.05)


class Noisy(TorchDataset[Any]):
    """Draws from all three global generators, as transforms do."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        drawn = torch.tensor([float(torch.rand(())), np.random.rand(), random.random()])  # noqa: NPY002
        return drawn + 3 * (index % 2), index % 2


class Shuffled(IterableDataset[Any]):
    """A shuffled stream, with noise."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        for index in torch.randperm(self.rows).tolist():
            yield torch.rand(3) + 3 * (index % 2), index % 2


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))


def plan_of(train: Any, **changes: Any) -> Plan:
    return Plan(mixup_mp(1.0, members=1), network, train, TASK, replace(RECIPE, **changes))


def inputs_of(rows: DatasetRows | IterableRows, epoch: int, chunks: list[Tensor] | None = None) -> Tensor:
    chunks = list(torch.arange(ROWS).split(4)) if chunks is None else chunks
    return torch.cat([batch.inputs for batch in rows.batches(chunks, epoch)])


def test_an_item_is_a_function_of_seed_epoch_and_index_alone() -> None:
    here, loaded = DatasetRows(Noisy(), workers=0, seed=1), DatasetRows(Noisy(), workers=2, seed=1)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
    first = inputs_of(here, 0)
    assert torch.equal(inputs_of(loaded, 0), first)
    assert torch.equal(inputs_of(loaded, 0, list(order.split(4))), first[order])  # its workers are used again
    assert torch.equal(inputs_of(here, 0, [torch.tensor([7])]), first[7:8])
    assert not torch.isclose(inputs_of(loaded, 1), first).any()
    assert not torch.isclose(inputs_of(replace(here, seed=2), 0), first).any()


def test_reading_items_leaves_the_callers_generators_alone() -> None:
    torch.manual_seed(0), np.random.seed(0), random.seed(0)  # noqa: NPY002
    expected = float(torch.rand(())), np.random.rand(), random.random()  # noqa: NPY002
    torch.manual_seed(0), np.random.seed(0), random.seed(0)  # noqa: NPY002
    inputs_of(DatasetRows(Noisy(), workers=0), 0)
    assert (float(torch.rand(())), np.random.rand(), random.random()) == expected  # noqa: NPY002


def test_members_and_epochs_see_transforms_of_their_own() -> None:
    plan = plan_of(Noisy())
    one, other = plan.training_data(0).rows, plan.training_data(1).rows
    chunk = [torch.arange(4)]
    (first,), (second,), (again,) = one.batches(chunk), other.batches(chunk), one.batches(chunk)
    assert not torch.isclose(first.inputs, second.inputs).any()
    assert torch.equal(first.inputs, again.inputs)


@pytest.mark.parametrize("train", [DatasetRows(Noisy(), workers=0), IterableRows(Shuffled(), rows=ROWS)])
def test_a_fit_that_is_interrupted_anywhere_ends_with_the_same_bits(train: Any) -> None:
    class Stop:
        def on_step(self, fit: MemberFit) -> None:
            if fit.step == 13:  # in the middle of the second epoch
                raise StopTraining

    class Never:
        def on_step(self, fit: MemberFit) -> None:
            pass

    whole, part, rest = (MemberFit(plan_of(train), 0) for _ in range(3))
    whole.run(Never())
    with pytest.raises(StopTraining):
        part.run(Stop())
    rest.restore(*part.state())
    rest.run(Never())
    assert all(torch.equal(rest.weights()[name], value) for name, value in whole.weights().items())


def test_workers_and_engines_give_the_same_bits() -> None:
    found = [
        fit(plan_of(DatasetRows(Noisy(), workers=workers)), engine="inline").member_outputs(torch.ones(1, 3))
        for workers in (0, 2)
    ]
    assert torch.equal(*found)
    assert fit(plan_of(Noisy()), engine="inline").summaries[0].training_accuracy == 1


def test_rows_are_held_out_where_labels_are_known() -> None:
    labels = torch.arange(ROWS) % 2
    train, held = split(DatasetRows(Noisy(), workers=0, labels=labels), 0.25)
    assert (len(train), len(held)) == (30, 10)
    read = held.read()
    assert torch.equal(read.labels, (read.inputs.amin(1) > 2).long())
    assert torch.equal(inputs_of(train, 0, [torch.arange(5)]), train.take(torch.arange(5)).read().inputs)


def test_some_rows_are_evenly_spaced_or_the_first() -> None:
    assert some_rows(DatasetRows(Noisy()), 4).tolist() == [0, 10, 20, 30]
    assert some_rows(IterableRows(Shuffled(), rows=ROWS), 4).tolist() == [0, 1, 2, 3]
    assert some_rows(DatasetRows(Noisy())).tolist() == list(range(ROWS))


def test_an_epoch_of_an_iterable_is_its_first_rows() -> None:
    rows = IterableRows(Shuffled(1000), rows=12)
    whole = inputs_of(rows, 1, list(torch.arange(12).split(5)))
    assert len(rows) == len(whole) == 12
    assert torch.equal(inputs_of(rows, 1, [torch.tensor([5, 6]), torch.tensor([9])]), whole[[5, 6, 9]])
    assert not torch.equal(inputs_of(rows, 2, list(torch.arange(12).split(5))), whole)


def test_a_loader_brings_its_collate_function_and_workers() -> None:
    def doubled(items: list[Any]) -> Any:
        return torch.stack([item[0] * 2 for item in items]), torch.tensor([item[1] for item in items])

    rows = stream_of(DataLoader(Noisy(), num_workers=0, collate_fn=doubled))
    assert rows.workers == 0
    assert torch.equal(inputs_of(rows, 0), 2 * inputs_of(DatasetRows(Noisy(), workers=0), 0))


def test_pil_images_and_dicts_are_items_too() -> None:
    class Pictures(TorchDataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> tuple[Image.Image, int]:
            return Image.fromarray(np.full((4, 5, 4), index + 1, np.uint8), "RGBA"), index

    (batch,) = DatasetRows(Pictures(), workers=0).batches([torch.arange(2)])
    assert (batch.inputs.shape, batch.inputs.dtype) == ((2, 4, 4, 5), torch.uint8)
    assert parted({"input_ids": 1, "labels": 2}) == ({"input_ids": 1}, 2)
    assert parted((1, 2, 3)) == ((1, 2), 3)


def test_what_cannot_be_streamed_is_named() -> None:
    class Ragged(TorchDataset[Any]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.ones(index + 1), 0

    with pytest.raises(BadData, match=r"differ in shape.*Pad or resize"):
        inputs_of(DatasetRows(Ragged(), workers=0), 0, [torch.arange(4)])
    with pytest.raises(BadData, match=r"items \(input, label\)"):
        parted(torch.ones(3))
    with pytest.raises(InvalidArgument, match="label and labels"):
        parted({"input_ids": 1})
    with pytest.raises(BadData, match="IterableDataset ended after about 8 rows, of 12"):
        inputs_of(IterableRows(Shuffled(8), rows=12), 0, list(torch.arange(12).split(4)))
    with pytest.raises(InvalidArgument, match="rows must be the rows of an epoch"):
        stream_of(Shuffled())
    with pytest.raises(InvalidArgument, match="weights must be Expected"):
        Plan(bayesian_bootstrap(1), network, IterableRows(Shuffled(), rows=ROWS), TASK, RECIPE)
    with pytest.raises(InvalidArgument, match="workers must be"):
        DatasetRows(Noisy(), workers=-1)
    with pytest.raises(InvalidArgument, match=r"inputs \(2, 3\)"):
        make_plan(DatasetRows(Noisy()), TASK, deep_ensemble(1), lambda: nn.Conv1d(3, 2, 1), RECIPE)
