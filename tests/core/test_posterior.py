from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.fast.stacked import GROUPED_ROWS, StackedForward, can_stack
from mixupmp.core.given_network import logits_of
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.rows import Standardize
from mixupmp.networks import CNN, MLP, ResNet18, WideResNet
from small_posteriors import TASK, ensemble, inputs_of, seeded


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
    task = Task(Categorical(3), Standardize((0.5,), (0.25,)), (1, 20, 20))
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
    ids=["mlp", "mlp with dropout", "cnn", "cnn in color", "small cnn", "no weights", "resnet", "wide resnet"],
)
def test_members_together_equal_a_loop_over_members(
    build: Callable[[], nn.Module], shape: tuple[int, ...], known: bool, rows: int
) -> None:
    networks = [network.eval() for network in seeded(build)]
    assert can_stack(networks) == known
    inputs = inputs_of(shape, rows)
    with torch.no_grad():
        loop = torch.stack([network(inputs) for network in networks])
        together = StackedForward(networks)(inputs) if known else None
    outputs = together
    if outputs is None:
        outputs = EnsemblePosterior(networks, Task(Categorical(3), Standardize(), shape), 3).member_outputs(inputs)
    assert outputs.shape == loop.shape
    assert float((outputs - loop).abs().max()) <= 1e-6 * max(1.0, float(loop.abs().max())) * 4


def test_unlike_networks_do_not_go_together() -> None:
    assert not can_stack([MLP(4, 3), MLP(4, 3, hidden=(5,))])
    assert not can_stack([nn.Sequential(nn.Linear(4, 3)), nn.Sequential(nn.Linear(4, 3), nn.Tanh())])
    assert not can_stack([nn.Sequential(nn.Linear(4, 3), nn.Tanh())] * 2)


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
        ([["a"] * 4], "inputs must be a tensor or an array"),
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
    posterior = EnsemblePosterior(seeded(lambda: MLP(4, 2)), Task(Gaussian(), Standardize(), (4,)), 3)
    inputs = inputs_of((4,), 6)
    assert posterior.member_outputs(inputs).shape == (3, 6, 2)
    for ask in (posterior.probabilities, posterior.member_probabilities):
        with pytest.raises(InvalidArgument, match="likelihood must be Categorical"):
            ask(inputs)


def test_a_linearized_member_adds_the_slope_along_its_change() -> None:
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
    task = Task(Categorical(3), Standardize(), (4,))
    posterior = EnsemblePosterior([MLP(4, 3, (8,)) for _ in range(2)], task, 2)
    before = posterior.probabilities(inputs)
    again = pickle.loads(pickle.dumps(posterior))
    assert torch.equal(again.probabilities(inputs), before)


@pytest.mark.parametrize("standardize", [Standardize(), Standardize((0.0,) * 4, (0.1,) * 4)])
def test_a_row_that_overflows_is_named_and_not_nan(standardize: Standardize) -> None:
    """Finite, but too large: 3e38 overflows in the scaling or in the first layer, and softmax would give NaN."""
    task = Task(Categorical(3), standardize, (4,))
    networks, inputs = seeded(lambda: MLP(4, 3)), inputs_of((4,), 10)
    for network in networks:
        next(network.parameters()).data.mul_(10)
    posterior = EnsemblePosterior(networks, task, 3)
    inputs[7] = 3e38
    for ask in (posterior.probabilities, posterior.member_probabilities, posterior.member_outputs):
        with pytest.raises(BadData, match=r"row 7 of the inputs, with values up to 3e\+38, .* member \d"):
            ask(inputs, batch_size=3)
    outputs = posterior.member_outputs(inputs, check_finite=False)
    finite = torch.isfinite(outputs).all(-1).all(0)
    assert finite.tolist() == [row != 7 for row in range(10)]


def test_a_network_with_outputs_that_are_not_finite_is_named() -> None:
    posterior = ensemble()
    with torch.no_grad():
        list(posterior.networks[1].parameters())[-1][0] = float("nan")
    with pytest.raises(BadData, match=r"row 0 of the inputs.* member 1: .*weights"):
        posterior.probabilities(inputs_of((4,), 5))


def test_padded_blocks_do_not_depend_on_the_number_of_rows() -> None:
    posterior, inputs = ensemble(), inputs_of((4,), 10)
    everything = torch.cat(list(posterior.stream_outputs(inputs, 4, pad=True)), 1)
    assert everything.shape == (3, 10, 3)
    for rows in (1, 3, 5):
        assert torch.equal(
            torch.cat(list(posterior.stream_outputs(inputs[:rows], 4, pad=True)), 1), everything[:, :rows]
        )


def test_classes_without_names_have_numbers() -> None:
    assert Task(Categorical(3), Standardize(), (4,)).class_names == ("0", "1", "2")
    assert Task(Categorical(2), Standardize(), (4,), ("cat", "dog")).class_names == ("cat", "dog")
    assert Task(Gaussian(), Standardize(), (4,)).class_names == ()
