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
from torch import Tensor

from mixupmp.errors import InvalidArgument
from mixupmp.fit.group import Group
from mixupmp.fit.job import Finished, Job, Keeper
from mixupmp.fit.member import Interrupted
from mixupmp.fit.plan import Plan
from mixupmp.fit.processes import cores
from mixupmp.fit.validation import judged
from mixupmp.loss import Categorical
from mixupmp.posterior import Summary


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
        self.news: list[dict[str, Any]] = []  # of epochs that have ended, until someone has taken it
        self.diverged_at: dict[int, int] = {}
        count = min(cores(), len(members))
        dealt = [tuple(range(start, len(members), count)) for start in range(count)]
        states = None if saved is None else [tensors for tensors, _ in saved]
        # Member k of the list is dealt to group k mod count, and has its place there.
        self.places = {member: (number % count, number // count) for number, member in enumerate(members)}
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
                self.news.append({**record, "step": record["epoch"] * self.steps_an_epoch})
                record.pop("votes", None)
                self.history[member].append(record)
        self.step += steps
        self.seconds += time.perf_counter() - started

    def _advance(self, group: Group, steps: int) -> list[tuple[int, dict[str, Any]]]:
        records = []
        total, counted = torch.zeros(len(group.members)), 0
        recipe, size = self.plan.recipe, group.feed.steps_an_epoch
        group.sound.zero_()
        for step in range(self.step, self.step + steps):
            batch = group.step(step)
            epoch, rest = divmod(step + 1, size)
            wanted = recipe.records(epoch + (rest > 0))
            if wanted:
                total, counted = total + group.losses(batch), counted + 1
            if rest == 0 and wanted:
                rate = recipe.rate(step, size)
                records += self._records(group, epoch, (total / counted).tolist(), rate)
                total, counted = torch.zeros(len(group.members)), 0
        for member, sound in zip(group.members, group.sound.tolist(), strict=True):
            if sound < steps:  # what is not finite once stays so
                self.diverged_at.setdefault(member, self.step + int(sound) + 1)
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
    try:
        with Keeper(job) as keeper:
            _go_on(job, fit, keeper)
        return [_finished(job, fit, member, accuracy) for member, accuracy in fit.accuracies().items()]
    finally:
        fit.close()
        torch.set_num_threads(before)  # the groups' threads pin theirs, which is a default for new threads


def _go_on(job: Job, fit: VectorisedFit, keeper: Keeper) -> None:
    """Slice by slice to the end."""
    while fit.step < fit.total_steps and len(fit.diverged_at) < len(job.members):
        fit.advance(_slice(job, fit))
        for member in job.members:
            job.progress.moved(member, fit.step, fit.total_steps, _last_loss(fit, member))
        for record in fit.news:
            job.progress.recorded(record)
        fit.news.clear()
        stop = job.stop()
        due = keeper.due(fit.step, fit.steps_an_epoch) and fit.step < fit.total_steps
        if job.folder is not None and (stop or due):
            keeper.save(job.folder, fit.step, {member: fit.state(member) for member in job.members})
        if stop:
            keeper.written()
            raise Interrupted


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
