"""From a dataset, a method and a recipe to a plan."""

from __future__ import annotations

from mixupmp.core.likelihoods import Categorical
from mixupmp.core.methods import Method
from mixupmp.core.plan import NetworkFactory, Plan, initial_weights
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, split
from mixupmp.networks import named


def plan_for(
    dataset: Dataset,
    method: Method,
    network: str | NetworkFactory = "cnn",
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    validation: Rows | None = None,
    initial: Posterior | None = None,
    device: str = "cpu",
) -> Plan:
    """A plan for a dataset: a network by name is sized to it, and a method that adapts keeps some rows back."""
    shape = tuple(dataset.train.inputs.shape[1:])
    task = Task(Categorical(len(dataset.classes)), dataset.standardize, shape, dataset.classes)
    factory = named(network, shape, len(dataset.classes), method.dropout) if isinstance(network, str) else network
    train = dataset.train
    if method.validation_fraction and validation is None:
        train, validation = split(train, method.validation_fraction, seed)
    start = initial_weights(initial)
    return Plan(method, factory, train, task, recipe or Recipe(), seed, validation, start, device)
