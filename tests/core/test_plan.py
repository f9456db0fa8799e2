from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset

from mixupmp.core.base_measures import Mixup
from mixupmp.core.batch import Batch
from mixupmp.core.errors import BadData, InvalidArgument, MixupMPError, UnknownName
from mixupmp.core.kernels import PadCrop, cifar_kernel
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.methods import Method, ca_mixup_mc, deep_ensemble, mc_dropout, mixup_mp
from mixupmp.core.plan import Plan, initial_weights
from mixupmp.core.posterior import Task
from mixupmp.core.predictive import Predictive
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, Standardize
from mixupmp.core.samplers import Ensemble
from mixupmp.core.spec import encode
from mixupmp.core.streams import DatasetRows
from mixupmp.networks import MLP, Network
from mixupmp.train.plans import plan_for, recipe_for
from mixupmp.train.processes import load_plan, store_plan
from mixupmp.train.run import fit

SHORT = Recipe(epochs=1, batch_size=16)


def small_mlp() -> nn.Module:
    return MLP(4, 3)


class Mine:
    """A base measure of the user's that is no dataclass and has no repr of its own."""

    def __init__(self, alpha: float) -> None:
        self.inner = Mixup(alpha)

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        return self.inner.sample(seen, count, generator)


def test_a_plan_sizes_a_named_network_to_the_data(table: Dataset, images: Dataset) -> None:
    plan = plan_for(table, mc_dropout(dropout=0.2), "mlp", SHORT)
    assert plan.network == Network("mixupmp.networks.MLP", {"features": 4, "outputs": 3, "dropout": 0.2})
    assert plan.task == Task(Categorical(3), table.standardize, (4,), ("a", "b", "c"))
    assert plan_for(images, deep_ensemble(), "cnn").network == Network(
        "mixupmp.networks.CNN", {"channels": 1, "outputs": 3, "dropout": 0.0, "size": (20, 20)}
    )
    assert plan_for(images, deep_ensemble()).recipe == recipe_for(len(images.train), "images")
    assert plan_for(table, deep_ensemble()).recipe == recipe_for(len(table.train), "table")


def test_a_method_that_adapts_keeps_rows_back(table: Dataset) -> None:
    plan = plan_for(table, ca_mixup_mc(validation_fraction=0.2), "mlp", SHORT, seed=3)
    assert plan.validation is not None
    assert isinstance(plan.train, Rows)
    assert (len(plan.train), len(plan.validation)) == (48, 12)
    everything = torch.cat([plan.train.inputs, plan.validation.inputs])
    assert torch.equal(everything.sort(0).values, table.train.inputs.sort(0).values)
    given = plan_for(table, ca_mixup_mc(validation_fraction=0.2), "mlp", SHORT, validation=table.test)
    assert given.validation is table.test
    assert given.train is table.train


def test_rows_are_seen_in_memory_and_datasets_through_a_loader(table: Dataset) -> None:
    plan = plan_for(table, deep_ensemble(), "mlp", SHORT)
    assert isinstance(plan.training_data().rows, Rows)
    loaded = replace(plan, train=TensorDataset(table.train.inputs, table.train.labels))
    assert isinstance(loaded.training_data().rows, DatasetRows)
    assert loaded.document()["fingerprints"] == {"rows": 60}


def test_a_plan_describes_itself_as_plain_json(images: Dataset) -> None:
    plan = plan_for(images, mixup_mp(inf, kernel=cifar_kernel()), "cnn", SHORT, seed=5, validation=images.test)
    document = plan.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    spec = document["spec"]
    assert spec["seed"] == 5
    assert spec["method"]["predictive"]["ratio"] == "inf"
    assert spec["method"]["predictive"]["base"] == {"type": "Mixup", "alpha": 2.0}
    assert spec["recipe"]["epochs"] == 1
    assert document["fingerprints"]["rows"] == 48
    assert document["fingerprints"]["sha256"] == images.train.fingerprint()
    assert document["fingerprints"]["validation_sha256"] == images.test.fingerprint()


CHANGES: dict[str, Callable[[Plan], Plan]] = {
    "seed": lambda plan: replace(plan, seed=1),
    "recipe": lambda plan: replace(plan, recipe=replace(SHORT, learning_rate=0.2)),
    "ratio": lambda plan: replace(plan, method=mixup_mp(0.3)),
    "kernel": lambda plan: replace(plan, method=mixup_mp(kernel=PadCrop(1))),
    "network": lambda plan: replace(plan, network=partial(MLP, 4, 3, (9,))),
    "a setting of a factory": lambda plan: replace(plan, network=partial(MLP, 4, 3, (8,))),
    "a row": lambda plan: replace(plan, train=Rows(plan.train.inputs + 1, plan.train.labels)),  # type: ignore[union-attr]
    "weights": lambda plan: replace(plan, train=Rows(plan.train.inputs, plan.train.labels, torch.ones(60))),  # type: ignore[union-attr]
    "task": lambda plan: replace(plan, task=replace(plan.task, standardize=Standardize())),
    "start": lambda plan: replace(plan, initial=[MLP(4, 3).state_dict() for _ in range(4)]),
    "own measure": lambda plan: replace(plan, method=Method("mine", Predictive(1.0, Mine(1.0)), Ensemble(4))),
    "own measure's setting": lambda plan: replace(plan, method=Method("mine", Predictive(1.0, Mine(2.0)), Ensemble(4))),
}


