"""What an experiment runs on at each scale: data, network, recipe, repeats, and how that differs from the paper.

`paper` is the paper's protocol. `cpu` keeps its regime, networks that interpolate their training rows and are
therefore over-confident, at a size that two cores can afford. `smoke` only shows that everything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from mixupmp.core.errors import UnknownName, check_dropout
from mixupmp.core.kernels import Kernel, identity
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import Recipe, paper_bootstrap, paper_clusters, paper_images
from mixupmp.core.rows import Dataset, Rows, split
from mixupmp.data import load
from mixupmp.networks import Network, ResNet18, named
from mixupmp.paper.protocols import TEXT, Protocol
from mixupmp.train.plans import plan_for

SCALES = ("smoke", "cpu", "paper")
SUBSET_SEED = 20240  # of the rows of a reduced test set, the same for every experiment, so that fits are shared
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
        found = [*self.protocol.differences, *self.differences]
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


class PooledResNet(nn.Sequential):
    """The small-image ResNet on images of half the resolution: a residual network that two cores can afford."""

    def __init__(self, channels: int, outputs: int, width: int = 16, dropout: float = 0.0) -> None:
        check_dropout(dropout)
        super().__init__(nn.AvgPool2d(2), ResNet18(channels, outputs, width, dropout))


def subset_indices(rows: Rows, count: int | None) -> torch.Tensor:
    """Places of a stratified, fixed subset of this many rows, in their order."""
    if count is None or count >= len(rows):
        return torch.arange(len(rows))
    places = Rows(torch.arange(len(rows))[:, None], rows.labels)
    return split(places, count / len(rows), SUBSET_SEED)[1].inputs[:, 0]


def digits(name: str) -> Setting:
    """The smoke scale of every image experiment."""
    return Setting(
        name,
        "digits",
        "cnn",
        Recipe(epochs=8, learning_rate=0.05, batch_size=64),
        ("smoke: 300 embedded digits, the CNN, 8 epochs, 2 repeats, B = 2, 5 masks; shows that it runs",),
        train_rows=300,
        calibration_rows=100,
        repeats=2,
        members=2,
        masks=5,
    )


def fashion_mnist(scale: str, network: str = "resnet18") -> Setting:
    """Fashion-MNIST: ResNet18 in the paper's tables, the CNN in its ablation; the CNN on a CPU."""
    if scale == "smoke":
        return digits("FMNIST")
    if scale == "paper":
        return Setting("FMNIST", "fashion-mnist", network, paper_images(), ())
    return Setting(
        "FMNIST",
        "fashion-mnist",
        "cnn",
        Recipe(epochs=100, learning_rate=0.05, batch_size=64),
        (
            "5,000 of 60,000 training rows, drawn anew for each repeat, so that the network interpolates them",
            "the CNN in place of ResNet18",
            "100 one-cycle epochs at rate .05 in batches of 64, not 200 epochs by steps at rate .1 in batches of 128",
            "5 repeats, not 3",
        ),
        train_rows=5000,
        calibration_rows=2000,
        repeats=5,
    )


def fashion_mnist_full(scale: str) -> Setting:
    """All 60,000 rows and the CNN, trained until it interpolates them."""
    if scale == "smoke":
        return digits("FMNIST")
    if scale == "paper":
        return Setting("FMNIST", "fashion-mnist", "cnn", paper_images(), ())
    return Setting(
        "FMNIST",
        "fashion-mnist",
        "cnn",
        Recipe(epochs=100, learning_rate=0.05, batch_size=128, weight_decay=0.0),
        ("100 one-cycle epochs at rate .05 without weight decay, so that the CNN interpolates; 2 repeats, not 3",),
        repeats=2,
    )


def fashion_mnist_under_fitted(scale: str) -> Setting:
    """All 60,000 rows for a few epochs: networks that do not interpolate. The contrast to the paper's regime."""
    if scale == "smoke":
        setting = digits("FMNIST")
        return replace(setting, recipe=replace(setting.recipe, epochs=2), repeats=1)
    epochs = 3 if scale == "cpu" else 20
    note = f"60,000 rows, the CNN, {epochs} one-cycle epochs: under-fitted on purpose; 1 repeat"
    recipe = Recipe(epochs=epochs, learning_rate=0.05)
    return Setting("FMNIST", "fashion-mnist", "cnn", recipe, (note,), repeats=1)


