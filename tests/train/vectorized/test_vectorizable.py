"""Which networks are trained in one program: those that are exactly what that program computes."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from math import inf

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import TensorDataset

from lookalikes import Doubling, Tempered, hooked
from mixupmp.core.base_measures import ClassAdjustedMixup
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.kernels import Compose, identity
from mixupmp.core.methods import Method, deep_ensemble, mixup_mp, mixup_mp_single
from mixupmp.core.plan import Plan
from mixupmp.core.predictive import Predictive
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.core.samplers import Ensemble
from mixupmp.networks import MLP
from mixupmp.train.plans import plan_for
from mixupmp.train.run import choose_engine, fit
from mixupmp.train.vectorized.group import unsuited
from small_data import small_images, small_table

SHORT = Recipe(epochs=2, batch_size=16, learning_rate=0.05)


class Named(nn.Sequential):
    """Nothing but a name for a sequence."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def frozen() -> nn.Module:
    network = MLP(4, 3)
    network[1].requires_grad_(False)
    return network


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "own forward": lambda: Tempered(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)),
    "own layer": lambda: nn.Sequential(Doubling(4, 5), nn.ReLU(), nn.Linear(5, 3)),
    "a hook": hooked,
    "frozen weights": frozen,
    "some biases": lambda: nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)),
    "weight norm": lambda: nn.Sequential(
        torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 3)
    ),
    "shared layers": lambda: (lambda layer: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), layer, nn.ReLU(), layer))(
        nn.Linear(4, 4)
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_like_an_mlp_is_trained_as_itself(name: str, table: Dataset) -> None:
    if name == "shared layers":
        table = small_table(classes=4)
    plan = plan_for(table, deep_ensemble(2), OTHERS[name], SHORT)
    with pytest.raises(InvalidArgument, match="engine must be another engine for this network"):
        fit(plan, engine="vectorized")
    assert choose_engine(plan, 2) == "inline"
    assert fit(plan).members == 2


def test_rows_that_are_not_flat_are_not_flattened(table: Dataset) -> None:
    rows = Rows(table.train.inputs.view(60, 2, 2), table.train.labels)
    dataset = Dataset("folded", rows, rows, table.classes, Standardize())
    network = lambda: nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Flatten(), nn.Linear(10, 3))  # noqa: E731
    assert choose_engine(plan_for(dataset, deep_ensemble(2), network, SHORT), 2) == "inline"
    assert choose_engine(plan_for(dataset, deep_ensemble(2), "mlp", SHORT), 2) == "vectorized"


@pytest.mark.parametrize("build", [Named, lambda: MLP(4, 3), lambda: MLP(4, 3, bias=False)])
def test_a_plain_sequence_is_trained_in_one_program(build: Callable[[], nn.Module], table: Dataset) -> None:
    plan = plan_for(table, deep_ensemble(2), build, SHORT)
    assert choose_engine(plan, 2) == "vectorized"
    one, two = fit(plan, engine="inline"), fit(plan, engine="vectorized")
    for reference, fast in zip(one.networks, two.networks, strict=True):
        for name, value in reference.state_dict().items():
            assert torch.allclose(fast.state_dict()[name], value, atol=1e-5)


def adapting() -> Method:
    return Method("adapting", Predictive(inf, ClassAdjustedMixup(1.0)), Ensemble(2), validation_fraction=0.2)


def through_a_loader() -> Plan:
    table = small_table()
    plan = plan_for(table, deep_ensemble(2), "mlp", SHORT)
    return replace(plan, train=TensorDataset(table.train.inputs, table.train.labels))


PLANS: dict[str, Callable[[], Plan]] = {
    "a kernel that may draw from the global generator": lambda: plan_for(
        small_table(), deep_ensemble(2, kernel=lambda x: x + torch.rand_like(x)), "mlp", SHORT
    ),
    "such a kernel among others": lambda: plan_for(
        small_table(), deep_ensemble(2, kernel=Compose((identity, lambda x: x + torch.rand_like(x)))), "mlp", SHORT
    ),
    "a measure that adapts": lambda: plan_for(small_table(), adapting(), "mlp", SHORT),
    "half precision": lambda: plan_for(small_table(), deep_ensemble(2), "mlp", replace(SHORT, precision="bfloat16")),
    "a stop rule": lambda: plan_for(
        small_table(), deep_ensemble(2), "mlp", replace(SHORT, schedule="constant", epochs_after_interpolation=1)
    ),
    "rows through a loader": through_a_loader,
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_that_one_program_would_change_go_elsewhere(name: str) -> None:
    plan = PLANS[name]()
    assert choose_engine(plan, 2) == "inline"
    with pytest.raises(InvalidArgument, match="engine must be another engine for"):
        fit(plan, engine="vectorized")
    first, again = fit(plan), fit(plan)
    for one, two in zip(first.networks, again.networks, strict=True):
        assert all(torch.equal(value, two.state_dict()[key]) for key, value in one.state_dict().items())


def test_a_kernel_that_takes_our_generator_can_stay() -> None:
    def noisy(inputs: Tensor, generator: Generator) -> Tensor:
        return inputs + torch.rand(inputs.shape, generator=generator)

    plan = plan_for(small_table(), deep_ensemble(2, kernel=noisy), "mlp", SHORT)
    assert choose_engine(plan, 2) == "vectorized"
    one, two = fit(plan, engine="inline"), fit(plan, engine="vectorized")
    for reference, fast in zip(one.networks, two.networks, strict=True):
        for name, value in reference.state_dict().items():
            assert torch.allclose(fast.state_dict()[name], value, atol=1e-5)


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_the_engine_that_is_chosen_gives_a_member_the_same_bits_alone_and_among_others(network: str) -> None:
    dataset = small_table() if network == "mlp" else small_images()
    whole = fit(plan_for(dataset, mixup_mp(members=3), network, SHORT))
    alone = fit(plan_for(dataset, mixup_mp(members=3), network, SHORT), members=(1,))
    single = fit(plan_for(dataset, mixup_mp_single(), network, SHORT))
    for fitted, member in ((alone, 1), (single, 0)):
        for name, value in fitted.networks[0].state_dict().items():
            assert torch.equal(value, whole.networks[member].state_dict()[name])


def test_networks_on_a_gpu_are_not_trained_in_the_one_program() -> None:
    """It has passes for a CPU; on a GPU members are fitted one by one."""
    plan = plan_for(small_table(), deep_ensemble(2), "mlp", SHORT)
    assert unsuited(plan) is None
    on_gpu = copy(plan)
    object.__setattr__(on_gpu, "device", "cuda:0")  # which a machine without one refuses otherwise
    assert unsuited(on_gpu) == "the device cuda:0"
    assert choose_engine(on_gpu, 2) == "inline"
