"""A scikit-learn classifier over a posterior of networks, by any method."""

from __future__ import annotations

from dataclasses import dataclass

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.methods import Method, method_named
from mixupmp.core.plan import Plan
from mixupmp.decide.default import Choice, calibrated
from mixupmp.estimators.base_classifier import BaseClassifier


@dataclass(eq=False, repr=False)
class PosteriorClassifier(BaseClassifier):
    """A classifier whose probabilities come from a posterior over networks, by any method of this package.

    Beside scikit-learn's methods it has `predict_members`, `uncertainty`, `calibrate_on`, `predict_set`,
    `predict_or_abstain` and `detect`.

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
        Optimizer, schedule, batch size and so on; None: chosen by the size and kind of the data, as `mixupmp fit` does.
    epochs : int or None, default=None
        Overrides the recipe's number of epochs.
    calibrate : bool, default=True
        Fit a temperature to the averaged probabilities, on a fifth of the rows that no member was trained on, and then
        the members again to all rows. It stays 1 where it does not help beyond its standard error, and where there are
        fewer than 20 rows.
    class_weight : dict, "balanced" or None, default=None
        As everywhere in scikit-learn.
    engine : {"auto", "inline", "vectorized", "processes", "ray"}, default="auto"
    device : str, default="cpu"
        "cuda", "cuda:1" and so on; "auto" is a GPU if torch has one, else the CPU.
    random_state : int, RandomState or None, default=None
    logger : Logger or None, default=None
        Receives the fit's metrics while it runs, see `mixupmp.train.loggers`.

    Attributes
    ----------
    classes_ : ndarray of the class labels
    n_features_in_ : int, the numbers in a row
    feature_names_in_ : ndarray of str, where X was a data frame
    posterior_ : Posterior
    method_ : Method that was fitted
    epochs_ : int, the training length
    calibrator_ : Temperature or None, applied to the averaged probabilities; `calibrate_on` replaces it
    temperature_ : float, 1 where there is none
    detector_ : Detector of rows unlike the held-out ones

    References
    ----------
    Fong, Holmes and Walker, Martingale posterior distributions, JRSS B 85 (2023).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupmp import PosteriorClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PosteriorClassifier("deep-ensemble", random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape
    (150, 3)
    """

    method: str | Method = "mixup-mp"

    def _method(self, shape: tuple[int, ...], rows: int) -> Method:
        if isinstance(self.method, Method):
            return self.method
        if not isinstance(self.method, str):
            raise InvalidArgument("method", self.method, "the name of a method, or a Method")
        return method_named(self.method)

    def _choose(self, plan: Plan) -> Choice:
        return calibrated(plan, self.engine) if self.calibrate else Choice(plan)
