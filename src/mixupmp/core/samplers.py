"""Samplers: how posterior samples arise from trained networks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mixupmp.core import seeds
from mixupmp.core.dropout_posterior import DropoutPosterior
from mixupmp.core.ensemble_posterior import EnsemblePosterior
from mixupmp.core.errors import InvalidArgument, MissingExtra, check, is_whole
from mixupmp.core.fast.pooled_convolution import PooledConvolution
from mixupmp.core.kernels import identity
from mixupmp.core.laplace_posterior import LaplacePosterior
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import TrainingData


class Sampler(Protocol):
    """How posterior samples arise from trained networks."""

    @property
    def networks(self) -> int:
        """How many networks are to be trained."""

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        """The posterior of these trained networks."""


@dataclass(frozen=True)
class Ensemble:
    """`members` networks, each fitted to its own simulated future.

    Parameters
    ----------
    members
        B, how many networks.
    """

    members: int = 4

    def __post_init__(self) -> None:
        check_members(self.members)

    @property
    def networks(self) -> int:
        return self.members

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        return EnsemblePosterior(networks, task, self.members)


@dataclass(frozen=True)
class DropoutMasks:
    """One network trained with dropout, and `members` fixed dropout masks (Gal & Ghahramani 2016).

    Parameters
    ----------
    members
        How many masks.
    """

    members: int = 20

    def __post_init__(self) -> None:
        check_members(self.members)

    @property
    def networks(self) -> int:
        return 1

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        posterior = DropoutPosterior(networks, task, self.members, seed)
        if not posterior.layers:
            posterior.notes = ("the network has no dropout layer: all members are the same",)
        return posterior


@dataclass(frozen=True)
class Laplace:
    """`members` draws of a Gaussian around the weights of one trained network (Daxberger et al. 2021).

    Curvature, and the prior precision that maximizes the marginal likelihood, are laplace-torch's.

    Parameters
    ----------
    members
        How many draws.
    subset
        Which weights vary.
    structure
        Of the Hessian: Kronecker factors for each layer, the full matrix, or its diagonal.
    """

    requires: ClassVar[str] = "laplace"  # the module of laplace-torch

    members: int = 20
    subset: Literal["last_layer", "all"] = "last_layer"
    structure: Literal["kron", "full", "diag"] = "kron"

    def __post_init__(self) -> None:
        check_members(self.members)
        check(self.subset in ("last_layer", "all"), "subset", self.subset, "'last_layer' or 'all'")
        structures = ("kron", "full", "diag")
        check(self.structure in structures, "structure", self.structure, f"one of {', '.join(structures)}")

    @property
    def networks(self) -> int:
        return 1

    def restore(self, networks: Sequence[nn.Module], task: Task, tensors: dict[str, Tensor]) -> Posterior:
        """The posterior whose draws were saved."""
        return LaplacePosterior(networks, task, tensors)

    def posterior(self, networks: Sequence[nn.Module], task: Task, data: TrainingData, seed: int) -> Posterior:
        if task.likelihood.classes is None:
            raise InvalidArgument("sampler", "Laplace", "an ensemble or dropout masks for a Gaussian likelihood")
        network = networks[0].eval()
        for module in network.modules():
            if isinstance(module, PooledConvolution):
                module.fast = False  # curvature needs several backward passes through one forward pass
        with seeds.global_seed(seeds.derive(seed, "laplace")):
            approximation = self._fit(network, data)
            draws = approximation.sample(self.members).detach()
        changes = _by_parameter(network, draws, approximation)
        return LaplacePosterior(networks, task, changes)

    def _fit(self, network: nn.Module, data: TrainingData) -> Any:
        try:
            with warnings.catch_warnings():
                for category in (DeprecationWarning, FutureWarning):  # from its own dependencies
                    warnings.simplefilter("ignore", category)
                from laplace import Laplace as Approximation
        except ImportError as error:
            # They ask for torchvision, which nothing here uses, and which would bring a torch of its own.
            packages = "laplace-torch backpack-for-pytorch curvlinops-for-pytorch asdfghjkl"
            then = f", then pip install --no-deps {packages}"
            raise MissingExtra("laplace-torch", "laplace", "The Laplace method", then) from error
        if not any(parameter.requires_grad for parameter in network.parameters()):
            network.requires_grad_(True)  # frozen by an earlier posterior
        approximation: Any = Approximation(
            network, "classification", subset_of_weights=self.subset, hessian_structure=self.structure
        )
        approximation.fit(_batches(data))
        with warnings.catch_warnings():
            # It warns of a default for its predictions, which are not used here.
            warnings.filterwarnings("ignore", message=".*link_approx.*")
            approximation.optimize_prior_precision(method="marglik")
        return approximation


def _batches(data: TrainingData, rows: int = 256) -> DataLoader[tuple[Tensor, ...]]:
    """The training rows, scaled but not augmented, as the DataLoader that laplace-torch takes."""
    unused = torch.Generator()
    chunks = torch.arange(len(data.rows)).split(rows)
    inputs, labels = [], []
    for batch in data.batches(chunks, identity, unused):
        inputs.append(batch.inputs)
        labels.append(batch.targets.argmax(1))
    dataset = torch.utils.data.TensorDataset(torch.cat(inputs), torch.cat(labels))
    return DataLoader(dataset, batch_size=rows)


def _by_parameter(network: nn.Module, draws: Tensor, approximation: Any) -> dict[str, Tensor]:
    """Flat draws as theta_b - theta of each parameter that varies: all that were trained, or the last layer's."""
    parameters = {name: value for name, value in network.named_parameters() if value.requires_grad}
    names = list(parameters)
    last = getattr(approximation.model, "_last_layer_name", None)
    if last is not None:
        names = [name for name in names if name.rpartition(".")[0] == last]
    changes, start = {}, 0
    for name in names:
        size = parameters[name].numel()
        flat = draws[:, start : start + size] - parameters[name].detach().flatten()
        changes[name] = flat.view(-1, *parameters[name].shape)
        start += size
    if start != draws.shape[1]:
        raise RuntimeError(f"laplace-torch drew {draws.shape[1]} weights where {start} were expected")
    return changes


def check_members(members: int) -> None:
    """Raise `InvalidArgument` unless this can be a number of members."""
    check(is_whole(members), "members", members, "a whole number, at least 1")
