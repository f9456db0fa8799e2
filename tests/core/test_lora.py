"""Members that share a pretrained body but for low-rank adapters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import mixupmp
from mixupmp import LoRA, Method, Mixup, Predictive, Recipe, fit, shared_mixup_mp
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.lora import LoRALinear, LoRAPosterior
from mixupmp.core.shared import MemberLinear, SharedLinear
from mixupmp.networks import MLP
from mixupmp.train.plans import make_plan
from small_data import small_table

DATA = small_table(60)
TASK = mixupmp.Task(mixupmp.Categorical(3), DATA.standardize, (4,), DATA.classes)
METHOD = Method("lora", Predictive(1.0, Mixup(0.5)), LoRA(3, rank=2))
RECIPE = Recipe(epochs=30, batch_size=20, optimizer="adamw", learning_rate=1e-2)


def pretrained() -> nn.Module:
    torch.manual_seed(0)
    return MLP(4, 3, hidden=(16, 8))


def test_an_adapted_layer_starts_as_it_was_and_computes_the_low_rank_sum() -> None:
    layer, inputs = nn.Linear(5, 4), torch.randn(7, 2, 5)
    adapted = LoRALinear(layer, rank=2, scale=6.0)
    torch.testing.assert_close(adapted(inputs), layer(inputs))
    nn.init.normal_(adapted.up)
    dense = layer.weight + 3.0 * adapted.up @ adapted.down
    torch.testing.assert_close(adapted(inputs), inputs @ dense.T + layer.bias)


def test_only_adapters_and_the_last_layer_are_trained() -> None:
    network = LoRA(rank=2).adapt(pretrained())
    trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    assert trained == ["1.down", "1.up", "3.down", "3.up", "5.weight", "5.bias"]


class HeadFirst(nn.Module):
    """Its layers are defined in another order than they are used in."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(8, 3), nn.Linear(4, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs).relu())  # type: ignore[no-any-return]


def test_the_last_layer_is_the_one_that_is_used_last(tmp_path) -> None:
    plan = make_plan(DATA.train, TASK, METHOD, HeadFirst(), RECIPE, fine_tune=True)
    trained = [name for name, parameter in plan.template.named_parameters() if parameter.requires_grad]
    assert trained == ["head.weight", "head.bias", "body.down", "body.up"]
    posterior = fit(plan, run=tmp_path / "run")
    loaded = mixupmp.load(tmp_path / "run", network=HeadFirst)
    assert torch.equal(loaded.member_outputs(DATA.test.inputs), posterior.member_outputs(DATA.test.inputs))


def test_members_that_share_weights_have_that_layer_of_their_own() -> None:
    shared = make_plan(DATA.train, TASK, shared_mixup_mp(members=2), HeadFirst, RECIPE).template
    assert isinstance(shared.get_submodule("network.head"), MemberLinear)
    assert isinstance(shared.get_submodule("network.body"), SharedLinear)


def test_members_share_the_body_differ_in_the_rest_and_learn(tmp_path) -> None:
    start = pretrained()
    plan = make_plan(DATA.train, TASK, METHOD, start, RECIPE, fine_tune=True)
    posterior = fit(plan, run=tmp_path / "run")
    assert isinstance(posterior, LoRAPosterior)
    first, second, _ = (network.state_dict() for network in posterior.networks)
    assert torch.equal(first["1.weight"], start.state_dict()["1.weight"])
    assert first["1.weight"].data_ptr() == second["1.weight"].data_ptr()
    assert first["5.weight"].data_ptr() != second["5.weight"].data_ptr()
    assert not torch.equal(first["1.up"], second["1.up"])
    accuracy = (posterior.probabilities(DATA.test.inputs).argmax(1) == DATA.test.labels).float().mean()
    assert accuracy > 0.85
    loaded = mixupmp.load(tmp_path / "run", network=pretrained)
    assert torch.equal(loaded.member_outputs(DATA.test.inputs), posterior.member_outputs(DATA.test.inputs))
    assert torch.equal(start.state_dict()["5.weight"], pretrained().state_dict()["5.weight"])


def test_it_can_be_copied_and_wrong_networks_are_named() -> None:
    adapted = LoRA(rank=2).adapt(pretrained())
    assert copy.deepcopy(adapted).state_dict().keys() == adapted.state_dict().keys()
    with pytest.raises(InvalidArgument, match=r"two nn\.Linear layers or more.*Conv1D of GPT-2"):
        LoRA().adapt(nn.Sequential(nn.Linear(4, 3)))
    with pytest.raises(InvalidArgument, match="rank must be"):
        LoRA(rank=0)
