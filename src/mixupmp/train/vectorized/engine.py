"""All members of a small network in one program of batched matrix products.

For a network of linear layers and ReLU, calling an operation costs more than what it computes; doing all members in
one call shares that cost, and writing the backward pass by hand leaves autograd's out. Members are split into one
group for each core, because two-thread OpenMP spins and collapses when anything else wants the cores. A group is a
thread with its own program; in a long fit, or where workers are waiting, it is a process, which need not share Python's
lock. Whether the last bit of a product is rounded up can depend on how many matrices are multiplied at once, and on
where in memory they lie, so a run keeps its groups: they are formed from all its members and the cores of the
machine it was started on, and when it is resumed, finished members are computed along with the rest of their group.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import ceil

import torch
from torch import Tensor

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.member_summary import EpochRecord, MemberSummary
from mixupmp.core.plan import Plan
from mixupmp.core.threads import cores, pinned_threads
from mixupmp.train import pool, processes
from mixupmp.train.job import CheckpointWriter, Finished, Job, State, members_locked
from mixupmp.train.pool import NotPicklable
from mixupmp.train.state import parse_progress, size_limit
from mixupmp.train.validation import outputs_constant, probed_inputs, take_votes, validation_scores
from mixupmp.train.vectorized.group import Group, unsuited

# Seconds of work (on one core) for which processes beat threads by more than it takes to send a plan to workers, and to
# start them before that.
WARM, COLD = 1.0, 15.0


class VectorizedFit:
    """Groups of members, all of them at the same step; each group is trained by a thread.

    `saved` is the state of each member that is to go on. The others of its group are companions.
    """

    def __init__(self, plan: Plan, groups: list[tuple[int, ...]], saved: dict[int, State] | None = None) -> None:
        if plan.recipe.epochs_after_interpolation is not None:
            raise InvalidArgument(
                "engine", "vectorized", "another engine for a recipe that stops each member by itself"
            )
        # Member k of a group has its place there.
        self.places = {m: (number, place) for number, group in enumerate(groups) for place, m in enumerate(group)}
        self.plan, self.members = plan, tuple(sorted(self.places))
        self.step = 0
        self.seconds = 0.0
        self.history: dict[int, list[EpochRecord]] = {member: [] for member in self.members}
        self.new_records: list[EpochRecord] = []  # of epochs that have ended, until callbacks were called
        self.diverged_at: dict[int, int] = {}
        with pinned_threads(1):  # as the groups' own threads: what is drawn for a future is part of the fit
            self.groups = [Group(plan, group, None if saved is None else _states(group, saved)) for group in groups]
        if saved is not None:
            self._restore({member: parse_progress(text, self.total_steps) for member, (_, text) in saved.items()})
        self.threads = ThreadPoolExecutor(len(groups), initializer=torch.set_num_threads, initargs=(1,))

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
                self.new_records.append(take_votes(record, record["epoch"] * self.steps_an_epoch))
                self.history[member].append(record)
        self.step += steps
        self.seconds += time.perf_counter() - started

    def _advance(self, group: Group, steps: int) -> list[tuple[int, EpochRecord]]:
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

    def _records(self, group: Group, epoch: int, losses: list[float], rate: float) -> list[tuple[int, EpochRecord]]:
        """This epoch in the histories of a group's members."""
        validation = self.plan.validation
        scores: list[EpochRecord] = [{} for _ in group.members]
        if validation is not None and self.plan.task.likelihood.classes:
            outputs = group.outputs(self.plan.task.standardize(validation.inputs))
            scores = [validation_scores(own, validation.labels) for own in outputs]
        about = {"epoch": epoch, "learning_rate": rate, "seconds": round(self.seconds, 3)}
        return [
            (member, {"member": member, "loss": loss, **about, **score})
            for member, loss, score in zip(group.members, losses, scores, strict=True)
        ]

    def outputs(self, inputs: Tensor) -> Tensor:
        """(members, rows, outputs) for scaled inputs, in the members' order."""
        parts = list(self.threads.map(lambda group: group.outputs(inputs), self.groups))
        return torch.stack([parts[group][place] for group, place in (self.places[m] for m in self.members)])

    def weights(self, member: int) -> dict[str, Tensor]:
        group, place = self.places[member]
        return self.groups[group].network_weights(place)

    def state(self, member: int) -> tuple[dict[str, Tensor], dict[str, str]]:
        """One member's state, in the form of the reference's."""
        group, place = self.places[member]
        text = {
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history[member],
            "diverged_at": self.diverged_at.get(member),
        }
        return self.groups[group].state(place), {"fit": json.dumps(text)}

    def _restore(self, texts: dict[int, EpochRecord]) -> None:
        for member, text in texts.items():
            self.step, self.seconds, self.history[member] = text["step"], text["seconds"], text["history"]
            if text["diverged_at"] is not None:
                self.diverged_at[member] = text["diverged_at"]

    def accuracies(self) -> dict[int, tuple[float | None, bool]]:
        """Training accuracy of each member, and whether it predicts one class for all rows."""
        if self.plan.task.likelihood.classes is None:
            return dict.fromkeys(self.members, (None, False))
        rows, scale = self.plan.training_data().rows, self.plan.task.standardize
        parts = rows.batches(torch.arange(len(rows)).split(4096))
        pairs = [(self.outputs(scale(part.inputs)).argmax(-1), part.labels) for part in parts]
        predicted, labels = (torch.cat(values, -1) for values in zip(*pairs, strict=True))
        correct, alike = (predicted == labels).sum(1), (predicted == predicted[:, :1]).all(1)
        return {m: (int(c) / len(rows), bool(a)) for m, c, a in zip(self.members, correct, alike, strict=True)}

    def collapsed(self) -> dict[int, tuple[bool, bool]]:
        """Whether each member's outputs do not depend on its inputs, and whether it predicts one class for all."""
        inputs = probed_inputs(self.plan)
        outputs = self.outputs(inputs)
        return {member: outputs_constant(inputs, own) for member, own in zip(self.members, outputs, strict=True)}

    def close(self) -> None:
        self.threads.shutdown()


