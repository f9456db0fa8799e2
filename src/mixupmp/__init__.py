"""How sure is your classifier, really? Martingale posteriors for neural networks.

    data -> Predictive -> Batch -> weighted loss -> fit -> Posterior -> probabilities -> metrics -> report

Say what future data will look like (`Predictive`), simulate futures, fit a network to each (`fit`): every fit is a
sample of the posterior. `methods` has every method of the paper in one line each.
"""

from typing import TYPE_CHECKING, Any

from mixupmp.base_measures import ClassAdjustedMixup, Mixup, Perturbed, Uniform
from mixupmp.batch import Batch
from mixupmp.data.rows import Dataset, Rows, Standardise, split
from mixupmp.errors import MixupMPError
from mixupmp.fit import Every, fit
from mixupmp.fit.plan import Plan, plan_for
from mixupmp.loss import Categorical, Gaussian
from mixupmp.methods import (
    ALL_METHODS,
    Method,
    bayesian_bootstrap,
    ca_mixup_mc,
    deep_ensemble,
    dp_mp_perturbed,
    dp_mp_uniform,
    laplace,
    mc_dropout,
    mixup,
    mixup_ensemble,
    mixup_mc,
    mixup_mp,
    mixup_mp_mc,
    mixup_mp_single,
    single_network,
    stabilised_bootstrap,
)
from mixupmp.posterior import Posterior, Task
from mixupmp.predictive import Predictive
from mixupmp.recipe import Recipe
from mixupmp.samplers import DropoutMasks, Ensemble, Laplace
from mixupmp.saved import load, save
from mixupmp.version import __version__
from mixupmp.weights import Dirichlet, Expected, StabilisedDirichlet

if TYPE_CHECKING:
    from mixupmp.estimator import DeepEnsembleClassifier, MixupMPClassifier, MixupMPRegressor, PosteriorClassifier

__all__ = [
    "ALL_METHODS", "Batch", "Categorical", "ClassAdjustedMixup", "Dataset",
    "DeepEnsembleClassifier", "Dirichlet", "DropoutMasks", "Ensemble",
    "Every", "Expected", "Gaussian", "Laplace", "Method", "Mixup", "MixupMPClassifier", "MixupMPError",
    "MixupMPRegressor", "Perturbed", "Plan", "Posterior", "PosteriorClassifier",
    "Predictive", "Recipe", "Rows", "StabilisedDirichlet", "Standardise", "Task", "Uniform", "__version__",
    "bayesian_bootstrap", "ca_mixup_mc", "deep_ensemble", "dp_mp_perturbed", "dp_mp_uniform", "fit", "laplace",
    "load", "mc_dropout", "mixup", "mixup_ensemble", "mixup_mc", "mixup_mp", "mixup_mp_mc", "mixup_mp_single",
    "plan_for", "save", "single_network", "split", "stabilised_bootstrap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # The estimators bring scikit-learn, which takes a second to import and which not everyone needs.
    if name in ("DeepEnsembleClassifier", "MixupMPClassifier", "MixupMPRegressor", "PosteriorClassifier"):
        from mixupmp import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
