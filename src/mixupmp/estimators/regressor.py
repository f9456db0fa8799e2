"""A scikit-learn regressor over a posterior of networks: mixed targets, and a Gaussian for each member."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from torch import Tensor

from mixupmp.core.errors import BadData, InvalidArgument, check, check_known
from mixupmp.core.foreign import Json
from mixupmp.core.likelihoods import Gaussian
from mixupmp.core.spec import decode
from mixupmp.decide.calibrators import VarianceFactor
from mixupmp.decide.search import Search
from mixupmp.estimators.base import counted, weights_of
from mixupmp.estimators.inputs import Inputs, read_fit, unpack
from mixupmp.estimators.mixup_mp import MixupParameters
from mixupmp.metrics.regression import interval_coverage, mixture_crps, mixture_interval, mixture_nll

Numbers = NDArray[np.float64]
FARTHEST = 1e100  # of a target from the mean: double precision holds the squares of that, and of predictions beyond it
FARTHEST_TARGET = "more than 1e-100 and less than 1e100 from its mean at the most"


@dataclass(eq=False, repr=False)
class MixupMPRegressor(RegressorMixin, MixupParameters):  # type: ignore[misc]
    """MixupMP for regression: blends of rows have blends of their targets, and every member predicts a Gaussian.

    The predictive of a row is the equal mixture of the members' Gaussians N(m_b, s_b^2). By the law of total variance
    its variance is mean_b s_b^2, the noise, plus var_b m_b, the disagreement of members. It is then calibrated: see
    `calibrate`.

    Parameters
    ----------
    ratio : float or "auto", default="auto"
        r = c/n; "auto" chooses it on a fifth of the rows, with 0 (the deep ensemble) and infinity among the candidates,
        together with, for tables, the training length, by the NLL after calibration; then refits on all rows. With
        fewer than 20 rows it is 1.
    alpha : float or "auto", default="auto"
        The blends' Beta(alpha, alpha). "auto" is .4; where a ratio is given, .4 or 2.
    members : int or None, default=None
        B. None: 16 that share weights for tables, 4 of them from 30,000 rows on; 4 networks otherwise.
    share_weights : bool or None, default=None
        As for `MixupMPClassifier`.
    calibrate : bool, default=True
        Whether the variance of the predictive is multiplied by one factor for all rows, fitted on held-out rows; it
        stays 1 unless its gain in NLL is beyond its standard error.
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
    ratio_, alpha_, epochs_ : float, float or None, int
        The numbers of the fit.
    calibrator_, variance_factor_ : VarianceFactor or None, float
        Applied to the variance of the predictive.
    selection_ : Selection or None
        The search and its scores, where there was one.

    References
    ----------
    Wu and Williamson, Posterior uncertainty quantification in neural networks using data augmentation, AISTATS 2024.
    Lakshminarayanan, Pritzel and Blundell, Simple and scalable predictive uncertainty estimation using deep ensembles,
    NeurIPS 2017, for the mixture of Gaussians.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupmp import MixupMPRegressor
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> mean, deviation = MixupMPRegressor(ratio=0.1, random_state=0).fit(X, X[:, 0] ** 2).predict(X, return_std=True)
    >>> mean.shape, deviation.shape
    ((60,), (60,))
    """

    ratio: float | str = "auto"
    alpha: float | str = "auto"
    members: int | None = None
    _: KW_ONLY
    share_weights: bool | None = None
    calibrate: bool = True
    r: float | None = None
    search: Search | None = None

    calibrator_: VarianceFactor | None = field(init=False)

    @property
    def variance_factor_(self) -> float:
        """The factor of the predictive's variance; 1 where it is not scaled."""
        return 1.0 if self.calibrator_ is None else self.calibrator_.factor

    def fit(
        self,
        X: Inputs,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        layout: str | None = None,
        in_memory: bool | None = None,
    ) -> Self:
        """Fit the posterior to numbers y. X, layout and in_memory are what `PosteriorClassifier.fit` takes.

        Parameters
        ----------
        X, y, sample_weight, layout, in_memory
            As for `PosteriorClassifier.fit`.

        Returns
        -------
        self
        """
        given = read_fit(self, X, y, numeric_y=True, layout=layout, in_memory=in_memory)
        targets = torch.from_numpy(np.array(given.labels, np.float64))  # a copy: y may be read-only
        if not bool(torch.isfinite(targets).all()):
            raise BadData("y contains NaN or infinity: remove those rows.")
        rows = counted(given.inputs, targets, weights_of(sample_weight, len(targets)))
        if rows.labels is None:
            raise InvalidArgument(
                "X", type(X).__name__, "a Dataset with a length and items by number, for a regression"
            )
        share = torch.ones(len(rows)) if rows.weights is None else rows.weights
        share = share.double() / share.double().sum()
        self.target_mean_ = float((rows.labels * share).sum())
        centered = rows.labels - self.target_mean_
        constant, largest = bool((rows.labels == rows.labels[0]).all()), float(centered.abs().max())
        hint = "Rescale it, and scale predictions back."
        check(constant or 1 / FARTHEST < largest < FARTHEST, "y", largest, FARTHEST_TARGET, hint)
        self.target_deviation_ = 1.0 if constant else float((centered.square() * share).sum().sqrt())
        standard = (centered / self.target_deviation_).float()
        self.calibrator_ = self._fit_posterior(replace(rows, labels=standard), given, Gaussian()).variance
        return self

    def predict_members(self, X: Inputs) -> tuple[Numbers, Numbers]:
        """Means and deviations of the members, each (members, rows), whose mixture is the calibrated predictive.

        Parameters
        ----------
        X
            As `fit` takes it.
        """
        means, deviations = self._gaussians(X)
        return means.numpy(), deviations.numpy()

    @overload
    def predict(self, X: Inputs, return_std: Literal[False] = False) -> Numbers: ...

    @overload
    def predict(self, X: Inputs, return_std: Literal[True]) -> tuple[Numbers, Numbers]: ...

    def predict(self, X: Inputs, return_std: bool = False) -> Numbers | tuple[Numbers, Numbers]:
        """The mean of each row's predictive; with `return_std` its standard deviation too.

        Parameters
        ----------
        X
            As `fit` takes it.
        return_std
            Whether the standard deviation of the mixture is returned too.
        """
        means, deviations = self._gaussians(X)
        mean = means.mean(0)
        if not return_std:
            return mean.numpy()
        variance = deviations.square().mean(0) + (means - mean).square().mean(0)
        return mean.numpy(), variance.sqrt().numpy()

    def predict_interval(self, X: Inputs, coverage: float = 0.9) -> tuple[Numbers, Numbers]:
        """The central interval that the predictive gives this probability: (lower, upper).

        Parameters
        ----------
        X
            As `fit` takes it.
        coverage
            The probability between the two ends.
        """
        lower, upper = mixture_interval(*self._gaussians(X), coverage)
        return lower.numpy(), upper.numpy()

    def uncertainty(self, X: Inputs, kind: Literal["total", "noise", "disagreement"] = "total") -> Numbers:
        """The standard deviation of each row's predictive, or of one of its two parts.

        Parameters
        ----------
        X
            As `fit` takes it.
        kind
            Which part of the standard deviation.
        """
        means, deviations = self._gaussians(X)
        noise, disagreement = deviations.square().mean(0), means.var(0, correction=0)
        parts = {"total": noise + disagreement, "noise": noise, "disagreement": disagreement}
        check_known("uncertainty", kind, parts)
        return parts[kind].sqrt().numpy()

    def evaluate(self, X: Inputs, y: object = None, coverage: float = 0.9) -> dict[str, float]:
        """rmse, r2, nll, crps and the share of targets within the interval of this coverage.

        Parameters
        ----------
        X, y
            As for `fit`.
        coverage
            Of the interval whose coverage is measured.
        """
        X, y = unpack(X, y)
        check(y is not None, "y", None, "the target of every row, where X brings none")
        targets = torch.as_tensor(np.array(y, np.float64))
        means, deviations = self._gaussians(X)
        error = (means.mean(0) - targets).square().mean()
        return {
            "rmse": float(error.sqrt()),
            "r2": float(1 - error / targets.var(correction=0)),
            "nll": float(mixture_nll(means, deviations, targets).mean()),
            "crps": float(mixture_crps(means, deviations, targets).mean()),
            "coverage": interval_coverage(means, deviations, targets, coverage),
        }

    def _state(self) -> tuple[dict[str, Json], dict[str, Tensor]]:
        target = {"target_mean": self.target_mean_, "target_deviation": self.target_deviation_}
        return {**target, "variance_factor": self.variance_factor_}, {}

    def _restore(self, state: dict[str, Json], tensors: dict[str, Tensor]) -> None:
        self.target_mean_ = decode(state["target_mean"], float, "target_mean")
        self.target_deviation_ = decode(state["target_deviation"], float, "target_deviation")
        # Estimators saved by earlier versions have none.
        self.calibrator_ = VarianceFactor(decode(state.get("variance_factor", 1.0), float, "variance_factor"))

    def _gaussians(self, X: Inputs) -> tuple[Tensor, Tensor]:
        outputs = self._member_outputs(X).double()
        mean, deviation = self.posterior_.task.likelihood.moments(outputs)
        if self.calibrator_ is not None:
            mean, deviation = self.calibrator_(mean, deviation)
        return mean * self.target_deviation_ + self.target_mean_, deviation * self.target_deviation_
