"""Adapters, masks and blends inside the encoders of torch, whose evaluation is fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from mixupmp import AtLayer, Categorical, Ensemble, LoRA, Method, Mixup, Predictive, Recipe, Rows, Task, fit
from mixupmp.core.cut import Cut, features_at
from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.fields import Fields
from mixupmp.core.lora import LoRALinear
from mixupmp.core.shared import SharedEnsemble, SharedLinear, SharedNetwork
from mixupmp.train.plans import make_plan


class Encoder(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        tokens, kept = self.blocks(self.embedding(ids), src_key_padding_mask=mask == 0), mask[..., None]
        return self.head((tokens * kept).sum(1) / kept.sum(1))


def batch(rows: int = 4) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    lengths = 1 + torch.arange(rows) % 6
    mask = (torch.arange(6) < lengths[:, None]).long()
    return {"ids": torch.randint(0, 20, (rows, 6), generator=generator) * mask, "mask": mask}


def encoder(dropout: float = 0.0) -> Encoder:
    torch.manual_seed(0)
    return Encoder(dropout)


def adapted_by_lora() -> nn.Module:
    network = LoRA(rank=2).adapt(encoder())
    for module in network.modules():
        if isinstance(module, LoRALinear):
            nn.init.normal_(module.up)
    return network


def adapted_by_sharing() -> nn.Module:
    network = cast(SharedNetwork, SharedEnsemble(1).adapt(encoder()))
    for module in network.modules():
        if isinstance(module, SharedLinear):
            nn.init.normal_(module.output_scale)
    return network.network


@pytest.mark.parametrize("adapted", [adapted_by_lora, adapted_by_sharing])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@torch.no_grad()
def test_adapters_act_in_evaluation_as_in_training(adapted: Callable[[], nn.Module]) -> None:
    network, rows = adapted(), batch()
    trained = network.train()(**rows)
    torch.testing.assert_close(network.eval()(**rows), trained)
    assert not torch.allclose(encoder().eval()(**rows), trained, atol=0.01)


@torch.no_grad()
def test_a_layer_of_an_encoder_computes_plain_tensors() -> None:
    network, rows = encoder().eval(), batch()
    fields = Fields.of(rows)
    (values,) = features_at(fields.prepare(network), [Cut("blocks.layers.0")], fields.pack(rows))
    assert values.shape == (4, 6, 8)
    assert not values.is_nested


@torch.no_grad()
def test_dropout_masks_act_where_rows_are_padded() -> None:
    rows = batch()
    fields = Fields.of(rows)
    posterior = DropoutPosterior([fields.prepare(encoder(0.5))], Task(Categorical(3), fields, fields.shape), 2, 0)
    one, other = posterior.member_probabilities(rows)
    assert not torch.allclose(one, other, atol=0.01)


def test_padded_rows_are_blended_between_the_layers_of_an_encoder() -> None:
    rows = batch(24)
    fields = Fields.of(rows)
    train = Rows(fields.pack(rows), torch.arange(24) % 3)
    method = Method("blends", Predictive(1.0, AtLayer(Mixup(0.4), "blocks.layers.0")), Ensemble(1))
    task = Task(Categorical(3), fields, fields.shape)
    plan = make_plan(train, task, method, Encoder, Recipe(epochs=2, batch_size=8))
    assert fit(plan, engine="inline").probabilities(rows).shape == (24, 3)
