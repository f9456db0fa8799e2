"""All members of a small network in one program of batched matrix products.

For a network of linear layers and ReLU, calling an operation costs more than what it computes; doing all members in
one call shares that cost, and writing the backward pass by hand leaves autograd's out. Members are dealt to one
group for each core; a group is a thread with its own program, because two-thread OpenMP spins and collapses when
anything else wants the cores. What a member computes does not depend on the group it is in.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from mixupmp.errors import InvalidArgument
from mixupmp.fit.feeds import Stacked, feed_for
from mixupmp.fit.job import Finished, Job, Keeper
from mixupmp.fit.member import Interrupted, build_network
from mixupmp.fit.plan import Plan
from mixupmp.fit.processes import cores
from mixupmp.fit.validation import judged
from mixupmp.loss import Categorical
from mixupmp.posterior import Summary

_PLAIN = (nn.Linear, nn.ReLU, nn.Flatten, nn.Identity)


def vectorisable(network: nn.Module) -> bool:
    """Whether a network is a sequence of linear layers, each but the last followed by ReLU."""
    if not isinstance(network, nn.Sequential) or not all(isinstance(layer, _PLAIN) for layer in network):
        return False
    kinds = [type(layer) for layer in network if not isinstance(layer, nn.Flatten | nn.Identity)]
    return len(kinds) % 2 == 1 and kinds == ([nn.Linear, nn.ReLU] * len(kinds))[: len(kinds)]


class Group:
    """Some members, trained together. Everything is elementwise across members, so they stay independent."""

    def __init__(self, plan: Plan, members: tuple[int, ...], states: list[dict[str, Tensor]] | None = None) -> None:
        self.plan, self.members = plan, members
        networks = [build_network(plan, member) for member in members]
        if not vectorisable(networks[0]):
            raise InvalidArgument(
                "engine", "vectorised", "another engine for this network",
                "Only sequences of Linear and ReLU are trained in one program.",
            )  # fmt: skip
        self.names = [name for name, _ in networks[0].named_parameters()]
        stack = [torch.stack([dict(n.named_parameters())[name].detach() for n in networks]) for name in self.names]
        self.parameters = [nn.Parameter(p if p.ndim == 3 else p.unsqueeze(-1)) for p in stack]
        for parameter in self.parameters:
            parameter.grad = torch.empty_like(parameter)
        self.weights = [p for p, name in zip(self.parameters, self.names, strict=True) if name.endswith("weight")]
        self.biases = [p for p, name in zip(self.parameters, self.names, strict=True) if name.endswith("bias")]
        self.optimiser = plan.recipe.build_optimiser(self.parameters)
        if states is not None:
            self._restore(states)
        generators = None if states is None else [state["generator/draws"] for state in states]
        self.feed = feed_for(plan, members, generators)
        self.buffers: dict[int, tuple[list[Tensor], list[Tensor]]] = {}

    @torch.no_grad()
    def step(self, step: int) -> Stacked:
        """One step of every member; returns the batch it was made on."""
        batch = self.feed.next(step)
        outputs, slopes = self._room(batch.inputs.shape[-1])
        self._forward(batch.inputs, outputs)
        slope = self.plan.task.likelihood.slope(outputs[-1], batch.targets, dim=1)
        slope.mul_(batch.weights).div_(batch.inputs.shape[-1])
        self._backward(batch.inputs, outputs, slope, slopes)
        rate = self.plan.recipe.rate(step, self.feed.steps_an_epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        return batch

    def _room(self, rows: int) -> tuple[list[Tensor], list[Tensor]]:
        """Buffers that are used again at each step: fresh memory of this size costs more than the arithmetic."""
        if rows not in self.buffers:
            shapes = [(len(self.members), weight.shape[1], rows) for weight in self.weights]
            self.buffers[rows] = [torch.empty(s) for s in shapes], [torch.empty(s) for s in shapes[:-1]]
        return self.buffers[rows]

    def _forward(self, inputs: Tensor, outputs: list[Tensor]) -> None:
        for layer, (weight, output) in enumerate(zip(self.weights, outputs, strict=True)):
            before = outputs[layer - 1] if layer else inputs
            if self.biases:
                torch.baddbmm(self.biases[layer], weight, before, out=output)
            else:
                torch.bmm(weight, before, out=output)
            if layer < len(outputs) - 1:
                output.relu_()

    def _backward(self, inputs: Tensor, outputs: list[Tensor], slope: Tensor, slopes: list[Tensor]) -> None:
        for layer in reversed(range(len(self.weights))):
            before = outputs[layer - 1] if layer else inputs
            torch.bmm(slope, before.transpose(1, 2), out=self.weights[layer].grad)
            if self.biases:
                torch.sum(slope, -1, keepdim=True, out=self.biases[layer].grad)
            if layer:
                below = torch.bmm(self.weights[layer].transpose(1, 2), slope, out=slopes[layer - 1])
                # ReLU's derivative, in one vectorised pass over the product.
                slope = torch.ops.aten.threshold_backward.grad_input(below, before, 0, grad_input=below)

    @torch.no_grad()
    def losses(self, batch: Stacked) -> Tensor:
        """Each member's loss of the step just made, from the outputs that are still there."""
        outputs, _ = self._room(batch.inputs.shape[-1])
        rows = self.plan.task.likelihood.negative_log(outputs[-1], batch.targets, dim=1)
        return (rows * batch.weights.squeeze(1)).mean(-1)

    def finite(self) -> Tensor:
        """Which members' last gradient is finite: one tensor shows it, as the others follow from it."""
        assert self.parameters[-1].grad is not None
        return torch.isfinite(self.parameters[-1].grad.flatten(1).sum(1))

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """(members, rows, outputs) for scaled inputs."""
        columns = inputs.flatten(1).T.expand(len(self.members), -1, -1)
        shapes = [(len(self.members), weight.shape[1], len(inputs)) for weight in self.weights]
        room = [torch.empty(shape) for shape in shapes]
        self._forward(columns, room)
        return room[-1].transpose(1, 2)

    def network_weights(self, place: int) -> dict[str, Tensor]:
        """One member's weights, as its network names and shapes them."""
        pairs = zip(self.names, self.parameters, strict=True)
        return {name: (p[place] if name.endswith("weight") else p[place, :, 0]).detach().clone() for name, p in pairs}

    def state(self, place: int) -> dict[str, Tensor]:
        """One member's share of everything that is needed to go on."""
        tensors = {f"network/{name}": value for name, value in self.network_weights(place).items()}
        for number, values in self.optimiser.state_dict()["state"].items():
            for name, value in values.items():
                if value is not None:
                    own = value[place] if value.ndim == 3 else value
                    tensors[f"optimiser/{number}/{name}"] = own.detach().clone()
        tensors["generator/draws"] = self.feed.generator_states()[place]
        return tensors

    def _restore(self, states: list[dict[str, Tensor]]) -> None:
        with torch.no_grad():
            for name, parameter in zip(self.names, self.parameters, strict=True):
                parameter.copy_(torch.stack([s[f"network/{name}"] for s in states]).view_as(parameter))
        saved = self.optimiser.state_dict()
        for key in states[0]:
            if key.startswith("optimiser/"):
                _, number, name = key.split("/")
                parts = [state[key] for state in states]
                whole = torch.stack(parts) if parts[0].ndim else parts[0]
                saved["state"].setdefault(int(number), {})[name] = whole
        self.optimiser.load_state_dict(saved)


