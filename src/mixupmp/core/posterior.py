"""What a fit returns: samples of the posterior, and the probabilities they give together."""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, jvp

from mixupmp.core import seeds
from mixupmp.core.errors import InvalidArgument, check, whole
from mixupmp.core.fast.stacked import Together, can_go_together
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.rows import Standardize


@dataclass(frozen=True)
class Task:
    """What was learned: the likelihood, how raw inputs are scaled, their shape and the names of the classes."""

    likelihood: Categorical | Gaussian
    standardize: Standardize
    input_shape: tuple[int, ...]
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """How one network's fit ended."""

    member: int
    steps: int
    epochs: int
    seconds: float
    training_accuracy: float | None = None
    diverged_at: int | None = None  # the step whose loss was not finite
    history: list[dict[str, Any]] = field(default_factory=list)


class Posterior(ABC):
    """Posterior samples that can be asked for probabilities; streams over inputs."""

    def __init__(self, networks: Sequence[nn.Module], task: Task, wanted: int, notes: Sequence[str] = ()) -> None:
        self.networks = list(networks)
        self.task = task
        self.wanted = wanted  # how many networks were asked for; fewer are there where some diverged
        self.notes = tuple(notes)
        self.summaries: list[Summary] = []  # how each network's fit ended
        self.origin: dict[str, Any] | None = None  # the plan it was fitted by, in words, for those who save it
        for network in self.networks:
            network.eval().requires_grad_(False)

    @property
    @abstractmethod
    def members(self) -> int:
        """How many posterior samples there are."""

    @abstractmethod
    def _outputs(self, inputs: Tensor) -> Tensor:
        """(members, rows, outputs) for scaled inputs."""

    @property
    def device(self) -> torch.device:
        return next(self.networks[0].parameters()).device

    def to(self, device: torch.device | str) -> Posterior:
        """Move all networks; inputs follow them."""
        for network in self.networks:
            network.to(device)
        return self

    @torch.no_grad()
    def member_outputs(self, inputs: Tensor, batch_size: int = 512) -> Tensor:
        """(members, rows, outputs): logits, or mean and log-variance in regression."""
        return torch.cat(list(self.stream_outputs(inputs, batch_size)), 1)

    @torch.no_grad()
    def stream_outputs(self, inputs: Tensor, batch_size: int = 512) -> Iterator[Tensor]:
        """Member outputs, a block of rows at a time, for inputs whose answers would not fit in memory."""
        self._check(inputs)
        check(whole(batch_size), "batch_size", batch_size, "a whole number, at least 1")
        for block in inputs.split(batch_size):
            yield self._outputs(self.task.standardize(block.to(self.device))).float()

    def member_probabilities(self, inputs: Tensor, batch_size: int = 512) -> Tensor:
        """(members, rows, classes): what each posterior sample believes."""
        self._check_classes()
        return self.member_outputs(inputs, batch_size).softmax(-1)

    def probabilities(
        self, inputs: Tensor, average: Literal["probabilities", "logits"] = "probabilities", batch_size: int = 512
    ) -> Tensor:
        """(rows, classes): the posterior predictive. The paper averages probabilities; some prefer logits."""
        if average not in ("probabilities", "logits"):
            raise InvalidArgument("average", average, "'probabilities' or 'logits'")
        self._check_classes()
        outputs = self.member_outputs(inputs, batch_size)
        return outputs.mean(0).softmax(-1) if average == "logits" else outputs.softmax(-1).mean(0)

    def tensors(self) -> dict[str, Tensor]:
        """What the posterior holds beyond its networks, to be saved with them."""
        return {}

    def __repr__(self) -> str:
        short = "" if len(self.networks) == self.wanted else f" ({len(self.networks)} of {self.wanted} networks)"
        return f"{type(self).__name__}: {self.members} members{short}, inputs {self.task.input_shape}"

    def _check_classes(self) -> None:
        likelihood, hint = self.task.likelihood, "A regression has member_outputs: mean and log-variance."
        check(isinstance(likelihood, Categorical), "likelihood", likelihood, "Categorical for probabilities", hint)

    def _check(self, inputs: Tensor) -> None:
        if not isinstance(inputs, Tensor):
            raise InvalidArgument("inputs", inputs, "a tensor", "torch.as_tensor makes one of an array.")
        expected = self.task.input_shape
        if tuple(inputs.shape[1:]) != expected:
            raise InvalidArgument("inputs", tuple(inputs.shape), f"of shape (rows, {', '.join(map(str, expected))})")
        if len(inputs) == 0:
            raise InvalidArgument("inputs", tuple(inputs.shape), "at least one row")
        if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
            row = int((~torch.isfinite(inputs).flatten(1).all(1)).nonzero()[0])
            raise InvalidArgument("inputs", "NaN or infinity", "finite", f"The first such row is {row}.")


class EnsemblePosterior(Posterior):
    """One network for each member."""

    def __init__(self, networks: Sequence[nn.Module], task: Task, wanted: int, notes: Sequence[str] = ()) -> None:
        super().__init__(networks, task, wanted, notes)
        self._known = len(self.networks) > 1 and can_go_together(self.networks)
        self._together: Together | None = None  # made when first needed; the networks are not changed any more

    @property
    def members(self) -> int:
        return len(self.networks)

    def to(self, device: torch.device | str) -> Posterior:
        self._together = None
        return super().to(device)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_together": None}  # made of closures, which cannot be pickled, and made again

    def _outputs(self, inputs: Tensor) -> Tensor:
        if not self._known:
            return torch.stack([logits_of(network(inputs)) for network in self.networks])
        if self._together is None:
            self._together = Together(self.networks)
        return self._together(inputs)


