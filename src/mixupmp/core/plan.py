"""A fit in full: its settings and its rows, in one value that can be sent to a worker and compared on resume."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mixupmp.core import seeds
from mixupmp.core.base_measures import AtLayer
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.foreign import Json
from mixupmp.core.kernels import identity
from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.methods import Method
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import TrainingData
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Rows, RowSource, Standardize
from mixupmp.core.spec import encode
from mixupmp.core.streams import DatasetRows, IterableRows, stream_of
from mixupmp.core.threads import pinned_threads
from mixupmp.core.version import __version__
from mixupmp.core.weights import Expected

NetworkFactory = Callable[[], nn.Module]
# Rows that were found sound, with what for: a plan that is made from another by `replace` does not read them again.
_CHECKED: WeakKeyDictionary[Rows, set[tuple[object, ...]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Plan:
    """A fit in full.

    Parameters
    ----------
    method, network, recipe, seed
        What is fitted and how. `network` builds a new network at each call.
    train
        The observed rows, in memory or streamed; a torch Dataset or DataLoader is streamed, see `core.streams`.
    task
        Likelihood, input scaling, input shape and class names.
    validation
        Rows that are evaluated after each epoch: to adapt the predictive, and for the history.
    initial
        A state_dict to start from for each network: the paper's "DE" initialization. None: random weights.
    device
        Where members are trained: "auto" is a GPU if torch has one ("cuda"), else "cpu".
    """

    method: Method
    network: NetworkFactory
    train: Rows | DatasetRows | IterableRows
    task: Task
    recipe: Recipe
    seed: int = 0
    validation: Rows | None = None
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
        object.__setattr__(self, "device", _resolved_device(self.device))
        self._check_data()

    def _check_data(self) -> None:
        likelihood = self.task.likelihood
        classes = likelihood.classes
        given: object = self.train
        if not isinstance(given, Rows | DatasetRows | IterableRows):
            object.__setattr__(self, "train", replace(stream_of(given), pack=self.task.standardize.pack))
        self._check_future()
        for name, rows in (("training", self.train), ("validation", self.validation)):
            if isinstance(rows, Rows):
                purpose = (rows.versions(), name, classes, self.task.input_shape)
                if purpose not in _CHECKED.setdefault(rows, set()):
                    _check_rows(rows, name, classes, self.task.input_shape)
                    _CHECKED[rows].add(purpose)
        if len(self.train) == 0:
            raise BadData("training data is empty: it needs at least one row.")
        if self.method.predictive.adaptive:
            must = "Categorical for a base measure that adapts to how sure the network is of each class"
            check(classes is not None, "likelihood", likelihood, must)
            must = "rows, for a base measure that adapts to them"
            check(self.validation is not None, "validation", None, must, "plan_for keeps some back by itself.")

    def _check_future(self) -> None:
        """What the predictive cannot do with these inputs, or with rows that have no numbers."""
        predictive, standardize = self.method.predictive, self.task.standardize
        several = not isinstance(standardize, Standardize) and not standardize.single
        spliced = getattr(predictive.base, "takes_tokens", False) and not several
        # Heads, and base measures inside the network, see features, which are numbers.
        inside = hasattr(self.method.sampler, "cut") or isinstance(predictive.base, AtLayer)
        if isinstance(predictive.base, AtLayer) and hasattr(self.method.sampler, "simulate"):
            must = "a sampler whose members have networks of their own, for a base measure inside the network"
            raise InvalidArgument("sampler", self.method.sampler, must)
        if predictive.ratio > 0 and not standardize.blendable and not spliced and not inside:
            must = "0 for whole numbers, as tokens, which this base measure cannot blend as they are"
            hint = "Use r=0, blend at the embedding (AtLayer, mix_layer=), or join sentences: SentenceSplice."
            raise InvalidArgument("ratio", predictive.ratio, must, hint)
        if several and predictive.kernel is not identity:
            hint = "Augment in the Dataset's transform, which is drawn anew in each epoch."
            raise InvalidArgument("kernel", predictive.kernel, "left out for several inputs", hint)
        if self.train.sequential and not isinstance(predictive.weights, Expected):
            hint = "They belong to rows that come again in each epoch."
            raise InvalidArgument("weights", predictive.weights, "Expected() for an IterableDataset", hint)
        if self.train.sequential and hasattr(self.method.sampler, "simulate"):
            raise InvalidArgument("sampler", self.method.sampler, "Ensemble for an IterableDataset")

    def on(self, train: Rows | DatasetRows) -> Plan:
        """The plan for other training rows; with its validation rows only where the predictive adapts to them."""
        validation = self.validation if self.method.predictive.adaptive else None
        return self._with_template(replace(self, train=train, validation=validation))

    def varied(self, method: Method | None = None, recipe: Recipe | None = None) -> Plan:
        """The plan with another method or recipe."""
        return self._with_template(replace(self, method=method or self.method, recipe=recipe or self.recipe))

    def _with_template(self, plan: Plan) -> Plan:
        """A plan for the same networks, where member 0's is not built again."""
        if "template" in self.__dict__ and plan.method.sampler == self.method.sampler:
            plan.__dict__["template"] = self.template
        return plan

    def training_data(self, member: int = 0) -> TrainingData:
        """The training rows on the device; the copy there is made once. Streamed rows are transformed for a member."""
        rows: RowSource = self.train.to(self.device)
        if not isinstance(self.train, Rows):
            rows = replace(self.train, device=self.device, seed=seeds.derive(self.seed, member, "items"))
        return TrainingData(rows, self.task.likelihood, self.task.standardize)

    def posterior(self, finished: Sequence[tuple[MemberSummary, dict[str, Tensor]]]) -> Posterior:
        """The posterior of this plan's trained networks, each with how its fit ended."""
        with pinned_threads(self.recipe.threads):  # a Laplace approximation computes as much as a fit
            posterior = Posterior.from_members(
                finished, self._network_for_weights, self.task, self.method.sampler, self.seed, self.training_data()
            )
        posterior.origin = self.document()
        return posterior

    def spec(self) -> dict[str, Json]:
        """The settings that decide the bits, as JSON: what `decode` reads back."""
        return {
            "method": encode(self.method),
            "network": encode(self.network),
            "recipe": encode(self.recipe),
            "task": encode(self.task),
            "seed": self.seed,
        }

    def document(self) -> dict[str, Json]:
        """The settings, the fingerprints of the rows and the versions: what a resumed run must agree with."""
        data: dict[str, Json] = {"rows": len(self.train)}
        if isinstance(self.train, Rows):
            data["sha256"] = self.train.fingerprint()
        if self.validation is not None:
            data["validation_sha256"] = self.validation.fingerprint()
        if self.initial is not None:
            data["initial_sha256"] = [_fingerprint(weights) for weights in self.initial]
        return {
            "spec": self.spec(),
            "fingerprints": data,
            "versions": {"mixupmp": __version__, "torch": torch.__version__},
        }

    def completed(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A member's weights as they are kept: those of the whole network, where only its head is fitted."""
        complete = getattr(self.network, "completed", None)
        return weights if complete is None else complete(weights)

    @cached_property
    def template(self) -> nn.Module:
        """Member 0's network before training, for questions about its form."""
        return self._new_network(0)

    def build(self, member: int) -> nn.Module:
        """This member's network: random weights that depend on (seed, member) alone, or those of `initial`."""
        if member == 0 and (copied := _copy(self.template)) is not None:
            return copied
        return self._new_network(member)

    def _network_for_weights(self, member: int) -> nn.Module:
        """A network that trained weights are loaded into: a copy where networks differ in their weights alone."""
        copied = _copy(self.template) if getattr(self.network, "same_structure", False) else None
        return (self._new_network(member) if copied is None else copied).to(self.device)

    def _new_network(self, member: int) -> nn.Module:
        with seeds.global_seed(seeds.derive(self.seed, member, "weights")):
            network = self.network()
            if not isinstance(network, nn.Module):
                raise InvalidArgument("network", network, "a factory that returns an nn.Module")
            network = self.task.prepare(network)
            # A sampler whose members share weights puts its adapters into the network, drawn from the same generator.
            adapt = getattr(self.method.sampler, "adapt", None)
            network = network if adapt is None else adapt(network, self.task.example())
        if not any(parameter.requires_grad for parameter in network.parameters()):
            raise InvalidArgument("network", type(network).__name__, "one that has weights to train")
        if self.initial is not None:
            try:
                network.load_state_dict(self.initial[member])
            except RuntimeError as error:
                raise InvalidArgument("initial", f"member {member}", "weights of this network", str(error)) from error
        return network

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "template"}