class VectorisedFit:
    """All members, in one group for each core."""

    def __init__(
        self, plan: Plan, members: tuple[int, ...], saved: list[tuple[dict[str, Tensor], Any]] | None = None
    ) -> None:
        if plan.recipe.epochs_after_interpolation is not None:
            raise InvalidArgument(
                "engine", "vectorised", "another engine for a recipe that stops each member by itself"
            )
        self.plan, self.members = plan, members
        self.step = 0
        self.seconds = 0.0
        self.history: dict[int, list[dict[str, Any]]] = {member: [] for member in members}
        self.diverged_at: dict[int, int] = {}
        count = min(cores(), len(members))
        dealt = [tuple(range(start, len(members), count)) for start in range(count)]
        states = None if saved is None else [tensors for tensors, _ in saved]
        self.places = {
            members[place]: (group, dealt[group].index(place)) for group in range(count) for place in dealt[group]
        }
        self.groups = [
            Group(plan, tuple(members[p] for p in places), None if states is None else [states[p] for p in places])
            for places in dealt
        ]
        self.threads = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
        if saved is not None:
            self._restore([json.loads(text["fit"]) for _, text in saved])

    @property
    def steps_an_epoch(self) -> int:
        return self.groups[0].feed.steps_an_epoch

    @property
    def total_steps(self) -> int:
        return self.plan.recipe.epochs * self.steps_an_epoch

    def advance(self, steps: int) -> None:
        """So many steps of all members; whole epochs, as a history's losses are an epoch's mean."""
        started = time.perf_counter()
        steps = min(steps, self.total_steps - self.step)
        for records in self.threads.map(lambda group: self._advance(group, steps), self.groups):
            for member, record in records:
                self.history[member].append(record)
        self.step += steps
        self.seconds += time.perf_counter() - started

    def _advance(self, group: Group, steps: int) -> list[tuple[int, dict[str, Any]]]:
        records = []
        total, counted = torch.zeros(len(group.members)), 0
        recipe, size = self.plan.recipe, group.feed.steps_an_epoch
        for step in range(self.step, self.step + steps):
            batch = group.step(step)
            for place in (~group.finite()).nonzero().flatten().tolist():
                self.diverged_at.setdefault(group.members[place], step + 1)
            epoch, rest = divmod(step + 1, size)
            wanted = recipe.records(epoch + (rest > 0))
            if wanted:
                total, counted = total + group.losses(batch), counted + 1
            if rest == 0 and wanted:
                rate = recipe.rate(step, size)
                records += self._records(group, epoch, (total / counted).tolist(), rate)
                total, counted = torch.zeros(len(group.members)), 0
        return records

    def _records(self, group: Group, epoch: int, losses: list[float], rate: float) -> list[tuple[int, dict[str, Any]]]:
        """This epoch in the histories of a group's members."""
        validation = self.plan.validation
        judgements: list[dict[str, Any]] = [{} for _ in group.members]
        if validation is not None and isinstance(self.plan.task.likelihood, Categorical):
            outputs = group.outputs(self.plan.task.standardise(validation.inputs))
            judgements = [judged(own, validation.labels) for own in outputs]
        about = {"epoch": epoch, "learning_rate": rate, "seconds": round(self.seconds, 3)}
        return [
            (member, {"member": member, "loss": loss, **about, **judgement})
            for member, loss, judgement in zip(group.members, losses, judgements, strict=True)
        ]

    def outputs(self, inputs: Tensor) -> Tensor:
        """(members, rows, outputs) for scaled inputs, in the members' order."""
        parts = list(self.threads.map(lambda group: group.outputs(inputs), self.groups))
        return torch.stack([parts[group][place] for group, place in self.places.values()])

    def weights(self, member: int) -> dict[str, Tensor]:
        group, place = self.places[member]
        return self.groups[group].network_weights(place)

    def state(self, member: int) -> tuple[dict[str, Tensor], dict[str, str]]:
        """One member's state, in the form of the reference's."""
        group, place = self.places[member]
        text = {"step": self.step, "seconds": self.seconds, "history": self.history[member],
                "diverged_at": self.diverged_at.get(member)}  # fmt: skip
        return self.groups[group].state(place), {"fit": json.dumps(text)}

    def _restore(self, texts: list[dict[str, Any]]) -> None:
        self.step, self.seconds = texts[0]["step"], texts[0]["seconds"]
        for member, text in zip(self.members, texts, strict=True):
            self.history[member] = text["history"]
            if text["diverged_at"] is not None:
                self.diverged_at[member] = text["diverged_at"]

    def accuracies(self) -> dict[int, float | None]:
        """Training accuracy of each member."""
        if not isinstance(self.plan.task.likelihood, Categorical):
            return dict.fromkeys(self.members)
        seen = self.plan.seen()
        correct = torch.zeros(len(self.members))
        for rows in seen.source.batches(torch.arange(len(seen.source)).split(4096)):
            correct += (self.outputs(self.plan.task.standardise(rows.inputs)).argmax(-1) == rows.labels).sum(1)
        return {m: int(c) / len(seen.source) for m, c in zip(self.members, correct, strict=True)}

    def close(self) -> None:
        self.threads.shutdown()


