"""A trained network's posterior, from rows of every kind that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from mixupmp import IterableRows, MixupMPClassifier, Recipe, ensemble_of, posterior_of
from mixupmp.core.errors import InvalidArgument

ROWS = 40
QUICK = Recipe(epochs=2, batch_size=16, optimizer="adamw", learning_rate=1e-2)
random = np.random.default_rng(0)
LABELS = random.integers(0, 3, ROWS)
IDS = random.integers(0, 12, (ROWS, 5))
MASK = (random.random((ROWS, 5)) > 0.3).astype(np.int64)


class Sentences(nn.Module):
    """Tokens and a mask by name, or tokens alone."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, width)
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        assert input_ids.dtype == torch.int64
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden: Tensor = (self.embedding(input_ids) * mask[..., None]).sum(1)
        return self.last(self.first(hidden).relu())  # type: ignore[no-any-return]


class Measured(nn.Module):
    """An image and a line of numbers by position; it notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.table, self.last = nn.Linear(16, 4), nn.Linear(2, 4), nn.Linear(4, 3)
        self.largest = 0.0

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        self.largest = max(self.largest, float(table.detach().abs().max()))
        return self.last((self.image(image.flatten(1)) + self.table(table)).relu())  # type: ignore[no-any-return]


SENTENCES = {"input_ids": IDS, "attention_mask": MASK}
PAIR = (random.integers(0, 256, (ROWS, 1, 4, 4)).astype(np.uint8), random.normal(50, 9, (ROWS, 2)).astype(np.float32))


def as_tensors(X: Any) -> Any:
    if isinstance(X, dict):
        return {name: torch.as_tensor(value) for name, value in X.items()}
    return tuple(map(torch.as_tensor, X)) if isinstance(X, tuple) else torch.as_tensor(X)


@pytest.mark.parametrize(
    ("network", "X"),
    [(Sentences, SENTENCES), (Sentences, IDS), (Sentences, torch.tensor(IDS)), (Measured, PAIR)],
    ids=["dict", "tokens", "token tensor", "tuple"],
)
def test_inputs_go_to_the_network_as_it_takes_them(network: Any, X: Any) -> None:
    given = network()
    posterior = posterior_of(given, X, LABELS, members=2, recipe=QUICK, validation=(X, LABELS))
    rows = as_tensors(X)
    alone = ensemble_of([given], rows).probabilities(rows)
    assert posterior.probabilities(rows).shape == alone.shape == (ROWS, 3)


def test_features_as_wide_as_packed_rows_are_not_taken_for_them() -> None:
    posterior = posterior_of(Sentences(IDS.shape[1] + MASK.shape[1]), SENTENCES, LABELS, recipe=QUICK)
    assert posterior.probabilities(SENTENCES).shape == (ROWS, 3)


def test_numbers_among_several_inputs_are_not_scaled_for_a_trained_network() -> None:
    network = Measured()
    model = MixupMPClassifier.from_network(network, members=2, random_state=0).set_params(recipe=QUICK)
    model.fit(PAIR, LABELS)
    assert max(member.largest for member in model.posterior_.networks) > 40


class Items(Dataset[Any]):
    """Rows with or without a random transform; how often each was read."""

    def __init__(self, noise: float) -> None:
        self.noise, self.read = noise, [0] * ROWS

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.read[index] += 1
        return torch.full((4,), float(LABELS[index])) + self.noise * torch.randn(4), int(LABELS[index])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return iter([(torch.full((4,), float(label)), int(label)) for label in LABELS])


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize(("noise", "repeats"), [(0.0, 1), (0.1, 8)])
def test_a_dataset_is_read_once_or_repeated_where_its_transforms_are_random(noise: float, repeats: int) -> None:
    model = MixupMPClassifier.from_network(mlp(), members=2, random_state=0).set_params(recipe=QUICK)
    model.fit(Items(noise), None)
    assert {summary.steps for summary in model.posterior_.summaries} == {2 * -(-repeats * ROWS // 16)}
    assert model.predict_proba(Items(0.0)).shape == (ROWS, 3)


def test_an_iterable_dataset_is_read_in_its_order() -> None:
    model = MixupMPClassifier.from_network(mlp(), members=2, random_state=0)
    model.set_params(recipe=Recipe(epochs=40, batch_size=16, optimizer="adamw", learning_rate=1e-2))
    model.fit(IterableRows(Stream(), rows=ROWS), None)
    assert model.score(torch.tensor(LABELS)[:, None].repeat(1, 4).float().numpy(), LABELS) > 0.9


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(InvalidArgument, match=r"from_network\(network\)\.fit\(dataset"):
        posterior_of(mlp(), Items(0.0))
    with pytest.raises(InvalidArgument, match="40 labels, one for each row of X"):
        posterior_of(mlp(), np.zeros((ROWS, 4), np.float32), LABELS[:7])
    with pytest.raises(InvalidArgument, match="a dict with input_ids, attention_mask"):
        posterior_of(Sentences(), SENTENCES, LABELS, validation=({"input_ids": IDS}, LABELS))
    with pytest.raises(InvalidArgument, match="a tensor or an array of numbers"):
        posterior_of(mlp(), np.array([["a"] * 4] * ROWS), LABELS)
    with pytest.raises(InvalidArgument, match="X must be a tensor or an array of numbers"):
        posterior_of(mlp(), [np.zeros((ROWS, 4)), np.zeros((ROWS, 2))], LABELS)
    with pytest.raises(InvalidArgument, match=r"y must be whole numbers of classes.*from_network takes any labels"):
        posterior_of(mlp(), np.zeros((ROWS, 4)), np.array(["a", "b"] * (ROWS // 2)))
    with pytest.raises(InvalidArgument, match=r"validation must be rows \(X, y\), a share of X as \.2, or None"):
        posterior_of(mlp(), np.zeros((ROWS, 4)), LABELS, validation=1)
    # Only where a shape is wrong can another layout help.
    with pytest.raises(InvalidArgument, match="`layout`"):
        posterior_of(mlp(), np.zeros((ROWS, 5)), LABELS)
    for network, X in ((mlp().double(), np.zeros((ROWS, 4))), (Sentences(), {"input_ids": IDS, "mask": MASK})):
        with pytest.raises(InvalidArgument, match="network must be one that takes inputs") as raised:
            posterior_of(network, X, LABELS)
        assert "layout" not in str(raised.value)


class Categorized(nn.Module):
    """Numbers, and one category for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.category, self.last = nn.Linear(4, 6), nn.Embedding(3, 6), nn.Linear(6, 3)

    def forward(self, numbers: Tensor, category: Tensor) -> Tensor:
        return self.last((self.numbers(numbers) + self.category(category)).relu())  # type: ignore[no-any-return]