def run(job: Job) -> list[Finished]:
    """Train the job's members, in worker processes if that is worth it, and in threads of this one otherwise."""
    groups = [group for group in split_members(job.all_members, job.cores) if not set(group).isdisjoint(job.members)]
    enough = WARM if pool.idle_workers() >= len(groups) else COLD
    if min(len(groups), cores()) > 1 and unsuited(job.plan) is None and _seconds(job.plan, len(job.members)) > enough:
        with contextlib.suppress(NotPicklable):  # here it can be trained as well
            return processes.run_groups(job, groups, train)
    return train(job, groups)


def train(job: Job, groups: list[tuple[int, ...]]) -> list[Finished]:
    """Train the job's members here, in slices short enough to show progress, to checkpoint and to be stopped."""
    before = torch.get_num_threads()
    finished: dict[int, Finished] = {}
    with members_locked(job.folder, job.members):
        for started, saved in _starts(job, groups):
            fit = _restored(job, started, saved)
            try:
                with CheckpointWriter(job) as writer:
                    _train_to_end(job, fit, writer)
                accuracies, collapsed = fit.accuracies(), fit.collapsed()
                finished |= {
                    member: _finished(job, fit, member, accuracies[member], collapsed[member])
                    for member in _wanted(job, fit)
                }
            finally:
                fit.close()
                torch.set_num_threads(before)  # the groups' threads pin theirs, which is a default for new threads
    return [finished[member] for member in job.members]


