"""Everything that decides the bits of a fit, in one value that can be sent to a worker and compared on resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from mixupmp.core.description import plain as plain
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.methods import Method
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import TrainingData
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import DatasetRows, Rows, RowSource
from mixupmp.core.version import __version__

NetworkFactory = Callable[[], nn.Module]


@dataclass(frozen=True)
class Plan:
    """A fit, said in full."""

    method: Method
    network: NetworkFactory
    train: Rows | TorchDataset[Any]
    task: Task
    recipe: Recipe
    seed: int = 0
    # Rows that the fit may look at after each epoch: to adapt the predictive, and to record how it goes.
    validation: Rows | None = None
    # Weights to start from, one for each network: the paper's "DE" initialization. None: random.
    initial: Sequence[dict[str, Tensor]] | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(isinstance(self.method, Method), "method", self.method, "a Method", "Try deep_ensemble(4).")
        check(isinstance(self.recipe, Recipe), "recipe", self.recipe, "a Recipe")
        seeded = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        check(seeded, "seed", self.seed, "a whole number")
        check(callable(self.network), "network", self.network, "a callable that builds an nn.Module")
        check(
            not isinstance(self.network, nn.Module),
            "network",
            type(self.network).__name__,
            "a factory, not a network",
            "Each member needs weights of its own: pass lambda: MyNetwork(...).",
        )
        if self.initial is not None and len(self.initial) < self.method.sampler.networks:
            raise InvalidArgument(
                "initial", f"{len(self.initial)} members", f"at least {self.method.sampler.networks} members"
            )
        _check_device(self.device)
        self._check_data()

    def _check_data(self) -> None:
        likelihood = self.task.likelihood
        classes = likelihood.classes
        mapped = hasattr(self.train, "__len__") and hasattr(self.train, "__getitem__")
        known = isinstance(self.train, Rows) or (mapped and not isinstance(self.train, Tensor | list | tuple | dict))
        check(known, "train", self.train, "Rows or a torch Dataset with a length and items by number")
        for name, rows in (("training", self.train), ("validation", self.validation)):
            if isinstance(rows, Rows):
                _check_rows(rows, name, classes, self.task.input_shape)
        if len(self.train) == 0:  # type: ignore[arg-type]
            raise BadData("training data is empty: it needs at least one row.")
        if self.method.predictive.adaptive:
            must = "Categorical for a base measure that adapts to how sure the network is of each class"
            check(classes is not None, "likelihood", likelihood, must)
            must = "rows, for a base measure that adapts to them"
            check(self.validation is not None, "validation", None, must, "plan_for keeps some back by itself.")

    def training_data(self) -> TrainingData:
        """The training rows on the device; the copy there is made once."""
        rows: RowSource
        rows = self.train.to(self.device) if isinstance(self.train, Rows) else DatasetRows(self.train, self.device)
        return TrainingData(rows, self.task.likelihood, self.task.standardize)

    def describe(self) -> dict[str, Any]:
        """Itself as plain JSON: what a resumed run must agree with."""
        data: dict[str, Any] = {"rows": len(self.train)}  # type: ignore[arg-type]
        if isinstance(self.train, Rows):
            data["sha256"] = self.train.fingerprint()
        if self.validation is not None:
            data["validation_sha256"] = self.validation.fingerprint()
        return {
            "method": plain(self.method),
            "network": plain(self.network),
            "recipe": plain(self.recipe),
            "task": plain(self.task),
            "data": data,
            "seed": self.seed,
            "initial": None if self.initial is None else [_fingerprint(weights) for weights in self.initial],
            "versions": {"mixupmp": __version__, "torch": torch.__version__},
        }


def initial_weights(posterior: Posterior | None) -> list[dict[str, Tensor]] | None:
    """Another posterior's members as starting points: copies, whatever becomes of that posterior."""
    if posterior is None:
        return None
    return [{name: value.detach().cpu().clone() for name, value in n.state_dict().items()} for n in posterior.networks]


def _check_rows(rows: Rows, name: str, classes: int | None, shape: tuple[int, ...]) -> None:
    rows.checked(classes, name)
    if classes is not None and name == "training" and int(rows.labels.min()) == int(rows.labels.max()):
        raise BadData(f"training labels are all {int(rows.labels[0])}: a classifier needs at least two classes.")
    if tuple(rows.inputs.shape[1:]) != shape:
        raise BadData(f"{name} inputs have shape {tuple(rows.inputs.shape[1:])}, the task's is {shape}.")


def _check_device(device: str) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # AssertionError: torch was built without CUDA
        told = str(error).splitlines()[0]
        raise InvalidArgument("device", device, "a device of this machine, as 'cpu' or 'cuda'", told) from error


def _fingerprint(weights: dict[str, Tensor]) -> str:
    return Rows(torch.cat([value.flatten().double() for value in weights.values()]), torch.empty(0)).fingerprint()
