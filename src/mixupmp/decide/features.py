"""Distances in feature space: how far a row lies from training rows, as the members' last hidden layers see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.posterior import Posterior
from mixupmp.core.recipe import some_rows
from mixupmp.core.rows import RowSource
from mixupmp.core.shared import MemberLinear, SharedNetwork

MEMBERS = 4  # whose features are used: more add little, and take room on disk
ROWS = 2000  # of the training rows that are kept
NUMBERS = 2**22  # of all their features together, 16 MB: networks with many features keep fewer rows
BLOCK_ROWS = 512


@torch.no_grad()
def penultimate_features(posterior: Posterior, inputs: Tensor, members: int = MEMBERS) -> Tensor:
    """(members, rows, features): what the last linear layer is given, for the first `members` that have their own.

    Dropout is off, and Laplace draws are not used: their members have these features in common.
    """
    scaled = [posterior.task.standardize(block.to(posterior.device)) for block in inputs.split(BLOCK_ROWS)]
    networks = posterior.networks[:members]
    found = [torch.cat([network_features(network, block).cpu() for block in scaled], 1) for network in networks]
    return torch.cat(found)[:members]


def network_features(network: nn.Module, inputs: Tensor) -> Tensor:
    """(members, rows, features): what the last linear layer of one network is given for scaled inputs."""
    seen: list[Tensor] = []
    members, given = 1, inputs
    if isinstance(network, SharedNetwork):  # its layers one by one: its own forward pass may be one program
        members, given = network.members, inputs.repeat(network.members, *(1,) * (inputs.ndim - 1))
        network = network.network

    def keep(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        seen[:] = arguments[:1]

    layers = [module for module in network.modules() if isinstance(module, nn.Linear | MemberLinear)]
    hooks = [layer.register_forward_pre_hook(keep) for layer in layers]
    try:
        network(given)
    finally:
        for hook in hooks:
            hook.remove()
    if not seen or seen[0].shape[0] != given.shape[0]:
        must = "one with a linear last layer, for distances in feature space"
        raise InvalidArgument("network", type(network).__name__, must, "Take another score: entropy needs none.")
    return seen[0].reshape(members, inputs.shape[0], -1).float()


@dataclass(frozen=True, eq=False)
class FeatureReference:
    """The features of some training rows; distances are to these, and their mean over members is taken."""

    features: Tensor  # (members, rows, features)
    labels: Tensor  # (rows,)

    @torch.no_grad()
    def distances(self, posterior: Posterior, inputs: Tensor, score: str) -> Tensor:
        """The distance "nearest" or "mahalanobis" of each row, float64."""
        members, _, width = self.features.shape
        measure = {"nearest": self._nearest, "mahalanobis": self._mahalanobis}[score]
        found = []
        for block in inputs.split(BLOCK_ROWS):
            features = penultimate_features(posterior, block, members)
            check(features.shape[::2] == (members, width), "posterior", posterior, "the one the detector was fitted to")
            found.append(measure(features).mean(0))
        return torch.cat(found).double()

    def _nearest(self, features: Tensor) -> Tensor:
        """Distance to the nearest training row, of features of length one (Sun et al. 2022, with k = 1).

        Out-of-distribution detection with deep nearest neighbors. They take k = 50 of 50,000 rows.
        """
        # In float64: differences of products leave noise of .001 where a row and its neighbor are the same.
        return torch.cdist(functional.normalize(features.double(), dim=-1), self.directions).amin(2)

    def _mahalanobis(self, features: Tensor) -> Tensor:
        """min_k (f - m_k)^T S^-1 (f - m_k), with class means m_k and a covariance S that the classes share.

        Lee et al. 2018, A simple unified framework for detecting out-of-distribution samples and adversarial attacks.
        """
        means, whitening = self.whitened_classes
        return torch.cdist(features.double() @ whitening, means).amin(2).square()

    @cached_property
    def directions(self) -> Tensor:
        """The features of training rows, of length one, float64."""
        return functional.normalize(self.features.double(), dim=-1)

    @cached_property
    def whitened_classes(self) -> tuple[Tensor, Tensor]:
        """Whitened class means (members, classes, features), and W (members, features, features) with W W^T = S^-1."""
        from sklearn.covariance import ledoit_wolf  # takes a second to import

        features, (present, places) = self.features.double(), self.labels.unique(return_inverse=True)
        means = torch.stack([features[:, self.labels == k].mean(1) for k in present], 1)
        factors = []
        for spread in (features - means[:, places]).numpy():
            # Ledoit & Wolf (2004) shrink it so that it can be inverted; units that are always zero need the last term.
            covariance = ledoit_wolf(spread, assume_centered=True)[0]
            covariance += (1e-6 * np.trace(covariance) / len(covariance) + 1e-12) * np.eye(len(covariance))
            factors.append(torch.linalg.inv(torch.linalg.cholesky(torch.from_numpy(covariance))).T)
        whitening = torch.stack(factors)
        return means @ whitening, whitening

    def tensors(self) -> dict[str, Tensor]:
        """It as tensors, to be saved."""
        return {"features": self.features.contiguous(), "labels": self.labels}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> FeatureReference:
        """The reference that `tensors` gave."""
        features, labels = tensors["features"], tensors["labels"]
        kinds = features.dtype == torch.float32 and labels.dtype == torch.int64
        if not kinds or features.ndim != 3 or 0 in features.shape or labels.shape != features.shape[1:2]:
            raise BadData("features must be float32 (members, rows, features), with an int64 label for each row.")
        if not bool(features.isfinite().all()):
            raise BadData("features must be finite.")
        return cls(features, labels)


def fit_reference(posterior: Posterior, train: RowSource) -> FeatureReference | None:
    """The features of training rows, evenly chosen; None where the networks do not end in a linear layer."""
    (first,) = train.batches([torch.arange(1)])
    try:
        members, _, width = penultimate_features(posterior, first.inputs).shape
    except InvalidArgument:
        return None
    count = max(1, min(len(train), ROWS, NUMBERS // (members * width)))
    (rows,) = train.batches([some_rows(train, count)])
    return FeatureReference(penultimate_features(posterior, rows.inputs), rows.labels)