def test_one_number_for_each_row_may_be_among_several_inputs() -> None:
    X = (np.zeros((ROWS, 4), np.float32), LABELS)
    assert posterior_of(Categorized(), X, LABELS, recipe=QUICK).probabilities(X).shape == (ROWS, 3)
    model = MixupMPClassifier.from_network(Categorized(), members=2, random_state=0).set_params(recipe=QUICK)
    assert model.fit(X, LABELS).predict_proba(X).shape == (ROWS, 3)


def test_pixels_are_uint8_or_floats() -> None:
    network = nn.Sequential(nn.Flatten(), mlp())
    pixels = random.integers(0, 256, (ROWS, 1, 2, 2))
    posterior = posterior_of(network, pixels.astype(np.uint8), LABELS, recipe=QUICK)
    assert posterior.probabilities(pixels.astype(np.uint8)).shape == (ROWS, 3)  # an array, as posterior_of takes it
    for wide in (pixels, pixels.astype(np.uint16), pixels.astype(np.int32)):
        for given in (wide, torch.as_tensor(wide)):
            with pytest.raises(InvalidArgument, match=r"uint8 pixels or floats.*divided by 65535"):
                posterior_of(network, given, LABELS)
            with pytest.raises(InvalidArgument, match="uint8 pixels or floats"):
                ensemble_of([network], given[:2])
            with pytest.raises(InvalidArgument, match="uint8 pixels or floats"):
                posterior.probabilities(given)
