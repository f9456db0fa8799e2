"""Dropout masks as members."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mixupmp.core.errors import InvalidArgument
from mixupmp.networks import MLP, WideResNet
from small_posteriors import dropped, inputs_of, seeded


def test_a_member_is_a_function_whatever_the_batch() -> None:
    torch.manual_seed(0)
    posterior, inputs = dropped(MLP(4, 3, dropout=0.4)), inputs_of((4,), 30)
    outputs = posterior.member_outputs(inputs)
    torch.manual_seed(5)
    assert torch.equal(outputs, posterior.member_outputs(inputs))
    for size in (1, 7):
        assert torch.allclose(outputs, posterior.member_outputs(inputs, size), atol=1e-6)
    order = torch.randperm(30)
    assert torch.allclose(outputs[:, order], posterior.member_outputs(inputs[order]), atol=1e-6)
    assert len({tuple(own[0].tolist()) for own in outputs}) == 5


def test_masks_come_from_the_seed_and_the_member_alone() -> None:
    torch.manual_seed(0)
    network, inputs = MLP(4, 3, dropout=0.4), inputs_of((4,), 10)
    five, two, other = (
        dropped(copy.deepcopy(network), members, seed).member_outputs(inputs)
        for members, seed in ((5, 3), (2, 3), (5, 4))
    )
    assert torch.equal(five[:2], two)
    assert not torch.equal(five, other)


def test_masks_drop_with_the_layers_rate_and_keep_the_mean() -> None:
    network = nn.Sequential(nn.Dropout(0.3), nn.Linear(4000, 3), nn.Dropout(0.0))
    posterior = dropped(network, 4, shape=(4000,))
    masks = torch.stack([posterior.mask(member, 0, torch.zeros(2, 4000)) for member in range(4)])
    assert set(masks.unique().tolist()) == {0.0, torch.tensor(1.0).div(0.7).item()}
    share = float((masks == 0).float().mean())
    assert abs(share - 0.3) < 5 * (0.3 * 0.7 / 16_000) ** 0.5
    assert torch.equal(posterior.mask(0, 2 - 1, torch.zeros(2, 3)), torch.ones(3))
    same = float((masks[0] == masks[1]).float().mean())
    assert abs(same - (0.3**2 + 0.7**2)) < 0.05  # members' masks have nothing to do with each other


def test_members_average_to_the_network_where_it_is_linear() -> None:
    torch.manual_seed(0)
    network, inputs = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.3), nn.Linear(50, 3)), inputs_of((4,), 6)
    posterior = dropped(network, 500)
    outputs = posterior.member_outputs(inputs)
    error = outputs.std(0) / 500**0.5
    assert float(((outputs.mean(0) - network.eval()(inputs)).abs() / error).max()) < 5


def test_whole_channels_are_dropped_where_the_layer_does_so() -> None:
    network = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(8 * 9, 3))
    mask = dropped(network, shape=(8, 3, 3)).mask(0, 0, torch.zeros(2, 8, 3, 3))
    assert mask.shape == (8, 1, 1)


def test_batch_norm_stays_in_evaluation() -> None:
    (network,) = seeded(lambda: WideResNet(1, 3, depth=10, widen=1, dropout=0.3), 1)
    posterior = dropped(network, 3, shape=(1, 8, 8))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    inputs = inputs_of((1, 8, 8), 6)
    outputs = posterior.member_outputs(inputs)
    assert torch.allclose(outputs[:, :1], posterior.member_outputs(inputs[:1]), atol=1e-5)  # rows do not mix
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training
    assert not torch.allclose(outputs[0], outputs[1])


class Reused(nn.Module):
    """One dropout layer in two places, as many networks have it."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.met: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.drop(torch.ones_like(inputs))
        second = self.drop(torch.ones_like(inputs))
        self.met = [first[0], second[0]]
        return first[:, :3] + second[:, :3]


def test_a_layer_in_two_places_has_two_masks() -> None:
    network = Reused()
    network.weight = nn.Parameter(torch.zeros(1))
    posterior = dropped(network, 1, shape=(1000,))
    posterior.member_outputs(torch.zeros(2, 1000))
    first, second = network.met
    assert abs(float((first == second).float().mean()) - 0.5) < 0.1
    posterior.member_outputs(torch.zeros(5, 1000))
    assert torch.equal(network.met[0], first)
    assert torch.equal(network.met[1], second)


def test_a_rate_of_one_drops_everything() -> None:
    posterior = dropped(nn.Sequential(nn.Linear(4, 8), nn.Dropout(1.0), nn.Linear(8, 3, bias=False)))
    assert torch.equal(posterior.member_outputs(inputs_of((4,), 2)), torch.zeros(5, 2, 3))


@pytest.mark.parametrize("build", [lambda: MLP(4, 3), lambda: MLP(4, 3, dropout=0.0)])
def test_without_dropout_all_members_are_one_distribution(build: Callable[[], nn.Module]) -> None:
    posterior, inputs = dropped(build()), inputs_of((4,), 8)
    outputs = posterior.member_outputs(inputs)
    assert posterior.members == 5
    assert torch.equal(outputs, outputs[:1].expand_as(outputs))
    assert torch.equal(outputs[0], posterior.networks[0](inputs))


def test_masks_follow_the_network_to_another_device() -> None:
    posterior = dropped(MLP(4, 3, dropout=0.4))
    before = posterior.member_outputs(inputs_of((4,), 2))
    assert posterior._drawn
    posterior.to("cpu")
    assert not posterior._drawn  # to be drawn again where they are needed, and the same
    assert torch.equal(posterior.member_outputs(inputs_of((4,), 2)), before)


def test_alpha_dropout_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="without AlphaDropout"):
        dropped(nn.Sequential(nn.Linear(4, 3), nn.AlphaDropout(0.3)))


def test_hooks_are_gone_even_after_a_failure() -> None:
    posterior = dropped(MLP(4, 3, dropout=0.4))
    with pytest.raises(RuntimeError):
        posterior._outputs(torch.zeros(2, 7))
    assert all(not layer._forward_hooks for layer in posterior.layers)