def test_whatever_changes_the_bits_changes_the_description(table: Dataset) -> None:
    plan = plan_for(table, mixup_mp(), "mlp", SHORT)
    torch.manual_seed(0)
    descriptions = [json.dumps(change(plan).document()) for change in (lambda plan: plan, *CHANGES.values())]
    assert len(set(descriptions)) == len(descriptions)


SCRIPT = """
import sys; sys.path.insert(0, {here!r})
from test_plan import described
print(described())
"""


def described() -> str:
    """Callables of every kind, described."""
    base = Method("mine", Predictive(1.0, Mine(1.0), Doubled()), Ensemble(2))
    functions = [small_mlp, lambda: {"a", "b", "c"}, partial(small_mlp), partial(MLP, 4, hidden=(8,)), Kernel(3).act]
    values: list[Any] = [*functions, base, PadCrop(2), Predictive(kernel=Kernel(3).act)]
    return json.dumps([encode(value) for value in values])


class Doubled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 2


class Kernel:
    def __init__(self, amount: float) -> None:
        self.amount = amount

    def act(self, inputs: Tensor) -> Tensor:
        return inputs * self.amount


def test_descriptions_are_the_same_in_another_process() -> None:
    """A description with a memory address in it would refuse every resume."""
    assert "0x" not in described()
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(here=here)], capture_output=True, text=True, check=True, timeout=120
    )
    elsewhere = done.stdout.strip().splitlines()[-1]
    assert elsewhere == described().replace(__name__, "test_plan")


def test_a_stored_plan_comes_back(table: Dataset, tmp_path: Path) -> None:
    rows = Rows(table.train.inputs, table.train.labels, torch.rand(60))
    plan = plan_for(table.with_train(rows), mixup_mp(), lambda: MLP(4, 3), SHORT, validation=table.test)
    back = load_plan(store_plan(plan, tmp_path))
    assert isinstance(back.train, Rows)
    assert back.train.fingerprint() == rows.fingerprint()
    assert back.validation is not None
    assert back.validation.fingerprint() == table.test.fingerprint()
    assert back.method == plan.method
    assert (back.recipe, back.task, back.seed) == (plan.recipe, plan.task, plan.seed)
    assert isinstance(plan.train, Rows)  # the plan itself is not changed by it
    assert plan.train is rows


def test_starting_weights_are_copies_of_a_posteriors(table: Dataset) -> None:
    posterior = fit(plan_for(table, deep_ensemble(2), "mlp", SHORT), engine="inline")
    weights = initial_weights(posterior)
    assert weights is not None
    assert len(weights) == 2
    with torch.no_grad():
        posterior.networks[0].get_parameter("1.weight").zero_()
    assert float(weights[0]["1.weight"].abs().sum()) > 0
    assert initial_weights(None) is None


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


@dataclass(frozen=True)
class NotCalled:
    width: int = 3


def rows_of(inputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, train=Rows(inputs, labels, weights))


ZEROS, LABELS = torch.zeros(6, 4), torch.arange(6) % 3


