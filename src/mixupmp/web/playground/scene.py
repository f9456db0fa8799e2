"""What the playground shows, as one value: points, predictive and recipe. Its link and its Python give the same."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Annotated, TypeAlias

import torch
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows
from mixupmp.data import load
from mixupmp.data.clusters import LIMIT
from mixupmp.train.plans import plan_for
from mixupmp.web.playground.futures import futures
from mixupmp.web.report.snippet import method_call, recipe_call

# Limits on what a page may request from the machine that serves it.
MOST_POINTS, MOST_CLASSES, MOST_MEMBERS, MOST_STEPS = 3000, 8, 16, 20_000


def _not_nan(value: float) -> float:
    if not value >= 0:
        raise ValueError("r must be in [0, infinity]")
    return value


def _known_future(name: str) -> str:
    if name not in (known := futures()):
        raise ValueError(f"predictive must be one of {', '.join(known)}")
    return name


def _infinity(value: object) -> object:
    return inf if value == "inf" else value  # JSON has no infinity


Predictive = Annotated[str, AfterValidator(_known_future)]
Ratio = Annotated[float, Field(strict=True), BeforeValidator(_infinity), AfterValidator(_not_nan)]
Scale = Annotated[float, Field(strict=True, ge=0.01, le=100, allow_inf_nan=False)]
Rate = Annotated[float, Field(strict=True, ge=1e-4, le=5, allow_inf_nan=False)]
Coordinate = Annotated[float, Field(strict=True, ge=-LIMIT, le=LIMIT, allow_inf_nan=False)]
Label = Annotated[int, Field(strict=True, ge=0, lt=MOST_CLASSES)]
Point: TypeAlias = tuple[Coordinate, Coordinate, Label]
Points = Annotated[tuple[Point, ...], Field(min_length=2, max_length=MOST_POINTS)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Scene:
    """One view of the playground.

    Parameters
    ----------
    predictive
        Which future, a name of `futures`.
    ratio, alpha, variance
        r, alpha of blends and the variance of perturbed copies, where the future has them.
    members, steps, learning_rate, seed
        Of the fit.
    points
        (x, y, class) rows; None is the paper's clusters.
    """

    predictive: Predictive = "mixup-mp"
    ratio: Ratio = 1.0
    alpha: Scale = 1.0
    variance: Scale = 4.0
    members: Annotated[int, Field(strict=True, ge=1, le=MOST_MEMBERS)] = 10
    steps: Annotated[int, Field(strict=True, ge=1, le=MOST_STEPS)] = 3000
    learning_rate: Rate = 0.5
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    points: Points | None = None

    @classmethod
    def from_json(cls, body: bytes) -> Scene:
        """A scene from a page; unknown keys, wrong types and numbers out of range are refused by name."""
        try:
            return TypeAdapter(cls).validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            name = ".".join(map(str, first["loc"])) or "scene"
            raise InvalidArgument(name, first["input"], f"as the playground allows: {first['msg']}") from None

    def method(self) -> Method:
        """The predictive, with an explicit ensemble."""
        future = futures()[self.predictive]
        return future.make(members=self.members, **{name: getattr(self, name) for name in future.settings})

    def recipe(self) -> Recipe:
        """Plain gradient descent on all rows at once, as in the paper's 2-D example."""
        return Recipe(
            epochs=self.steps,
            batch_size=None,
            learning_rate=self.learning_rate,
            momentum=0.0,
            nesterov=False,
            weight_decay=0.0,
            schedule="constant",
        )

    def dataset(self) -> Dataset:
        """The paper's clusters, or the points that were drawn."""
        if self.points is None:
            return load("clusters")
        return drawn(self.points)

    def plan(self) -> Plan:
        return plan_for(self.dataset(), self.method(), "mlp", self.recipe(), seed=self.seed)

    def snippet(self) -> str:
        """Python that fits the same members."""
        data = 'dataset = mixupmp.data.load("clusters")'
        if self.points is not None:
            listed = ", ".join(f"({x:g}, {y:g}, {label})" for x, y, label in self.points)
            data = f"from mixupmp.web.playground.scene import drawn\n\ndataset = drawn([{listed}])  # (x, y, class)"
        return "\n".join(
            (
                "import mixupmp",
                "import mixupmp.data",
                data,
                f"method = {method_call(self.method())}",
                f"recipe = {recipe_call(self.recipe())}",
                f"plan = mixupmp.plan_for(dataset, method, 'mlp', recipe, seed={self.seed})",
                "posterior = mixupmp.fit(plan, engine='vectorized', keep_collapsed=True)  # as the page shows",
            )
        )


def drawn(points: Iterable[Point]) -> Dataset:
    """A dataset of hand-drawn (x, y, class) points, which are its test rows too."""
    checked = Scene(points=tuple(points)).points or ()
    inputs = torch.tensor([(x, y) for x, y, _ in checked], dtype=torch.float32)
    labels = torch.tensor([label for _, _, label in checked])
    if len(labels.unique()) < 2:
        raise BadData("all points are of one class: draw some of a second one, so that there is something to learn.")
    rows = Rows(inputs, labels)
    return Dataset("drawn", rows, rows, tuple(str(k + 1) for k in range(int(labels.max()) + 1)))
