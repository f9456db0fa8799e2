"""From settings to a plan: the data they name, the method, and the network sized to the data."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from pathlib import Path

import torch

from mixupmp import data
from mixupmp.core.errors import InvalidArgument, UnknownName, check
from mixupmp.core.kernels import Compose, HorizontalFlip, Kernel, PadCrop, RandomResizedCrop, cifar_kernel
from mixupmp.core.methods import Method, method_named
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Dataset, split
from mixupmp.data.files import ROOT_VARIABLE
from mixupmp.networks import Network, named
from mixupmp.networks.catalog import own_classes
from mixupmp.store.load import load
from mixupmp.train.configuration import DataSettings, MethodSettings, NetworkSettings, Settings, absolute
from mixupmp.train.plans import plan_for

KERNELS: dict[str, Kernel] = {
    "pad-crop": PadCrop(4),
    "flip": HorizontalFlip(),
    "random-resized-crop": RandomResizedCrop(),
    "cifar": cifar_kernel(),
}


def located(settings: Settings) -> Settings:
    """The same settings with whole paths, so that they mean the same wherever and whenever a run is resumed."""
    told = settings.data
    name = told.name if not _is_path(told.name) else absolute(told.name) or told.name
    root = absolute(told.root or os.environ.get(ROOT_VARIABLE) or None)
    method = replace(settings.method, initial=absolute(settings.method.initial))
    return replace(settings, data=replace(told, name=name, root=root), method=method)


def load_data(told: DataSettings) -> Dataset:
    """The whole dataset, by name or by path."""
    if not _is_path(told.name):
        for name, value in (("label", told.label), ("size", told.size)):
            check(value is None, f"data.{name}", value, f"left out for {told.name}, which has its own")
        return data.load(told.name, told.root, told.download, told.seed)
    return data.load_path(told.name, label=told.label, size=told.size, test_fraction=told.test_fraction, seed=told.seed)


def fewer_rows(dataset: Dataset, rows: int | None, seed: int) -> Dataset:
    """Only so many training rows, with each class's share as it was."""
    if rows is None:
        return dataset
    there, classes = len(dataset.train), len(dataset.classes)
    check(classes <= rows <= there, "rows", rows, f"from {classes} (one for each class) to {there}, which there are")
    if rows == there:
        return dataset
    return dataset.with_train(split(dataset.train, (there - rows) / there, seed)[0])


def plan_from(settings: Settings, dataset: Dataset) -> Plan:
    """The plan that these settings make of their dataset."""
    dataset = fewer_rows(dataset, settings.data.rows, settings.data.seed)
    validation = None
    if settings.data.validation:
        train, validation = split(dataset.train, settings.data.validation, settings.data.seed)
        dataset = dataset.with_train(train)
    method = _method(settings.method)
    return plan_for(
        dataset,
        method,
        _network(settings.network, dataset, method.dropout),
        settings.recipe,
        seed=settings.seed,
        validation=validation,
        initial=None if settings.method.initial is None else load(settings.method.initial),
        device=settings.device,
    )


def _is_path(name: str) -> bool:
    """Whether a dataset is named by a path: what is spelled like one, or is there and not the name of a dataset."""
    spelled = os.sep in name or name.startswith((".", "~")) or Path(name).suffix != ""
    return spelled or (name.lower() not in data.DATASETS and Path(name).exists())


def _method(told: MethodSettings) -> Method:
    kernels = []
    for name in told.kernel:
        if name not in KERNELS:
            raise UnknownName("kernel", name, KERNELS)
        kernels.append(KERNELS[name])
    return method_named(
        told.name,
        kernel=Compose(tuple(kernels)) if kernels else None,
        ratio=told.ratio,
        alpha=told.alpha,
        members=told.members,
        dropout=told.dropout,
        variance=told.variance,
        low=told.low,
        high=told.high,
        atoms=told.atoms,
        bound=told.bound,
        subset=told.subset,
        structure=told.structure,
        validation_fraction=told.validation_fraction,
    )


def _network(told: NetworkSettings, dataset: Dataset, dropout: float) -> Network:
    shape = tuple(dataset.train.inputs.shape[1:])
    name = told.name or ("cnn" if len(shape) == 3 and min(shape[1:]) >= 4 else "mlp")
    network = named(name, shape, len(dataset.classes), dropout if told.dropout is None else told.dropout)
    takes = inspect.signature(own_classes()[network.path]).parameters
    extras = {key: getattr(told, key) for key in ("hidden", "width", "bias") if getattr(told, key) is not None}
    for key, value in extras.items():
        if key not in takes:
            raise InvalidArgument(f"network.{key}", value, f"left out for {name}", f"It takes {', '.join(takes)}.")
    network = Network(network.path, {**network.arguments, **extras})
    with torch.device("meta"):  # built without memory, so that bad arguments are told before anything is written
        network()
    return network
