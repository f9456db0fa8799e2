"""What the classifiers and the regressor share: parameters, plan, posterior, saving and loading."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor

from mixupmp.core.columns import Columns
from mixupmp.core.errors import check
from mixupmp.core.fields import Fields
from mixupmp.core.foreign import Json
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.methods import Method
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Rows, Standardize
from mixupmp.core.streams import DatasetRows, IterableRows
from mixupmp.core.user_line import warn_at_user_line
from mixupmp.decide.calibrate import CalibrationWarning
from mixupmp.decide.calibrators import bound_message
from mixupmp.decide.default import Choice
from mixupmp.decide.select import Selection
from mixupmp.estimators.arrays import Layout
from mixupmp.estimators.inputs import FitInputs, Inputs, read_again, standardizer
from mixupmp.estimators.saved import estimator_classes, load_estimator, save_estimator
from mixupmp.export.flags import Flags
from mixupmp.export.onnx import export_onnx
from mixupmp.networks.factories import NetworkChoice
from mixupmp.store.load import Metrics, NetworkClass
from mixupmp.train.loggers import Logger, log_posterior, logging_to
from mixupmp.train.plans import make_plan, under_trained
from mixupmp.train.run import Engine, fit

# Tables are predicted in blocks of this many rows, the last one filled up: a matrix product of another height may round
# differently, and a row's prediction must not depend on the others it comes with.
BLOCK_ROWS = 256
RandomState = int | np.random.RandomState | None


@dataclass(eq=False, repr=False, kw_only=True)
class PosteriorEstimator(ABC, BaseEstimator):  # type: ignore[misc]
    """Parameters that every estimator here has. A subclass says which method, and reads labels in its own way."""

    network: NetworkChoice = None
    fine_tune: bool = False
    recipe: Recipe | None = None
    epochs: int | None = None
    engine: Engine = "auto"
    device: str = "cpu"
    random_state: RandomState = None
    logger: Logger | None = None

    posterior_: Posterior = field(init=False)
    layout_: Layout = field(init=False)
    method_: Method = field(init=False)
    epochs_: int = field(init=False)
    selection_: Selection | None = field(init=False)

    @abstractmethod
    def _method(self, shape: tuple[int, ...], rows: int) -> Method:
        """The method for so many rows of this shape, where nothing is chosen."""

    @abstractmethod
    def _choose(self, plan: Plan) -> Choice:
        """The plan with what is left open chosen on held-out rows."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, Json], dict[str, Tensor]]:
        """What predictions need beyond the posterior and the layout, to be saved: as JSON, and as tensors."""

    @abstractmethod
    def _restore(self, state: dict[str, Json], tensors: dict[str, Tensor]) -> None:
        """Take over what `_state` gave."""

    def _fit_posterior(
        self,
        rows: Rows | DatasetRows | IterableRows,
        given: FitInputs,
        likelihood: Categorical | Gaussian,
        classes: tuple[str, ...] = (),
        validation: Rows | None = None,
    ) -> Choice:
        layout = given.layout
        known = (rows.inputs, rows.weights) if isinstance(rows, Rows) else (given.sample, None)
        scaling: Standardize | Fields = layout.fields or standardizer(*known)
        if self._body is not None:  # a trained network takes its rows as they are
            scaling = Standardize() if layout.fields is None else layout.fields.unscaled()
        # Names, or more than numbers as they are: the server, which has the posterior alone, must know of them.
        columns, named = Columns(layout.columns), hasattr(self, "feature_names_in_")
        encoder = columns if layout.columns and (named or not columns.plain or columns.centered) else None
        usual = layout.fields is not None or layout.pixels == (len(layout.shape) == 3)
        task = Task(likelihood, scaling, layout.shape, classes, encoder, None if usual else layout.pixels)
        plan = make_plan(
            rows,
            task,
            self._method(layout.shape, len(rows)),
            self.network,
            self._recipe(),
            fine_tune=self.fine_tune,
            seed=seed_of(self.random_state),
            validation=validation,
            device=self.device,
        )
        choice = self._choose(plan)
        plan, self.selection_ = choice.plan, choice.selection
        progress = logging_to(self.logger, plan)
        self.posterior_ = choice.posterior or fit(plan, engine=self.engine, progress=progress)
        log_posterior(self.logger, self.posterior_, validation)
        self.layout_, self.method_, self.epochs_ = layout, plan.method, plan.recipe.epochs
        message = under_trained(plan, self.posterior_) if self.recipe is None and self.epochs is not None else None
        if message is not None:
            warn_at_user_line(f"{message}.", UnderTrained)
        if (message := bound_message(choice.calibrator or choice.variance)) is not None:
            warn_at_user_line(f"{message}.", CalibrationWarning)
        if choice.selection is not None and choice.selection.note is not None:
            warn_at_user_line(f"{choice.selection.note}.", WorseThanConstant)
        return choice

    @property
    def _body(self) -> str | None:
        """Where the body of a trained network ends, whose heads are fitted; None: whole networks are."""
        return getattr(self, "body", None)

    def _recipe(self) -> Recipe | dict[str, Json]:
        if self.recipe is None:
            return {} if self.epochs is None else {"epochs": self.epochs}
        check(isinstance(self.recipe, Recipe), "recipe", self.recipe, "a mixupmp.Recipe, or None")
        return self.recipe if self.epochs is None else replace(self.recipe, epochs=self.epochs)

    def save(self, folder: str | os.PathLike[str], metrics: Metrics | None = None) -> None:
        """Write the fitted estimator to a new folder: what `mixupmp.save` writes, and all that predictions need.

        Parameters that are not numbers, text, a Recipe, a Method or a Search are left out; see `load`.

        Parameters
        ----------
        folder
            Must not be there yet, or be empty.
        metrics
            Shown on its model card.

        Examples
        --------
        >>> model.save("model")  # doctest: +SKIP
        >>> MixupMPClassifier.load("model").predict_proba(X)  # doctest: +SKIP
        """
        check_is_fitted(self)
        save_estimator(self, Path(folder), metrics, estimator_classes(PosteriorEstimator))

    @classmethod
    def load(cls, folder: str | os.PathLike[str], network: NetworkClass | None = None) -> Self:
        """Read an estimator that `save` wrote; `network` builds a network that is not this package's own.

        Parameters
        ----------
        folder
            What `save` wrote.
        network
            The class or factory of a network that is not this package's own.
        """
        found = load_estimator(Path(folder), network, estimator_classes(PosteriorEstimator))
        check(
            isinstance(found, cls), "folder", str(folder), f"one with a {cls.__name__}", f"Use {type(found).__name__}."
        )
        return found

    def export_onnx(self, path: str | Path) -> dict[str, str]:
        """Write the fitted estimator as one ONNX graph, with its scaling and calibration; returns its metadata.

        A graph of a table takes its columns as `predict` does, categories and missing values included: see
        `mixupmp.export.onnx.export_onnx`.

        Parameters
        ----------
        path
            Of the file.
        """
        return self._export_onnx(path)

    def _export_onnx(self, path: str | Path, flags: Flags | None = None) -> dict[str, str]:
        check_is_fitted(self)
        calibrator = getattr(self, "calibrator_", None)
        target = (getattr(self, "target_mean_", 0.0), getattr(self, "target_deviation_", 1.0))
        columns = Columns(self.layout_.columns) if self.layout_.columns else None
        return export_onnx(self.posterior_, path, calibrator=calibrator, target=target, flags=flags, columns=columns)

    def _inputs(self, X: Inputs) -> Tensor | Iterator[Tensor]:
        check_is_fitted(self)
        return read_again(self, X, self.layout_)

    def _blocks(self, inputs: Tensor | Iterator[Tensor]) -> Iterator[Tensor]:
        """(members, rows, outputs) of each block of rows."""
        for part in (inputs,) if isinstance(inputs, Tensor) else inputs:
            if self.layout_.kind == "table":
                yield from self.posterior_.stream_outputs(part, BLOCK_ROWS, pad=True)
            else:
                yield from self.posterior_.stream_outputs(part)

    def _member_outputs(self, X: Inputs) -> Tensor:
        return torch.cat([block.cpu() for block in self._blocks(self._inputs(X))], 1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags


class UnderTrained(UserWarning):
    """Members were trained for fewer steps than they need to fit their rows."""


class WorseThanConstant(UserWarning):
    """A regression predicted held-out rows worse than one Gaussian for all rows does."""


def seed_of(random_state: RandomState) -> int:
    """The seed: the number itself, or one drawn from a generator (numpy's global one for None)."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def weights_of(sample_weight: object, count: int, factors: NDArray[np.float64] | None = None) -> Tensor | None:
    """Sample weights times class weights, up to a factor; None where every row counts one."""
    if sample_weight is None and factors is None:
        return None
    given = _check_sample_weight(sample_weight, np.empty((count, 1)), ensure_non_negative=True)
    given = np.asarray(given, np.float64)
    # Only their ratios count. A power of two changes no bit of these, and sums neither overflow nor vanish.
    given = np.ldexp(given, -int(np.frexp(given.max(initial=0.0))[1]))
    weights = torch.from_numpy(given * (1.0 if factors is None else factors))
    check(float(weights.sum()) > 0, "sample_weight", "all zero", "positive for at least one row")
    return weights


def counted(
    inputs: Tensor | DatasetRows | IterableRows, labels: Tensor, weights: Tensor | None
) -> Rows | DatasetRows | IterableRows:
    """The rows of positive weight, their weights of mean one, so that they never rescale the learning rate."""
    if isinstance(inputs, IterableRows):
        check(weights is None, "sample_weight", "given", "left out for an IterableDataset, whose rows have no numbers")
        return inputs
    rows = Rows(inputs, labels) if isinstance(inputs, Tensor) else replace(inputs, labels=labels)
    if weights is None:
        return rows
    seen = weights > 0
    weights = weights[seen]
    return replace(rows.take(seen.nonzero().squeeze(1)), weights=(weights / weights.mean()).float())
