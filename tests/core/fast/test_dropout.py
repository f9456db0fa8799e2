"""Dropout from 16 random bits a value: the distribution, the gradient and the places where it is torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from mixupmp.core.fast.dropout import LEVELS, FeatureDropout
from mixupmp.networks import ResNet18


def dropped(layer: nn.Module, inputs: Tensor, seed: int = 0) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return layer(inputs)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.9])
def test_values_are_dropped_at_the_rate_and_the_others_scaled(rate: float) -> None:
    outputs = dropped(FeatureDropout(rate).train(), torch.ones(1000, 1003))
    kept = 1 - round(rate * LEVELS) / LEVELS
    assert set(outputs.unique().tolist()) == {0.0, torch.tensor(1 / kept).item()}
    assert (outputs == 0).double().mean().item() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / 1e6) ** 0.5)
    assert outputs.double().mean().item() == pytest.approx(1, abs=5 * ((1 - kept) / kept / 1e6) ** 0.5)


def test_values_are_dropped_independently() -> None:
    # The four numbers of one 64-bit word, and neighbors of different words, are as good as independent: counts of the
    # sixteen patterns of four, and of pairs one, two and three words apart.
    zeros = (dropped(FeatureDropout(0.3).train(), torch.ones(4 * 200_000)) == 0).view(-1, 4).long()
    patterns = (zeros * torch.tensor([8, 4, 2, 1])).sum(1).bincount(minlength=16).double()
    ones = torch.tensor([bin(pattern).count("1") for pattern in range(16)])
    expected = len(zeros) * 0.3**ones * 0.7 ** (4 - ones)
    assert ((patterns - expected) ** 2 / expected).sum() < 37.7  # chi-square of 15 degrees of freedom, 99.9%
    moved = zeros.double() - 0.3
    for words in (1, 2, 3):
        assert abs((moved[words:] * moved[:-words]).mean()) < 4 * 0.21 / (len(zeros) * 4) ** 0.5


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_passes_where_the_values_did(order: torch.memory_format) -> None:
    inputs = torch.randn(6, 5, 4, 3, generator=torch.Generator().manual_seed(1)).contiguous(memory_format=order)
    inputs.requires_grad_()
    outputs = dropped(FeatureDropout(0.4).train(), inputs)
    outputs.sum().backward()
    assert outputs.is_contiguous(memory_format=order)
    assert inputs.grad is not None
    assert torch.allclose(outputs, inputs * inputs.grad)
    assert torch.equal(inputs.grad == 0, outputs == 0)
    assert 0 < (outputs == 0).double().mean() < 1


@pytest.mark.parametrize(
    "inputs", [torch.ones(0, 3), torch.ones(()), torch.ones(7), torch.ones(5, 1, 1), torch.ones(4, 6).T[1:, ::2]]
)
def test_any_shape_and_order_is_taken(inputs: Tensor) -> None:
    outputs = dropped(FeatureDropout(0.5).train(), inputs)
    assert outputs.shape == inputs.shape
    assert set(outputs.flatten().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("rate", [0.0, 1e-7, 1.0])
def test_rates_without_a_mask_are_torchs(rate: float) -> None:
    inputs = torch.ones(3, 4)
    assert torch.equal(dropped(FeatureDropout(rate).train(), inputs), dropped(nn.Dropout(rate).train(), inputs))


def test_outside_training_it_is_the_identity() -> None:
    inputs = torch.ones(3, 4)
    assert FeatureDropout(0.5).eval()(inputs) is inputs


def test_transforms_and_other_devices_take_torchs_mask() -> None:
    layer, inputs = FeatureDropout(0.5).train(), torch.ones(8, 50)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mapped = torch.func.vmap(layer, randomness="different")(inputs)
    assert set(mapped.unique().tolist()) == {0.0, 2.0}
    assert len({tuple(row.tolist()) for row in mapped}) == 8
    assert layer(inputs.to("meta")).shape == inputs.shape
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(dropped(compiled, inputs), dropped(nn.Dropout(0.5).train(), inputs))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_scripts_and_traces_have_torchs_mask() -> None:
    layer, inputs = FeatureDropout(0.5).train(), torch.ones(30, 40)
    for made in (torch.jit.script(layer), fx.symbolic_trace(nn.Sequential(layer))):
        assert torch.equal(dropped(made, inputs), dropped(nn.Dropout(0.5).train(), inputs))
        assert torch.equal(dropped(made.eval(), inputs), inputs) == isinstance(made, torch.jit.ScriptModule)
    scripted = torch.jit.script(ResNet18(1, 3, 4, 0.3).eval())
    assert scripted(torch.ones(2, 1, 8, 8)).shape == (2, 3)


def test_words_are_made_where_the_values_are() -> None:
    with torch.device("meta"):
        outputs = dropped(FeatureDropout(0.5).train(), torch.ones(30, 40, device="cpu"))
    assert set(outputs.unique().tolist()) == {0.0, 2.0}


def test_reduced_precision_keeps_its_type_and_the_same_seed_its_mask() -> None:
    layer, inputs = FeatureDropout(0.5).train(), torch.ones(30, 40)
    low = dropped(layer, inputs.bfloat16())
    assert low.dtype == torch.bfloat16
    assert torch.equal(low.float(), dropped(layer, inputs))
    assert not torch.equal(dropped(layer, inputs, 1), dropped(layer, inputs))


def test_its_expected_loss_is_that_of_torchs() -> None:
    # The mean squared output of a linear layer behind it: sum of w^2 p / (1 - p) + (sum of w)^2 for ones.
    weights = torch.linspace(-1, 1, 64)
    outputs = functional.linear(dropped(FeatureDropout(0.3).train(), torch.ones(40_000, 64)), weights[None])
    assert outputs.square().mean().item() == pytest.approx((weights.square().sum() * 0.3 / 0.7).item(), rel=0.03)
