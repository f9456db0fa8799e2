"""A trained network's posterior, from rows of every kind that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

import mixupmp
from mixupmp import IterableRows, MixupMPClassifier, Recipe, ensemble_of, posterior_of
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.networks import CNN

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
    rows = X.tolist() if isinstance(X, np.ndarray) else as_tensors(X)
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


def convolution(channels: int) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 8), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(8, 3))


BYTES = random.integers(0, 256, (ROWS, 6, 8, 3)).astype(np.uint8)  # channels last
FIRST = np.ascontiguousarray(BYTES.transpose(0, 3, 1, 2))
GRAY = BYTES[..., 0]
DEEP = random.integers(0, 65_536, (ROWS, 6, 8, 3)).astype(np.uint16)
# Images as people have them, and as the network takes them.
IMAGES: dict[str, tuple[Any, Any]] = {
    "channels last": (BYTES, FIRST),
    "channels last, floats": (BYTES / 255, np.float32(FIRST / 255)),
    "channels last, a tensor": (torch.from_numpy(BYTES), FIRST),
    "PIL images": ([Image.fromarray(image) for image in BYTES], FIRST),
    "gray PIL images": ([Image.fromarray(image) for image in GRAY], GRAY[:, None]),
    "gray": (GRAY, GRAY[:, None]),
    "whole numbers": (FIRST.astype(np.int64), FIRST),
    "uint16": (DEEP, np.float32(DEEP.transpose(0, 3, 1, 2)) / 65_535),
    "gray uint16": (torch.from_numpy(DEEP[..., 0]), np.float32(DEEP[:, None, ..., 0]) / 65_535),
    "black and white PIL images": ([Image.fromarray(image > 99) for image in GRAY], 255 * np.uint8(GRAY[:, None] > 99)),
    "true and false": (FIRST > 99, np.float32(FIRST > 99)),
    "true and false, channels last": (BYTES > 99, np.float32(FIRST > 99)),
    "bytes in another order": ((BYTES / 255).astype(">f8"), np.float32(FIRST / 255)),
    "lists": ((FIRST / 255).tolist(), np.float32(FIRST / 255)),
    "a list of tensors": ([torch.from_numpy(image / 255) for image in FIRST], np.float32(FIRST / 255)),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_images_in_every_form_are_the_same_images(kind: str, tmp_path: Path) -> None:
    X, taken = IMAGES[kind]
    network = convolution(taken.shape[1])
    expected = posterior_of(network, taken, LABELS, members=1, recipe=QUICK).probabilities(taken)
    posterior = posterior_of(network, X, LABELS, members=1, recipe=QUICK, validation=(X, LABELS), ratio=inf, alpha=0.1)
    assert posterior.task.input_shape == taken.shape[1:]
    posterior = posterior_of(network, X, LABELS, members=1, recipe=QUICK)
    for same in (X, taken if taken.dtype == np.uint8 else torch.from_numpy(taken)):
        torch.testing.assert_close(posterior.probabilities(same), expected)
    mixupmp.save(posterior, tmp_path / "run")
    loaded = mixupmp.load(tmp_path / "run", network=lambda: convolution(taken.shape[1]))
    assert torch.equal(loaded.probabilities(X), posterior.probabilities(X))
    alone = network(torch.from_numpy(taken).float() / (255 if taken.dtype == np.uint8 else 1)).softmax(1).detach()
    torch.testing.assert_close(ensemble_of([network], X[:4]).probabilities(X), alone)
    model = MixupMPClassifier.from_network(network, members=1, random_state=0).set_params(recipe=QUICK).fit(X, LABELS)
    torch.testing.assert_close(model.posterior_.probabilities(torch.from_numpy(taken)), expected)


def test_a_layout_says_what_a_shape_does_not() -> None:
    either = random.integers(0, 256, (ROWS, 3, 8, 3)).astype(np.uint8)  # the network takes it both ways
    given = either.transpose(0, 3, 1, 2)
    network = convolution(3)
    expected = posterior_of(network, given, LABELS, members=1, recipe=QUICK).probabilities(given)
    posterior = posterior_of(network, either, LABELS, members=1, recipe=QUICK, layout="NHWC")
    torch.testing.assert_close(posterior.probabilities(either), expected)
    probabilities = ensemble_of([network], either[:2], layout="NHWC").probabilities(either)
    torch.testing.assert_close(probabilities, ensemble_of([network], given[:2]).probabilities(given))
    sized = ensemble_of([CNN(3, (6, 6), 3).state_dict()], BYTES[:2, :, :6], network="cnn", classes="abc", layout="NHWC")
    assert sized.task.input_shape == (3, 6, 6)


def test_images_that_a_network_cannot_take_are_refused_with_the_option() -> None:
    unclear = random.integers(0, 256, (ROWS, 6, 8, 4)).astype(np.uint8)
    with pytest.raises(BadData, match=r"X of shape.*pass layout='NCHW' or layout='NHWC'"):
        posterior_of(convolution(3), unclear, LABELS)
    with pytest.raises(BadData, match=r"example of shape.*pass layout='NCHW' or layout='NHWC'"):
        ensemble_of([convolution(3)], unclear[:2])
    with pytest.raises(InvalidArgument, match="layout must be one of table, tokens, NHW"):
        posterior_of(convolution(3), BYTES, LABELS, layout="HWC")
    with pytest.raises(InvalidArgument, match="one of table, tokens, NCHW, NHWC for an array of 4 axes"):
        posterior_of(convolution(3), BYTES, LABELS, layout="NTC")
    with pytest.raises(InvalidArgument, match="pixels from 0 to 255, or 65535 for uint16"):
        posterior_of(convolution(3), -BYTES.astype(int), LABELS)
    with pytest.raises(InvalidArgument, match="X must be whole numbers, with layout='tokens'"):
        posterior_of(Sentences(), IDS.astype(float), LABELS, layout="tokens")
    with pytest.raises(InvalidArgument, match="channels first, where all axes"):
        posterior_of(convolution(3), BYTES[:, :3, :3], LABELS, layout="NHWC")
    for axes in (1, 3):
        with pytest.raises(InvalidArgument, match="got 'complex64'"):
            posterior_of(convolution(3), np.ones((ROWS, 3, 6, 8)[: axes + 1], np.complex64), LABELS)
    with pytest.raises(InvalidArgument, match="X must be of two axes or more, the first of them rows"):
        posterior_of(mlp(), np.zeros(ROWS), LABELS)
    with pytest.raises(InvalidArgument, match=r"3 channels instead\. Axes in another order"):
        posterior_of(convolution(4), FIRST, LABELS, layout="NCHW")
    for way in (lambda X: posterior_of(convolution(3), X, LABELS), lambda X: ensemble_of([convolution(3)], X)):
        with pytest.raises(InvalidArgument, match=r"got '8 x 6 L'.*Convert or resize them: image\.convert\('RGB'\)"):
            way(IMAGES["gray PIL images"][0])
    deep = posterior_of(convolution(3), DEEP, LABELS, members=1, recipe=QUICK)
    with pytest.raises(InvalidArgument, match=r"of shape \(rows, 3, 6, 8\)"):
        deep.probabilities(DEEP[:, :5])


def test_a_network_keeps_the_modes_of_its_layers() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    network[1].eval()
    posterior_of(network, np.zeros((ROWS, 4), np.int64), LABELS, recipe=QUICK)
    assert [layer.training for layer in network] == [True, False, True]
