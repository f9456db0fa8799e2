"""`encode` and `decode`: every value of ours comes back equal, and nothing else is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from mixupmp import ALL_METHODS, Categorical, Dataset, Gaussian, Method, Recipe, Standardize, Task
from mixupmp.core.base_measures import BaseMeasure, ClassAdjustedMixup, Mixup
from mixupmp.core.errors import InvalidArgument, MixupMPError, UnknownName
from mixupmp.core.foreign import Foreign
from mixupmp.core.kernels import Compose, HorizontalFlip, PadCrop, RandomResizedCrop
from mixupmp.core.methods import arguments_of, deep_ensemble, mixup_mp
from mixupmp.core.plan import Plan
from mixupmp.core.recipe import paper_bootstrap, paper_clusters, paper_images
from mixupmp.core.spec import decode, encode
from mixupmp.networks import MLP, Network, named
from mixupmp.train.plans import plan_for
from mixupmp.train.settings import DataSettings, Settings, settings_from


def through_json(value: object) -> Any:
    return json.loads(json.dumps(encode(value), allow_nan=False))


@pytest.mark.parametrize("constructor", ALL_METHODS)
def test_every_method_comes_back(constructor: Callable[..., Method]) -> None:
    method = constructor()
    assert decode(through_json(method), Method) == method
    arguments = arguments_of(method)
    assert arguments is not None
    assert constructor(**arguments) == method


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Recipe(), Recipe),
        (paper_images(), Recipe),
        (paper_clusters(), Recipe),
        (paper_bootstrap(), Recipe),
        (named("mlp", (4,), 3, 0.1), Network),
        (named("cnn", (1, 20, 20), 3), Network),
        (named("wrn-10-1", (3, 32, 32), 10), Network),
        (Network("mixupmp.networks.MLP", {"features": 4, "outputs": 2, "hidden": [8, 8]}), Network),
        (Task(Categorical(3), Standardize((0.1,), (2.0,)), (1, 4, 4), ("a", "b", "c")), Task),
        (Task(Gaussian(), Standardize(), (4,)), Task),
        (ClassAdjustedMixup(0.5, (True, False)), BaseMeasure),
        (mixup_mp(inf, kernel=Compose((PadCrop(2), HorizontalFlip(), RandomResizedCrop()))), Method),
        (Settings(data=DataSettings("table.csv", label="y"), method=deep_ensemble(2)), Settings),
    ],
)
def test_every_part_of_a_plan_comes_back(value: object, kind: type) -> None:
    assert decode(through_json(value), kind) == value


def test_a_method_may_be_a_call_of_its_constructor() -> None:
    short = {"name": "mixup-mp", "ratio": "inf", "kernel": ["pad-crop", "flip"]}
    assert decode(short, Method) == mixup_mp(inf, kernel=Compose((PadCrop(4), HorizontalFlip())))
    assert decode({"name": "deep-ensemble", "members": 2}, Method) == deep_ensemble(2)


def test_numbers_of_numpy_are_numbers() -> None:
    assert encode(Mixup(np.float32(0.5))) == {"type": "Mixup", "alpha": 0.5}
    assert decode({"epochs": 3, "learning_rate": 1}, Recipe).learning_rate == 1.0


FULL = {"type": "Method", "name": "mine", "sampler": {"type": "Ensemble", "members": 2}}


@pytest.mark.parametrize(
    ("document", "kind", "error", "message"),
    [
        ({"epochs": "3"}, Recipe, InvalidArgument, r"it\.epochs must be a whole number, got '3'"),
        ({"epochs": True}, Recipe, InvalidArgument, r"it\.epochs must be a whole number"),
        ({"epochs": 3.0}, Recipe, InvalidArgument, r"it\.epochs must be a whole number"),
        ({"epochs": 0}, Recipe, InvalidArgument, r"it\.epochs must be a whole number, at least 1, got 0"),
        ({"nesterov": 1}, Recipe, InvalidArgument, r"it\.nesterov must be true or false"),
        ({"batch_size": "all"}, Recipe, InvalidArgument, r"it\.batch_size must be a whole number or left out"),
        ({"milestones": 3}, Recipe, InvalidArgument, r"it\.milestones must be a list"),
        ({"epoch": 3}, Recipe, UnknownName, r"setting in \[it\] 'epoch'\. Did you mean 'epochs'"),
        ([1], Recipe, InvalidArgument, "it must be a table of settings"),
        ({"type": "Task"}, Recipe, InvalidArgument, "must be a Recipe"),
        ({"name": "mixup-pm"}, Method, UnknownName, "Did you mean 'mixup-mp'"),
        ({"name": "mixup-mp", "ratoi": 1}, Method, UnknownName, "Did you mean 'ratio'"),
        ({"name": "deep-ensemble", "ratio": 1}, Method, InvalidArgument, r"it\.ratio must be left out"),
        ({"name": "mixup-mp", "ratio": -1}, Method, InvalidArgument, r"it\.ratio must be r = c/n"),
        (FULL, Method, InvalidArgument, r"it\.predictive must be given"),
        ({**FULL, "predictive": {"ratio": "1"}}, Method, InvalidArgument, r"it\.predictive\.ratio must be a number"),
        ({**FULL, "predictive": {"base": {"type": "Mixpu"}}}, Method, UnknownName, "Did you mean 'Mixup'"),
        (
            {**FULL, "predictive": {"base": {"type": "os.system"}}},
            Method,
            InvalidArgument,
            r"it\.predictive\.base must",
        ),
        ({"type": "Network", "path": "os.system"}, Network, InvalidArgument, r"it\.path must be one of"),
    ],
)
def test_what_cannot_be_read_is_named(document: Any, kind: type, error: type[MixupMPError], message: str) -> None:
    with pytest.raises(error, match=message):
        decode(document, kind, "it")


def double(inputs: Tensor) -> Tensor:
    return inputs * 2


@dataclass(frozen=True)
class OwnMixup(Mixup):
    """A user's class; one of the same name as ours must not be taken for it."""


OwnMixup.__name__ = OwnMixup.__qualname__ = "Mixup"


def test_what_is_not_ours_is_compared_but_not_read(table: Dataset) -> None:
    own = mixup_mp(kernel=double)  # type: ignore[arg-type]
    assert through_json(own) != through_json(mixup_mp())
    with pytest.raises(InvalidArgument, match=r"method\.predictive\.kernel must be one of .*Pass what is your own"):
        decode(through_json(own), Method, "method")
    shown = decode(through_json(own), Method, keep_foreign=True)
    assert isinstance(shown.predictive.kernel, Foreign)
    assert "double" in repr(shown.predictive.kernel)
    assert encode(OwnMixup(1.0)) != encode(Mixup(1.0))
    plan = plan_for(table, mixup_mp(), lambda: MLP(4, 3), Recipe(epochs=1))
    with pytest.raises(InvalidArgument, match="network must be a table of settings"):
        decode(plan.spec()["network"], Network, "network")


def test_a_plans_spec_is_settings_that_make_it_again(table: Dataset) -> None:
    plan = plan_for(table, mixup_mp(0.5, kernel=double), "mlp", {"epochs": 3}, seed=4)  # type: ignore[arg-type]
    settings = settings_from({**plan.spec(), "method": encode(mixup_mp(0.5))})
    again: Plan = plan_for(table, settings.method, settings.network, settings.recipe, seed=settings.seed)
    assert {**again.spec(), "method": 0} == {**plan.spec(), "method": 0}
    assert settings_from(plan_for(table, mixup_mp(0.5)).spec(), {"method": {"ratio": 2.0}}).method == mixup_mp(2.0)
