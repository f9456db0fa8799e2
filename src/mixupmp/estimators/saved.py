"""Estimators on disk: a posterior's folder, and in its config.json what the estimator adds to the posterior."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import is_classifier

from mixupmp.core.errors import BadRun, check, check_known
from mixupmp.core.foreign import Json
from mixupmp.core.methods import Method
from mixupmp.core.recipe import Recipe
from mixupmp.core.spec import decode, encode, register
from mixupmp.decide.detect import Detector, read_detector
from mixupmp.decide.search import Search
from mixupmp.estimators.arrays import Layout
from mixupmp.store.folder import DETECTOR
from mixupmp.store.load import Metrics, NetworkClass, blaming, read_config, read_posterior, write_posterior
from mixupmp.store.manifest import Sealed
from mixupmp.store.record import read_record
from mixupmp.store.tensors import read_tensors

if TYPE_CHECKING:
    from mixupmp.estimators.base import PosteriorEstimator

_PARAMETERS: dict[str, Any] = {cls.__name__: cls for cls in (Recipe, Method, Search)}
_TENSORS = "estimator.safetensors"
for _class in (Search, Layout):
    register(_class)


def estimator_classes(base: Any) -> dict[str, type[PosteriorEstimator]]:
    """This package's estimators by name, those that derive from `base`: a folder can name no others."""
    found: dict[str, type[PosteriorEstimator]] = {} if base.__abstractmethods__ else {base.__name__: base}
    for cls in base.__subclasses__():
        found |= estimator_classes(cls) if cls.__module__.startswith("mixupmp.") else {}
    return found


def save_estimator(
    estimator: PosteriorEstimator,
    folder: Path,
    metrics: Metrics | None,
    classes: Mapping[str, type[PosteriorEstimator]],
) -> None:
    """Write a fitted estimator to a new folder, whole or not at all."""
    name = type(estimator).__name__
    check(classes.get(name) is type(estimator), "estimator", estimator, f"one of {', '.join(classes)}")
    state, tensors = estimator._state()
    simple = (type(None), bool, int, float, str, *_PARAMETERS.values())
    parameters = {key: value for key, value in estimator.get_params(deep=False).items() if isinstance(value, simple)}
    names = getattr(estimator, "feature_names_in_", None)
    described = {
        "class": name,
        "parameters": encode(parameters),
        "layout": encode(estimator.layout_),
        "n_features_in": estimator.n_features_in_,
        "feature_names_in": None if names is None else list(names),
        "state": state,
        "tensors": {key: [str(t.dtype).removeprefix("torch."), list(t.shape)] for key, t in tensors.items()},
    }
    files = {_TENSORS: tensors} if tensors else {}
    detector = getattr(estimator, "detector_", None)
    if detector is not None:
        files[DETECTOR] = detector.tensors()
    write_posterior(estimator.posterior_, folder, metrics, {"estimator": described}, files)


def load_estimator(
    folder: Path, network: NetworkClass | None, classes: Mapping[str, type[PosteriorEstimator]]
) -> PosteriorEstimator:
    """Read what `save_estimator` wrote. Everything is checked; no code is run."""
    sealed = Sealed(folder)
    config = read_config(sealed)
    described = config.get("estimator")
    if described is None:
        raise BadRun(f"{folder} holds a posterior without an estimator: read it with mixupmp.load({str(folder)!r}).")
    posterior = read_posterior(sealed, config, network)
    with blaming(sealed.path / "config.json"):
        name = described["class"]
        check_known("estimator", name, classes)
        form = {
            key: torch.empty([int(n) for n in shape], dtype=_DTYPES[dtype], device="meta")
            for key, (dtype, shape) in described["tensors"].items()
        }
        estimator = classes[name](**{key: _parameter(value) for key, value in described["parameters"].items()})
        estimator.posterior_ = posterior
        estimator.layout_ = decode(described["layout"], Layout, "layout")
        estimator.n_features_in_ = decode(described["n_features_in"], int, "n_features_in")
        if described["feature_names_in"] is not None:
            names = decode(described["feature_names_in"], tuple[str, ...], "feature_names_in")
            estimator.feature_names_in_ = np.array(names, dtype=object)
        record = read_record(config)
        if record.recipe is None:
            raise BadRun(f"{sealed.path / 'config.json'} has no recipe, which every fit of an estimator has.")
        if estimator.layout_.kind == "table" and len(estimator.layout_.columns) != estimator.n_features_in_:
            counts = f"{len(estimator.layout_.columns)} columns for {estimator.n_features_in_} features"
            raise BadRun(f"{sealed.path / 'config.json'} has {counts}: there must be as many.")
        estimator.method_, estimator.epochs_, estimator.selection_ = record.method, record.recipe.epochs, None
    tensors = read_tensors(sealed, _TENSORS, form) if form else {}
    with blaming(sealed.path / "config.json"):
        estimator._restore(described["state"], tensors)
    if is_classifier(estimator):
        estimator.detector_ = read_detector(sealed) or Detector({})
    sealed.check_rest()
    return estimator


_DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


def _parameter(document: Json) -> Any:
    if isinstance(document, dict):
        kind = _PARAMETERS[document["type"]]
        return decode(document, kind, keep_foreign=True)
    return float(document) if document in ("inf", "-inf") else document
