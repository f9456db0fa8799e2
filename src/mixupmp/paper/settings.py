"""What an experiment runs on at each scale: data, network, recipe, repeats, and what was reduced to get there.

`paper` is the paper's protocol. `cpu` keeps its regime, networks that interpolate their training rows and are
therefore over-confident, at a size that two cores can afford. `smoke` only shows that everything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from mixupmp.core.errors import UnknownName, check_dropout
from mixupmp.core.kernels import Kernel, cifar_kernel, identity
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior
from mixupmp.core.recipe import Recipe, paper_bootstrap, paper_clusters, paper_images
from mixupmp.core.rows import Dataset, Rows, split
from mixupmp.data import load
from mixupmp.networks import CNN, Network, ResNet18, named
from mixupmp.train.plans import plan_for

SCALES = ("smoke", "cpu", "paper")
SUBSET_SEED = 20240  # which rows a reduced training set has; the same for every experiment, so that members are shared


@dataclass(frozen=True)
class Setting:
    """Data, network, recipe and repeats of an experiment at one scale."""

    name: str  # the paper's name of the dataset
    dataset: Dataset
    network: str | Network
    recipe: Recipe
    reduced: str  # what differs from the paper's protocol
    kernel: Kernel = identity
    repeats: int = 3
    members: int = 4
    masks: int = 20

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.repeats))

    def plan(self, method: Method, seed: int, initial: Posterior | None = None) -> Plan:
        """This method on this setting. The network is built here, as a reduced one has no name."""
        network = self.network
        if isinstance(network, str):
            network = named(network, self.shape, len(self.dataset.classes), method.dropout)
        elif method.dropout:
            network = Network(network.path, {**network.arguments, "dropout": method.dropout})
        return plan_for(self.dataset, method, network, self.recipe, seed=seed, initial=initial)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.train.inputs.shape[1:])

    def describe(self) -> str:
        """In one line, for the output."""
        network = self.network if isinstance(self.network, str) else self.network.path.rpartition(".")[2]
        recipe = self.recipe
        return (
            f"{self.name}: {len(self.dataset.train)} training rows, {len(self.dataset.test)} test rows, {network}, "
            f"at most {recipe.epochs} epochs ({recipe.schedule}, rate {recipe.learning_rate}, "
            f"batch {recipe.batch_size}), B = {self.members}, {self.repeats} repeats"
        )


class PooledResNet(nn.Sequential):
    """The small-image ResNet on images of half the resolution: a residual network that two cores can afford."""

    def __init__(self, channels: int, outputs: int, width: int = 16, dropout: float = 0.0) -> None:
        check_dropout(dropout)
        super().__init__(nn.AvgPool2d(2), ResNet18(channels, outputs, width, dropout))


def subset(rows: Rows, count: int) -> Rows:
    """A stratified, fixed subset."""
    return split(rows, count / len(rows), SUBSET_SEED)[1] if count < len(rows) else rows


def _reduced(name: str, train: int, test: int) -> Dataset:
    dataset = load(name)
    return replace(dataset, train=subset(dataset.train, train), test=subset(dataset.test, test))


def digits(name: str) -> Setting:
    """The smoke scale of every image experiment."""
    recipe = Recipe(epochs=8, learning_rate=0.05, batch_size=64)
    dataset = load("digits")
    dataset = dataset.with_train(subset(dataset.train, 300))
    note = "smoke: 300 embedded digits, 8 epochs, 2 repeats, B = 2, 5 masks. Shows that it runs; decides nothing"
    return Setting(name, dataset, "cnn", recipe, note, repeats=2, members=2, masks=5)


def fashion_mnist(scale: str, network: str = "resnet18") -> Setting:
    """Fashion-MNIST: ResNet18 in the paper's tables, the CNN in its ablation; the CNN on a CPU."""
    if scale == "smoke":
        return digits("FMNIST")
    if scale == "paper":
        return Setting("FMNIST", load("fashion-mnist"), network, paper_images(), "nothing")
    recipe = Recipe(epochs=50, learning_rate=0.05, batch_size=64)
    note = (
        "cpu: 2,000 of 60,000 training rows, so that the network interpolates them as the paper's does; the CNN; "
        "50 one-cycle epochs at rate .05 in batches of 64, not 200 epochs by steps at rate .1 in batches of 128"
    )
    return Setting("FMNIST", _reduced("fashion-mnist", 2000, 10_000), "cnn", recipe, note)


