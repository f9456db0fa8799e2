"""A scikit-learn regressor over a posterior of networks: mixed targets, and a Gaussian for each member."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length, column_or_1d
from torch import Tensor

from mixupmp.core.errors import BadData, UnknownName, check
from mixupmp.core.likelihoods import Gaussian
from mixupmp.core.methods import Method
from mixupmp.core.rows import Rows
from mixupmp.decide.search import Search
from mixupmp.estimators.base import MixupParameters, PosteriorEstimator, counted, mixup_method, weights_of
from mixupmp.estimators.inputs import Layout, is_table, read_images, read_table, unpack
from mixupmp.metrics.regression import interval_coverage, mixture_crps, mixture_interval, mixture_nll

Numbers = NDArray[np.float64]


class MixupMPRegressor(MixupParameters, RegressorMixin, PosteriorEstimator):  # type: ignore[misc]
    """MixupMP for numbers: blends of rows have blends of their targets; every member says a mean and a deviation.

    The predictive of a row is the equal mixture of the members' Gaussians. Its variance has two parts: what the
    members see as noise, and what they disagree about.

    Parameters
    ----------
    ratio : float or "auto", default="auto"
        r = c/n; "auto" chooses it on validation rows, with 0 (the deep ensemble) among the candidates.
    alpha : float or "auto", default=1.0
    members : int, default=4
    r : float or None, default=None
        The paper's name for `ratio`; overrides it.
    search : Search or None, default=None
    network, fine_tune, recipe, epochs, engine, device, random_state, logger
        As for `PosteriorClassifier`; a network of your own has two outputs, the mean and the log of the variance of
        the standardized target.

    Attributes
    ----------
    posterior_ : Posterior, on the scale of standardized targets
    target_mean_, target_deviation_ : float, that scale
    ratio_, alpha_ : the numbers that were fitted
    selection_ : Selection with the curve that was seen, or None where nothing was to be chosen
    """

    def __init__(
        self,
        ratio: Any = "auto",
        alpha: Any = 1.0,
        members: int = 4,
        *,
        r: Any = None,
        search: Any = None,
        network: Any = None,
        fine_tune: bool = False,
        recipe: Any = None,
        epochs: int | None = None,
        engine: str = "auto",
        device: str = "cpu",
        random_state: Any = None,
        logger: Any = None,
    ) -> None:
        self.ratio = ratio
        self.alpha = alpha
        self.members = members
        self.r = r
        self.search = search
        self.network = network
        self.fine_tune = fine_tune
        self.recipe = recipe
        self.epochs = epochs
        self.engine = engine
        self.device = device
        self.random_state = random_state
        self.logger = logger

    def _method(self) -> tuple[Method, Search | None]:
        return mixup_method(self.ratio if self.r is None else self.r, self.alpha, self.members, self.search)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the posterior to numbers y. X may be whatever a classifier here takes."""
        X, y = unpack(X, y)
        if is_table(X):
            features, y = read_table(self, X, y, reset=True, numeric_y=True)
            inputs, layout = torch.from_numpy(features), Layout("table", (features.shape[1],))
        else:
            inputs, layout = read_images(X)
            check(y is not None, "y", None, "the target of every row, where X brings none")
            y = column_or_1d(np.asarray(y), warn=True)
            check_consistent_length(inputs, y)
            self.n_features_in_ = int(inputs[0].numel())
        targets = torch.from_numpy(np.asarray(y, np.float64))
        if not bool(torch.isfinite(targets).all()):
            raise BadData("y contains NaN or infinity: remove those rows.")
        rows = counted(inputs, targets, weights_of(sample_weight, len(targets)))
        share = torch.ones(len(rows)) if rows.weights is None else rows.weights
        share = share.double() / share.double().sum()
        self.target_mean_ = float((rows.labels * share).sum())
        deviation = float(((rows.labels - self.target_mean_).square() * share).sum().sqrt())
        self.target_deviation_ = deviation if deviation > 1e-12 else 1.0
        standard = ((rows.labels - self.target_mean_) / self.target_deviation_).float()
        self._fit_posterior(Rows(rows.inputs, standard, rows.weights), layout, Gaussian())
        return self

    def predict_members(self, X: Any) -> tuple[Numbers, Numbers]:
        """Means and deviations of the members, each (members, rows)."""
        means, deviations = self._gaussians(X)
        return means.numpy(), deviations.numpy()

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of each row's predictive; with `return_std` its standard deviation too."""
        means, deviations = self._gaussians(X)
        mean = means.mean(0)
        if not return_std:
            return mean.numpy()
        variance = deviations.square().mean(0) + (means - mean).square().mean(0)
        return mean.numpy(), variance.sqrt().numpy()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Numbers, Numbers]:
        """The central interval that the predictive gives this probability: (lower, upper)."""
        lower, upper = mixture_interval(*self._gaussians(X), coverage)
        return lower.numpy(), upper.numpy()

    def uncertainty(self, X: Any, kind: Literal["total", "noise", "disagreement"] = "total") -> Numbers:
        """The standard deviation of each row's predictive, or of one of its two parts."""
        means, deviations = self._gaussians(X)
        noise, disagreement = deviations.square().mean(0), means.var(0, correction=0)
        parts = {"total": noise + disagreement, "noise": noise, "disagreement": disagreement}
        if kind not in parts:
            raise UnknownName("uncertainty", str(kind), parts)
        values: Numbers = parts[kind].sqrt().numpy()
        return values

    def evaluate(self, X: Any, y: Any = None, coverage: float = 0.9) -> dict[str, float]:
        """rmse, r2, nll, crps and the share of targets within the interval of this coverage."""
        X, y = unpack(X, y)
        check(y is not None, "y", None, "the target of every row, where X brings none")
        targets = torch.as_tensor(np.asarray(y, np.float64))
        means, deviations = self._gaussians(X)
        error = (means.mean(0) - targets).square().mean()
        return {
            "rmse": float(error.sqrt()),
            "r2": float(1 - error / targets.var(correction=0)),
            "nll": float(mixture_nll(means, deviations, targets).mean()),
            "crps": float(mixture_crps(means, deviations, targets).mean()),
            "coverage": interval_coverage(means, deviations, targets, coverage),
        }

    def _gaussians(self, X: Any) -> tuple[Tensor, Tensor]:
        outputs = self._member_outputs(X).double()
        mean, deviation = self.posterior_.task.likelihood.moments(outputs)
        return mean * self.target_deviation_ + self.target_mean_, deviation * self.target_deviation_
