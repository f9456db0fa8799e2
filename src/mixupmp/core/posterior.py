"""What a fit returns: posterior samples of networks, and their posterior predictive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from mixupmp.core.encoders import Encoder, encoded
from mixupmp.core.errors import BadData, InvalidArgument, MixupMPError, check, is_whole
from mixupmp.core.fields import Fields, RawInputs
from mixupmp.core.foreign import Json
from mixupmp.core.given_network import materialized
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.member_summary import MemberSummary, left_out, member_notes
from mixupmp.core.rows import Standardize, first_not_finite

if TYPE_CHECKING:
    from mixupmp.core.predictive import TrainingData
    from mixupmp.core.samplers import Sampler


class AllDiverged(MixupMPError, ArithmeticError):
    """Not one member had a finite loss to its end."""


@dataclass(frozen=True)
class Task:
    """What a network is to learn: the likelihood, scaling and shape of raw inputs, and names of the classes.

    Parameters
    ----------
    likelihood, standardize
        What is minimized, and what scales raw inputs.
    input_shape, classes
        Of one raw input; names of the classes, none in regression.
    encoder, pixels
        How sentences, sounds, or arrays in another layout, become rows; whether raw inputs are uint8 (None: images
        are, all else is not).
    """

    likelihood: Categorical | Gaussian
    standardize: Standardize | Fields
    input_shape: tuple[int, ...]  # without the rows
    classes: tuple[str, ...] = ()  # empty: numbers serve as names
    encoder: Encoder | None = field(default=None, metadata={"later": True})  # from what people have to raw inputs
    pixels: bool | None = field(default=None, metadata={"later": True})

    @property
    def class_names(self) -> tuple[str, ...]:
        """A name for each class; none in regression."""
        return self.classes or tuple(map(str, range(self.likelihood.classes or 0)))

    def prepare(self, network: nn.Module) -> nn.Module:
        """A network that takes scaled rows of this task: with its lazy layers sized, and a hook for several inputs."""
        network = self.standardize.prepare(network)
        return materialized(network, self.example)

    def example(self) -> Tensor:
        """Two scaled rows to try a network on: of ones, which are tokens of any vocabulary and leave nothing masked."""
        return self.standardize(torch.ones(2, *self.input_shape))

    def require_classes(self, purpose: str, hint: str = "") -> int:
        """The number of classes; an error in regression, saying for which purpose there must be classes."""
        if self.likelihood.classes is None:
            raise InvalidArgument("likelihood", self.likelihood, f"Categorical (a classifier's) {purpose}", hint)
        return self.likelihood.classes


class Posterior(ABC):
    """Posterior samples, and their posterior predictive.

    Parameters
    ----------
    networks, task, wanted, notes
        The trained networks, what they learned, how many there were to be, and why some are missing.
    """

    def __init__(self, networks: Sequence[nn.Module], task: Task, wanted: int, notes: Sequence[str] = ()) -> None:
        self.networks = list(networks)
        self.task = task
        self.wanted = wanted  # how many networks were to be trained; there are fewer if some diverged
        self.notes = tuple(notes)
        self.summaries: list[MemberSummary] = []
        self.origin: dict[str, Json] | None = None  # document of the plan it was fitted by, saved with it
        for network in self.networks:
            network.eval().requires_grad_(False)

    @staticmethod
    def from_members(
        finished: Sequence[tuple[MemberSummary, dict[str, Tensor]]],
        build: Callable[[int], nn.Module],
        task: Task,
        sampler: Sampler,
        seed: int = 0,
        data: TrainingData | None = None,
        tensors: dict[str, Tensor] | None = None,
    ) -> Posterior:
        """The posterior of trained networks: the only way from weights to a posterior.

        Parameters
        ----------
        finished
            How each network's fit ended, and its state_dict: empty where it is `left_out`, with a note.
        build
            A network for the weights of this member.
        data
            The training rows, where a sampler needs them (Laplace).
        tensors
            What `Posterior.tensors` gave, for a posterior that is read back: nothing is drawn again.
        task, sampler, seed
            As for the plan.
        """
        summaries = [summary for summary, _ in finished]
        out = left_out(summaries)
        networks = []
        for summary, weights in finished:
            if summary.member not in out:
                network = build(summary.member)
                network.load_state_dict(weights)
                networks.append(network)
        if not networks:
            reasons = "; ".join(f"member {member} {reason}" for member, reason in out.items())
            raise AllDiverged(f"no member is left: {reasons}. Lower the learning rate.")
        if tensors:
            posterior: Posterior = sampler.restore(networks, task, tensors)  # type: ignore[attr-defined]
        else:
            posterior = sampler.posterior(networks, task, data, seed)  # type: ignore[arg-type]  # Laplace reads rows
        posterior.wanted, posterior.notes = len(finished), (*member_notes(summaries), *posterior.notes)
        posterior.summaries = summaries
        return posterior

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
        """Move all networks to a device; inputs are moved there by themselves.

        Parameters
        ----------
        device
            As torch names it.

        Returns
        -------
        Posterior
            This one.
        """
        for network in self.networks:
            network.to(device)
        return self

    def member_outputs(self, inputs: RawInputs, batch_size: int = 512, *, check_finite: bool = True) -> Tensor:
        """(members, rows, outputs): logits, or mean and log-variance in regression.

        Parameters
        ----------
        inputs, batch_size, check_finite
            As for `stream_outputs`.

        Returns
        -------
        Tensor
        """
        return torch.cat(list(self.stream_outputs(inputs, batch_size, check_finite=check_finite)), 1)

    @torch.no_grad()
    def stream_outputs(
        self, inputs: RawInputs, batch_size: int = 512, *, pad: bool = False, check_finite: bool = True
    ) -> Iterator[Tensor]:
        """Outputs of all members for one block of rows after the other, where all at once would not fit in memory.

        Parameters
        ----------
        inputs
            Raw inputs, (rows, *task.input_shape); a dict or tuple of several tensors; or sentences or waves in a list.
        batch_size
            Rows in a block.
        pad
            Whether the last block is computed with repeats of its last row, so that all have one size: the bits of a
            row's outputs then do not depend on how many rows come with it.
        check_finite
            Whether NaN or infinity in the outputs is an error, naming the row; else they are returned.

        Yields
        ------
        Tensor
            (members, rows of the block, outputs).
        """
        inputs = self._checked(inputs)
        check(is_whole(batch_size), "batch_size", batch_size, "a whole number, at least 1")
        for start, block in zip(range(0, len(inputs), batch_size), inputs.split(batch_size), strict=True):
            missing = batch_size - len(block) if pad else 0
            filled = torch.cat([block, block[-1:].expand(missing, *block.shape[1:])]) if missing else block
            outputs = self._scaled_outputs(self.task.standardize(filled.to(self.device))).float()[:, : len(block)]
            if check_finite:
                _check_outputs(outputs, block, start)
            yield outputs

    def member_probabilities(self, inputs: RawInputs, batch_size: int = 512, *, check_finite: bool = True) -> Tensor:
        """(members, rows, classes): the predictive of each posterior sample.

        Parameters
        ----------
        inputs, batch_size, check_finite
            As for `stream_outputs`.

        Returns
        -------
        Tensor
            (members, rows, classes).
        """
        self._check_classes()
        outputs = self.member_outputs(inputs, batch_size, check_finite=check_finite)
        return self.task.likelihood.moments(outputs)[0]

    def probabilities(
        self, inputs: RawInputs, average: Literal["probabilities", "logits"] = "probabilities", batch_size: int = 512
    ) -> Tensor:
        """(rows, classes): the posterior predictive, mean_b softmax(f_b(x)), or softmax(mean_b f_b(x)) for "logits".

        Parameters
        ----------
        inputs, batch_size
            As for `stream_outputs`.
        average
            What is averaged over members.

        Returns
        -------
        Tensor
            (rows, classes).
        """
        check(average in ("probabilities", "logits"), "average", average, "'probabilities' or 'logits'")
        self._check_classes()
        outputs = self.member_outputs(inputs, batch_size)
        return outputs.mean(0).softmax(-1) if average == "logits" else outputs.softmax(-1).mean(0)

    def tensors(self) -> dict[str, Tensor]:
        """What is saved of the posterior beside its networks."""
        return {}

    def __repr__(self) -> str:
        short = "" if len(self.networks) == self.wanted else f" ({len(self.networks)} of {self.wanted} networks)"
        return f"{type(self).__name__}: {self.members} members{short}, inputs {self.task.input_shape}"

    def _check_classes(self) -> None:
        self.task.require_classes("for probabilities", "A regression has member_outputs: mean and log-variance.")

    def _scaled_outputs(self, scaled: Tensor) -> Tensor:
        try:
            return self._outputs(scaled)
        except IndexError as error:  # of nn.Embedding
            if self.task.standardize.blendable:
                raise
            must = "tokens of the network's vocabulary"
            raise InvalidArgument("inputs", f"tokens from {scaled.min():g} to {scaled.max():g}", must) from error

    def _checked(self, given: RawInputs) -> Tensor:
        inputs = self.task.standardize.pack(encoded(self.task.encoder, given))
        shape, must = tuple(inputs.shape), f"of shape (rows, {', '.join(map(str, self.task.input_shape))})"
        check(shape[1:] == self.task.input_shape, "inputs", shape, must)
        check(len(inputs) > 0, "inputs", shape, "at least one row")
        if inputs.is_floating_point() and (row := first_not_finite(inputs)) is not None:
            raise InvalidArgument("inputs", "NaN or infinity", "finite", f"The first such row is {row}.")
        return inputs


def _check_outputs(outputs: Tensor, block: Tensor, start: int) -> None:
    """Name the first row of a block, which starts at this row of the inputs, for which a network overflows."""
    if (row := first_not_finite(outputs.transpose(0, 1))) is None:
        return
    member = first_not_finite(outputs[:, row])
    largest = float(block[row].double().abs().max())
    raise BadData(
        f"row {start + row} of the inputs, with values up to {largest:.3g}, has NaN or infinity in the outputs of "
        f"member {member}: its values are too large for the network, or that network's weights are. "
        "Remove or rescale the row; if every row is named, train again."
    )
