"""What an experiment runs on at each scale: data, network, recipe, repeats, and how that differs from the paper.

`paper` is the paper's protocol. `cpu` keeps its regime, networks that interpolate their training rows and are
therefore over-confident, at a size that two cores can afford. `smoke` only shows that everything runs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources

import torch

from mixupmp.core.errors import UnknownName, check_known
from mixupmp.core.foreign import Json
from mixupmp.core.kernels import Kernel, identity
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import Recipe, paper_bootstrap, paper_clusters, paper_images
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.split import split
from mixupmp.data import load
from mixupmp.networks import NETWORKS, Network, named
from mixupmp.paper.protocols import TEXT, Protocol
from mixupmp.train.plans import plan_for

SCALES = ("smoke", "cpu", "paper")
PAPER_RECIPES = {"images": paper_images, "clusters": paper_clusters, "bootstrap": paper_bootstrap}
SUBSET_SEED = 20240  # of the rows of a reduced test set, the same for every experiment, so that fits are shared
WITH_BIASES = "-biases"  # ends the names of datasets in the comparison of BB and DE
INTERPOLATES = 0.98  # training accuracy from which on a fit is in the paper's regime


@dataclass(frozen=True, eq=False)
class Setting:
    """Data, network, recipe and repeats of an experiment at one scale.

    Parameters
    ----------
    name
        The paper's name of the dataset.
    source
        The name it is loaded by.
    train_rows, test_rows
        How many rows, where not all. Each repeat draws its own training rows; the test rows stay the same.
    calibration_rows
        How many of the rows that a repeat does not train on give its temperature; none where it trains on all.
    differences
        From the paper's text, each in a sentence.
    """

    name: str
    source: str
    network: str | Network
    recipe: Recipe
    differences: tuple[str, ...]
    train_rows: int | None = None
    test_rows: int | None = None
    calibration_rows: int = 0
    kernel: Kernel = identity
    repeats: int = 3
    members: int = 4
    masks: int = 20
    protocol: Protocol = TEXT
    device: str = "cpu"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.repeats))

    def under(
        self, protocol: Protocol, device: str = "cpu", precision: str = "float32", compiled: bool = False
    ) -> Setting:
        """The same experiment under a protocol, on a device, in a precision."""
        kernel = self.kernel if self.kernel is identity else protocol.cifar_kernel()
        recipe = replace(self.recipe, precision=precision, compile=compiled)  # type: ignore[arg-type]
        return replace(self, protocol=protocol, kernel=kernel, recipe=recipe, device=device)

    @property
    def all_differences(self) -> list[str]:
        """Everything in which a run differs from the paper's text."""
        about = (self.network_class, self.source, self.kernel is not identity, self.recipe.nesterov)
        found = [*(one.text for one in self.protocol.differences if one.applies(*about)), *self.differences]
        if self.test_rows is not None:
            found.append(f"{self.test_rows:,} test rows, not all")
        if self.recipe.precision != "float32":
            found.append(f"the forward pass is computed in {self.recipe.precision}")
        return found

    @cached_property
    def full(self) -> Dataset:
        """The whole dataset, scaled as the protocol says."""
        return self.protocol.dataset(load(self.source))

    @cached_property
    def test(self) -> Rows:
        """The rows that every repeat is evaluated on."""
        return self.full.test.take(self.test_indices)

    @cached_property
    def test_indices(self) -> torch.Tensor:
        """Where those lie in the publisher's test set."""
        return subset_indices(self.full.test, self.test_rows)

    def dataset(self, seed: int) -> Dataset:
        """The dataset with the training rows of one repeat."""
        return replace(self.full, train=self._drawn(seed)[0], test=self.test)

    def calibration(self, seed: int) -> Rows | None:
        """Rows that this repeat is not trained on, for its temperature."""
        return self._drawn(seed)[1]

    def _drawn(self, seed: int) -> tuple[Rows, Rows | None]:
        found: dict[int, tuple[Rows, Rows | None]] = self.__dict__.setdefault("_rows_by_seed", {})
        if seed not in found:
            found[seed] = self._draw(seed)
        return found[seed]

    def _draw(self, seed: int) -> tuple[Rows, Rows | None]:
        everything = self.full.train
        if self.train_rows is None or self.train_rows >= len(everything):
            return everything, None
        rest, train = split(everything, self.train_rows / len(everything), SUBSET_SEED + seed)
        if not self.calibration_rows:
            return train, None
        return train, split(rest, self.calibration_rows / len(rest), SUBSET_SEED + seed)[1]

    def plan(self, method: Method, seed: int) -> Plan:
        """This method on one repeat's training rows, under the protocol."""
        dataset = self.dataset(seed)
        network = self.sized_network(tuple(dataset.train.inputs.shape[1:]), len(dataset.classes), method.dropout)
        recipe = self.protocol.recipe(self.recipe)
        return plan_for(dataset, self.protocol.method(method), network, recipe, seed=seed, device=self.device)

    def sized_network(self, shape: tuple[int, ...], classes: int, dropout: float = 0.0) -> Network:
        """The network for inputs of this shape."""
        network = self.network
        if isinstance(network, str):
            network = named(network, shape, classes, dropout)
        elif dropout:
            network = Network(network.path, {**network.arguments, "dropout": dropout})
        return self.protocol.network(network)

    @property
    def network_class(self) -> str:
        """The name of its class."""
        if isinstance(self.network, Network):
            return self.network.path.rpartition(".")[2]
        return next(entry.cls.__name__ for entry in NETWORKS.values() if entry.numbers_in(self.network) is not None)

    @property
    def network_name(self) -> str:
        return self.network if isinstance(self.network, str) else self.network.path.rpartition(".")[2]

    def describe(self) -> str:
        """One line for captions and the terminal."""
        train = self.train_rows or len(self.full.train)
        recipe = self.recipe
        return (
            f"{self.name}: {train} training rows, {len(self.test)} test rows, {self.network_name}, "
            f"at most {recipe.epochs} epochs ({recipe.schedule}, rate {recipe.learning_rate}, "
            f"batch {recipe.batch_size}), B = {self.members}, {self.repeats} repeats, protocol {self.protocol.name}"
        )


