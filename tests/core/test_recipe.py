from __future__ import annotations

from math import cos, pi
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, nn
from torch.optim import SGD, AdamW

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.recipe import Recipe, batches_of, paper_bootstrap, paper_clusters, paper_images


def test_the_rate_falls_by_the_factor_at_the_milestones() -> None:
    recipe = Recipe(epochs=200, learning_rate=0.1, schedule="steps")
    at = {0: 0.1, 59: 0.1, 60: 0.02, 119: 0.02, 120: 0.004, 159: 0.004, 160: 0.0008, 199: 0.0008}
    for epoch, rate in at.items():
        for step in (0, 9):  # the first and last of ten steps
            assert recipe.rate(epoch * 10 + step, 10) == pytest.approx(rate)


def test_cosine_starts_at_the_top_and_ends_near_zero() -> None:
    recipe = Recipe(epochs=4, learning_rate=0.8, schedule="cosine")
    assert recipe.rate(0, 5) == pytest.approx(0.8)
    assert recipe.rate(10, 5) == pytest.approx(0.4)  # half-way
    assert recipe.rate(5, 5) == pytest.approx(0.4 * (1 + cos(pi / 4)))
    assert recipe.rate(20, 5) == pytest.approx(0)


def test_one_cycle_rises_to_the_rate_and_falls() -> None:
    recipe = Recipe(epochs=10, learning_rate=0.5, schedule="one-cycle", warm_up=0.3)
    assert recipe.rate(0, 10) == pytest.approx(0.5 / 25)
    assert recipe.rate(15, 10) == pytest.approx(0.5 * 0.52)  # half-way up: the middle of 1/25 and 1
    assert recipe.rate(30, 10) == pytest.approx(0.5)
    assert recipe.rate(65, 10) == pytest.approx(0.25)  # half-way down
    assert recipe.rate(100, 10) == pytest.approx(0.5e-4)
    rates = [recipe.rate(step, 10) for step in range(100)]
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert min(rates) > 0


def test_a_constant_rate_is_constant() -> None:
    assert {Recipe(schedule="constant", learning_rate=0.3).rate(step, 7) for step in range(200)} == {0.3}


@given(rows=st.integers(1, 200), size=st.one_of(st.none(), st.integers(2, 60)))
def test_batches_have_every_row_once_and_none_has_a_single_row(rows: int, size: int | None) -> None:
    order = torch.randperm(rows)
    chunks = batches_of(rows, size, order)
    assert torch.equal(torch.cat(chunks), order)
    lengths = [len(chunk) for chunk in chunks]
    if rows > 1:
        assert min(lengths) >= 2
    if size is not None and rows > size:
        assert set(lengths[:-1]) <= {size}
        assert lengths[-1] <= size + 1


def test_a_last_row_joins_the_batch_before() -> None:
    assert [len(chunk) for chunk in batches_of(9, 4, torch.arange(9))] == [4, 5]
    assert [len(chunk) for chunk in batches_of(10, 4, torch.arange(10))] == [4, 4, 2]
    assert [len(chunk) for chunk in batches_of(3, 2, torch.arange(3))] == [3]
    assert [len(chunk) for chunk in batches_of(5, 5, torch.arange(5))] == [5]
    assert [len(chunk) for chunk in batches_of(5, None, torch.arange(5))] == [5]


@pytest.mark.parametrize(
    ("recipe", "reference"),
    [
        (Recipe(learning_rate=0.1), lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)),
        (Recipe(learning_rate=0.1, nesterov=False), lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=5e-4)),
        (Recipe(learning_rate=0.1, momentum=0.0, weight_decay=0.0), lambda p: SGD(p, 0.1)),
        (Recipe(optimizer="adamw", learning_rate=0.01, weight_decay=0.1), lambda p: AdamW(p, 0.01, weight_decay=0.1)),
    ],
)
def test_optimizers_step_as_torchs_plain_ones(recipe: Recipe, reference: Any) -> None:
    inputs = torch.randn(20, 3, generator=Generator().manual_seed(0))
    weights = []
    for build in (recipe.build_optimizer, reference):
        torch.manual_seed(0)
        network = nn.Linear(3, 2)
        optimizer = build(list(network.parameters()))
        for _ in range(10):
            optimizer.zero_grad()
            network(inputs).square().mean().backward()
            optimizer.step()
        weights.append(network.weight.detach())
    assert torch.allclose(*weights, atol=1e-6)


