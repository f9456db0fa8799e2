"""Networks of the user's that look like ours, inference mode, and threads: answers stay what they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from lookalikes import Doubling, Tempered, hooked
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.fast.pooled_convolution import PooledConvolution
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.rows import Standardize
from mixupmp.networks import CNN, MLP
from small_posteriors import TASK, dropped, ensemble, inputs_of, seeded


class TemperedCNN(CNN):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) / 3


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
    posterior = EnsemblePosterior(seeded(build), Task(Categorical(3), Standardize(), shape), 3)
    inputs = inputs_of(shape, rows)
    with torch.no_grad():
        expected = torch.stack([network(inputs) for network in posterior.networks])
    assert torch.allclose(posterior.member_outputs(inputs), expected, atol=1e-5)


def every_kind() -> dict[str, Posterior]:
    torch.manual_seed(0)
    network = MLP(4, 3)
    changes = {name: 1e-2 * torch.randn(3, *p.shape) for name, p in network.named_parameters()}
    cnns = EnsemblePosterior(seeded(lambda: CNN(1, (20, 20), 3)), Task(Categorical(3), Standardize(), (1, 20, 20)), 3)
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
