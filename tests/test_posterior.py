from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from mixupmp.data.rows import Standardise
from mixupmp.errors import InvalidArgument
from mixupmp.loss import Categorical, Gaussian
from mixupmp.networks import CNN, MLP, ResNet18, WideResNet
from mixupmp.pooled_convolution import PooledConvolution
from mixupmp.posterior import (
    DropoutPosterior,
    EnsemblePosterior,
    LaplacePosterior,
    Posterior,
    Task,
    logits_of,
)
from mixupmp.together import GROUPED_ROWS, Together, can_go_together

TASK = Task(Categorical(3), Standardise(), (4,), ("a", "b", "c"))


def inputs_of(shape: tuple[int, ...], rows: int) -> Tensor:
    return torch.randn(rows, *shape, generator=Generator().manual_seed(1))


def seeded(build: Callable[[], nn.Module], count: int = 3) -> list[nn.Module]:
    """Networks with different weights and, where they normalise, statistics that are not the initial ones."""
    networks = []
    for seed in range(count):
        torch.manual_seed(seed)
        network = build()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2)
        networks.append(network)
    return networks


def ensemble(count: int = 3) -> EnsemblePosterior:
    return EnsemblePosterior(seeded(lambda: MLP(4, 3), count), TASK, count)


def test_probabilities_are_the_mean_of_the_members() -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 10)
    each = posterior.member_probabilities(inputs)
    assert each.shape == (3, 10, 3)
    assert torch.allclose(each.sum(-1), torch.ones(3, 10))
    for network, own in zip(posterior.networks, each, strict=True):
        assert torch.allclose(network(inputs).softmax(-1), own, atol=1e-6)
    assert torch.allclose(posterior.probabilities(inputs), each.mean(0))


def test_logits_can_be_averaged_instead() -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 10)
    outputs = posterior.member_outputs(inputs)
    by_logits = posterior.probabilities(inputs, average="logits")
    assert torch.allclose(by_logits, outputs.mean(0).softmax(-1))
    assert not torch.allclose(by_logits, posterior.probabilities(inputs), atol=1e-4)


def test_inputs_are_scaled_inside() -> None:
    task = Task(Categorical(3), Standardise((0.5,), (0.25,)), (1, 20, 20))
    images = torch.randint(0, 256, (6, 1, 20, 20), generator=Generator().manual_seed(0)).to(torch.uint8)
    networks = seeded(lambda: CNN(1, (20, 20), 3))
    outputs = EnsemblePosterior(networks, task, 3).member_outputs(images)
    expected = torch.stack([network((images / 255 - 0.5) / 0.25) for network in networks])
    assert torch.allclose(outputs, expected, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 7, 10, 99])
def test_streaming_equals_one_block(size: int) -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 10)
    blocks = list(posterior.stream_outputs(inputs, size))
    assert [block.shape[1] for block in blocks] == [len(part) for part in inputs.split(size)]
    assert torch.allclose(torch.cat(blocks, 1), posterior.member_outputs(inputs), atol=1e-6)
    assert torch.allclose(posterior.probabilities(inputs, batch_size=size), posterior.probabilities(inputs), atol=1e-6)


@pytest.mark.parametrize("rows", [1, GROUPED_ROWS, GROUPED_ROWS + 1, 40])
@pytest.mark.parametrize(
    ("build", "shape", "known"),
    [
        (lambda: MLP(4, 3), (4,), True),
        (lambda: MLP(4, 3, dropout=0.3, bias=False), (4,), True),
        (lambda: CNN(1, (28, 28), 3), (1, 28, 28), True),
        (lambda: CNN(3, (20, 22), 3, dropout=0.3, bias=False), (3, 20, 22), True),
        (lambda: CNN(1, (8, 8), 3), (1, 8, 8), True),
        (lambda: nn.Sequential(nn.Flatten(), nn.ReLU()), (3,), True),
        (lambda: ResNet18(1, 3, width=4), (1, 12, 12), False),
        (lambda: WideResNet(3, 3, depth=10, widen=1, dropout=0.3), (3, 12, 12), False),
    ],
    ids=["mlp", "mlp with dropout", "cnn", "cnn in colour", "small cnn", "no weights", "resnet", "wide resnet"],
)
def test_members_together_equal_a_loop_over_members(
    build: Callable[[], nn.Module], shape: tuple[int, ...], known: bool, rows: int
) -> None:
    networks = [network.eval() for network in seeded(build)]
    assert can_go_together(networks) == known
    inputs = inputs_of(shape, rows)
    with torch.no_grad():
        loop = torch.stack([network(inputs) for network in networks])
        together = Together(networks)(inputs) if known else None
    outputs = together
    if outputs is None:
        outputs = EnsemblePosterior(networks, Task(Categorical(3), Standardise(), shape), 3).member_outputs(inputs)
    assert outputs.shape == loop.shape
    assert float((outputs - loop).abs().max()) <= 1e-6 * max(1.0, float(loop.abs().max())) * 4


