"""Tokens and several inputs: packed into one tensor of rows, and handed to the network as it expects them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixupmp import (
    Categorical,
    Ensemble,
    Gaussian,
    Method,
    Plan,
    Recipe,
    Rows,
    SentenceSplice,
    Task,
    deep_ensemble,
    fit,
    load,
    mixup_mp,
    save,
)
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.fields import Field, Fields
from mixupmp.core.kernels import HorizontalFlip
from mixupmp.core.predictive import Predictive
from mixupmp.core.spec import decode, encode

ROWS, LENGTH, VOCABULARY = 24, 5, 12
RECIPE = Recipe(epochs=2, batch_size=8, optimizer="adamw", learning_rate=1e-2)


class Pooled(nn.Module):
    """Takes tokens and a mask by name, as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, 4), nn.Linear(4, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        assert input_ids.dtype == torch.int64
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        total: Tensor = (self.embedding(input_ids) * mask[..., None]).sum(1)
        return self.head(total / mask.sum(1, keepdim=True).clamp(min=1))  # type: ignore[no-any-return]


class Two(nn.Module):
    """Takes an image and a line of numbers, by position."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.table = nn.Linear(16, 2), nn.Linear(3, 2)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        return self.image(image.flatten(1)) + self.table(table)  # type: ignore[no-any-return]


def tokens(rows: int = ROWS) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (rows, LENGTH), generator=generator)
    return {"input_ids": ids, "attention_mask": (ids > 2).long().index_fill(1, torch.tensor([0]), 1)}


def pair(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (rows, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return image, torch.randn(rows, 3, generator=generator) * 5 + 2


def plan_of(inputs: Any, network: Any, method: Any = None) -> Plan:
    fields = Fields.of(inputs)
    rows = Rows(fields.pack(inputs), torch.arange(ROWS) % 2)
    return Plan(method or deep_ensemble(2), network, rows, Task(Categorical(2), fields, fields.shape), RECIPE)


def test_tokens_and_masks_come_back_exactly_as_they_were() -> None:
    given = {**tokens(), "flags": torch.tensor([True, False] * (ROWS // 2)), "size": torch.rand(ROWS, 2) * 9}
    fields = Fields.of(given)
    _, unpacked = fields.unpack(fields.pack(given))
    assert {name: value.dtype for name, value in unpacked.items()} == {n: v.dtype for n, v in given.items()}
    assert all(torch.equal(unpacked[name], value) for name, value in given.items())


def test_numbers_are_scaled_and_whole_numbers_are_not() -> None:
    image, table = pair()
    fields = Fields.of((image, table, tokens()["input_ids"]))
    parts, _ = fields.unpack(fields(fields.pack((image, table, tokens()["input_ids"]))))
    assert parts[0].shape == image.shape
    assert abs(float(parts[0].mean())) < 1e-5
    torch.testing.assert_close(parts[1].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(parts[1].std(0, correction=0), torch.ones(3))
    assert torch.equal(parts[2], tokens()["input_ids"])
    into = torch.empty(ROWS, *fields.shape)
    assert fields(fields.pack((image, table, parts[2])), out=into) is into


def test_a_posterior_takes_what_the_network_takes() -> None:
    posterior = fit(plan_of(tokens(), Pooled), engine="inline")
    found = posterior.probabilities(tokens(4))
    network = posterior.networks[0]
    plain = copy.deepcopy(network)
    plain._forward_pre_hooks.clear()
    with torch.no_grad():
        torch.testing.assert_close(network(**tokens(4)), plain(**tokens(4)))  # a user's own call is as it was
    expected = torch.stack([n(**tokens(4)).softmax(1) for n in posterior.networks]).mean(0)
    torch.testing.assert_close(found, expected)
    swapped = dict(reversed(tokens(4).items()))
    assert torch.equal(posterior.probabilities(swapped), found)
    assert torch.equal(pickle.loads(pickle.dumps(posterior)).probabilities(tokens(4)), found)


def test_a_saved_posterior_of_several_inputs_predicts_the_same(tmp_path: Any) -> None:
    for name, inputs, network in (("tokens", tokens(), Pooled), ("pair", pair(), Two)):
        posterior = fit(plan_of(inputs, network), engine="inline")
        save(posterior, tmp_path / name)
        loaded = load(tmp_path / name, network=network)
        assert torch.equal(loaded.probabilities(inputs), posterior.probabilities(inputs))


def test_fields_are_written_down_and_read_back() -> None:
    task = Task(Gaussian(), Fields.of(tokens()), (2 * LENGTH,))
    assert decode(encode(task), Task) == task


def test_inputs_of_numbers_are_blended() -> None:
    posterior = fit(plan_of(pair(), Two, mixup_mp(1.0, members=1)), engine="inline")
    assert posterior.probabilities(pair(3)).shape == (3, 2)


def refused(call: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        call()
    return str(caught.value)


def test_wrong_inputs_are_named() -> None:
    fields, ids = Fields.of(tokens()), tokens()["input_ids"]
    assert "a dict with input_ids, attention_mask" in refused(lambda: fields.pack(ids))
    assert "a dict with input_ids, attention_mask" in refused(lambda: fields.pack({"input_ids": ids}))
    floats = {**tokens(), "input_ids": ids.float()}
    assert "input_ids must be whole numbers" in refused(lambda: fields.pack(floats))
    short = {**tokens(), "input_ids": ids[:, 1:]}
    assert "input_ids must be of shape (rows, 5)" in refused(lambda: fields.pack(short))
    fewer = {**tokens(), "input_ids": ids[1:]}
    assert "as many rows each" in refused(lambda: fields.pack(fewer))
    assert "a tuple of 2 tensors" in refused(lambda: Fields.of(pair()).pack(pair()[:1]))
    assert "input_ids must be a tensor" in refused(lambda: fields.pack({**tokens(), "input_ids": "text"}))
    assert "below 16777216" in refused(lambda: Fields.of((ids, pair()[1])).pack((ids + 2**24, pair()[1])))
    assert "without an empty axis" in refused(lambda: Field("x", (0,)))
    assert "all named" in refused(lambda: Fields((Field("x", (1,)), Field("x", (2,)))))


def test_tokens_are_not_blended_and_the_error_says_what_to_do() -> None:
    message = refused(lambda: plan_of(tokens(), Pooled, mixup_mp(1.0)))
    assert "ratio must be 0 for whole numbers" in message
    assert "Use r=0, blend at the embedding (AtLayer, mix_layer=), or join sentences" in message
    spliced = Method("spliced", Predictive(1.0, SentenceSplice()), Ensemble(1))
    fit(plan_of(tokens()["input_ids"], Pooled, spliced), engine="inline")
    assert "ratio must be 0" in refused(lambda: plan_of(tokens(), Pooled, spliced))


def test_a_kernel_for_several_inputs_is_refused() -> None:
    method = deep_ensemble(2)
    flipped = Method(method.name, Predictive(kernel=HorizontalFlip()), method.sampler)
    assert "Augment in the Dataset's transform" in refused(lambda: plan_of(pair(), Two, flipped))


def test_a_token_outside_of_the_vocabulary_is_named() -> None:
    posterior = fit(plan_of(tokens()["input_ids"], Pooled), engine="inline")
    assert "tokens of the network's vocabulary" in refused(lambda: posterior.probabilities(tokens()["input_ids"] + 9))


def test_lazy_layers_are_sized_by_the_rows() -> None:
    def lazy() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2))

    def sized() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))

    rows = Rows(pair()[0], torch.arange(ROWS) % 2)
    task = Task(Categorical(2), Fields.of(pair()[0]).fields[0].standardize, (1, 4, 4))
    found = [fit(Plan(deep_ensemble(2), network, rows, task, RECIPE), engine="inline") for network in (lazy, sized)]
    assert torch.equal(*(posterior.probabilities(pair()[0]) for posterior in found))