def _copy(network: nn.Module) -> nn.Module | None:
    """A copy, or None where a user's network does not support it."""
    try:
        return copy.deepcopy(network)
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def initial_weights(posterior: Posterior | None) -> list[dict[str, Tensor]] | None:
    """Copies of a posterior's members, for `Plan.initial`."""
    if posterior is None:
        return None
    return [{name: value.detach().cpu().clone() for name, value in n.state_dict().items()} for n in posterior.networks]


def _check_rows(rows: Rows, name: str, classes: int | None, shape: tuple[int, ...]) -> None:
    rows.checked(classes, name)
    if classes is not None and name == "training" and int(rows.labels.min()) == int(rows.labels.max()):
        raise BadData(f"training labels are all {int(rows.labels[0])}: a classifier needs at least two classes.")
    if tuple(rows.inputs.shape[1:]) != shape:
        raise BadData(f"{name} inputs have shape {tuple(rows.inputs.shape[1:])}, the task's is {shape}.")


def _resolved_device(device: str) -> str:
    """The device, "cuda" or "cpu" for "auto"; an error where this machine does not have it."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=device).item()  # which 'meta' has none of
        return device
    except (RuntimeError, AssertionError, TypeError) as error:  # AssertionError: torch was built without CUDA
        reason = str(error).splitlines()[0]
        raise InvalidArgument(
            "device", device, "a device of this machine, as 'cpu' or 'cuda', or 'auto'", reason
        ) from error


def _fingerprint(weights: dict[str, Tensor]) -> str:
    return Rows(torch.cat([value.flatten().double() for value in weights.values()]), torch.empty(0)).fingerprint()
