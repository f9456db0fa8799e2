"""Everything that decides the bits of a fit, in one value that can be sent to a worker and compared on resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import isinf
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from mixupmp.data.rows import Dataset, Rows, split
from mixupmp.errors import BadData, InvalidArgument, check
from mixupmp.loss import Categorical
from mixupmp.methods import Method
from mixupmp.networks import NetworkFactory, named
from mixupmp.posterior import Posterior, Task
from mixupmp.predictive import Seen
from mixupmp.recipe import Recipe
from mixupmp.source import InMemory, Loaded, Source
from mixupmp.version import __version__


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
    # Weights to start from, one for each network: the paper's "DE" initialisation. None: random.
    initial: Sequence[dict[str, Tensor]] | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(isinstance(self.seed, int), "seed", self.seed, "a whole number")
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
        classes = self.task.likelihood.classes if isinstance(self.task.likelihood, Categorical) else None
        for name, rows in (("training", self.train), ("validation", self.validation)):
            if isinstance(rows, Rows):
                _check_rows(rows, name, classes, self.task.input_shape)

    def seen(self) -> Seen:
        """The observed rows, on the device."""
        source: Source
        source = InMemory(self.train, self.device) if isinstance(self.train, Rows) else Loaded(self.train, self.device)
        return Seen(source, self.task.likelihood, self.task.standardise)

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


def plan_for(
    dataset: Dataset,
    method: Method,
    network: str | NetworkFactory = "cnn",
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    validation: Rows | None = None,
    initial: Posterior | None = None,
    device: str = "cpu",
) -> Plan:
    """A plan for a dataset: a network by name is sized to it, and a method that adapts keeps some rows back."""
    shape = tuple(dataset.train.inputs.shape[1:])
    task = Task(Categorical(len(dataset.classes)), dataset.standardise, shape, dataset.classes)
    factory = named(network, shape, len(dataset.classes), method.dropout) if isinstance(network, str) else network
    train = dataset.train
    if method.validation_fraction and validation is None:
        train, validation = split(train, method.validation_fraction, seed)
    start = initial_weights(initial)
    return Plan(method, factory, train, task, recipe or Recipe(), seed, validation, start, device)


def initial_weights(posterior: Posterior | None) -> list[dict[str, Tensor]] | None:
    """Another posterior's members as starting points."""
    if posterior is None:
        return None
    return [{name: value.detach().cpu() for name, value in n.state_dict().items()} for n in posterior.networks]


def plain(value: Any) -> Any:
    """Any setting as JSON: a dataclass by its type and fields, a callable by its name, infinity as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and isinf(value):
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)


def _check_rows(rows: Rows, name: str, classes: int | None, shape: tuple[int, ...]) -> None:
    if classes is not None:
        rows.checked(classes, name)
        if name == "training" and int(rows.labels.min()) == int(rows.labels.max()):
            raise BadData(f"training labels are all {int(rows.labels[0])}: a classifier needs at least two classes.")
    if tuple(rows.inputs.shape[1:]) != shape:
        raise BadData(f"{name} inputs have shape {tuple(rows.inputs.shape[1:])}, the task's is {shape}.")


def _fingerprint(weights: dict[str, Tensor]) -> str:
    return Rows(torch.cat([value.flatten().double() for value in weights.values()]), torch.empty(0)).fingerprint()