def mean_training_accuracy(evaluations: Sequence[Mapping[str, Json]]) -> float | None:
    """Over the runs of a line that have a posterior."""
    reached = [one["training_accuracy"] for one in evaluations if one.get("training_accuracy") is not None]
    return sum(reached) / len(reached) if reached else None


def comparable(evaluations: Sequence[Mapping[str, Json]]) -> bool:
    """Whether a line is in the paper's regime, where networks interpolate; so is one without training accuracies."""
    reached = mean_training_accuracy(evaluations)
    return reached is None or reached >= INTERPOLATES


def on_shared_repeats(lines: Sequence[Sequence[Mapping[str, Json]]]) -> list[list[Mapping[str, Json]]]:
    """The evaluations of each line on the repeats that all lines have, where these are two or more; else all of each.

    Repeats have their own training rows, on which all methods do better or worse: while a run is not finished, lines
    with other repeats are not to be compared.
    """
    seeds = [{one.get("seed") for one in many} for many in lines]
    shared = set.intersection(*seeds) - {None} if seeds else set()
    if len(shared) < 2:
        return [list(many) for many in lines]
    return [[one for one in many if one["seed"] in shared] for many in lines]


def subset_indices(rows: Rows, count: int | None) -> torch.Tensor:
    """Places of a stratified, fixed subset of this many rows, in their order."""
    if count is None or count >= len(rows):
        return torch.arange(len(rows))
    places = Rows(torch.arange(len(rows))[:, None], rows.labels)
    return split(places, count / len(rows), SUBSET_SEED)[1].inputs[:, 0]


def setting_named(name: str, scale: str) -> Setting:
    """The setting of this name at a scale, from `settings.toml`; all image experiments share one smoke scale."""
    listed = tomllib.loads(resources.files("mixupmp.paper").joinpath("settings.toml").read_text())
    check_known("setting", name, listed)
    entry = {**listed.get(listed[name].get("like", ""), {}), **listed[name]}
    if scale not in entry:
        if scale != "smoke":
            raise UnknownName(f"scale of {name}", scale, entry)
        return replace(setting_named("digits", "smoke"), name=entry["name"])
    chosen: dict[str, Json] = {"source": entry.get("source", name), "name": entry["name"], **entry[scale]}
    recipe = chosen.pop("recipe")
    recipe = PAPER_RECIPES[recipe]() if isinstance(recipe, str) else Recipe(**_without_all(recipe))
    if arguments := chosen.pop("arguments", None):
        chosen["network"] = Network(chosen["network"], arguments)
    if chosen.pop("augmented", False):
        chosen["kernel"] = TEXT.cifar_kernel()
    differences = tuple(chosen.pop("differences", ()))
    return Setting(recipe=recipe, differences=differences, **chosen)


def _without_all(recipe: dict[str, Json]) -> dict[str, Json]:
    """TOML has no null: a batch of all rows is written "all"."""
    return {key: None if value == "all" else value for key, value in recipe.items()}


def homogeneous(dataset: str, scale: str, protocol: Protocol = TEXT) -> Setting:
    """MNIST or FMNIST with the bias-free CNN of the comparison of BB and DE, to interpolation and beyond.

    The datasets `mnist-biases` and `fmnist-biases` are the same with biases, of which appendix A.1 says that they make
    little difference.
    """
    plain = dataset.removesuffix(WITH_BIASES)
    setting = setting_named(f"{plain}-homogeneous", scale)
    network = setting.sized_network((1, 8, 8) if scale == "smoke" else (1, 28, 28), 10)
    biases = plain != dataset
    network = Network(network.path, {**network.arguments, "bias": biases})
    differs = f"the CNN has {'biases' if biases else 'no biases'}, as appendix D does not say whether theirs has any"
    differences = (*setting.differences, differs)
    name = setting.name + (" with biases" if biases else "")
    found = replace(setting, network=network, name=name, differences=differences)
    if scale != "paper":
        return found
    momentum = protocol.bootstrap_momentum
    if momentum:
        differences += (f"momentum {momentum:g} (the authors' code has no script for this comparison)",)
    return replace(found, recipe=replace(setting.recipe, momentum=momentum), differences=differences)