def split_members(members: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """At most `count` groups of about the same size."""
    return [members[start::count] for start in range(min(count, len(members)))]


def _wanted(job: Job, fit: VectorizedFit) -> list[int]:
    """The members that are not companions."""
    return [member for member in fit.members if member in job.members]


def _states(group: tuple[int, ...], saved: dict[int, State]) -> list[dict[str, Tensor]]:
    """The saved tensors of a group's members; for one that is finished, those of another, to fill its place."""
    someone = next(saved[member] for member in group if member in saved)
    return [saved.get(member, someone)[0] for member in group]


def _seconds(plan: Plan, members: int) -> float:
    """About how long the members take on one core: the arithmetic, and what each step costs besides."""
    rows = len(plan.training_data().rows)
    steps = plan.recipe.epochs * ceil(rows / (plan.recipe.batch_size or rows))
    used = plan.recipe.epochs * rows * (1 if plan.method.predictive.ratio == 0 else 2)
    weights = sum(parameter.numel() for parameter in plan.template.parameters())
    return 6 * members * weights * used / 4e10 + steps * 3e-4


def _train_to_end(job: Job, fit: VectorizedFit, writer: CheckpointWriter) -> None:
    wanted = _wanted(job, fit)
    while fit.step < fit.total_steps and not fit.diverged_at.keys() >= set(wanted):
        fit.advance(_slice(job, fit))
        for member in wanted:
            job.callback.on_step(member, fit.step, fit.total_steps, _last_loss(fit, member))
        for record in fit.new_records:
            if record["member"] in wanted:
                job.callback.on_epoch_end(record)
        fit.new_records.clear()
        due = writer.due(fit.step, fit.steps_an_epoch) and fit.step < fit.total_steps
        writer.save_or_stop(due, lambda: {member: fit.state(member) for member in wanted})


def _slice(job: Job, fit: VectorizedFit) -> int:
    """Steps until something may be due: whole epochs, about a fifth of a second, never past a checkpoint's epoch."""
    pace = fit.seconds / fit.step if fit.step and fit.seconds else 0.01
    epochs = max(1, int(0.2 / pace / fit.steps_an_epoch))
    if job.checkpoints.epochs is not None:
        epochs = min(epochs, job.checkpoints.epochs - fit.step // fit.steps_an_epoch % job.checkpoints.epochs)
    return epochs * fit.steps_an_epoch


def _starts(job: Job, groups: list[tuple[int, ...]]) -> Iterator[tuple[list[tuple[int, ...]], dict[int, State] | None]]:
    """Groups that are at the same step, with their states: those of the newest checkpoint that all have, if any.

    A kill may have come between writing two of them; and groups that were in processes of their own can be at
    different steps, and are then resumed one after the other.
    """
    if job.folder is None:
        yield groups, None
        return
    limit = size_limit(job.plan.template.state_dict())
    stores = {member: job.folder.checkpoints(member, limit) for member in job.members}
    steps = {member: set(store.steps()) for member, store in stores.items()}
    own = {group: set.intersection(*(steps[m] for m in group if m in steps)) for group in groups}
    common = set.intersection(*own.values())
    newest = {group: max(common or own[group], default=0) for group in groups}
    for step in dict.fromkeys(newest.values()):
        started = [group for group in groups if newest[group] == step]
        members = [member for group in started for member in group if member in stores]
        for member in members:
            # Later ones would be taken for the newest, and what is written from here on be removed as older.
            stores[member].forget_after(step)
        saved = {member: state for member in members if (state := stores[member].read(step)) is not None}
        yield started, saved or None


def _restored(job: Job, groups: list[tuple[int, ...]], saved: dict[int, State] | None) -> VectorizedFit:
    """The fit of these groups; an error where a checkpoint is not a state of it names the member."""
    try:
        return VectorizedFit(job.plan, groups, saved)
    except Exception:  # whatever it was, it is raised again, by the member that it comes from if there is one
        for member, state in (saved or {}).items():
            assert job.folder is not None
            with job.folder.checkpoints(member).restoring():
                VectorizedFit(job.plan, [(member,)], {member: state}).close()
        raise


def _last_loss(fit: VectorizedFit, member: int) -> float:
    history = fit.history[member]
    return float(history[-1]["loss"]) if history else float("nan")


def _finished(
    job: Job, fit: VectorizedFit, member: int, accuracy: tuple[float | None, bool], collapsed: tuple[bool, bool]
) -> Finished:
    diverged = fit.diverged_at.get(member)
    finite, length = diverged is None, (fit.step, fit.step // fit.steps_an_epoch, round(fit.seconds, 3))
    summary = MemberSummary(
        member,
        *length,
        accuracy[0] if finite else None,
        diverged,
        fit.history[member],
        finite and collapsed[0],
        finite and collapsed[1] and accuracy[1],
    )
    return job.finish(summary, job.plan.completed(fit.weights(member)))
