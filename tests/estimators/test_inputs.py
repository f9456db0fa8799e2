"""Inputs as they come: every kind is read as it is meant, or refused with a message that says what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Subset, SubsetRandomSampler, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from mixupmp import DatasetRows, DeepEnsembleClassifier, IterableRows, MixupMPClassifier, MixupMPRegressor, Recipe
from mixupmp.core.errors import BadData, InvalidArgument

N = 24
Y = np.arange(N) % 2
RECIPE = Recipe(epochs=2, batch_size=8, optimizer="adamw", learning_rate=1e-2)
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(1, 12, (N, 6))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(12, 4), nn.Linear(4, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.head(self.embedding(input_ids).mean(1))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, series: Tensor) -> Tensor:
        return self.head(self.body(series.transpose(1, 2))[0][:, -1])  # type: ignore[no-any-return]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.table = nn.Linear(16, 2), nn.Linear(3, 2)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        return self.image(image.flatten(1)) + self.table(table)  # type: ignore[no-any-return]


def convolution(axes: int, channels: int) -> Callable[[], nn.Module]:
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[axes - 1]
    return lambda: nn.Sequential(layer(channels, 4, 3), nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(4, 2))


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(2))


def pixels(*shape: int) -> Any:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def pictures(channels: int, wider: int = 0) -> list[Image.Image]:
    return [Image.fromarray(pixels(8, 8 + (wider if k else 0), channels)) for k in range(N)]


def model(network: Any) -> DeepEnsembleClassifier:
    return DeepEnsembleClassifier(2, network=network, recipe=RECIPE, calibrate=False, random_state=0, engine="inline")


KINDS: dict[str, tuple[Any, Any, str | None, tuple[int, ...]]] = {
    "tokens": (IDS, Tokens, None, (6,)),
    "tokens that are said to be": (torch.from_numpy(IDS).int(), Tokens, "tokens", (6,)),
    "a dict": ({"input_ids": IDS, "attention_mask": np.ones_like(IDS)}, Tokens, None, (12,)),
    "a tuple": ((pixels(N, 1, 4, 4), floats(N, 3)), Two, None, (19,)),
    "a series for Conv1d": (floats(N, 3, 9), convolution(1, 3), None, (3, 9)),
    "a series with its channels last": (floats(N, 9, 3), convolution(1, 3), "NTC", (3, 9)),
    "a series for an LSTM": (floats(N, 3, 9), Recurrent, None, (3, 9)),
    "a video": (floats(N, 3, 5, 14, 14), convolution(3, 3), None, (3, 5, 14, 14)),
    "a video with its channels last": (pixels(N, 5, 14, 14, 3), convolution(3, 3), None, (3, 5, 14, 14)),
    "a video with its time first": (pixels(N, 14, 3, 16, 16), convolution(3, 3), None, (3, 14, 16, 16)),
    "RGBA": (pixels(N, 16, 16, 4), convolution(2, 4), None, (4, 16, 16)),
    "RGBA of 8 x 8": (pixels(N, 8, 8, 4), convolution(2, 4), None, (4, 8, 8)),
    "two channels": (pixels(N, 2, 16, 16), convolution(2, 2), None, (2, 16, 16)),
    "twelve channels": (pixels(N, 16, 16, 12), convolution(2, 12), None, (12, 16, 16)),
    "no squares, but a layout": (pixels(N, 6, 8, 4), convolution(2, 4), "NHWC", (4, 6, 8)),
    "uint16": (RANDOM.integers(0, 60_000, (N, 8, 8), dtype=np.uint16), convolution(2, 1), None, (1, 8, 8)),
    "PIL images": (pictures(3), convolution(2, 3), None, (3, 8, 8)),
    "PIL images, RGBA": (pictures(4), convolution(2, 4), None, (4, 8, 8)),
    "lazy layers": (floats(N, 9), lazy, None, (9,)),
    "lazy layers on images": (pixels(N, 8, 8), lazy, None, (1, 8, 8)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_input_reaches_the_network_as_it_is_meant(kind: str, tmp_path: Path) -> None:
    X, network, layout, shape = KINDS[kind]
    fitted = model(network).fit(X, Y, layout=layout)
    assert fitted.layout_.shape == shape
    found = fitted.predict_proba(X)
    assert found.shape == (N, 2)
    assert np.ptp(found[:, 0]) > 0
    fitted.save(tmp_path / "model")
    loaded = DeepEnsembleClassifier.load(tmp_path / "model", network=network)
    assert np.array_equal(loaded.predict_proba(X), found)


def test_layouts_of_the_same_images_are_the_same_images() -> None:
    images = pixels(N, 4, 16, 16)
    expected = model(convolution(2, 4)).fit(images, Y).predict_proba(images)
    last = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    fitted = model(convolution(2, 4)).fit(last, Y)
    for same in (last, images, [Image.fromarray(image) for image in last], torch.from_numpy(last)):
        assert np.array_equal(fitted.predict_proba(same), expected)


def test_sixteen_bits_are_kept() -> None:
    """Images that differ in their lower byte alone are told apart, and floats are not taken for them."""
    images = np.zeros((N, 8, 8), np.uint16) + 256 * 7 + (Y * 200).astype(np.uint16)[:, None, None]
    fitted = MixupMPClassifier(1.0, network=convolution(2, 1), recipe=Recipe(epochs=20, learning_rate=0.05)).fit(
        images, Y
    )
    assert (fitted.predict(images) == Y).all()
    with pytest.raises(InvalidArgument, match="whole numbers from 0 to 65535, as in fit"):
        fitted.predict(images.astype(np.float32))


BAD: dict[str, tuple[Any, Any, str | None, str]] = {
    "a layout that is none": (pixels(N, 8, 8), lazy, "HWC", "layout must be one of table, tokens, NHW, NCHW"),
    "a layout of other axes": (
        pixels(N, 8, 8),
        lazy,
        "NCHW",
        "one of table, tokens, NHW, NCT, NTC for an array of 3 axes",
    ),
    "an unclear layout": (pixels(N, 6, 8, 4), lazy, None, "pass layout='NCHW' or layout='NHWC'"),
    "an unclear video": (pixels(N, 3, 3, 6, 9), lazy, None, "layout='NCTHW' or layout='NTCHW' or layout='NTHWC'"),
    "tokens as floats": (
        IDS.astype(float),
        Tokens,
        None,
        r"inputs \(2, 6\) of torch.float32.*`layout`.*'tokens'",
    ),
    "floats as tokens": (IDS.astype(float), Tokens, "tokens", "whole numbers, with layout='tokens'"),
    "a series with its channels last": (floats(N, 9, 3), convolution(1, 3), None, "network must be one.*`layout`"),
    "negative pixels": (-pixels(N, 8, 8).astype(int), lazy, None, "pixels from 0 to 255, or 65535 for uint16"),
    "images of two sizes": (pictures(3, wider=1), lazy, None, "images differ.*Resize or convert"),
    "ragged rows": (
        [[1.0, 2.0]] * (N - 1) + [[1.0]],
        lazy,
        None,
        r"rows of one length, got 'rows of lengths \[1, 2\]'",
    ),
    "sentences": (["will it rain", "wake me up"] * (N // 2), lazy, None, "got 'sentences'.*load_path.*text"),
    "an array of words": (np.array(["rain"] * N, object), lazy, None, "got 'sentences'.*load_path.*text"),
    "six axes": (floats(N, 1, 2, 2, 2, 2), lazy, None, "at most five axes"),
    "a dict of text": ({"input_ids": ["a"] * N}, Tokens, None, "input_ids must be a tensor or an array of numbers"),
    "an empty dict": ({}, Tokens, None, "a dict of tensors"),
    "a tuple of other lengths": ((floats(N, 3), floats(N - 1, 3)), Two, None, "as many rows each"),
    "two inputs for one": ((floats(N, 3), floats(N, 4)), lazy, None, "network must be one that takes inputs"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_wrong_input_is_refused_with_what_to_do(kind: str) -> None:
    X, network, layout, message = BAD[kind]
    with pytest.raises((BadData, InvalidArgument), match=f"(?s){message}"):
        model(network).fit(X, Y, layout=layout)


def test_tokens_are_not_blended() -> None:
    with pytest.raises(InvalidArgument, match="Use r=0, blend at the embedding"):
        MixupMPClassifier(1.0, network=Tokens, recipe=RECIPE).fit(IDS, Y)


def test_tokens_are_blended_at_the_embedding_also_in_a_dict() -> None:
    for X in (IDS, KINDS["a dict"][0]):
        fitted = MixupMPClassifier(1.0, 0.4, 1, network=Tokens, recipe=RECIPE, mix_layer="embedding", random_state=0)
        assert fitted.fit(X, Y).predict_proba(X).shape == (N, 2)


def test_predictions_need_inputs_as_in_fit() -> None:
    fitted = model(Tokens).fit(KINDS["a dict"][0], Y)
    with pytest.raises(InvalidArgument, match="a dict with input_ids, attention_mask"):
        fitted.predict({"input_ids": IDS})
    images = model(convolution(2, 4)).fit(pixels(N, 16, 16, 4), Y)
    with pytest.raises(InvalidArgument, match=r"of shape \(rows, 4, 16, 16\), as in fit"):
        images.predict(pixels(N, 3, 16, 16))
    with pytest.raises(InvalidArgument, match="whole numbers from 0 to 255, as in fit"):
        images.predict(floats(N, 4, 16, 16))


class Live(TorchDataset[Any]):
    """Rows with noise of their own in each epoch, and names as labels."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        return torch.rand(3, 8, 8) + (index % 2), ("even", "odd")[index % 2]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        while True:
            label = int(torch.randint(2, ()))
            yield torch.rand(5) + 2 * label, label


