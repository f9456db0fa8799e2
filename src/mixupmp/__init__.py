"""How sure is your classifier, really? Martingale posteriors for neural networks.

    data -> Predictive -> Batch -> weighted loss -> fit -> Posterior -> probabilities -> metrics -> report

Say what future data will look like (`Predictive`), simulate futures, fit a network to each (`fit`): every fit is a
sample of the posterior. `methods` has every method of the paper in one line each.
"""

from typing import TYPE_CHECKING, Any

from mixupmp.core.base_measures import ClassAdjustedMixup, Mixup, Perturbed, Uniform
from mixupmp.core.batch import Batch
from mixupmp.core.errors import MixupMPError
from mixupmp.core.likelihoods import Categorical, Gaussian
from mixupmp.core.methods import (
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
    stabilized_bootstrap,
)
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.predictive import Predictive
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, Standardize, split
from mixupmp.core.samplers import DropoutMasks, Ensemble, Laplace
from mixupmp.core.version import __version__
from mixupmp.core.weights import Dirichlet, Expected, StabilizedDirichlet
from mixupmp.store.load import load, save
from mixupmp.train.plans import plan_for
from mixupmp.train.run import Every, fit

if TYPE_CHECKING:
    from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier, MixupMPRegressor, PosteriorClassifier

__all__ = [
    "ALL_METHODS", "Batch", "Categorical", "ClassAdjustedMixup", "Dataset",
    "DeepEnsembleClassifier", "Dirichlet", "DropoutMasks", "Ensemble",
    "Every", "Expected", "Gaussian", "Laplace", "Method", "Mixup", "MixupMPClassifier", "MixupMPError",
    "MixupMPRegressor", "Perturbed", "Plan", "Posterior", "PosteriorClassifier",
    "Predictive", "Recipe", "Rows", "StabilizedDirichlet", "Standardize", "Task", "Uniform", "__version__",
    "bayesian_bootstrap", "ca_mixup_mc", "deep_ensemble", "dp_mp_perturbed", "dp_mp_uniform", "fit", "laplace",
    "load", "mc_dropout", "mixup", "mixup_ensemble", "mixup_mc", "mixup_mp", "mixup_mp_mc", "mixup_mp_single",
    "plan_for", "save", "single_network", "split", "stabilized_bootstrap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # The estimators bring scikit-learn, which takes a second to import and which not everyone needs.
    if name in ("DeepEnsembleClassifier", "MixupMPClassifier", "MixupMPRegressor", "PosteriorClassifier"):
        from mixupmp import estimators as estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
