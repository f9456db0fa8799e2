"""MixupMP and the deep ensemble as scikit-learn classifiers."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

import numpy as np
from torch import nn

from mixupmp.core.base_measures import AtLayer
from mixupmp.core.errors import check
from mixupmp.core.methods import Method, deep_ensemble
from mixupmp.core.plan import Plan
from mixupmp.core.shared import SharedEnsemble
from mixupmp.decide.default import ALPHA, Choice, choose
from mixupmp.decide.enough import Enough, enough_members
from mixupmp.decide.post_hoc import DECAYS, fit_heads, heads_method
from mixupmp.decide.search import Search
from mixupmp.estimators.base import PosteriorEstimator, RandomState
from mixupmp.estimators.base_classifier import BaseClassifier
from mixupmp.train.plans import MEMBERS, mixup_mp_for


class MixupParameters(PosteriorEstimator):
    """The numbers of MixupMP, given or chosen."""

    ratio: float | str
    alpha: float | str
    r: float | None
    members: int | str | None
    share_weights: bool | None
    search: Search | None
    enough_: Enough | None = None  # also of an estimator that is loaded

    @property
    def ratio_(self) -> float:
        """r of the fit."""
        return self.method_.predictive.ratio

    @property
    def alpha_(self) -> float | None:
        """alpha of the fit; None where r = 0 left nothing to blend."""
        return getattr(self.method_.predictive.base, "alpha", None)

    def _fixed(self) -> tuple[float | None, float | None]:
        """r and alpha; None: to be chosen."""
        given = {"ratio": self.ratio if self.r is None else self.r, "alpha": self.alpha}
        for name, value in given.items():
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            check(number or value == "auto", name, value, "a number, or 'auto' to choose it on validation rows")
        ratio, alpha = (None if value == "auto" else float(value) for value in given.values())
        return ratio, alpha

    def _method(self, shape: tuple[int, ...], rows: int) -> Method:
        ratio, alpha = self._fixed()
        members, share_weights = self.members, self.share_weights
        if isinstance(members, str):
            known = members == "auto" and self._body is None and not share_weights
            check(known, "members", members, "a number, None, or 'auto' for separate networks")
            members, share_weights = MEMBERS, False
        if self._body is not None:
            return heads_method(members)
        numbers = 1.0 if ratio is None else ratio, ALPHA if alpha is None else alpha
        method = mixup_mp_for(shape, self.network, *numbers, members, share_weights, rows)
        layer, predictive = getattr(self, "mix_layer", None), method.predictive
        if layer is None or predictive.base is None:
            return method
        return replace(method, predictive=replace(predictive, base=AtLayer(predictive.base, layer)))

    def _choose(self, plan: Plan) -> Choice:
        ratio, alpha = self._fixed()
        self.enough_ = None
        calibrate = getattr(self, "calibrate", False)
        if self._body is not None:
            body = None if self._body == "auto" else self._body
            decays = DECAYS if self.recipe is None else ()
            return fit_heads(
                plan, body=body, ratio=ratio, alpha=alpha, decays=decays, calibrate=calibrate, engine=self.engine
            )
        auto = self.members == "auto"
        choice = choose(
            plan,
            ratio=ratio,
            alpha=alpha,
            length=self.recipe is None and self.epochs is None,
            calibrate=calibrate and not auto,
            search=self.search if ratio is None or alpha is None else None,
            engine=self.engine,
        )
        if not auto:
            return choice
        self.enough_ = enough_members(choice.plan, engine=self.engine)
        return self.enough_.applied(choice, calibrate)


@dataclass(eq=False, repr=False)
class MixupMPClassifier(MixupParameters, BaseClassifier):
    """MixupMP: an ensemble on repeats of the data plus, r times as much, Mixup blends of them.

    Parameters
    ----------
    ratio : float or "auto", default="auto"
        r = c/n. 0 is the deep ensemble, infinity the Mixup ensemble. "auto" chooses it on a fifth of the rows, with
        both among the candidates, together with, for tables, the training length, by the NLL after calibration; then
        refits on all rows: see `search` and `selection_`. With fewer than 20 rows it is 1.
    alpha : float or "auto", default="auto"
        The blends' Beta(alpha, alpha). "auto" is .4; where a ratio is given, .4 or 2, chosen on the same rows.
    members : int, "auto" or None, default=None
        B. None: 16 that share weights for tables, 4 of them from 30,000 rows on; 4 networks otherwise. "auto": separate
        networks, doubled up to 32 until an anytime-valid test on a fifth of the rows says that doubling them gains less
        than .01 in NLL.
    share_weights : bool or None, default=None
        Whether members share one network but for rank-one adapters (`SharedEnsemble`). None: for tables, where neither
        `network` nor `members` is given.
    r : float or None, default=None
        The paper's name for `ratio`; overrides it.
    search : Search or None, default=None
        What "auto" tries and on which rows, in place of the default.
    mix_layer : str or None, default=None
        The layer of the network whose outputs are blended, as "embedding" for tokens (`AtLayer`). None: raw inputs.
    body : str or None, default=None
        For a `network` that is already trained: the layer whose outputs are features, or "auto" to find it. All up to
        it is frozen, and 4 heads are fitted to futures of features; see `from_network`.
    network, fine_tune, recipe, epochs, calibrate, class_weight, engine, device, random_state, logger
        As for `PosteriorClassifier`.

    Attributes
    ----------
    ratio_, alpha_, epochs_ : float, float or None, int
        The numbers of the fit.
    calibrator_, temperature_ : Temperature or None, float
        Applied to the averaged probabilities.
    selection_ : Selection or None
        The search and its scores, where there was one; None after loading.
    enough_ : Enough or None
        What members="auto" found; None after loading.

    References
    ----------
    Wu and Williamson, Posterior uncertainty quantification in neural networks using data augmentation, AISTATS 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupmp import MixupMPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MixupMPClassifier(ratio=1.0, epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> model = model.calibrate_on(X[1::2], y[1::2])
    >>> model.predict_set(X[:1], coverage=0.9).shape
    (1, 3)
    """

    ratio: float | str = "auto"
    alpha: float | str = "auto"
    members: int | str | None = None
    _: KW_ONLY
    share_weights: bool | None = None
    r: float | None = None
    search: Search | None = None
    mix_layer: str | None = None
    body: str | None = None

    @classmethod
    def from_network(
        cls,
        network: nn.Module,
        *,
        body: str = "auto",
        ratio: float | str = "auto",
        alpha: float | str = "auto",
        members: int | None = None,
        calibrate: bool = True,
        random_state: RandomState = None,
    ) -> Self:
        """A classifier that keeps a trained network's body and fits heads to it: `.fit(X, y)` takes seconds.

        `fit` takes the rows the network was trained on, as the network takes them: they are not standardized, uint8
        pixels are divided by 255. With rows it was not trained on, `fit(X, y, validation=(X_val, y_val))`, the depth of
        the cut, the weight decay, r, alpha and the temperature are chosen; a network that was trained on other data may
        hold out a share of X, `validation=0.2`. Without, r is infinity, alpha .1 and there is no temperature
        (`calibrate_on` fits one).

        Parameters
        ----------
        network
            A trained classifier; it is copied, not changed.
        body, ratio, alpha, members, calibrate, random_state
            As for the class.

        Examples
        --------
        >>> model = MixupMPClassifier.from_network(network)  # doctest: +SKIP
        >>> model.fit(X_train, y_train, validation=(X_val, y_val)).predict_proba(X_test)  # doctest: +SKIP
        """
        return cls(ratio, alpha, members, body=body, network=network, calibrate=calibrate, random_state=random_state)


@dataclass(eq=False, repr=False)
class DeepEnsembleClassifier(BaseClassifier):
    """A deep ensemble, MixupMP with r = 0: networks from different starts; for tables, members that share one network.

    For tables the default is 16 members with rank-one adapters, as for `MixupMPClassifier`. `share_weights=False`, or a
    `network` or number of `members` of your own, makes them networks with all weights of their own:

    Lakshminarayanan, Pritzel and Blundell, Simple and scalable predictive uncertainty estimation using deep ensembles,
    NeurIPS 2017.

    Parameters
    ----------
    members : int or None, default=None
        None: as for `MixupMPClassifier`.
    share_weights : bool or None, default=None
        As for `MixupMPClassifier`; so are the training length, for tables, and the temperature.
    network, fine_tune, recipe, epochs, calibrate, class_weight, engine, device, random_state, logger
        As for `PosteriorClassifier`.
    """

    members: int | None = None
    _: KW_ONLY
    share_weights: bool | None = None

    def _method(self, shape: tuple[int, ...], rows: int) -> Method:
        method = mixup_mp_for(shape, self.network, 0.0, ALPHA, self.members, self.share_weights, rows)
        return method if isinstance(method.sampler, SharedEnsemble) else deep_ensemble(method.sampler.networks)

    def _choose(self, plan: Plan) -> Choice:
        length = self.recipe is None and self.epochs is None
        return choose(plan, ratio=0.0, length=length, calibrate=self.calibrate, engine=self.engine)
