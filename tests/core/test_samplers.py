from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.posterior import Task
from mixupmp.core.predictive import TrainingData
from mixupmp.core.rows import Dataset
from mixupmp.core.samplers import DropoutMasks, Ensemble, Laplace
from mixupmp.networks import CNN, MLP, ResNet18

laplace_installed = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("laplace") is None, reason="laplace-torch is not installed"
)


def task_of(dataset: Dataset) -> Task:
    shape = tuple(dataset.train.inputs.shape[1:])
    return Task(Categorical(len(dataset.classes)), dataset.standardize, shape, dataset.classes)


def seen_of(dataset: Dataset) -> TrainingData:
    return TrainingData(dataset.train, Categorical(len(dataset.classes)), dataset.standardize)


def trained(network: nn.Module, dataset: Dataset, steps: int = 60) -> nn.Module:
    """A network near a mode, where a Gaussian makes sense."""
    inputs, labels = dataset.standardize(dataset.train.inputs), dataset.train.labels
    optimizer = torch.optim.SGD(network.parameters(), 0.3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    return network.eval()


@pytest.fixture
def mlp(table: Dataset) -> nn.Module:
    torch.manual_seed(0)
    return trained(MLP(4, 3, hidden=(8,)), table)


def laplace_posterior(sampler: Laplace, network: nn.Module, dataset: Dataset, seed: int = 0) -> LaplacePosterior:
    posterior = sampler.posterior([copy.deepcopy(network)], task_of(dataset), seen_of(dataset), seed)
    assert isinstance(posterior, LaplacePosterior)
    return posterior


@laplace_installed
@pytest.mark.parametrize("subset", ["last_layer", "all"])
@pytest.mark.parametrize("structure", ["kron", "full", "diag"])
def test_laplace_members_spread_around_the_network(subset: Any, structure: Any, mlp: nn.Module, table: Dataset) -> None:
    posterior = laplace_posterior(Laplace(150, subset, structure), mlp, table)
    inputs = table.test.inputs[:20]
    outputs = posterior.member_outputs(inputs)
    assert outputs.shape == (150, 20, 3)
    assert bool(torch.isfinite(outputs).all())
    with torch.no_grad():
        center = mlp(table.standardize(inputs))
    spread = outputs.std(0)
    assert float(spread.min()) > 1e-4
    assert float(((outputs.mean(0) - center).abs() / (spread / 150**0.5)).max()) < 5
    assert torch.allclose(posterior.probabilities(inputs).sum(1), torch.ones(20))


@laplace_installed
def test_a_last_layer_member_is_the_network_with_that_last_layer(mlp: nn.Module, table: Dataset) -> None:
    posterior = laplace_posterior(Laplace(3, "last_layer", "kron"), mlp, table)
    last = max(int(name.split(".")[0]) for name, _ in mlp.named_parameters())
    assert set(posterior.changes) == {f"{last}.weight", f"{last}.bias"}
    inputs = table.test.inputs[:10]
    outputs = posterior.member_outputs(inputs)
    for member in range(3):
        changed = {name: mlp.get_parameter(name) + change[member] for name, change in posterior.changes.items()}
        exact = functional_call(mlp, changed, (table.standardize(inputs),))
        assert torch.allclose(outputs[member], exact, atol=1e-5)


@pytest.mark.parametrize(("varies", "passes"), [("head", 1), ("stem", 1), ("", 5)])
def test_draws_of_one_layer_share_a_forward_pass(varies: str, passes: int) -> None:
    """The same outputs as one draw after another, which a Gaussian of all weights still takes."""
    torch.manual_seed(0)
    network = ResNet18(1, 3, 4).eval()
    named = {name: value for name, value in network.named_parameters() if name.partition(".")[0] in (varies or name)}
    changes = {name: 0.1 * torch.randn(5, *value.shape) for name, value in named.items()}
    posterior = LaplacePosterior([network], Task(Categorical(3), None, (1, 8, 8)), changes)
    inputs, calls = torch.randn(6, 1, 8, 8), []
    network.stem.register_forward_hook(lambda *_: calls.append(1))
    with torch.inference_mode():
        outputs = posterior._outputs(inputs)
        assert len(calls) == passes
        for member in range(5):
            alone = LaplacePosterior([network], posterior.task, {n: c[[member]] for n, c in changes.items()})
            alone._of_one_layer = lambda: False  # type: ignore[method-assign]
            assert torch.allclose(outputs[member], alone._outputs(inputs)[0], atol=1e-5)


def test_draws_of_a_network_with_noise_of_its_own_have_each_theirs() -> None:
    class Noisy(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(super().forward(inputs), 0.5, training=True)

    network = nn.Sequential(nn.Linear(4, 8), Noisy(8, 3))
    changes = {"1.weight": torch.zeros(5, 3, 8)}
    posterior = LaplacePosterior([network], Task(Categorical(3), None, (4,)), changes)
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(0)
        outputs = posterior._outputs(torch.ones(20, 4))
    assert len({tuple(own.flatten().tolist()) for own in outputs}) == 5


@laplace_installed
@pytest.mark.parametrize("subset", ["last_layer", "all"])
def test_the_draws_have_the_covariance_of_the_curvature(subset: Any, table: Dataset) -> None:
    """For a linear network the Hessian is known: sum_i x x' (x) (diag p - p p'), plus the prior precision."""
    torch.manual_seed(0)
    network = trained(nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False)), table)
    sampler = Laplace(6000, subset, "full")
    inputs = table.standardize(table.train.inputs)
    p = network(inputs).softmax(1).detach()
    inner = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    hessian = torch.einsum("nab,ni,nj->aibj", inner, inputs, inputs).reshape(12, 12)
    precision = sampler._fit(copy.deepcopy(network), seen_of(table)).prior_precision.detach()
    covariance = torch.linalg.inv(hessian + torch.eye(12) * precision)
    (change,) = laplace_posterior(sampler, network, table).changes.values()
    drawn = torch.cov(change.flatten(1).T)
    scale = covariance.diagonal().sqrt()
    assert float(((drawn - covariance) / (scale.view(-1, 1) * scale)).abs().max()) < 0.08


