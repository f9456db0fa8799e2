"""What the classifiers and the regressor share: from parameters and rows to a plan, and from a plan to a posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor

from mixupmp.core.errors import InvalidArgument, check
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.methods import Method, mixup_mp
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Rows, split
from mixupmp.decide.search import Search
from mixupmp.decide.select import Selection, select
from mixupmp.estimators.defaults import recipe_for
from mixupmp.estimators.inputs import Layout, read_again, standardizer
from mixupmp.estimators.network import check_outputs, factory_for
from mixupmp.export.onnx import export_onnx
from mixupmp.train.loggers import Logger, log_posterior, logging_to
from mixupmp.train.run import fit

# Tables are answered in blocks of this many rows, the last one filled up: a matrix product of another height may round
# differently, and a row's answer must not depend on which others were asked with it.
BLOCK_ROWS = 256


class PosteriorEstimator(ABC, BaseEstimator):  # type: ignore[misc]
    """Parameters every estimator here has. Subclasses say which method, and read labels their own way."""

    network: Any
    fine_tune: bool
    recipe: Recipe | None
    epochs: int | None
    engine: Any
    device: str
    random_state: Any
    logger: Logger | None
    posterior_: Posterior
    layout_: Layout

    @abstractmethod
    def _method(self) -> tuple[Method, Search | None]:
        """The method, and the search for its ratio and alpha where they are to be chosen."""

    def _fit_posterior(
        self,
        rows: Rows,
        layout: Layout,
        likelihood: Categorical | Gaussian,
        classes: tuple[str, ...] = (),
        validation: Rows | None = None,
    ) -> None:
        method, search = self._method()
        standardize = standardizer(rows.inputs, rows.weights)
        factory = factory_for(self.network, self.fine_tune, layout, likelihood.outputs, method.dropout)
        check_outputs(factory, layout, likelihood.outputs, standardize)
        images = layout.kind == "images"
        recipe = self._recipe(len(rows), images)
        seed = seed_of(self.random_state)
        if method.validation_fraction and validation is None:
            rows, validation = split(rows, method.validation_fraction, seed)
        task = Task(likelihood, standardize, layout.shape, classes)
        plan = Plan(method, factory, rows, task, recipe, seed, validation, device=self.device)
        self.selection_: Selection | None = None
        if search is not None:
            self.selection_ = select(plan, search, engine=self.engine)
            plan = self.selection_.chosen.applied(plan)
        self.posterior_ = fit(plan, engine=self.engine, progress=logging_to(self.logger, plan))
        log_posterior(self.logger, self.posterior_, validation)
        self.layout_ = layout
        self.method_ = plan.method

    def _recipe(self, rows: int, images: bool) -> Recipe:
        if self.recipe is None:
            return recipe_for(rows, images, self.fine_tune, self.epochs)
        check(isinstance(self.recipe, Recipe), "recipe", self.recipe, "a mixupmp.Recipe, or None")
        return self.recipe if self.epochs is None else replace(self.recipe, epochs=self.epochs)

    def export_onnx(self, path: str | Path) -> dict[str, str]:
        """Write what was fitted as one ONNX graph, with its scaling and calibration; returns its metadata."""
        check_is_fitted(self)
        calibrator = getattr(self, "calibrator_", None)
        target = (getattr(self, "target_mean_", 0.0), getattr(self, "target_deviation_", 1.0))
        return export_onnx(self.posterior_, path, pixels=self.layout_.pixels, calibrator=calibrator, target=target)

    def _inputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return read_again(self, X, self.layout_)

    def _blocks(self, inputs: Tensor) -> Iterator[Tensor]:
        """(members, rows, outputs) of each block of rows."""
        if self.layout_.kind == "images":
            yield from self.posterior_.stream_outputs(inputs)
        else:
            yield from self.posterior_.stream_outputs(inputs, BLOCK_ROWS, pad=True)

    def _member_outputs(self, X: Any) -> Tensor:
        return torch.cat([block.cpu() for block in self._blocks(self._inputs(X))], 1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


class MixupParameters:
    """The numbers of a fit by MixupMP, given or chosen."""

    method_: Method

    @property
    def ratio_(self) -> float:
        """r of the fit."""
        return self.method_.predictive.ratio

    @property
    def alpha_(self) -> float | None:
        """alpha of the fit; None where r = 0 left nothing to blend."""
        return getattr(self.method_.predictive.base, "alpha", None)


def seed_of(random_state: Any) -> int:
    """The seed: the number itself, or one drawn from a generator (numpy's global one for None)."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))


def weights_of(sample_weight: Any, count: int, factors: Any = None) -> Tensor | None:
    """Sample weights times class weights, as they are; None where every row counts one."""
    if sample_weight is None and factors is None:
        return None
    given = _check_sample_weight(sample_weight, np.empty((count, 1)), ensure_non_negative=True)
    weights = torch.from_numpy(np.asarray(given, np.float64) * (1.0 if factors is None else factors))
    check(float(weights.sum()) > 0, "sample_weight", "all zero", "positive for at least one row")
    return weights


def counted(inputs: Tensor, labels: Tensor, weights: Tensor | None) -> Rows:
    """The rows that count at all, their weights of mean one: so they never rescale the learning rate."""
    if weights is None:
        return Rows(inputs, labels)
    seen = weights > 0
    weights = weights[seen]
    return Rows(inputs[seen], labels[seen], (weights / weights.mean()).float())


def mixup_method(ratio: Any, alpha: Any, members: int, search: Search | None) -> tuple[Method, Search | None]:
    """MixupMP with these numbers, or with "auto" a search for them."""
    for name, value in (("ratio", ratio), ("alpha", alpha)):
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number and value != "auto":
            raise InvalidArgument(name, value, "a number, or 'auto' to choose it on validation rows")
    chosen = None
    if ratio == "auto" or alpha == "auto":
        chosen = search or Search()
        if ratio != "auto":
            chosen = replace(chosen, ratios=(0.0, float(ratio), inf))
        if alpha != "auto":
            chosen = replace(chosen, alphas=(float(alpha),))
    method = mixup_mp(1.0 if ratio == "auto" else float(ratio), 1.0 if alpha == "auto" else float(alpha), members)
    return method, chosen