def fashion_mnist_under_fitted(scale: str) -> Setting:
    """All 60,000 rows for a few epochs: networks that do not interpolate. The contrast to the paper's regime."""
    if scale == "smoke":
        setting = digits("FMNIST")
        return replace(setting, recipe=replace(setting.recipe, epochs=2), repeats=1)
    epochs = 3 if scale == "cpu" else 20
    recipe = Recipe(epochs=epochs, learning_rate=0.05)
    note = f"60,000 rows, the CNN, {epochs} one-cycle epochs: under-fitted on purpose; 1 repeat"
    return Setting("FMNIST", load("fashion-mnist"), "cnn", recipe, note, repeats=1)


def cifar10(scale: str) -> Setting:
    """CIFAR-10: WRN-28-10 in the paper; a small residual network on few rows on a CPU."""
    if scale == "smoke":
        return digits("CIFAR10")
    if scale == "paper":
        return Setting("CIFAR10", load("cifar10"), "wrn-28-10", paper_images(), "nothing", cifar_kernel())
    recipe = Recipe(epochs=24, learning_rate=0.1, batch_size=64)
    network = Network(f"{__name__}.PooledResNet", {"channels": 3, "outputs": 10, "width": 16})
    note = (
        "cpu: 2,000 of 50,000 training rows (decoded from JPEG) and 2,000 of 10,000 test rows; a ResNet of three "
        "stages, width 16, at half resolution; 24 one-cycle epochs in batches of 64; no cropping and flipping, with "
        "which so small a network does not interpolate in so few epochs; 2 repeats"
    )
    return Setting("CIFAR10", _reduced("cifar10", 2000, 2000), network, recipe, note, repeats=2)


def cifar100(scale: str) -> Setting:
    """CIFAR-100, which has no cpu scale here: a hundred classes need more rows than two cores can train on."""
    if scale == "smoke":
        return digits("CIFAR100")
    return Setting("CIFAR100", load("cifar100"), "wrn-28-10", paper_images(), "nothing", cifar_kernel())


def clusters(scale: str) -> Setting:
    """The 2-D example: the paper's protocol at every scale but smoke."""
    recipe = paper_clusters() if scale != "smoke" else replace(paper_clusters(), epochs=60)
    note = "nothing" if scale != "smoke" else "smoke: 60 epochs, not 10,000, and B = 2"
    members = 2 if scale == "smoke" else 10
    return Setting("clusters", load("clusters"), "mlp", recipe, note, repeats=1, members=members)


def homogeneous(dataset: str, scale: str) -> Setting:
    """MNIST or FMNIST with the bias-free CNN of the comparison of BB and DE, to interpolation and beyond."""
    paper_name, source = {"mnist": ("MNIST", "mnist"), "fmnist": ("FMNIST", "fashion-mnist")}[dataset]
    if scale == "smoke":
        setting = digits(paper_name)
        recipe = replace(paper_bootstrap(), epochs=40, learning_rate=0.02, batch_size=64)
        return replace(setting, network=_without_biases(setting.dataset), recipe=recipe, repeats=1)
    if scale == "paper":
        data = load(source)
        return Setting(paper_name, data, _without_biases(data), paper_bootstrap(), "nothing", repeats=1)
    data = _reduced(source, 1000, 4000)
    recipe = replace(paper_bootstrap(), epochs=300, learning_rate=0.02, batch_size=64)
    note = (
        "cpu: 1,000 of 60,000 training rows and 4,000 of 10,000 test rows; rate .02, not 5e-4; to 100% training "
        "accuracy, or 300 epochs where it is not reached, plus 200 epochs, not 1,000"
    )
    return Setting(paper_name, data, _without_biases(data), recipe, note, repeats=1)


def _without_biases(dataset: Dataset) -> Network:
    channels, height, width = dataset.train.inputs.shape[1:]
    arguments = {"channels": channels, "size": (height, width), "outputs": len(dataset.classes), "bias": False}
    return Network(f"{CNN.__module__}.CNN", arguments)


IMAGE_SETTINGS: dict[str, Callable[[str], Setting]] = {
    "fmnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
}


def image_setting(name: str, scale: str) -> Setting:
    """The setting of an image dataset by name."""
    if name not in IMAGE_SETTINGS:
        raise UnknownName("dataset of this experiment", name, IMAGE_SETTINGS)
    return IMAGE_SETTINGS[name](scale)