@laplace_installed
@pytest.mark.parametrize(("subset", "structure"), [("last_layer", "kron"), ("all", "kron"), ("all", "diag")])
def test_laplace_of_a_cnn(subset: Any, structure: Any, images: Dataset) -> None:
    torch.manual_seed(0)
    network = trained(CNN(1, (20, 20), 3, dropout=0.2), images, 10)
    posterior = laplace_posterior(Laplace(4, subset, structure), network, images)
    outputs = posterior.member_outputs(images.test.inputs[:6])
    assert outputs.shape == (4, 6, 3)
    assert len({tuple(own[0].tolist()) for own in outputs}) == 4


@laplace_installed
def test_laplace_draws_come_from_the_seed(mlp: nn.Module, table: Dataset) -> None:
    sampler, inputs = Laplace(3), table.test.inputs[:5]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = laplace_posterior(sampler, mlp, table, 0).member_outputs(inputs)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first, laplace_posterior(sampler, mlp, table, 0).member_outputs(inputs))
    assert not torch.equal(first, laplace_posterior(sampler, mlp, table, 1).member_outputs(inputs))


@laplace_installed
def test_laplace_leaves_frozen_weights_alone(mlp: nn.Module, table: Dataset) -> None:
    network = copy.deepcopy(mlp)
    network.get_parameter("1.weight").requires_grad_(False)
    posterior = laplace_posterior(Laplace(3, "all", "diag"), network, table)
    assert "1.weight" not in posterior.changes
    assert "1.bias" in posterior.changes


def test_laplace_is_for_classification(mlp: nn.Module, table: Dataset) -> None:
    task = Task(Gaussian(), table.standardize, (4,))
    with pytest.raises(InvalidArgument, match="an ensemble or dropout masks for a Gaussian likelihood"):
        Laplace(3).posterior([mlp], task, seen_of(table), 0)


def test_samplers_say_how_many_networks_they_train(mlp: nn.Module, table: Dataset) -> None:
    task, seen = task_of(table), seen_of(table)
    assert (Ensemble(5).networks, DropoutMasks(5).networks, Laplace(5).networks) == (5, 1, 1)
    ensemble = Ensemble(2).posterior([mlp, copy.deepcopy(mlp)], task, seen, 0)
    assert isinstance(ensemble, EnsemblePosterior)
    assert ensemble.members == 2
    masks = DropoutMasks(5).posterior([MLP(4, 3, dropout=0.1)], task, seen, 0)
    assert isinstance(masks, DropoutPosterior)
    assert masks.members == 5
    assert masks.notes == ()


def test_masks_of_a_network_without_dropout_are_noted(mlp: nn.Module, table: Dataset) -> None:
    masks = DropoutMasks(5).posterior([mlp], task_of(table), seen_of(table), 0)
    assert "no dropout" in masks.notes[0]


@pytest.mark.parametrize("members", [0, -1, 1.5, "4", True, None])
@pytest.mark.parametrize("sampler", [Ensemble, DropoutMasks, Laplace])
def test_members_must_be_a_whole_number(sampler: Any, members: Any) -> None:
    with pytest.raises(InvalidArgument, match="members must be a whole number, at least 1"):
        sampler(members)


def test_other_bad_settings_of_laplace() -> None:
    with pytest.raises(InvalidArgument, match="subset must be"):
        Laplace(3, "first")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="structure must be"):
        Laplace(3, "all", "dense")  # type: ignore[arg-type]
