"""What the playground shows, as one value: points, predictive and recipe. Its link and its Python say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import torch

from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.methods import Method, bayesian_bootstrap, dp_mp_perturbed, dp_mp_uniform, mixup_mp
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows
from mixupmp.data import load
from mixupmp.data.clusters import LIMIT
from mixupmp.train.plans import plan_for

PREDICTIVES = ("mixup-mp", "bayesian-bootstrap", "dp-mp-perturbed", "dp-mp-uniform")
# What a page may ask of the machine that serves it.
MOST_POINTS, MOST_CLASSES, MOST_MEMBERS, MOST_STEPS = 3000, 8, 16, 20_000


@dataclass(frozen=True)
class Scene:
    """One view of the playground."""

    predictive: str = "mixup-mp"
    ratio: float = 1.0
    alpha: float = 1.0  # of Mixup
    variance: float = 4.0  # of Perturbed
    members: int = 10
    steps: int = 3000
    learning_rate: float = 0.5
    seed: int = 0
    points: tuple[tuple[float, float, int], ...] | None = None  # (x, y, class); None: the paper's clusters

    def __post_init__(self) -> None:
        known = ", ".join(PREDICTIVES)
        check(self.predictive in PREDICTIVES, "predictive", self.predictive, f"one of {known}")
        check(self.ratio >= 0, "ratio", self.ratio, "r in [0, infinity]")
        for name, low, high in (("alpha", 0.01, 100.0), ("variance", 0.01, 100.0), ("learning_rate", 1e-4, 5.0)):
            value = getattr(self, name)
            check(isfinite(value) and low <= value <= high, name, value, f"from {low:g} to {high:g}")
        for name, most in (("members", MOST_MEMBERS), ("steps", MOST_STEPS)):
            value = getattr(self, name)
            check(1 <= value <= most, name, value, f"from 1 to {most}")
        check(0 <= self.seed < 2**31, "seed", self.seed, "from 0 to 2147483647")
        if self.points is not None:
            _check_points(self.points)

    @classmethod
    def from_json(cls, told: Any) -> Scene:
        """A scene as a page tells it: unknown keys, wrong types and numbers out of range are refused by name."""
        if not isinstance(told, Mapping):
            raise InvalidArgument("scene", told, "a JSON object")
        kinds = {"predictive": str, "members": int, "steps": int, "seed": int, "points": list}
        given: dict[str, Any] = {}
        for name, value in told.items():
            check(name in cls.__dataclass_fields__, "scene", name, f"made of {', '.join(cls.__dataclass_fields__)}")
            if value is None:
                continue
            if name == "ratio" and value == "inf":
                value = inf
            wanted = kinds.get(name, float)
            right = isinstance(value, int | float) if wanted is float else isinstance(value, wanted)
            check(right and not isinstance(value, bool), name, value, f"a {wanted.__name__}")
            given[name] = tuple(map(_point, value)) if name == "points" else value
        return cls(**given)

    def method(self) -> Method:
        """Which future, with an explicit ensemble."""
        if self.predictive == "bayesian-bootstrap":
            return bayesian_bootstrap(self.members)
        if self.predictive == "dp-mp-perturbed":
            return dp_mp_perturbed(self.ratio, self.variance, self.members)
        if self.predictive == "dp-mp-uniform":
            return dp_mp_uniform(self.ratio, -LIMIT, LIMIT, self.members)
        return mixup_mp(self.ratio, self.alpha, self.members)

    def recipe(self) -> Recipe:
        """Plain gradient descent on all rows at once, as in the paper's 2-D example."""
        return Recipe(
            epochs=self.steps, batch_size=None, learning_rate=self.learning_rate, momentum=0.0, nesterov=False,
            weight_decay=0.0, schedule="constant",
        )  # fmt: skip

    def dataset(self) -> Dataset:
        """The paper's clusters, or the points that were drawn."""
        if self.points is None:
            return load("clusters")
        return drawn(self.points)

    def plan(self) -> Plan:
        return plan_for(self.dataset(), self.method(), "mlp", self.recipe(), seed=self.seed)

    def snippet(self) -> str:
        """Python that fits the same members."""
        ratio = "float('inf')" if self.ratio == inf else f"{self.ratio:g}"
        calls = {
            "bayesian-bootstrap": f"bayesian_bootstrap(members={self.members})",
            "dp-mp-perturbed": f"dp_mp_perturbed(ratio={ratio}, variance={self.variance:g}, members={self.members})",
            "dp-mp-uniform": f"dp_mp_uniform(ratio={ratio}, low=-15, high=15, members={self.members})",
            "mixup-mp": f"mixup_mp(ratio={ratio}, alpha={self.alpha:g}, members={self.members})",
        }
        data = 'dataset = mixupmp.data.load("clusters")'
        if self.points is not None:
            listed = ", ".join(f"({x:g}, {y:g}, {label})" for x, y, label in self.points)
            data = f"from mixupmp.web.playground.scene import drawn\n\ndataset = drawn([{listed}])  # (x, y, class)"
        return "\n".join(
            (
                "import mixupmp",
                "import mixupmp.data",
                data,
                f"method = mixupmp.{calls[self.predictive]}",
                f"recipe = mixupmp.Recipe(epochs={self.steps}, batch_size=None, learning_rate={self.learning_rate:g},",
                "                        momentum=0, nesterov=False, weight_decay=0, schedule='constant')",
                f"plan = mixupmp.plan_for(dataset, method, 'mlp', recipe, seed={self.seed})",
                "posterior = mixupmp.fit(plan, engine='vectorized')",
            )
        )


def drawn(points: Any) -> Dataset:
    """A dataset of hand-drawn (x, y, class) points, which are its test rows too."""
    checked = tuple(map(_point, points))
    _check_points(checked)
    inputs = torch.tensor([(x, y) for x, y, _ in checked], dtype=torch.float32)
    labels = torch.tensor([label for _, _, label in checked])
    rows = Rows(inputs, labels)
    return Dataset("drawn", rows, rows, tuple(str(k + 1) for k in range(int(labels.max()) + 1)))


def _point(told: Any) -> tuple[float, float, int]:
    if not isinstance(told, list | tuple) or len(told) != 3:
        raise InvalidArgument("points", told, "a list of (x, y, class)")
    x, y, label = told
    number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (x, y))
    check(number and isinstance(label, int) and not isinstance(label, bool), "points", told, "(x, y, class) numbers")
    return float(x), float(y), label


def _check_points(points: tuple[tuple[float, float, int], ...]) -> None:
    check(2 <= len(points) <= MOST_POINTS, "points", f"{len(points)} points", f"2 to {MOST_POINTS} points")
    for x, y, label in points:
        inside = -LIMIT <= x <= LIMIT and -LIMIT <= y <= LIMIT
        check(inside, "points", (x, y), f"within -{LIMIT:g} and {LIMIT:g}")
        check(0 <= label < MOST_CLASSES, "points", label, f"of classes 0 to {MOST_CLASSES - 1}")
    if len({label for _, _, label in points}) < 2:
        raise BadData("all points are of one class: draw some of a second one, so that there is something to learn.")
