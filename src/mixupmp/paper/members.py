"""Trained members by the hash of their configuration, so that no experiment trains a network that another has.

What decides a network's bits is its predictive, its architecture, its recipe, its data, its seed and its number; not
the name of the method, nor how samples are made of the network afterwards. So a member of the deep ensemble, the same
number of MixupMP with r = 0, the single network and the network under a Laplace approximation are one cached fit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from mixupmp.core.foreign import Json
from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import AllDiverged, Posterior
from mixupmp.core.predictive import Predictive
from mixupmp.core.samplers import Ensemble
from mixupmp.core.spec import encode
from mixupmp.core.weights import Expected
from mixupmp.store.folder import RunFolder
from mixupmp.train.vectorized.group import unsuited, vectorizable

CACHE_FORMAT = 4  # to be raised when the same configuration comes to give other weights


@dataclass(frozen=True, eq=False)
class Wanted:
    """A posterior that an experiment needs: a plan, or some of its members."""

    plan: Plan
    members: tuple[int, ...] | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.plan.method.sampler.networks)) if self.members is None else self.members

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """What has to be trained for it: each network by itself, or all at once where they share one program."""
        document = self.plan.document()
        alike = vectorizable(self.plan.template, self.plan.task.input_shape)
        if alike and unsuited(self.plan) is None and len(self.numbers) > 1:
            return (Piece(self.plan, self.numbers, "vectorized", document),)
        return tuple(Piece(self.plan, (number,), "inline", document) for number in self.numbers)

    @cached_property
    def key(self) -> str:
        """A hash of its networks and of how samples are made of them."""
        sampler = (repr(self.plan.method.sampler), self.plan.seed) if not self.is_ensemble else ()
        return _hash([*(piece.key for piece in self.pieces), *map(str, sampler)])

    @property
    def is_ensemble(self) -> bool:
        return isinstance(self.plan.method.sampler, Ensemble)


@dataclass(frozen=True, eq=False)
class Piece:
    """The unit of training and of the cache: one network, or several that are trained in one program."""

    plan: Plan
    members: tuple[int, ...]
    engine: str
    document: dict[str, Json]

    @cached_property
    def key(self) -> str:
        spec, fingerprints = self.document["spec"], dict(self.document["fingerprints"])
        initial = fingerprints.pop("initial_sha256", None)
        return _hash(
            {
                "format": CACHE_FORMAT,
                "predictive": encode(_simplified(self.plan.method.predictive)),
                # A measure that adapts is judged by the posterior of the network, so there the sampler counts.
                "sampler": repr(self.plan.method.sampler) if self.plan.method.predictive.adaptive else None,
                **{name: spec[name] for name in ("network", "recipe", "task", "seed")},
                "data": fingerprints,
                "initial": None if initial is None else [initial[number] for number in self.members],
                "members": list(self.members),
                "engine": self.engine,
                "torch": self.document["versions"]["torch"].partition("+")[0],
            }
        )

    @property
    def lean_plan(self) -> Plan:
        """The plan of these networks alone: what different methods that share them have in common."""
        method = self.plan.method
        sampler = method.sampler if method.predictive.adaptive else Ensemble(max(self.members) + 1)
        lean = Method("member", _simplified(method.predictive), sampler, method.dropout, method.validation_fraction)
        initial = None if self.plan.initial is None else self.plan.initial[: max(self.members) + 1]
        return replace(self.plan, method=lean, initial=initial)

    def on(self, device: str) -> Piece:
        """The same networks, trained on another device."""
        return self if device == self.plan.device else replace(self, plan=replace(self.plan, device=device))

    @property
    def steps(self) -> int:
        """The most steps it can take."""
        rows, batch = len(self.plan.train), self.plan.recipe.batch_size or len(self.plan.train)
        return self.plan.recipe.epochs * max(1, -(-rows // batch))


@dataclass(frozen=True)
class Cache:
    """A folder of run folders, each named by the hash of what it holds."""

    path: Path

    def folder(self, piece: Piece) -> RunFolder:
        return RunFolder(self.path / "members" / piece.key[:2] / piece.key[:20])

    def has(self, piece: Piece) -> bool:
        """Whether every member of the piece is finished."""
        return all(self.folder(piece).summary(number) is not None for number in piece.members)

    def finished(
        self, wanted: Wanted, keep_collapsed: bool = False
    ) -> Iterator[tuple[MemberSummary, dict[str, Tensor]]]:
        """How each network ended, and its weights: none where it diverged. Weights are checked by their hash."""
        for piece in wanted.pieces:
            folder = self.folder(piece)
            for number in piece.members:
                summary = folder.summary(number)
                assert summary is not None, "ask for a posterior after it is trained"
                if keep_collapsed:
                    summary = replace(summary, keep=True)
                yield summary, folder.weights(number) if summary.diverged_at is None else {}

    def posterior(self, wanted: Wanted, keep_collapsed: bool = False, device: str | None = None) -> Posterior | None:
        """The posterior of the trained networks, on this device or the plan's; None where all of them diverged."""
        plan = wanted.plan if device in (None, wanted.plan.device) else replace(wanted.plan, device=device)
        try:
            return plan.posterior(list(self.finished(wanted, keep_collapsed)))
        except AllDiverged:
            return None


def default_cache() -> Path:
    """$MIXUPMP_CACHE, or a folder of the user's cache."""
    return Path(os.environ.get("MIXUPMP_CACHE") or Path.home() / ".cache" / "mixupmp" / "runs")


def pieces_of(wanted: Sequence[Wanted]) -> list[Piece]:
    """What has to be trained for all of these, each piece once."""
    unique: dict[str, Piece] = {}
    for one in wanted:
        for piece in one.pieces:
            unique.setdefault(piece.key, piece)
    return list(unique.values())


def _simplified(predictive: Predictive) -> Predictive:
    """The same future without settings that it does not use: with r = 0 there is no base measure."""
    unused = predictive.ratio == 0 and isinstance(predictive.weights, Expected) and not predictive.adaptive
    return replace(predictive, ratio=float(predictive.ratio), base=None if unused else predictive.base)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
