"""How posterior samples arise: an explicit ensemble, dropout masks of one network, or a Laplace approximation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mixupmp.core import seeds
from mixupmp.core.errors import InvalidArgument, MissingExtra, check, whole
from mixupmp.core.fast.pooled_convolution import PooledConvolution
from mixupmp.core.kernels import identity
from mixupmp.core.likelihoods import Gaussian
from mixupmp.core.posterior import DropoutPosterior, EnsemblePosterior, LaplacePosterior, Posterior, Task
from mixupmp.core.predictive import Seen


class Sampler(Protocol):
    """How samples arise from trained networks."""

    @property
    def networks(self) -> int:
        """How many networks are trained."""
        ...

    def posterior(self, networks: Sequence[nn.Module], task: Task, seen: Seen, seed: int) -> Posterior:
        """The posterior of these trained networks."""
        ...


@dataclass(frozen=True)
class Ensemble:
    """Train `members` networks, each on a future of its own."""

    members: int = 4

    def __post_init__(self) -> None:
        check_members(self.members)

    @property
    def networks(self) -> int:
        return self.members

    def posterior(self, networks: Sequence[nn.Module], task: Task, seen: Seen, seed: int) -> Posterior:
        return EnsemblePosterior(networks, task, self.members)


@dataclass(frozen=True)
class DropoutMasks:
    """Train one network with dropout; its members are `members` fixed dropout masks (Gal & Ghahramani 2016)."""

    members: int = 20

    def __post_init__(self) -> None:
        check_members(self.members)

    @property
    def networks(self) -> int:
        return 1

    def posterior(self, networks: Sequence[nn.Module], task: Task, seen: Seen, seed: int) -> Posterior:
        posterior = DropoutPosterior(networks, task, self.members, seed)
        if not posterior.layers:
            posterior.notes = ("the network has no dropout layer: all members are the same",)
        return posterior


@dataclass(frozen=True)
class Laplace:
    """Train one network; its members are draws of a Gaussian at its weights (Daxberger et al. 2021).

    Curvature and prior precision come from the package laplace-torch.
    """

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

    def posterior(self, networks: Sequence[nn.Module], task: Task, seen: Seen, seed: int) -> Posterior:
        if isinstance(task.likelihood, Gaussian):
            raise InvalidArgument("sampler", "Laplace", "an ensemble or dropout masks for a Gaussian likelihood")
        network = networks[0].eval()
        for module in network.modules():
            if isinstance(module, PooledConvolution):
                module.fast = False  # curvature takes several passes backward through one forward
        with seeds.global_seed(seeds.derive(seed, "laplace")):
            approximation = self._fit(network, seen)
            draws = approximation.sample(self.members).detach()
        changes = _by_parameter(network, draws, approximation)
        return LaplacePosterior(networks, task, changes)

    def _fit(self, network: nn.Module, seen: Seen) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # what its own dependencies use of torch
                from laplace import Laplace as Approximation
        except ImportError as error:
            raise MissingExtra("laplace-torch", "laplace", "The Laplace method") from error
        if not any(parameter.requires_grad for parameter in network.parameters()):
            network.requires_grad_(True)  # a posterior has frozen it
        approximation: Any = Approximation(
            network,
            "classification",
            subset_of_weights=self.subset,
            hessian_structure=self.structure,
        )
        approximation.fit(_batches(seen))
        with warnings.catch_warnings():
            # It warns of a default for predictions that are not made through it.
            warnings.filterwarnings("ignore", message=".*link_approx.*")
            approximation.optimize_prior_precision(method="marglik")
        return approximation


def _batches(seen: Seen, rows: int = 256) -> DataLoader[Any]:
    """The seen rows, unaugmented and scaled, as laplace-torch wants them."""
    unused = torch.Generator()
    chunks = torch.arange(len(seen.source)).split(rows)
    inputs, labels = [], []
    for batch in seen.batches(chunks, identity, unused):
        inputs.append(batch.inputs)
        labels.append(batch.targets.argmax(1))
    dataset = torch.utils.data.TensorDataset(torch.cat(inputs), torch.cat(labels))
    return DataLoader(dataset, batch_size=rows)


def _by_parameter(network: nn.Module, draws: Tensor, approximation: Any) -> dict[str, Tensor]:
    """Flat draws as named changes of the parameters that vary: those that were trained, or the last layer's."""
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
    check(whole(members), "members", members, "a whole number, at least 1")
