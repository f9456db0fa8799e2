"""How candidates are trained: successive halving over members, or all of them side by side from length to length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from mixupmp.core.threads import cores
from mixupmp.decide.evaluator import CandidateResult, HeldOutEvaluator
from mixupmp.decide.search import Candidate
from mixupmp.decide.trajectory import Training


class _Tried(NamedTuple):
    """A training length: the loss of each held-out row, averaged probabilities, and the outputs of each fold."""

    losses: Tensor
    probabilities: Tensor | None
    outputs: list[Tensor]

    @classmethod
    def of(cls, evaluator: HeldOutEvaluator, outputs: list[Tensor]) -> _Tried:
        return cls(*evaluator.losses(outputs), outputs)


class Trial:
    """A candidate's members so far, their outputs on held-out rows, and its result."""

    def __init__(self, candidate: Candidate, evaluator: HeldOutEvaluator) -> None:
        self.candidate, self.evaluator = candidate, evaluator
        self.result = CandidateResult(candidate)
        self.outputs: list[dict[int, list[Tensor]]] = [{} for _ in evaluator.plans]
        self.tried: dict[int, _Tried] = {}  # by training length
        self.best: list[Tensor] = []  # (members, rows, outputs) of each fold, at the length taken

    def missing(self, members: int) -> list[tuple[int, int]]:
        """(fold, member) of those that it lacks to have so many."""
        return list(product(range(len(self.outputs)), range(self.result.members, members)))

    def extend(self, members: int) -> None:
        """Train up to this many members and update the result."""
        new = list(range(self.result.members, members))
        for fold in range(len(self.outputs)):
            self.add(fold, self.evaluator.outputs(self.candidate, fold, new))
        self.update(members)

    def add(self, fold: int, outputs: dict[int, Tensor]) -> None:
        """Take over outputs of further members in a fold, by training length."""
        for epochs, found in outputs.items():
            self.outputs[fold].setdefault(epochs, []).append(found)

    def update(self, members: int) -> None:
        """The result with this many members."""
        self.result.members, self.tried = members, {}
        for epochs in self.evaluator.epochs:
            if all(epochs in outputs for outputs in self.outputs):
                self.tried[epochs] = _Tried.of(self.evaluator, [torch.cat(outputs[epochs]) for outputs in self.outputs])
        self.settle()

    def near(self, best: Trial) -> bool:
        """Whether it is not worse than the best by more than two standard errors of their difference."""
        members = self.result.members
        if not (members in self.result.losses and members in best.result.losses):
            return False  # it diverged
        mean, error = self.evaluator.difference(self.result.losses[members], best.result.losses[members])
        return mean <= 2 * error

    def start(self) -> list[Training]:
        """The training of its one network without the held-out rows of each fold."""
        self.result.members = 1
        longest = self.evaluator.epochs[-1]
        plans = [self.candidate.applied(plan) for plan in self.evaluator.plans]
        plans = [plan.varied(recipe=replace(plan.recipe, epochs=longest)) for plan in plans]
        pairs = zip(plans, self.evaluator.held, strict=True)
        return [Training(plan, 0, held.inputs) for plan, held in pairs]

    def record(self, epochs: int, outputs: list[Tensor | None]) -> bool:
        """Take down the outputs of each fold after so many epochs. Whether it is worth going on."""
        found = [out for out in outputs if out is not None]
        if len(found) < len(outputs):
            return False
        self.tried[epochs] = _Tried.of(self.evaluator, found)
        best, settled = self._lengths()
        worse, error = self.evaluator.difference(self.tried[epochs].losses, self.tried[best].losses)
        patience = self.evaluator.search.patience
        return patience is None or (sum(length > settled for length in self.tried) < patience and worse <= error)

    def _lengths(self) -> tuple[int, int]:
        """The best length of those tried, and the shortest that is as good but for some standard errors."""
        best = min(self.tried, key=lambda epochs: self.evaluator.mean(self.tried[epochs].losses))
        for epochs in sorted(self.tried):
            worse, error = self.evaluator.difference(self.tried[epochs].losses, self.tried[best].losses)
            if worse <= self.evaluator.search.length_errors * error:
                return best, epochs
        return best, best

    def settle(self) -> None:
        """Take one of the lengths tried."""
        result, evaluator = self.result, self.evaluator
        result.by_epochs = {epochs: evaluator.mean(tried.losses) for epochs, tried in self.tried.items()}
        result.score = inf
        if self.tried:
            _, epochs = self._lengths()
            result.score = result.by_epochs[epochs]
            result.losses[result.members], result.probabilities, self.best = self.tried[epochs]
            if evaluator.search.epochs is not None:
                result.candidate = replace(self.candidate, epochs=epochs)
        result.scores[result.members] = result.score


def race(trials: list[Trial], evaluator: HeldOutEvaluator, callback: Callable[[str], None] | None) -> None:
    """Train all candidates from length to length, and leave those that have not become better for some lengths.

    Networks are trained side by side in threads, if they draw from generators of their own; the same bits.
    """
    running = {trial: trial.start() for trial in trials}
    isolated = all(training.isolated for trainings in running.values() for training in trainings)
    before = torch.get_num_threads()
    with ThreadPoolExecutor(cores() if isolated else 1) as threads:
        for epochs in evaluator.epochs:
            everything = [training for trainings in running.values() for training in trainings]
            outputs = iter(list(threads.map(partial(Training.advance, epochs=epochs), everything)))
            for trial, trainings in list(running.items()):
                if not trial.record(epochs, [next(outputs) for _ in trainings]):
                    del running[trial]
    torch.set_num_threads(before)  # what a thread pins is a default for new threads
    for trial in trials:
        trial.settle()
        if callback is not None:
            callback(f"{trial.result.candidate}: score {trial.result.score:.4f}")


def halve(
    trials: list[Trial], members: int, halving: bool, callback: Callable[[str], None] | None, concurrent: int
) -> None:
    """Successive halving with members as the resource."""
    rungs = sorted({min(2**k, members) for k in range(members.bit_length() + 1)}) if halving else [members]
    for rung in rungs:
        for trial in _extended(trials, rung, concurrent):
            if callback is not None:
                callback(f"{trial.result.candidate}: {rung} members, score {trial.result.score:.4f}")
        ranked = sorted(trials, key=lambda trial: trial.result.score)
        kept = ranked[: (len(ranked) + 1) // 2]
        trials = [trial for trial in trials if trial in kept or (trial.candidate.ratio == 0 and trial.near(ranked[0]))]


def _extended(trials: list[Trial], members: int, concurrent: int) -> Iterator[Trial]:
    """The trials, each once it has so many members."""
    missing = [(trial.candidate, *which) for trial in trials for which in trial.missing(members)]
    outputs = trials[0].evaluator.side_by_side(missing)
    if outputs is not None:
        following = iter(outputs)
        for trial in trials:
            for fold, _ in trial.missing(members):
                trial.add(fold, next(following))
            trial.update(members)
            yield trial
        return
    with ThreadPoolExecutor(concurrent) as threads:
        # One after another they stay in this thread, whose number of cores is pinned.
        extended = (threads.map if concurrent > 1 else map)(partial(Trial.extend, members=members), trials)
        for trial, _ in zip(trials, extended, strict=True):
            yield trial