def test_frozen_weights_are_left_out() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    network[0].requires_grad_(False)
    optimizer = Recipe().build_optimizer(network.parameters())
    assert [p.shape for group in optimizer.param_groups for p in group["params"]] == [(2, 3), (2,)]


def test_the_papers_recipes() -> None:
    images, clusters, bootstrap = paper_images(), paper_clusters(), paper_bootstrap()
    assert (images.epochs, images.batch_size, images.learning_rate, images.weight_decay) == (200, 128, 0.1, 5e-4)
    assert (images.momentum, images.nesterov, images.milestones, images.factor) == (0.9, True, (60, 120, 160), 0.2)
    assert (clusters.epochs, clusters.batch_size, clusters.learning_rate, clusters.momentum) == (10_000, None, 0.5, 0)
    assert (bootstrap.learning_rate, bootstrap.epochs_after_interpolation) == (5e-4, 1000)


def test_milestones_may_come_as_a_list() -> None:
    assert Recipe(milestones=[1, 2]).milestones == (1, 2)  # type: ignore[arg-type]


NOT_A_NUMBER = float("nan")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0), ("epochs", 1.5), ("epochs", True), ("epochs", None), ("epochs", "3"),
        ("threads", 0), ("threads", 2.0),
        ("batch_size", 0), ("batch_size", 1), ("batch_size", 2.5), ("pseudo_batch_size", 0), ("pseudo_batch_size", -1),
        ("optimizer", "adam"), ("optimizer", None),
        ("learning_rate", 0), ("learning_rate", -1), ("learning_rate", NOT_A_NUMBER), ("learning_rate", float("inf")),
        ("learning_rate", "0.1"), ("learning_rate", None),
        ("momentum", 1), ("momentum", -0.1), ("momentum", NOT_A_NUMBER), ("momentum", "0.9"),
        ("weight_decay", -1e-9), ("weight_decay", NOT_A_NUMBER), ("weight_decay", float("inf")), ("weight_decay", "0"),
        ("schedule", "linear"), ("warm_up", 0), ("warm_up", 1), ("warm_up", "0.3"), ("precision", "float64"),
        ("milestones", (-1,)), ("milestones", (1.5,)), ("milestones", 60), ("milestones", ("60",)),
        ("factor", 0), ("factor", -0.2), ("factor", NOT_A_NUMBER), ("factor", "0.2"),
        ("epochs_after_interpolation", -1), ("epochs_after_interpolation", 1.5),
        ("nesterov", "yes"), ("compile", 1),
    ],
)  # fmt: skip
def test_bad_settings_are_named_with_their_value(name: str, value: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=rf"{name} must be .*, got {value!r}".replace("(", r"\(").replace(")", r"\)")
    ):
        Recipe(**{"schedule": "constant", name: value})


@pytest.mark.parametrize("schedule", ["one-cycle", "cosine"])
def test_a_schedule_that_knows_its_end_cannot_stop_early(schedule: Any) -> None:
    with pytest.raises(InvalidArgument, match="schedule must be 'constant' or 'steps' with epochs_after_interpolation"):
        Recipe(schedule=schedule, epochs_after_interpolation=2)


def test_thousands_of_epochs_are_recorded_now_and_then() -> None:
    long = Recipe(epochs=10_000, schedule="constant")
    assert len([epoch for epoch in range(1, 10_001) if long.records(epoch)]) == 200
    assert long.records(10_000)
    assert all(Recipe(epochs=30).records(epoch) for epoch in range(1, 31))
