"""Members that share a pretrained body but for low-rank adapters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import mixupmp
from mixupmp import LoRA, Method, Mixup, Predictive, Recipe, fit, shared_mixup_mp
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.lora import LoRAConv1D, LoRALinear, LoRAPosterior
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
    with pytest.raises(InvalidArgument, match=r"two linear layers or more.*It has 1 of them"):
        LoRA().adapt(nn.Sequential(nn.Linear(4, 3)))
    with pytest.raises(InvalidArgument, match="rank must be"):
        LoRA(rank=0)


class Conv1D(nn.Module):
    """As in transformers.pytorch_utils: a linear layer with its weight transposed."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(0.5 * torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        size_out = (*x.size()[:-1], self.nf)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size_out)


class GPT2(nn.Module):
    """Its attention and its MLP, of `Conv1D`, and a score of the last token."""

    def __init__(self, width: int = 8, words: int = 12) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = Conv1D(3 * width, width), Conv1D(width, width)
        self.c_fc, self.c_out = Conv1D(4 * width, width), Conv1D(width, 4 * width)
        self.score = nn.Linear(width, 3, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden = self.words(input_ids)
        query, key, value = self.c_attn(self.norm(hidden)).chunk(3, -1)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.c_proj(attended)
        hidden = hidden + self.c_out(nn.functional.gelu(self.c_fc(hidden)))
        return self.score(hidden)[:, -1]  # type: ignore[no-any-return]


TOKENS = torch.randint(0, 12, (60, 5), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("seed", range(20))
def test_an_adapted_conv1d_starts_as_it_was_and_equals_its_merged_weight(seed: int) -> None:
    torch.manual_seed(seed)
    nx, nf, rank = (int(size) for size in torch.randint(1, 40, (3,)))
    layer, inputs = Conv1D(nf, nx), torch.randn(3, 5, nx)
    adapted = LoRAConv1D(layer, rank, scale=2.0)
    assert torch.equal(adapted(inputs), layer(inputs))
    assert torch.equal(adapted(inputs[:, ::2]), layer(inputs[:, ::2].contiguous()))
    nn.init.normal_(adapted.up)
    merged = copy.deepcopy(layer).double()
    merged.weight.data += (2.0 / rank * adapted.up.double() @ adapted.down.double()).T
    found, expected = adapted.double()(inputs.double()), merged(inputs.double())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_a_network_of_conv1d_starts_as_it_was_learns_and_is_loaded(tmp_path) -> None:
    network = GPT2()
    adapted = LoRA(rank=2).adapt(copy.deepcopy(network), TOKENS[:2])
    adapted.score.weight.data.copy_(network.score.weight)
    assert torch.equal(adapted(TOKENS), network(TOKENS))
    trained = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    layers = ("c_attn", "c_proj", "c_fc", "c_out")
    assert trained == {"score.weight", *(f"{layer}.{part}" for layer in layers for part in ("down", "up"))}
    fields = mixupmp.core.fields.Fields.of(TOKENS)
    task, rows = mixupmp.Task(mixupmp.Categorical(3), fields, (5,)), mixupmp.Rows(TOKENS, TOKENS[:, -1] % 3)
    method = Method("lora", Predictive(0.0), LoRA(2, rank=2))
    plan = make_plan(rows, task, method, network, RECIPE, fine_tune=True)
    posterior = fit(plan, run=tmp_path / "run")
    first, second = (member.state_dict() for member in posterior.networks)
    assert torch.equal(first["c_fc.weight"], network.c_fc.weight)
    assert float(first["c_fc.up"].abs().min()) > 0
    assert not torch.equal(first["c_fc.up"], second["c_fc.up"])
    assert (posterior.probabilities(TOKENS).argmax(1) == rows.labels).float().mean() > 0.9
    loaded = mixupmp.load(tmp_path / "run", network=GPT2)
    assert torch.equal(loaded.member_outputs(TOKENS), posterior.member_outputs(TOKENS))


def test_what_only_looks_like_conv1d_gets_no_adapter() -> None:
    class Doubled(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    Doubled.__name__ = "Conv1D"
    network = nn.Sequential(Doubled(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    assert [type(layer) for layer in LoRA().adapt(network)] == [Doubled, LoRALinear, nn.Linear]
    with pytest.raises(InvalidArgument, match=r"nn\.Linear, the last of them.*'1' last"):
        LoRA().adapt(nn.Sequential(nn.Linear(4, 4), Conv1D(3, 4)))