def run(job: Job) -> list[Finished]:
    """Train the job's members together, in slices short enough to show progress, to checkpoint and to be stopped."""
    before = torch.get_num_threads()
    fit = VectorisedFit(job.plan, job.members, _saved(job))
    keeper = Keeper(job)
    try:
        while fit.step < fit.total_steps and len(fit.diverged_at) < len(job.members):
            fit.advance(_slice(job, fit))
            for member in job.members:
                job.progress.moved(member, fit.step, fit.total_steps, _last_loss(fit, member))
            stop = job.stop()
            if job.folder is not None and (stop or keeper.due(fit.step, fit.steps_an_epoch)):
                for member in job.members:
                    job.folder.checkpoints(member).write(fit.step, *fit.state(member))
                keeper.saved = time.monotonic()
            if stop:
                raise Interrupted
        return [_finished(job, fit, member, accuracy) for member, accuracy in fit.accuracies().items()]
    finally:
        fit.close()
        torch.set_num_threads(before)  # the groups' threads pin theirs, which is a default for new threads


def _slice(job: Job, fit: VectorisedFit) -> int:
    """Steps until something may be due: whole epochs, about a fifth of a second, never past a checkpoint's epoch."""
    pace = fit.seconds / fit.step if fit.step and fit.seconds else 0.01
    epochs = max(1, int(0.2 / pace / fit.steps_an_epoch))
    if job.every.epochs is not None:
        epochs = min(epochs, job.every.epochs - fit.step // fit.steps_an_epoch % job.every.epochs)
    return epochs * fit.steps_an_epoch


def _saved(job: Job) -> list[tuple[dict[str, Tensor], Any]] | None:
    """The newest checkpoint that all members have: a kill may have come between two of them."""
    if job.folder is None:
        return None
    stores = [job.folder.checkpoints(member) for member in job.members]
    common = set.intersection(*(set(store.steps()) for store in stores))
    if not common:
        return None
    saved = [store.read(max(common)) for store in stores]
    return [state for state in saved if state is not None]


def _last_loss(fit: VectorisedFit, member: int) -> float:
    history = fit.history[member]
    return float(history[-1]["loss"]) if history else float("nan")


def _finished(job: Job, fit: VectorisedFit, member: int, accuracy: float | None) -> Finished:
    diverged = fit.diverged_at.get(member)
    epochs = fit.step // fit.steps_an_epoch
    summary = Summary(member, fit.step, epochs, round(fit.seconds, 3), None if diverged else accuracy, diverged,
                      fit.history[member])  # fmt: skip
    weights = fit.weights(member)
    job.finish(summary, weights)
    return summary, weights
