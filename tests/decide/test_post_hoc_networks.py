"""Trained networks as people have them: what they return, and how they are left after training."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp import MixupMPClassifier, Posterior, Recipe, ensemble_of, posterior_of
from mixupmp.core.errors import InvalidArgument

ROWS = 40
QUICK = Recipe(epochs=2, batch_size=16, optimizer="adamw", learning_rate=1e-2)
random = np.random.default_rng(0)
LABELS = random.integers(0, 3, ROWS)
X = random.normal(size=(ROWS, 4)).astype(np.float32)


class Network(nn.Module):
    """Two layers, and what becomes of their outputs."""

    def __init__(self, then: Callable[[Tensor], Any], before: Callable[[Tensor], Tensor] = lambda rows: rows) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.then, self.before = nn.Linear(4, 8), nn.Linear(8, 3), then, before

    def forward(self, rows: Tensor) -> Any:
        return self.then(self.last(self.first(self.before(rows)).relu()))


def same(outputs: Tensor) -> Tensor:
    return outputs


def softmax(outputs: Tensor) -> Tensor:
    return functional.softmax(outputs, dim=1)


def normalized(rows: Tensor) -> Tensor:
    return (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True)  # NaN where all numbers of a row are equal


def by_heads(network: nn.Module) -> Posterior:
    return posterior_of(network, X, LABELS, members=1, recipe=QUICK)


def by_classifier(network: nn.Module) -> Posterior:
    model = MixupMPClassifier.from_network(network, members=1, random_state=0).set_params(recipe=QUICK)
    return model.fit(X, LABELS).posterior_


def by_ensemble(network: nn.Module) -> Posterior:
    return ensemble_of([network], X[:8])


every_way = pytest.mark.parametrize("way", [by_heads, by_classifier, by_ensemble])


@every_way
@pytest.mark.parametrize(
    "network",
    [
        Network(softmax),
        Network(softmax, normalized),
        Network(lambda outputs: SimpleNamespace(logits=softmax(outputs))),
        Network(nn.Softmax(1), nn.Softmax(1)),
    ],
    ids=["functional", "NaN for a row of ones", "logits of an object", "a module used twice"],
)
def test_probabilities_are_refused_wherever_the_softmax_is(way: Any, network: nn.Module) -> None:
    with pytest.raises(InvalidArgument, match=r"without a softmax at the end.*Return what goes into nn\.Softmax"):
        way(network)


def one_for_ones() -> nn.Module:
    """Its logits are (1, 0, 0) for a row of ones, and others for other rows."""
    network = Network(same, lambda rows: rows - 1)
    for layer, bias in ((network.first, torch.full((8,), -0.1)), (network.last, torch.tensor([1.0, 0.0, 0.0]))):
        layer.bias.data.copy_(bias)
    return network


@every_way
@pytest.mark.parametrize(
    "network",
    [
        Network(lambda outputs: functional.log_softmax(outputs, 1)),
        one_for_ones(),
        Network(lambda outputs: {"logits": outputs, "hidden": None}),
        Network(lambda outputs: SimpleNamespace(logits=outputs)),
        Network(same).requires_grad_(False).eval(),
    ],
    ids=["log-probabilities", "one row sums to one", "a dict", "an object", "all frozen"],
)
def test_logits_are_taken_in_every_form(way: Any, network: nn.Module) -> None:
    frozen = not any(parameter.requires_grad for parameter in network.parameters())
    assert way(network).probabilities(X).shape == (ROWS, 3)
    assert frozen == (not any(parameter.requires_grad for parameter in network.parameters()))


@every_way
def test_other_networks_are_refused_with_what_to_do(way: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"got 'one that returns a tuple'.*Wrap it in a module"):
        way(Network(lambda outputs: (outputs, None)))
    with pytest.raises(InvalidArgument, match=r"must have the same dtype.*Convert it: network\.float\(\)"):
        way(Network(same).double())
    with pytest.raises(InvalidArgument, match="trained: a lazy layer of this network has no weights yet"):
        way(nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3)))


class Untraceable(nn.Module):
    """As a model of transformers: it looks at values, so that it cannot be traced, and drops out before its head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.body, self.dropout = nn.LayerNorm(4), nn.Linear(4, 8), nn.Dropout(0.1)
        self.classifier = nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        if bool(rows.isnan().any()):
            raise ValueError("NaN")
        return self.classifier(self.dropout(torch.tanh(self.body(self.norm(rows)))))  # type: ignore[no-any-return]


def test_a_layer_is_named_where_a_network_cannot_be_traced_but_only_a_linear_one_follows() -> None:
    posterior = posterior_of(Untraceable(), X, LABELS, body="dropout", members=1, recipe=QUICK)
    assert str(posterior.cut) == "the input of 'classifier'"
    found = posterior_of(Untraceable(), X, LABELS, members=1, recipe=QUICK)
    assert torch.equal(posterior.probabilities(X), found.probabilities(X))
    with pytest.raises(InvalidArgument, match=r"got 'norm'.*Without it, the input of 'classifier' is taken"):
        posterior_of(Untraceable(), X, LABELS, body="norm", members=1, recipe=QUICK)


class EveryToken(nn.Module):
    """As GPT-2 of transformers: every token is classified, then the last one is picked."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.score = nn.Embedding(9, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.score(self.words(input_ids))[:, -1]  # type: ignore[no-any-return]


def test_a_network_that_classifies_every_token_is_refused_with_what_to_do() -> None:
    tokens = random.integers(0, 9, (ROWS, 5))
    with pytest.raises(InvalidArgument, match=r"'score' is applied to every token.*module that picks one before it"):
        posterior_of(EveryToken(), tokens, LABELS, members=1, recipe=QUICK)


def test_weights_that_are_not_finite_and_wrapped_networks_are_named() -> None:
    broken = Network(same)
    broken.first.weight.data.fill_(float("nan"))
    with pytest.raises(InvalidArgument, match="one whose outputs are finite"):
        by_heads(broken)
    with pytest.raises(InvalidArgument, match=r"Pass the module that was compiled: network\._orig_mod"):
        by_heads(torch.compile(Network(same), backend="eager"))
    scripted = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    scripted.__class__ = type("Scripted", (torch.jit.ScriptModule, nn.Sequential), {})  # torch.jit.script warns
    for way in (by_heads, by_classifier, by_ensemble):
        with pytest.raises(InvalidArgument, match=r"a module as it was before torch\.jit"):
            way(scripted)