def test_unlike_networks_do_not_go_together() -> None:
    assert not can_go_together([MLP(4, 3), MLP(4, 3, hidden=(5,))])
    assert not can_go_together([nn.Sequential(nn.Linear(4, 3)), nn.Sequential(nn.Linear(4, 3), nn.Tanh())])
    assert not can_go_together([nn.Sequential(nn.Linear(4, 3), nn.Tanh())] * 2)


class Mine(nn.Module):
    """A user's network, with control flow that no transform can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Any:
        if float(inputs.sum()) > 1e9:
            return inputs
        return SimpleNamespace(logits=self.layer(inputs))


class LastStep(nn.Module):
    def forward(self, inputs: tuple[Tensor, Any]) -> Tensor:
        return inputs[0]


@pytest.mark.parametrize(
    "build",
    [
        Mine,
        lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 3))),
        lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.LSTM(4, 3, batch_first=True), LastStep()),
    ],
    ids=["own", "nested", "transformer", "recurrent"],
)
def test_one_row_from_networks_of_other_kinds(build: Callable[[], nn.Module]) -> None:
    posterior = EnsemblePosterior(seeded(build), TASK, 3)
    inputs = inputs_of((4,), 1)
    expected = torch.stack([logits_of(network(inputs)) for network in posterior.networks])
    assert torch.allclose(posterior.member_outputs(inputs), expected, atol=1e-5)


@pytest.mark.parametrize("rows", [2, 20])
def test_answers_can_be_differentiated_through_and_written_to(rows: int) -> None:
    """Calibration fits a temperature on them: they must be ordinary tensors."""
    outputs = ensemble().member_outputs(inputs_of((4,), rows))
    temperature = torch.ones((), requires_grad=True)
    (outputs * temperature).square().sum().backward()
    assert temperature.grad is not None
    outputs.add_(1)
    for block in ensemble().stream_outputs(inputs_of((4,), rows)):
        (block * temperature).sum().backward()


def test_predicting_leaves_the_callers_gradients_on() -> None:
    stream = ensemble().stream_outputs(inputs_of((4,), 20), 5)
    next(stream)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_moving_a_posterior_forgets_what_it_prepared() -> None:
    posterior = ensemble()
    inputs = inputs_of((4,), 2)
    first = posterior.member_outputs(inputs)
    with torch.no_grad():
        posterior.networks[0].get_parameter("1.weight").mul_(2)
    changed = posterior.to("cpu").member_outputs(inputs)
    assert not torch.allclose(first[0], changed[0])
    assert torch.allclose(first[1], changed[1])


def test_fewer_networks_than_wanted_are_told() -> None:
    posterior = EnsemblePosterior(seeded(lambda: MLP(4, 3)), TASK, 4, ["member 2 diverged at step 7"])
    assert posterior.members == 3
    assert "3 of 4" in repr(posterior)
    assert "of" not in repr(ensemble())


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([[0.0] * 4], "inputs must be a tensor"),
        (torch.zeros(3, 5), r"inputs must be of shape \(rows, 4\), got \(3, 5\)"),
        (torch.zeros(4), r"inputs must be of shape \(rows, 4\), got \(4,\)"),
        (torch.tensor(1.0), r"inputs must be of shape \(rows, 4\)"),
        (torch.zeros(0, 4), "inputs must be at least one row"),
        (torch.tensor([[0.0] * 4, [0.0, 0.0, float("nan"), 0.0]]), "finite.*row is 1"),
        (torch.tensor([[0.0, float("inf"), 0.0, 0.0]]), "finite.*row is 0"),
    ],
)
def test_bad_inputs_are_named(inputs: Any, message: str) -> None:
    posterior = ensemble()
    for ask in (posterior.probabilities, posterior.member_probabilities, posterior.member_outputs):
        with pytest.raises(InvalidArgument, match=message):
            ask(inputs)


def test_bad_options_are_named() -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 2)
    with pytest.raises(InvalidArgument, match="average must be 'probabilities' or 'logits'"):
        posterior.probabilities(inputs, average="mean")  # type: ignore[arg-type]
    for size in (0, -1, 2.5):
        with pytest.raises(InvalidArgument, match="batch_size must be"):
            posterior.member_outputs(inputs, batch_size=size)  # type: ignore[arg-type]


def test_a_regression_has_no_class_probabilities() -> None:
    posterior = EnsemblePosterior(seeded(lambda: MLP(4, 2)), Task(Gaussian(), Standardise(), (4,)), 3)
    inputs = inputs_of((4,), 6)
    assert posterior.member_outputs(inputs).shape == (3, 6, 2)
    for ask in (posterior.probabilities, posterior.member_probabilities):
        with pytest.raises(InvalidArgument, match="likelihood must be Categorical"):
            ask(inputs)


# --- dropout masks ---------------------------------------------------------------------------------------------------


def dropped(network: nn.Module, members: int = 5, seed: int = 0, shape: tuple[int, ...] = (4,)) -> DropoutPosterior:
    return DropoutPosterior([network], Task(Categorical(3), Standardise(), shape), members, seed)


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


# --- Laplace ---------------------------------------------------------------------------------------------------------


def test_a_linearised_member_adds_the_slope_along_its_change() -> None:
    torch.manual_seed(0)
    network = MLP(4, 3)
    changes = {name: 1e-3 * torch.randn(2, *p.shape) for name, p in network.named_parameters()}
    posterior: Posterior = LaplacePosterior([network], TASK, changes)
    inputs = inputs_of((4,), 5)
    outputs = posterior.member_outputs(inputs)
    assert posterior.members == 2
    for member in range(2):
        moved = copy.deepcopy(network)
        with torch.no_grad():
            for name, parameter in moved.named_parameters():
                parameter.add_(changes[name][member])
        assert torch.allclose(outputs[member], moved(inputs), atol=1e-4)  # to the second order of 1e-3
        assert not torch.allclose(outputs[member], network(inputs), atol=1e-4)
    assert torch.allclose(posterior.member_outputs(inputs, 2), outputs, atol=1e-6)
    assert posterior.tensors() == changes


def test_outputs_that_are_no_tensor_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="network must be a module that returns a tensor"):
        logits_of([1.0])


def test_an_ensemble_that_has_answered_can_be_pickled_and_answers_the_same() -> None:
    inputs = torch.randn(5, 4, generator=Generator().manual_seed(0))
    task = Task(Categorical(3), Standardise(), (4,))
    posterior = EnsemblePosterior([MLP(4, 3, (8,)) for _ in range(2)], task, 2)
    before = posterior.probabilities(inputs)
    again = pickle.loads(pickle.dumps(posterior))
    assert torch.equal(again.probabilities(inputs), before)


# --- networks of the user's that look like ours, inference mode and threads -------------------------------------------


class Tempered(nn.Sequential):
    """A sequence with a forward pass of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) / 3


