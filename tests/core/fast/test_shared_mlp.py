"""The program for members that share weights, held to plain autograd through the same layers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from mixupmp.core.fast import shared_mlp
from mixupmp.core.shared import SharedEnsemble, SharedNetwork
from mixupmp.networks import MLP, TabularMLP
from mixupmp.networks.tabular import normal_edges

MEMBERS, ROWS = 3, 10


def network_of(dropout: float, members: int = MEMBERS) -> SharedNetwork:
    torch.manual_seed(1)
    shared = SharedEnsemble(members).adapt(TabularMLP(normal_edges(4, 5), 3, (7, 6), dropout))
    with torch.no_grad():
        for parameter in shared.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return shared.train()


def gradients(network: SharedNetwork, inputs: Tensor, slope: Tensor) -> tuple[Tensor, list[Tensor]]:
    network.zero_grad()
    outputs = network(inputs)
    outputs.backward(slope)
    return outputs.detach(), [p.grad.clone() for p in network.parameters() if p.grad is not None]


def test_outputs_and_gradients_are_those_of_the_layers() -> None:
    fast, plain = network_of(0.0), network_of(0.0)
    assert fast._layers is not None
    plain._layers = None
    for rows in (ROWS, ROWS, 4):  # the second step takes over the memory of the first; then a smaller batch
        inputs, slope = torch.randn(MEMBERS * rows, 4), torch.randn(MEMBERS * rows, 3)
        outputs, found = gradients(fast, inputs, slope)
        expected, wanted = gradients(plain, inputs, slope)
        assert torch.allclose(outputs, expected, atol=1e-5)
        assert len(found) == len(wanted) == 9
        for one, other in zip(found, wanted, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(fast.eval().member_outputs(inputs), plain.eval().member_outputs(inputs), atol=1e-5)


def test_with_dropout_gradients_are_those_of_the_layers_with_these_places_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast, plain = network_of(0.25), network_of(0.25)
    places: list[Tensor] = []
    drawn = shared_mlp._places
    monkeypatch.setattr(shared_mlp, "_places", lambda *drawing: places.append(drawn(*drawing)) or places[-1])
    inputs, slope = torch.randn(MEMBERS * ROWS, 4), torch.randn(MEMBERS * ROWS, 3)
    outputs, found = gradients(fast, inputs, slope)
    plain._layers = None
    masks = iter(places)
    for number, module in enumerate(list(plain.network)):  # type: ignore[arg-type]
        if isinstance(module, nn.Dropout):
            plain.network[number] = _Dropped(next(masks), 0.25)  # type: ignore[index]
    expected, wanted = gradients(plain, inputs, slope)
    assert torch.allclose(outputs, expected, atol=1e-5)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, wanted, strict=True))


class _Dropped(nn.Module):
    def __init__(self, places: Tensor, rate: float) -> None:
        super().__init__()
        self.places, self.rate = places, rate

    def forward(self, inputs: Tensor) -> Tensor:
        mask = torch.ones(inputs.numel()).index_fill_(0, self.places, 0).view(inputs.shape)
        return inputs * mask / (1 - self.rate)


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_values_are_dropped_independently_with_the_given_probability(rate: float) -> None:
    torch.manual_seed(0)
    masks = torch.stack([torch.zeros(200).index_fill_(0, shared_mlp._places(200, rate), 1) for _ in range(4000)])
    assert float(masks.mean()) == pytest.approx(rate, abs=0.002)
    binomial = 200 * rate * (1 - rate)  # how many are dropped has the variance of independent draws
    assert float(masks.sum(1).var()) == pytest.approx(binomial, rel=0.1)


def test_two_forward_passes_before_their_backward_passes_do_not_share_memory() -> None:
    network = network_of(0.0)
    first, second = torch.randn(MEMBERS * ROWS, 4), torch.randn(MEMBERS * ROWS, 4)
    wanted = gradients(network, first, torch.ones(MEMBERS * ROWS, 3))[1]
    network.zero_grad()
    outputs = network(first)
    network(second)
    outputs.sum().backward(retain_graph=True)
    assert all(
        torch.allclose(p.grad, w) for p, w in zip(network.parameters(), wanted, strict=True) if p.grad is not None
    )
    with pytest.raises(RuntimeError, match="second backward"):
        outputs.sum().backward()


def test_copies_do_not_carry_the_memory_along() -> None:
    network = network_of(0.0)
    gradients(network, torch.randn(MEMBERS * ROWS, 4), torch.ones(MEMBERS * ROWS, 3))
    assert network._layers is not None
    assert network._layers.kept
    for again in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert again._layers.kept == []
        assert again._layers.last is again.network[-1]


def test_other_networks_and_inputs_take_the_plain_way() -> None:
    for body in (
        nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)),
        nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 2)),
        nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)),
    ):
        assert SharedEnsemble(2).adapt(body)._layers is None
    network = network_of(0.0)
    inputs = torch.randn(MEMBERS * ROWS, 4, requires_grad=True)
    network(inputs).sum().backward()
    assert inputs.grad is not None
    assert SharedEnsemble(2).adapt(MLP(4, 2, (5,)))._layers is not None