class DropoutPosterior(Posterior):
    """One network and a fixed dropout mask for each member.

    A mask is drawn once for each member and place of dropout in the network and shared by all rows, so a member is a
    function: the same row gets the same answer in any batch, at any time. BatchNorm and everything else stay in
    evaluation mode.
    """

    def __init__(
        self, networks: Sequence[nn.Module], task: Task, members: int, seed: int, notes: Sequence[str] = ()
    ) -> None:
        super().__init__(networks, task, 1, notes)
        self.masks, self.seed = members, seed
        self.layers = [module for module in self.networks[0].modules() if isinstance(module, DROPOUT_LAYERS)]
        self._drawn: dict[tuple[int, int, int, torch.Size], Tensor] = {}
        others = [m for m in self.networks[0].modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        if len(others) != len(self.layers):
            raise InvalidArgument("network", type(self.networks[0]).__name__, "without AlphaDropout for dropout masks")

    @property
    def members(self) -> int:
        return self.masks

    def _outputs(self, inputs: Tensor) -> Tensor:
        network = self.networks[0]
        outputs = []
        for member in range(self.masks):
            hooks = [
                layer.register_forward_hook(_Masked(self, member, number)) for number, layer in enumerate(self.layers)
            ]
            try:
                outputs.append(logits_of(network(inputs)))
            finally:
                for hook in hooks:
                    hook.remove()
        return torch.stack(outputs)

    def mask(self, member: int, layer: int, inputs: Tensor, use: int = 0) -> Tensor:
        """The mask of this member where this layer is used for the n-th time: zero with its rate, else 1/(1 - rate)."""
        shape = inputs.shape[1:]
        if isinstance(self.layers[layer], nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            shape = torch.Size((shape[0], *(1,) * (len(shape) - 1)))  # whole channels
        key = (member, layer, use, shape)
        if key not in self._drawn:
            rate = float(self.layers[layer].p)
            keep = torch.rand(shape, generator=seeds.generator(self.seed, member, "mask", layer, use)) >= rate
            scale = 1 / (1 - rate) if rate < 1 else 0.0
            self._drawn[key] = keep.float().mul_(scale).to(inputs.device)
        return self._drawn[key]

    def to(self, device: torch.device | str) -> Posterior:
        self._drawn.clear()
        return super().to(device)


DROPOUT_LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass
class _Masked:
    """Replaces what a dropout layer passes on, which in evaluation mode is its input."""

    posterior: DropoutPosterior
    member: int
    layer: int
    uses: int = 0  # a network may use one dropout layer in several places
    thread: int = field(default_factory=threading.get_ident)

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if threading.get_ident() != self.thread:  # another member's pass through the same layer
            return output
        self.uses += 1
        return inputs[0] * self.posterior.mask(self.member, self.layer, inputs[0], self.uses - 1)


class LaplacePosterior(Posterior):
    """Samples of a Gaussian around one trained network's weights, through the network linearized there.

    Member b puts out f(x) + J(x) (theta_b - theta): the predictive that Immer et al. (2021) recommend for Laplace. For
    a last-layer Gaussian it is exactly the network with the sampled last layer.
    """

    def __init__(
        self, networks: Sequence[nn.Module], task: Task, changes: dict[str, Tensor], notes: Sequence[str] = ()
    ) -> None:
        super().__init__(networks, task, 1, notes)
        self.changes = changes  # theta_b - theta for each parameter that varies: (members, *shape)
        with warnings.catch_warnings(), forward_ad.dual_level():
            # torch loads its forward derivatives at their first use, through a part of itself that is deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))

    @property
    def members(self) -> int:
        return len(next(iter(self.changes.values())))

    def tensors(self) -> dict[str, Tensor]:
        return self.changes

    def to(self, device: torch.device | str) -> Posterior:
        self.changes = {name: change.to(device) for name, change in self.changes.items()}
        return super().to(device)

    def _outputs(self, inputs: Tensor) -> Tensor:
        network = self.networks[0]
        varying = {name: dict(network.named_parameters())[name].detach() for name in self.changes}

        def outputs(parameters: dict[str, Tensor]) -> Tensor:
            return logits_of(functional_call(network, parameters, (inputs,)))

        def member(change: dict[str, Tensor]) -> Tensor:
            value, slope = jvp(outputs, (varying,), (change,))  # type: ignore[misc]
            return value + slope

        changes = ({name: change[m] for name, change in self.changes.items()} for m in range(self.members))
        with _FORWARD:
            return torch.stack([member(change) for change in changes])


_FORWARD = threading.Lock()  # torch has one level of forward derivatives for all threads


def logits_of(outputs: Any) -> Tensor:
    """A network's outputs as a tensor; transformers-style results carry theirs as `.logits`."""
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(getattr(outputs, "logits", None), Tensor):
        return outputs.logits
    raise InvalidArgument("network", outputs, "a module that returns a tensor, or an object with .logits")
