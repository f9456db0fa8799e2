"""MixupMP and the deep ensemble as scikit-learn classifiers."""

from __future__ import annotations

from mixupmp.core.methods import Method, deep_ensemble
from mixupmp.core.recipe import Recipe
from mixupmp.decide.search import Search
from mixupmp.estimators.base import MixupParameters, RandomState, mixup_method
from mixupmp.estimators.classifier import ClassWeight, PosteriorClassifier
from mixupmp.networks.factories import NetworkChoice
from mixupmp.train.loggers import Logger
from mixupmp.train.run import Engine


class MixupMPClassifier(MixupParameters, PosteriorClassifier):
    """MixupMP: an ensemble on repeats of the data plus, r times as much, Mixup blends of them.

    Parameters
    ----------
    ratio : float or "auto", default="auto"
        r = c/n. 0 is the deep ensemble, infinity the Mixup ensemble. "auto" chooses it on validation rows, with both
        among the candidates, and refits on all rows: see `search` and `selection_`.
    alpha : float or "auto", default=1.0
        The blends' Beta(alpha, alpha).
    members : int, default=4
    r : float or None, default=None
        The paper's name for `ratio`; overrides it.
    search : Search or None, default=None
        What "auto" tries and on which rows; None: a fifth of the rows, by NLL.

    The others are those of `PosteriorClassifier`.

    Attributes
    ----------
    ratio_, alpha_ : float
        The numbers of the fit.
    selection_ : Selection or None
        The search and its scores, where there was one.

    References
    ----------
    Wu and Williamson, Posterior uncertainty quantification in neural networks using data augmentation, AISTATS 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupmp import MixupMPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MixupMPClassifier(ratio=1.0, random_state=0).fit(X[::2], y[::2]).calibrate(X[1::2], y[1::2])
    >>> model.predict_set(X[:1], coverage=0.9).shape
    (1, 3)
    """

    def __init__(
        self,
        ratio: float | str = "auto",
        alpha: float | str = 1.0,
        members: int = 4,
        *,
        r: float | None = None,
        search: Search | None = None,
        network: NetworkChoice = None,
        fine_tune: bool = False,
        recipe: Recipe | None = None,
        epochs: int | None = None,
        class_weight: ClassWeight = None,
        engine: Engine = "auto",
        device: str = "cpu",
        random_state: RandomState = None,
        logger: Logger | None = None,
    ) -> None:
        super().__init__(
            network=network,
            fine_tune=fine_tune,
            recipe=recipe,
            epochs=epochs,
            class_weight=class_weight,
            engine=engine,
            device=device,
            random_state=random_state,
            logger=logger,
        )
        self.ratio = ratio
        self.alpha = alpha
        self.members = members
        self.r = r
        self.search = search

    def _method(self) -> tuple[Method, Search | None]:
        return mixup_method(self.ratio if self.r is None else self.r, self.alpha, self.members, self.search)


class DeepEnsembleClassifier(PosteriorClassifier):
    """A deep ensemble: networks from different starts on the same data. MixupMP with r = 0.

    Lakshminarayanan, Pritzel and Blundell, Simple and scalable predictive uncertainty estimation using deep ensembles,
    NeurIPS 2017.

    Parameters
    ----------
    members : int, default=4

    The others are those of `PosteriorClassifier`.
    """

    def __init__(
        self,
        members: int = 4,
        *,
        network: NetworkChoice = None,
        fine_tune: bool = False,
        recipe: Recipe | None = None,
        epochs: int | None = None,
        class_weight: ClassWeight = None,
        engine: Engine = "auto",
        device: str = "cpu",
        random_state: RandomState = None,
        logger: Logger | None = None,
    ) -> None:
        super().__init__(
            network=network,
            fine_tune=fine_tune,
            recipe=recipe,
            epochs=epochs,
            class_weight=class_weight,
            engine=engine,
            device=device,
            random_state=random_state,
            logger=logger,
        )
        self.members = members

    def _method(self) -> tuple[Method, Search | None]:
        return deep_ensemble(self.members), None