class Doubling(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


class TemperedCNN(CNN):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) / 3


def hooked() -> nn.Module:
    network = MLP(4, 3)
    network[1].register_forward_hook(lambda module, inputs, output: output.abs() + 1)
    return network


LOOKALIKES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "own forward": (lambda: Tempered(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "own layer": (lambda: nn.Sequential(Doubling(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "own cnn": (lambda: TemperedCNN(1, (20, 20), 3), (1, 20, 20)),
    "a hook": (hooked, (4,)),
    "weights on more than rows": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(10, 3)), (2, 4),
    ),
    "flattened in part": (
        lambda: nn.Sequential(nn.Flatten(2), nn.Linear(4, 5), nn.Flatten(), nn.Linear(10, 3)), (2, 2, 2),
    ),
    "weight norm": (
        lambda: nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU()), (4,)
    ),
    "no biases": (lambda: MLP(4, 3, bias=False), (4,)),
    "strided": (
        lambda: nn.Sequential(
            PooledConvolution(1, 2, 3), PooledConvolution(2, 3, 3, stride=2), nn.Flatten(), nn.Linear(12, 3)
        ),
        (1, 20, 20),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 5, 20])
@pytest.mark.parametrize("name", LOOKALIKES)
def test_what_looks_like_a_known_network_answers_as_itself(name: str, rows: int) -> None:
    build, shape = LOOKALIKES[name]
    posterior = EnsemblePosterior(seeded(build), Task(Categorical(3), Standardise(), shape), 3)
    inputs = inputs_of(shape, rows)
    with torch.no_grad():
        expected = torch.stack([network(inputs) for network in posterior.networks])
    assert torch.allclose(posterior.member_outputs(inputs), expected, atol=1e-5)


def every_kind() -> dict[str, Posterior]:
    torch.manual_seed(0)
    network = MLP(4, 3)
    changes = {name: 1e-2 * torch.randn(3, *p.shape) for name, p in network.named_parameters()}
    cnns = EnsemblePosterior(seeded(lambda: CNN(1, (20, 20), 3)), Task(Categorical(3), Standardise(), (1, 20, 20)), 3)
    return {
        "ensemble": ensemble(),
        "convolutions": cnns,
        "dropout": dropped(MLP(4, 3, dropout=0.4), 3),
        "laplace": LaplacePosterior([network], TASK, changes),
    }


@pytest.mark.parametrize("kind", ["ensemble", "convolutions", "dropout", "laplace"])
def test_every_posterior_answers_in_inference_mode_and_out_of_it(kind: str) -> None:
    posterior = every_kind()[kind]
    inputs = inputs_of(posterior.task.input_shape, 12)
    with torch.inference_mode():
        inside = posterior.member_outputs(inputs)
    assert torch.equal(posterior.member_outputs(inputs), inside)
    with torch.inference_mode():
        assert torch.equal(posterior.member_outputs(inputs), inside)


@pytest.mark.parametrize("kind", ["ensemble", "convolutions", "dropout", "laplace"])
def test_threads_may_share_a_posterior(kind: str) -> None:
    """A server asks from several threads at once."""
    posterior = every_kind()[kind]
    inputs = [inputs_of(posterior.task.input_shape, rows) for rows in (3, 12)]
    expected = [posterior.member_outputs(own) for own in inputs]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            answers = threads.map(lambda turn: (turn % 2, posterior.member_outputs(inputs[turn % 2])), range(60))
            assert all(torch.allclose(answer, expected[which], atol=1e-5) for which, answer in answers)
    finally:
        sys.setswitchinterval(before)