def spoilt(value: float) -> Tensor:
    inputs = torch.zeros(6, 4)
    inputs[2, 1] = value
    return inputs


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda plan: replace(plan, seed=1.5), InvalidArgument, "seed must be a whole number"),
        (lambda plan: replace(plan, seed="0"), InvalidArgument, "seed must be"),
        (lambda plan: replace(plan, seed=True), InvalidArgument, "seed must be"),
        (lambda plan: replace(plan, network=MLP(4, 3)), InvalidArgument, "network must be a factory, not a network"),
        (lambda plan: replace(plan, network=NotCalled()), InvalidArgument, "network must be"),
        (lambda plan: replace(plan, method="deep-ensemble"), InvalidArgument, "method must be a Method"),
        (lambda plan: replace(plan, method=deep_ensemble), InvalidArgument, "method must be a Method"),
        (lambda plan: replace(plan, recipe={"epochs": 3}), InvalidArgument, "recipe must be a Recipe"),
        (lambda plan: replace(plan, train=ZEROS), InvalidArgument, "train must be Rows or a torch Dataset"),
        (lambda plan: replace(plan, train=Endless()), InvalidArgument, "rows must be the rows of an epoch"),
        (lambda plan: replace(plan, train=TensorDataset(torch.zeros(0, 4))), BadData, "empty"),
        (lambda plan: replace(plan, device="gpu"), InvalidArgument, "device must be"),
        (lambda plan: replace(plan, device="meta"), InvalidArgument, "device must be"),
        (lambda plan: replace(plan, initial=[{}]), InvalidArgument, "initial must be at least 4 members"),
        (lambda plan: replace(plan, method=ca_mixup_mc()), InvalidArgument, "validation must be rows"),
        (rows_of(ZEROS[:0], LABELS[:0]), BadData, "training data is empty"),
        (rows_of(ZEROS, LABELS[:5]), BadData, "6 rows of inputs but 5 labels"),
        (rows_of(ZEROS, LABELS + 1), BadData, r"labels must lie in 0..2 for 3 classes, found 3"),
        (rows_of(ZEROS, LABELS - 1), BadData, "found -1"),
        (rows_of(ZEROS, LABELS * 0), BadData, "training labels are all 0"),
        (rows_of(spoilt(float("nan")), LABELS), BadData, "NaN or infinity .first in row 2"),
        (rows_of(spoilt(inf), LABELS), BadData, "NaN or infinity .first in row 2"),
        (rows_of(torch.zeros(6, 5), LABELS), BadData, r"training inputs have shape \(5,\), the task's is \(4,\)"),
        (rows_of(ZEROS, LABELS, torch.ones(5)), BadData, "weights of shape"),
        (rows_of(ZEROS, LABELS, -torch.ones(6)), BadData, "weights must be finite and at least 0"),
        (lambda plan: replace(plan, validation=Rows(ZEROS[:, :3], LABELS)), BadData, "validation inputs have shape"),
        (lambda plan: replace(plan, validation=Rows(ZEROS, LABELS + 3)), BadData, "validation labels must lie"),
    ],
)
def test_bad_plans_are_refused(
    change: Callable[[Plan], Plan], kind: type[MixupMPError], message: str, table: Dataset
) -> None:
    with pytest.raises(kind, match=message):
        change(plan_for(table, deep_ensemble(4), "mlp", SHORT))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_before_anything_starts(table: Dataset) -> None:
    with pytest.raises(InvalidArgument, match="device must be"):
        plan_for(table, deep_ensemble(), "mlp", SHORT, device="cuda")


@pytest.mark.parametrize("there", [True, False])
def test_auto_is_a_gpu_where_there_is_one(table: Dataset, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    made = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, device="cpu", **rest: made.append(device) or empty(*size, **rest))
    assert plan_for(table, deep_ensemble(), "mlp", SHORT, device="auto").device == ("cuda" if there else "cpu")
    assert ("cuda" in made) == there


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Rows(ZEROS[:0], torch.zeros(0)), "training data is empty"),
        (Rows(ZEROS, torch.zeros(5)), "6 rows of inputs but 5 labels"),
        (Rows(spoilt(float("nan")), torch.zeros(6)), "NaN or infinity"),
        (Rows(ZEROS, torch.tensor([0, 0, 0, 0, 0, float("nan")])), "labels hold NaN or infinity"),
        (Rows(ZEROS, torch.zeros(6), torch.zeros(6)), "weights must be"),
        (Rows(torch.zeros(6, 3), torch.zeros(6)), "training inputs have shape"),
    ],
)
def test_bad_rows_of_a_regression_are_refused(rows: Rows, message: str) -> None:
    with pytest.raises(BadData, match=message):
        Plan(deep_ensemble(2), lambda: MLP(4, 2), rows, Task(Gaussian(), Standardize(), (4,)), SHORT)


def test_a_base_measure_that_adapts_needs_classes() -> None:
    rows = Rows(ZEROS, torch.zeros(6))
    task = Task(Gaussian(), Standardize(), (4,))
    with pytest.raises(InvalidArgument, match="likelihood must be Categorical"):
        Plan(ca_mixup_mc(), lambda: MLP(4, 2), rows, task, SHORT, validation=rows)


def test_an_unknown_network_is_told_with_the_nearest(table: Dataset) -> None:
    with pytest.raises(UnknownName, match=r"unknown network 'mpl'\. Did you mean 'mlp'"):
        plan_for(table, deep_ensemble(), "mpl")


def test_training_rows_are_copied_to_the_device_once(table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixupmp.core.plan._resolved_device", str)  # "meta" has no numbers to train on
    plan = replace(plan_for(table, deep_ensemble(), "mlp", SHORT), device="meta")
    first, second = plan.training_data(), replace(plan, seed=1).training_data()
    assert first.rows is second.rows
    assert isinstance(first.rows, Rows)
    assert first.rows.inputs.device.type == "meta"


def test_a_varied_plan_builds_its_first_network_once(table: Dataset) -> None:
    built = []

    def build() -> nn.Module:
        built.append(nn.Linear(4, 3))
        return built[-1]

    plan = plan_for(table, mixup_mp(1.0, 2.0, 2), build, SHORT)
    others = [plan.varied(deep_ensemble(2)), plan.varied(recipe=replace(SHORT, epochs=3)), plan.on(table.test)]
    assert len(built) == 1
    weights = [other.build(0).weight for other in (plan, *others)]
    assert len(built) == 1
    assert all(torch.equal(weights[0], weight) for weight in weights)
    assert len({weight.data_ptr() for weight in weights}) == 4
    assert plan.varied(mc_dropout(2)).template is not plan.template  # another sampler may change the network