def test_a_dataset_is_streamed_with_its_transforms_live() -> None:
    recipe = Recipe(epochs=4, batch_size=16, optimizer="adamw", learning_rate=1e-2)
    settings = {"network": convolution(2, 3), "recipe": recipe, "random_state": 0, "engine": "inline"}
    streamed = MixupMPClassifier(1.0, members=1, **settings).fit(DatasetRows(Live(), workers=0))
    assert streamed.classes_.tolist() == ["even", "odd"]
    assert streamed.calibrator_ is not None  # rows were held out from the stream
    frozen = MixupMPClassifier(1.0, members=1, **settings).fit(Live(), in_memory=True)
    weights = [next(m.posterior_.networks[0].parameters()) for m in (streamed, frozen)]
    assert not torch.equal(*weights)
    found = streamed.predict_proba(DataLoader(Live(), num_workers=0))
    assert found.shape == (64, 2)
    assert streamed.score(torch.stack([Live()[k][0] for k in range(64)]), ["even", "odd"] * 32) > 0.9
    assert streamed.evaluate(Live())["acc"] > 0.9  # type: ignore[operator]


def test_class_weights_and_subsets_of_a_stream() -> None:
    part = Subset(Live(), [*range(0, 20, 2), 1, 3])
    heavy = {"even": 1.0, "odd": 50.0}
    settings = {"network": lazy, "recipe": Recipe(epochs=1, batch_size=4, learning_rate=1e-4), "calibrate": False}
    fitted = DeepEnsembleClassifier(1, **settings, class_weight=heavy, random_state=0).fit(DatasetRows(part, workers=0))
    assert fitted.posterior_.summaries[0].steps == 3


