"""scikit-learn classifiers over posteriors of networks."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mixupmp.core.errors import BadData, InvalidArgument, UnknownName, check
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.methods import Method, deep_ensemble, method_named
from mixupmp.core.rows import Rows
from mixupmp.decide.search import Search
from mixupmp.estimators.base import MixupParameters, PosteriorEstimator, counted, mixup_method, weights_of
from mixupmp.estimators.inputs import Layout, is_table, read_again, read_images, read_table, unpack
from mixupmp.estimators.uncertainty import BeyondProtocol


class PosteriorClassifier(BeyondProtocol, ClassifierMixin, PosteriorEstimator):  # type: ignore[misc]
    """A classifier whose probabilities come from a posterior over networks, by any method of this package.

    Parameters
    ----------
    method : str or Method, default="mixup-mp"
        A name ("deep-ensemble", "mixup-mp", "mc-dropout", ...) or a value such as `mixup_mp_mc(ratio=1, alpha=2)`.
    network : None, str, nn.Module or callable, default=None
        None: an MLP for tables and a small CNN for images, sized to the data. A name: "mlp", "cnn", "resnet18",
        "wrn-28-10". A module: copied for each member, with new weights where `requires_grad` is True. A callable:
        builds a module, given nothing or, if it has two required arguments, the shape of a row and the number of
        classes.
    fine_tune : bool, default=False
        Start every member from the weights of the given module. Parameters with `requires_grad=False` stay.
    recipe : Recipe or None, default=None
        Optimizer, schedule, batch size and so on; None: chosen by the size and kind of the data.
    epochs : int or None, default=None
        Overrides the recipe's number of epochs.
    class_weight : dict, "balanced" or None, default=None
        As everywhere in scikit-learn.
    engine : {"auto", "inline", "vectorized", "processes", "ray"}, default="auto"
    device : str, default="cpu"
    random_state : int, RandomState or None, default=None
    logger : Logger or None, default=None
        Sees the fit while it happens, see `mixupmp.train.loggers`.

    Attributes
    ----------
    classes_ : ndarray of the class labels
    n_features_in_ : int, the numbers in a row
    feature_names_in_ : ndarray of str, where X was a data frame
    posterior_ : Posterior, to be saved, exported or asked directly
    method_ : Method that was fitted
    """

    def __init__(
        self,
        method: str | Method = "mixup-mp",
        *,
        network: Any = None,
        fine_tune: bool = False,
        recipe: Any = None,
        epochs: int | None = None,
        class_weight: Any = None,
        engine: str = "auto",
        device: str = "cpu",
        random_state: Any = None,
        logger: Any = None,
    ) -> None:
        self.method = method
        self.network = network
        self.fine_tune = fine_tune
        self.recipe = recipe
        self.epochs = epochs
        self.class_weight = class_weight
        self.engine = engine
        self.device = device
        self.random_state = random_state
        self.logger = logger

    def _method(self) -> tuple[Method, Search | None]:
        if isinstance(self.method, Method):
            return self.method, None
        if not isinstance(self.method, str):
            raise InvalidArgument("method", self.method, "the name of a method, or a Method")
        return method_named(self.method), None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, validation: Any = None) -> Self:
        """Fit the posterior. X may be a table, images, a tensor, a data frame, a Dataset or a DataLoader.

        A Dataset or DataLoader brings its own labels: leave y out. `validation`, a pair (X, y) or a Dataset, is only
        looked at: its NLL and ECE go to the logger.
        """
        X, y = unpack(X, y)
        if is_table(X):
            features, y = read_table(self, X, y, reset=True)
            inputs, layout = torch.from_numpy(features), Layout("table", (features.shape[1],))
        else:
            inputs, layout = read_images(X)
            check(y is not None, "y", None, "the label of every row, where X brings none")
            y = column_or_1d(np.asarray(y), warn=True)
            check_consistent_length(inputs, y)
            self.n_features_in_ = int(inputs[0].numel())
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        factors = None if self.class_weight is None else compute_sample_weight(self.class_weight, y)
        rows = counted(inputs, torch.from_numpy(numbers.astype(np.int64)), weights_of(sample_weight, len(y), factors))
        if bool((rows.labels == rows.labels[0]).all()):
            raise BadData("y has rows of 1 class only (sample_weight=0 rows left out): a classifier needs two classes.")
        self.layout_ = layout
        held = None if validation is None else self._labeled(*_pair(validation))
        names = tuple(str(label) for label in self.classes_)
        self._fit_posterior(rows, layout, Categorical(len(names)), names, held)
        self._forget_calibration()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(rows, classes): the posterior predictive, calibrated if `calibrate` was called."""
        probabilities: NDArray[np.float64] = self._pooled(self._member_probabilities(X)).double().numpy()
        return probabilities / probabilities.sum(1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy. A label of a class that the fit did not see is refused, as in `evaluate` and `calibrate`."""
        check_is_fitted(self)
        self._numbers(y)
        accuracy: float = super().score(X, y, sample_weight)
        return accuracy

    def _numbers(self, y: Any) -> Tensor:
        """Labels as class numbers."""
        y = column_or_1d(np.asarray(y.cpu() if isinstance(y, Tensor) else y))
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        strange = self.classes_[places] != y
        if strange.any():
            raise UnknownName("class", str(y[strange][0]), [str(label) for label in self.classes_])
        return torch.from_numpy(places.astype(np.int64))

    def _labeled(self, X: Any, y: Any) -> Rows:
        X, y = unpack(X, y, ordered=False)
        check(y is not None, "y", None, "the label of every row, where X brings none")
        rows = Rows(read_again(self, X, self.layout_), self._numbers(y))
        return rows.checked(len(self.classes_), "given")


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
        class_weight: Any = None,
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
        self.class_weight = class_weight
        self.engine = engine
        self.device = device
        self.random_state = random_state
        self.logger = logger

    def _method(self) -> tuple[Method, Search | None]:
        return mixup_method(self.ratio if self.r is None else self.r, self.alpha, self.members, self.search)


class DeepEnsembleClassifier(PosteriorClassifier):
    """A deep ensemble: networks from different starts on the same data. MixupMP with r = 0.

    Parameters
    ----------
    members : int, default=4

    The others are those of `PosteriorClassifier`.
    """

    def __init__(
        self,
        members: int = 4,
        *,
        network: Any = None,
        fine_tune: bool = False,
        recipe: Any = None,
        epochs: int | None = None,
        class_weight: Any = None,
        engine: str = "auto",
        device: str = "cpu",
        random_state: Any = None,
        logger: Any = None,
    ) -> None:
        self.members = members
        self.network = network
        self.fine_tune = fine_tune
        self.recipe = recipe
        self.epochs = epochs
        self.class_weight = class_weight
        self.engine = engine
        self.device = device
        self.random_state = random_state
        self.logger = logger

    def _method(self) -> tuple[Method, Search | None]:
        return deep_ensemble(self.members), None


def _pair(validation: Any) -> tuple[Any, Any]:
    if isinstance(validation, tuple):
        check(len(validation) == 2, "validation", validation, "a pair (X, y), or a Dataset")
        return validation[0], validation[1]
    return validation, None