def cifar10(scale: str) -> Setting:
    """CIFAR-10: WRN-28-10 in the paper; a small residual network on few rows on a CPU."""
    if scale == "smoke":
        return digits("CIFAR10")
    if scale == "paper":
        return Setting("CIFAR10", "cifar10", "wrn-28-10", paper_images(), (), kernel=TEXT.cifar_kernel())
    return Setting(
        "CIFAR10",
        "cifar10",
        Network(f"{__name__}.PooledResNet", {"channels": 3, "outputs": 10, "width": 16}),
        Recipe(epochs=50, learning_rate=0.1, batch_size=64),
        (
            "5,000 of 50,000 training rows, drawn anew for each repeat, and 4,000 of 10,000 test rows",
            "a ResNet of three stages, width 16, at half resolution, in place of WRN-28-10",
            "50 one-cycle epochs at rate .1 in batches of 64, not 200 epochs by steps in batches of 128",
            "no crops and flips, with which so small a network does not interpolate in so few epochs",
        ),
        train_rows=5000,
        test_rows=4000,
        calibration_rows=2000,
    )


def cifar100(scale: str) -> Setting:
    """CIFAR-100, which has no cpu scale: a hundred classes need more rows than two cores can train on."""
    if scale == "smoke":
        return digits("CIFAR100")
    return Setting("CIFAR100", "cifar100", "wrn-28-10", paper_images(), (), kernel=TEXT.cifar_kernel())


def clusters(scale: str) -> Setting:
    """The 2-D example: the paper's protocol at every scale but smoke."""
    if scale == "smoke":
        recipe, note = replace(paper_clusters(), epochs=60), ("smoke: 60 epochs, not 10,000, and B = 2",)
        return Setting("clusters", "clusters", "mlp", recipe, note, repeats=1, members=2)
    return Setting("clusters", "clusters", "mlp", paper_clusters(), (), repeats=1, members=10)


def homogeneous(dataset: str, scale: str, protocol: Protocol = TEXT) -> Setting:
    """MNIST or FMNIST with the bias-free CNN of the comparison of BB and DE, to interpolation and beyond."""
    name, source = {"mnist": ("MNIST", "mnist"), "fmnist": ("FMNIST", "fashion-mnist")}[dataset]
    side = 8 if scale == "smoke" else 28
    network = Network("mixupmp.networks.CNN", {"channels": 1, "size": (side, side), "outputs": 10, "bias": False})
    if scale == "paper":
        recipe = replace(paper_bootstrap(), momentum=protocol.bootstrap_momentum)
        return Setting(name, source, network, recipe, (), repeats=1)
    recipe = replace(paper_bootstrap(), learning_rate=0.02, batch_size=64)
    if scale == "smoke":
        setting = replace(digits(name), network=network, repeats=1, calibration_rows=0)
        return replace(setting, recipe=replace(recipe, epochs=40))
    return Setting(
        name,
        source,
        network,
        replace(recipe, epochs=300),
        (
            "1,000 of 60,000 training rows, drawn anew for each repeat, and 4,000 of 10,000 test rows",
            "SGD at rate .02 with momentum .9: plain SGD at rate 5e-4 learns 1,000 rows in some 10,000 epochs",
            "to 100% training accuracy, or 300 epochs where it is not reached, plus 200 epochs, not 1,000",
            "3 repeats, not 1",
        ),
        train_rows=1000,
        test_rows=4000,
    )


IMAGE_SETTINGS: dict[str, Callable[[str], Setting]] = {
    "fmnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "fmnist-cnn": lambda scale: fashion_mnist(scale, "cnn"),
    "fmnist-full": fashion_mnist_full,
    "fmnist-under-fitted": fashion_mnist_under_fitted,
}


def image_setting(name: str, scale: str) -> Setting:
    """The setting of an image dataset by name."""
    if name not in IMAGE_SETTINGS:
        raise UnknownName("dataset of this experiment", name, IMAGE_SETTINGS)
    return IMAGE_SETTINGS[name](scale)