def test_an_iterable_dataset_is_an_epoch_of_its_first_rows() -> None:
    fitted = MixupMPClassifier(recipe=Recipe(epochs=3, batch_size=16), members=1, random_state=0, network=lazy)
    fitted.fit(IterableRows(Endless(), rows=64))
    assert (fitted.ratio_, fitted.posterior_.summaries[0].steps) == (1.0, 12)
    assert fitted.predict(np.float32([[2.5] * 5, [0.5] * 5])).tolist() == [1, 0]
    with pytest.raises(InvalidArgument, match=r"rows must be the rows of an epoch.*IterableRows\(dataset, rows="):
        fitted.fit(Endless())
    with pytest.raises(InvalidArgument, match="sample_weight must be left out"):
        fitted.fit(IterableRows(Endless(), rows=64), sample_weight=np.ones(64))
    with pytest.raises(InvalidArgument, match="items by number, for a regression"):
        MixupMPRegressor(network=lazy).fit(IterableRows(Endless(), rows=64))


def test_a_regression_is_streamed_too() -> None:
    class Line(TorchDataset[Any]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> tuple[Tensor, float]:
            return torch.tensor([float(index), 0.0]), 3.0 * index

    X = np.stack([np.arange(64), np.zeros(64)], 1)
    fitted = MixupMPRegressor(1.0, members=1, network=lazy, recipe=RECIPE, random_state=0, engine="inline")
    streamed = fitted.fit(DatasetRows(Line(), workers=0)).predict(X)
    assert np.array_equal(fitted.fit(X, 3.0 * np.arange(64)).predict(X), streamed)


def test_a_dataset_of_dicts_and_of_several_tensors() -> None:
    class Dicts(TorchDataset[Any]):
        def __len__(self) -> int:
            return N

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {
                "input_ids": torch.from_numpy(IDS[index]),
                "attention_mask": torch.ones(6).long(),
                "label": index % 2,
            }

    streamed = model(Tokens).fit(DatasetRows(Dicts(), workers=0))
    expected = model(Tokens).fit(KINDS["a dict"][0], Y)
    assert np.array_equal(*(m.predict_proba(KINDS["a dict"][0]) for m in (streamed, expected)))
    image, table = KINDS["a tuple"][0]
    several = TensorDataset(torch.from_numpy(image), torch.from_numpy(table), torch.from_numpy(Y))
    assert np.array_equal(
        model(Two).fit(several).predict_proba(several), model(Two).fit((image, table), Y).predict_proba((image, table))
    )


def test_a_loader_with_a_sampler_of_its_own_is_refused() -> None:
    loader = DataLoader(Live(), sampler=SubsetRandomSampler([0, 1]))
    with pytest.raises(InvalidArgument, match="as a Subset of the Dataset"):
        model(lazy).fit(loader)
    with warnings.catch_warnings(), pytest.raises(BadData, match="empty"):
        model(lazy).fit(Subset(Live(), []))


@pytest.mark.filterwarnings("ignore:members reached")
def test_a_list_of_arrays_is_the_array_of_them() -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 5, 6, 3)).astype(np.uint8)
    model = DeepEnsembleClassifier(1, epochs=1, calibrate=False, network=lazy, random_state=0)
    for X in (images, list(images), [torch.from_numpy(image) for image in images]):
        found = model.fit(X, np.arange(12) % 2).predict_proba(X)
        assert np.array_equal(found, model.predict_proba(images))
