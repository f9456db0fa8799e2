"""The two protocols of the reproduction: what the paper's text says, and what the authors' published code does.

They differ in places that the paper does not mention. Each difference is a field here, so that a run is one or the
other by name, and `run.json` lists what it does differently from the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator

from mixupmp.core.base_measures import Mixup, mix
from mixupmp.core.batch import Batch
from mixupmp.core.errors import check, check_known
from mixupmp.core.kernels import Compose, HorizontalFlip, Kernel, PadCrop, RandomResizedCrop
from mixupmp.core.methods import Method
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Standardize
from mixupmp.networks import Network
from mixupmp.paper.networks import AUTHORS_NETWORKS


@dataclass(frozen=True)
class Difference:
    """What a protocol does differently from the paper's text, and where: each condition that is given must hold.

    Parameters
    ----------
    networks, datasets
        The classes of networks and the sources of data that it is about; none: all.
    augmented, nesterov
        Whether it is only about settings with a kernel, or with Nesterov momentum in the text.
    """

    text: str
    networks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    augmented: bool = False
    nesterov: bool = False

    def applies(self, network: str, dataset: str, augmented: bool, nesterov: bool) -> bool:
        """Whether it is one for this network (its class) and dataset."""
        named = (not self.networks or network in self.networks) and (not self.datasets or dataset in self.datasets)
        return named and augmented >= self.augmented and nesterov >= self.nesterov


@dataclass(frozen=True)
class Protocol:
    """Every choice in which the paper's text and the authors' code differ.

    Parameters
    ----------
    normalize
        "total": the loss of Algorithm 2 over its total weight n (1 + r); "rows": over its n + t rows, which scales the
        gradient by (1 + r) / 2 against the same weight decay.
    pairs
        "independent": both rows of a blend are drawn from the batch; "permuted": a permutation of the batch pairs
        each row with another.
    initialization
        Of the convolutions: torch's default, or Xavier uniform with gain sqrt(2) and biases of zero in the CNN and
        the Wide-ResNet, and He normal over the fan-out in the ResNet18 and the pooled one; with it come the authors'
        networks, with momentum .9 in the Wide-ResNet's last BatchNorm and dropout after the CNN's convolutions too.
    scaling
        How images of a dataset are scaled, where not by the mean and deviation of its training pixels.
    bootstrap_momentum
        Momentum of SGD in the comparison of BB and DE.
    """

    name: str
    normalize: Literal["total", "rows"]
    pairs: Literal["independent", "permuted"]
    nesterov: bool
    initialization: Literal["torch", "xavier"]
    scaling: Mapping[str, Standardize]
    crop: Literal["pad-crop", "random-resized-crop"]
    bootstrap_momentum: float
    differences: tuple[Difference, ...]  # from the paper's text

    def method(self, method: Method) -> Method:
        """The method with this protocol's loss and pairs."""
        predictive = replace(method.predictive, normalize=self.normalize)
        if self.pairs == "permuted" and type(predictive.base) is Mixup:
            predictive = replace(predictive, base=PermutedMixup(predictive.base.alpha))
        return replace(method, predictive=predictive)

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe with this protocol's momentum."""
        return replace(recipe, nesterov=recipe.nesterov and self.nesterov)

    def dataset(self, dataset: Dataset) -> Dataset:
        """The dataset with this protocol's scaling."""
        return replace(dataset, standardize=self.scaling.get(dataset.name, dataset.standardize))

    def cifar_kernel(self) -> Kernel:
        """H^aug of the CIFAR experiments."""
        crop: Kernel = PadCrop(4) if self.crop == "pad-crop" else RandomResizedCrop()
        return Compose((crop, HorizontalFlip()))

    def network(self, network: Network) -> Network:
        """The network with this protocol's initialization, BatchNorm and places of dropout."""
        if self.initialization == "torch":
            return network
        name = network.path.rpartition(".")[2]
        found = AUTHORS_NETWORKS.get(name)
        return network if found is None else Network(f"{found.__module__}.{found.__name__}", network.arguments)


