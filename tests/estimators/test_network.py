"""Networks of the user's own: factories, modules, frozen parts, transformers-style outputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mixupmp import Recipe
from mixupmp.core.errors import InvalidArgument
from mixupmp.estimators import DeepEnsembleClassifier
from mixupmp.networks import MLP


def body_and_head() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
    return nn.Sequential(body, nn.Linear(8, 3))


class LikeTransformers(nn.Module):
    """Answers with an object that carries logits, as transformers' classifiers do."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.classifier(inputs), hidden_states=None)


@pytest.mark.parametrize(
    "network",
    [lambda: MLP(4, 3, (8,)), lambda shape, outputs: MLP(shape[0], outputs, (8,)), body_and_head(), "mlp",
     LikeTransformers],
    ids=["factory", "sized", "module", "name", "transformers"],
)  # fmt: skip
def test_a_network_of_any_kind(network: Any, iris: Any, quick: Recipe) -> None:
    model = DeepEnsembleClassifier(2, network=network, recipe=quick, random_state=0, engine="inline").fit(*iris)
    assert model.score(*iris) > 0.7
    first, second = (next(n.parameters()) for n in model.posterior_.networks)
    assert not torch.equal(first, second)


def test_the_given_module_is_left_as_it_was(iris: Any, quick: Recipe) -> None:
    network = body_and_head()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    DeepEnsembleClassifier(1, network=network, recipe=quick, random_state=0).fit(*iris)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_fine_tuning_starts_from_the_given_weights(iris: Any) -> None:
    network = body_and_head()
    still = Recipe(epochs=1, batch_size=None, learning_rate=1e-12, momentum=0, weight_decay=0)
    model = DeepEnsembleClassifier(2, network=network, fine_tune=True, recipe=still, random_state=0).fit(*iris)
    for member in model.posterior_.networks:
        assert all(torch.allclose(a, b) for a, b in zip(member.parameters(), network.parameters(), strict=True))


def test_frozen_parts_keep_their_weights_and_heads_differ(iris: Any, quick: Recipe) -> None:
    network = body_and_head()
    network[0].requires_grad_(False)
    # Uncalibrated: so few steps of a head end in a warning about the temperature's bound.
    model = DeepEnsembleClassifier(2, network=network, recipe=quick, calibrate=False, random_state=0).fit(*iris)
    first, second = model.posterior_.networks
    for member in (first, second):
        for name, parameter in network[0].named_parameters():
            assert torch.equal(member[0].get_parameter(name), parameter)  # type: ignore[index]
    assert not torch.equal(first[1].weight, second[1].weight)  # type: ignore[index]


def test_what_cannot_work_is_said_before_training(iris: Any, quick: Recipe) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 3))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs @ self.weight

    for network, message in (
        (lambda: MLP(4, 7), r"one that returns \(rows, 3\).*last layer"),
        (Own(), "reset_parameters.*fine_tune=True"),
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), "without a softmax at the end"),
        (3, "network must be"),
        (dict, "returns an nn.Module"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            DeepEnsembleClassifier(1, network=network, recipe=quick).fit(*iris)
    with pytest.raises(InvalidArgument, match="fine_tune"):
        DeepEnsembleClassifier(1, fine_tune=True).fit(*iris)
    model = DeepEnsembleClassifier(1, network=Own(), fine_tune=True, recipe=quick).fit(*iris)
    assert np.isfinite(model.predict_proba(iris[0])).all()
