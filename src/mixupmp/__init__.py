"""How sure is your classifier, really? Martingale posteriors for neural networks.

    data -> Predictive -> Batch -> weighted loss -> fit -> Posterior -> probabilities -> metrics -> report

Say what future data will look like (`Predictive`), simulate futures, fit a network to each (`fit`): every fit is a
sample of the posterior. `core.methods` has every method of the paper in one line each.

Names are imported when they are first used: torch takes a second to import, scikit-learn another, and the command line
answers ``--help`` without either.
"""

import importlib
from typing import TYPE_CHECKING

from mixupmp.core.errors import MixupMPError
from mixupmp.core.version import __version__

if TYPE_CHECKING:
    from mixupmp.core.base_measures import ClassAdjustedMixup, Mixup, Perturbed, Uniform
    from mixupmp.core.batch import Batch
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
    from mixupmp.core.weights import Dirichlet, Expected, StabilizedDirichlet
    from mixupmp.estimators import DeepEnsembleClassifier, MixupMPClassifier, MixupMPRegressor, PosteriorClassifier
    from mixupmp.store.load import load, save
    from mixupmp.train.plans import plan_for
    from mixupmp.train.run import Every, fit

__all__ = [
    "ALL_METHODS",
    "Batch",
    "Categorical",
    "ClassAdjustedMixup",
    "Dataset",
    "DeepEnsembleClassifier",
    "Dirichlet",
    "DropoutMasks",
    "Ensemble",
    "Every",
    "Expected",
    "Gaussian",
    "Laplace",
    "Method",
    "Mixup",
    "MixupMPClassifier",
    "MixupMPError",
    "MixupMPRegressor",
    "Perturbed",
    "Plan",
    "Posterior",
    "PosteriorClassifier",
    "Predictive",
    "Recipe",
    "Rows",
    "StabilizedDirichlet",
    "Standardize",
    "Task",
    "Uniform",
    "__version__",
    "bayesian_bootstrap",
    "ca_mixup_mc",
    "deep_ensemble",
    "dp_mp_perturbed",
    "dp_mp_uniform",
    "fit",
    "laplace",
    "load",
    "mc_dropout",
    "mixup",
    "mixup_ensemble",
    "mixup_mc",
    "mixup_mp",
    "mixup_mp_mc",
    "mixup_mp_single",
    "plan_for",
    "save",
    "single_network",
    "split",
    "stabilized_bootstrap",
]

_MODULES = {
    "mixupmp.core.base_measures": ("ClassAdjustedMixup", "Mixup", "Perturbed", "Uniform"),
    "mixupmp.core.batch": ("Batch",),
    "mixupmp.core.likelihoods": ("Categorical", "Gaussian"),
    "mixupmp.core.methods": (
        "ALL_METHODS",
        "Method",
        "bayesian_bootstrap",
        "ca_mixup_mc",
        "deep_ensemble",
        "dp_mp_perturbed",
        "dp_mp_uniform",
        "laplace",
        "mc_dropout",
        "mixup",
        "mixup_ensemble",
        "mixup_mc",
        "mixup_mp",
        "mixup_mp_mc",
        "mixup_mp_single",
        "single_network",
        "stabilized_bootstrap",
    ),
    "mixupmp.core.plan": ("Plan",),
    "mixupmp.core.posterior": ("Posterior", "Task"),
    "mixupmp.core.predictive": ("Predictive",),
    "mixupmp.core.recipe": ("Recipe",),
    "mixupmp.core.rows": ("Dataset", "Rows", "Standardize", "split"),
    "mixupmp.core.samplers": ("DropoutMasks", "Ensemble", "Laplace"),
    "mixupmp.core.weights": ("Dirichlet", "Expected", "StabilizedDirichlet"),
    "mixupmp.estimators": ("DeepEnsembleClassifier", "MixupMPClassifier", "MixupMPRegressor", "PosteriorClassifier"),
    "mixupmp.store.load": ("load", "save"),
    "mixupmp.train.plans": ("plan_for",),
    "mixupmp.train.run": ("Every", "fit"),
}
_PACKAGES = (
    "core",
    "data",
    "decide",
    "estimators",
    "export",
    "metrics",
    "networks",
    "paper",
    "plots",
    "store",
    "train",
)
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return importlib.import_module(f"mixupmp.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
