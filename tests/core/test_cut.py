"""A network cut in two is the same network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.cut import Cut, check_head, features_at, head_of
from mixupmp.core.cut_places import find_cuts
from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.given_network import in_eval_mode
from mixupmp.networks import CNN, MLP


class Functional(nn.Module):
    """As people write them: layers as attributes, and functions between them."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.first, self.last = nn.Linear(4 * 36, 16), nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.norm(self.convolution(inputs)))
        hidden = functional.relu(self.first(torch.flatten(hidden, 1)))
        return self.last(functional.dropout(hidden, 0.1, self.training))


class Untraceable(nn.Module):
    """A forward pass that depends on values, with an answer that is no tensor."""

    class Answer:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    def __init__(self) -> None:
        super().__init__()
        self.body, self.pool = nn.Linear(4, 8), nn.Linear(4, 8)
        self.classifier = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, inputs: Tensor) -> Answer:
        hidden = self.body(inputs) if float(inputs.sum()) > -1e9 else self.pool(inputs)
        return self.Answer(self.classifier(hidden))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        return self.last(hidden + self.inner(hidden))


NETWORKS = [
    (lambda: CNN(1, (20, 20), 3), (1, 20, 20), ["head.4", "head.2", "head.0"]),
    (lambda: MLP(4, 3, hidden=(8, 6)), (4,), ["5", "3"]),
    (Functional, (1, 8, 8), ["last", "first"]),
    (Untraceable, (4,), ["classifier.2", "classifier.0"]),
    (Residual, (4,), ["last", "inner"]),
    (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Sequential(nn.Linear(72, 3))), (1, 8, 8), ["2.0"]),
]


@pytest.mark.parametrize(("build", "shape", "layers"), NETWORKS)
def test_heads_of_found_cuts_make_the_networks_outputs_of_its_features(build, shape, layers) -> None:
    network, inputs = build(), torch.randn(5, *shape)
    cuts = find_cuts(network, inputs[:2])
    assert [cut.layer for cut in cuts] == layers
    with in_eval_mode(network):
        expected = network(inputs)
        for cut, features in zip(cuts, features_at(network, cuts, inputs), strict=True):
            found = head_of(network, cut)(features)
            torch.testing.assert_close(found, getattr(expected, "logits", expected))


def test_a_head_is_a_plain_sequence_where_it_can_be() -> None:
    heads = [head_of(Functional(), Cut("first", "input")), head_of(CNN(1, (20, 20), 3), Cut("second"))]
    assert [[type(layer).__name__ for layer in head] for head in heads] == [
        ["Linear", "ReLU", "Dropout", "Linear"],
        ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"],
    ]


def test_a_head_is_made_of_the_networks_own_layers() -> None:
    network = Functional()
    nn.init.zeros_(head_of(network, Cut("last", "input"))[0].weight)
    assert not network.last.weight.any()


def test_what_comes_after_the_cut_is_not_run() -> None:
    network = MLP(4, 3, hidden=(8,))
    network[-1].register_forward_pre_hook(lambda *_: pytest.fail("the last layer was run"))
    assert features_at(network, [Cut("1")], torch.randn(2, 4))[0].shape == (2, 8)


def test_modes_are_put_back() -> None:
    network = Functional()
    network.norm.eval()
    check_head(network, Cut("last", "input"), torch.randn(2, 1, 8, 8))
    assert network.training
    assert not network.norm.training


def test_places_that_are_no_cut_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match=r"the output of 'inner'.*also needs 'first'"):
        head_of(Residual(), Cut("inner"))
    with pytest.raises(UnknownName, match="Did you mean 'last'"):
        head_of(Residual(), Cut("lst"))
    with pytest.raises(InvalidArgument, match="name the input of the last layer"):
        head_of(Untraceable(), Cut("body"))
    with pytest.raises(InvalidArgument, match="a layer that the network uses"):
        features_at(Untraceable(), [Cut("pool")], torch.randn(2, 4))