@dataclass(frozen=True)
class PermutedMixup:
    """Mixup of each row with its partner under a permutation of the batch: the authors' pairs.

    x' = lambda x_i + (1 - lambda) x_pi(i) with lambda ~ Beta(alpha, alpha) for each row. Every row of the batch is
    in as many pairs as any other, where independent draws leave a third of them out.
    """

    alpha: float = 1.0

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        rows = len(seen.inputs)
        check(count <= rows, "pseudo_batch_size", count, f"at most the {rows} rows of the batch with permuted pairs")
        first = torch.randperm(rows, generator=generator)[:count]
        second = first[torch.randperm(count, generator=generator)]
        plain = Mixup(self.alpha)
        share = plain.share(plain.draw(count, generator))
        device = seen.inputs.device
        return mix(seen, first.to(device), second.to(device), share.to(device))


SMALL_RESNET = Difference(
    "the ResNet18 has three stages and no max-pool, as in the authors' code, where He et al.'s has four stages and one",
    networks=("ResNet18",),
)
TEXT = Protocol(
    name="text",
    normalize="total",
    pairs="independent",
    nesterov=True,
    initialization="torch",
    scaling={},
    crop="random-resized-crop",
    bootstrap_momentum=0.0,
    differences=(
        Difference(
            "the sum of Algorithm 2 is divided by its total weight n_mb (1 + r), as the text leaves its scale open"
        ),
        Difference("weights start from torch's default, as the text does not say"),
        Difference(
            "images are scaled by the mean and deviation of all training pixels, as the text does not say",
            datasets=("mnist", "fashion-mnist", "cifar10", "cifar100"),
        ),
        SMALL_RESNET,
        Difference("seeds and the order of rows are ours"),
    ),
)
AUTHORS = Protocol(
    name="authors",
    normalize="rows",
    pairs="permuted",
    nesterov=False,
    initialization="xavier",
    scaling={
        "cifar10": Standardize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        "cifar100": Standardize((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    },
    crop="pad-crop",
    bootstrap_momentum=0.9,
    differences=(
        Difference("the loss is the mean over n_mb + t_mb rows, which scales the gradient by (1 + r) / 2"),
        Difference(
            "the rows of a blend are paired by a permutation of the batch, not drawn independently (but for "
            "CAMixup-MC, which the authors' code does not have)"
        ),
        Difference("momentum without Nesterov", nesterov=True),
        Difference(
            "convolutions start from Xavier uniform with gain sqrt(2) and biases of 0", networks=("CNN", "WideResNet")
        ),
        Difference("convolutions start from He normal over the fan-out", networks=("ResNet18",)),
        Difference(
            "convolutions start from He normal over the fan-out, as the authors' ResNet18: they have no such network",
            networks=("PooledResNet",),
        ),
        Difference("the last BatchNorm of the Wide-ResNet has momentum .9", networks=("WideResNet",)),
        Difference("images are divided by .2023, .1994, .2010", datasets=("cifar10",)),
        Difference("images are divided by .2675, .2565, .2761", datasets=("cifar100",)),
        Difference("images are shifted by .2860 and divided by .3530", datasets=("fashion-mnist",)),
        Difference(
            "images are scaled by the mean and deviation of all training pixels, as neither text nor code says",
            datasets=("mnist",),
        ),
        Difference("images are padded by 4 and cropped, not cropped and resized", augmented=True),
        Difference("the CNN has dropout after its convolutions too", networks=("CNN",)),
        Difference("the ResNet18 has dropout between convolutions, where the code has none", networks=("ResNet18",)),
        Difference("Mixup has a share for each row, as the text says, where the code has one for a batch"),
        Difference("ECE has 15 bins, as the text says, where the code's script has 10"),
        SMALL_RESNET,
        Difference("seeds and the order of rows are ours"),
    ),
)
PROTOCOLS = {protocol.name: protocol for protocol in (TEXT, AUTHORS)}


def protocol_named(name: str) -> Protocol:
    """The protocol of this name."""
    check_known("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
