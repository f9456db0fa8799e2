"""From settings and data to a plan: one function for the estimators, the command line and Python.

Settings are a TOML file, or the "spec" of a run's config.json; both are read by `core.spec`:

    seed = 0
    engine = "auto"
    initial = "runs/first"          # start from the members of that run
    [data]
    name = "fashion-mnist"          # or a path
    rows = 5000
    [network]
    name = "cnn"
    [method]
    name = "mixup-mp"
    ratio = 1.0                     # inf is a number too
    kernel = ["pad-crop", "flip"]
    [recipe]
    epochs = 100
    learning_rate = 0.05

Default recipes: what a small dataset needs is steps, not epochs. A hundred rows make one step an epoch, sixty thousand
make 469. On tables, members share weights (`shared_mixup_mp`) and inputs are encoded piecewise linearly; the learning
rate is constant, so that one training serves for all lengths, and the length is chosen (`decide.default`,
results/tables/README.md). For members of their own weights and regression, 150 steps (results/selection/README.md:
300 steps or a rate of 3e-3 over-fit; 80 under-train wine). For images, 300 steps, half as many blends
in a step as rows, and at least 20 epochs: on 200 and 400 digits, 300, 400 or 600 steps of AdamW give the deep ensemble
an NLL as good as 600 of SGD at .05, or better. The recipe for
fine-tuning is a convention, not a measurement.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, log2
from pathlib import Path

import torch

from mixupmp import data
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.foreign import Json
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.methods import Method, arguments_of, mixup_mp, shared_mixup_mp
from mixupmp.core.plan import Plan, initial_weights
from mixupmp.core.posterior import Posterior, Task
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, evenly_spaced, split
from mixupmp.core.shared import SharedEnsemble
from mixupmp.core.spec import decode, encode, register
from mixupmp.core.streams import DatasetRows, IterableRows, has_labels
from mixupmp.data.files import ROOT_VARIABLE
from mixupmp.networks.factories import NetworkChoice, check_outputs, factory_for
from mixupmp.networks.tabular import quantile_edges
from mixupmp.store.load import load
from mixupmp.train.run import CheckpointInterval, Engine

SHARED = Recipe(optimizer="adamw", learning_rate=2e-3, weight_decay=1e-2, schedule="constant")
TABLE = Recipe(batch_size=128, optimizer="adamw", learning_rate=1e-3, weight_decay=0.3)
IMAGES = Recipe(batch_size=128, pseudo_batch_size=64, optimizer="adamw", learning_rate=5e-3, weight_decay=0.0)
FINE_TUNE = Recipe(batch_size=64, optimizer="adamw", learning_rate=1e-4, weight_decay=1e-2)
TABLE_STEPS, IMAGE_STEPS, FINE_TUNE_STEPS = 150, 300, 300
SHARED_STEPS = 300  # where the length is not chosen
SHARED_HIDDEN, SHARED_DROPOUT, SHARED_MEMBERS, MEMBERS = (128, 128), 0.1, 16, 4
WELL_TRAINED = 0.95
MOST_EPOCHS, FEWEST_EPOCHS, FEWEST_FINE_TUNE_EPOCHS = 1000, 20, 3
MOST_QUANTILE_ROWS = 10_000  # of streamed rows, for the bins of a table's columns


@dataclass(frozen=True)
class DataSettings:
    """Which rows."""

    name: str = "digits"  # a name, or the path of a file or folder
    root: str | None = None
    download: bool = False
    rows: int | None = None  # only so many training rows, stratified
    validation: float = 0.0  # share of them that is evaluated after each epoch, and not trained on
    seed: int = 0  # of the choice of rows and splits; not the fit's, so that fits of several seeds share a test set
    label: str | None = None  # a table's label column
    size: int | None = None  # images of a folder are resized to this side
    test_fraction: float = 0.2  # where the data has no test set of its own


@dataclass(frozen=True)
class Settings:
    """What a settings file says. `network` and `recipe` are completed when the data are known."""

    data: DataSettings = field(default_factory=DataSettings)
    method: Method = field(default_factory=mixup_mp)
    network: Json = field(default_factory=dict)
    recipe: Json = field(default_factory=dict)
    seed: int = 0
    initial: str | None = None  # a run whose members are the start
    engine: Engine = "auto"
    device: str = "cpu"
    checkpoints: CheckpointInterval = field(default_factory=CheckpointInterval)
    calibrate: bool = True  # fit a temperature to the averaged probabilities, on rows held out
    calibrator: Json = None  # the one that a run was given
    given: tuple[str, ...] = ()  # settings of method and recipe that are not left open, as "method.ratio"

    def beyond_plan(self) -> dict[str, Json]:
        """What a plan does not say of itself, for a run that is resumed by its folder alone."""
        names = ("data", "initial", "engine", "device", "checkpoints", "calibrate", "calibrator")
        return {name: encode(getattr(self, name)) for name in names}


for _class in (CheckpointInterval, DataSettings, Settings):
    register(_class)


def read_toml(path: Path) -> dict[str, Json]:
    """The document in a TOML file, unchecked."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise BadData(f"the configuration {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8, and tables without end
        raise BadData(f"the configuration {path} is not TOML: {error}") from error


def settings_from(document: Mapping[str, Json], over: Mapping[str, Json] | None = None) -> Settings:
    """Settings from a file or a run's spec, with those of `over` in place of its own, and paths made absolute."""
    merged = {name: value for name, value in document.items() if name != "task"}  # the data decide that
    for name, value in (over or {}).items():
        merged[name] = _over(name, merged.get(name), value)
    tables = ((name, merged.get(name)) for name in ("method", "recipe"))
    merged["given"] = [f"{name}.{key}" for name, table in tables if isinstance(table, Mapping) for key in table]
    settings = decode(merged, Settings)
    for name in ("network", "recipe"):
        table = getattr(settings, name)
        check(isinstance(table, Mapping), name, table, "a table of settings", f"Write [{name}] above its keys.")
    source = settings.data
    where = replace(
        source,
        name=absolute(source.name) or source.name if is_path(source.name) else source.name,
        root=absolute(source.root or os.environ.get(ROOT_VARIABLE) or None),
    )
    return replace(settings, data=where, initial=absolute(settings.initial))


def _over(name: str, before: Json, value: Json) -> Json:
    if not isinstance(value, Mapping):
        return value
    if before is not None and not isinstance(before, Mapping):
        raise InvalidArgument(name, before, "a table of settings", f"Write [{name}] above its keys.")
    before = dict(before or {})
    if name == "method" and "type" in before:  # in full: as the call of its constructor, whose arguments can be changed
        arguments = arguments_of(decode(before, Method, name))
        check(arguments is not None, name, before["name"], "one of this package's own, to change its settings")
        before = {"name": before["name"], **encode(arguments)}
    other = "name" in value and value["name"] != before.get("name", value["name"])
    if other or (name == "network" and "name" in value and "type" in before):
        before = {}  # settings of another method or network
    return {**before, **value}


def absolute(path: str | None) -> str | None:
    """A path that means the same from everywhere, for a run that is resumed from elsewhere."""
    return None if path is None else os.path.abspath(os.path.expanduser(path))


def is_path(name: str) -> bool:
    """Whether a dataset is named by a path: what is spelled like one, or is there and not the name of a dataset."""
    spelled = os.sep in name or name.startswith((".", "~")) or Path(name).suffix != ""
    return spelled or (name.lower() not in data.DATASETS and Path(name).exists())


def load_data(settings: DataSettings) -> Dataset:
    """The whole dataset, by name or by path."""
    if is_path(settings.name):
        return data.load_path(
            settings.name,
            label=settings.label,
            size=settings.size,
            test_fraction=settings.test_fraction,
            seed=settings.seed,
        )
    for name, value in (("label", settings.label), ("size", settings.size)):
        check(value is None, f"data.{name}", value, f"left out for {settings.name}, which has its own")
    return data.load(settings.name, settings.root, settings.download, settings.seed)


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
    return plan_for(
        dataset,
        _method(settings, tuple(dataset.train.inputs.shape[1:])),
        settings.network,
        settings.recipe,
        seed=settings.seed,
        validation=validation,
        initial=None if settings.initial is None else load(settings.initial),
        device=settings.device,
    )


def _method(settings: Settings, shape: tuple[int, ...]) -> Method:
    """The method of the settings; MixupMP as it suits rows of this shape where none is named."""
    method = settings.method
    if "method.type" in settings.given or "method.name" in settings.given or len(shape) != 1:
        return method
    alpha = getattr(method.predictive.base, "alpha", 1.0)
    members = method.sampler.networks if "method.members" in settings.given else None
    return mixup_mp_for(shape, settings.network, method.predictive.ratio, alpha, members)


def plan_for(
    dataset: Dataset,
    method: Method,
    network: NetworkChoice = None,
    recipe: Recipe | Mapping[str, Json] | None = None,
    *,
    seed: int = 0,
    validation: Rows | None = None,
    initial: Posterior | None = None,
    device: str = "cpu",
) -> Plan:
    """A plan for classifying a dataset; see `make_plan`."""
    shape = tuple(dataset.train.inputs.shape[1:])
    task = Task(Categorical(len(dataset.classes)), dataset.standardize, shape, dataset.classes)
    return make_plan(
        dataset.train, task, method, network, recipe, seed=seed, validation=validation, initial=initial, device=device
    )


def make_plan(
    train: Rows | DatasetRows | IterableRows,
    task: Task,
    method: Method,
    network: NetworkChoice = None,
    recipe: Recipe | Mapping[str, Json] | None = None,
    *,
    fine_tune: bool = False,
    seed: int = 0,
    validation: Rows | None = None,
    initial: Posterior | None = None,
    device: str = "cpu",
) -> Plan:
    """A plan, with what is left out chosen by the size and kind of the data.

    Parameters
    ----------
    network
        See `networks.factories.factory_for`. None: the CNN for images, an MLP for tables.
    recipe
        A recipe, or some of its fields over the default one of `recipe_for`.
    fine_tune
        Start every member from the weights of `network`, a module.
    validation
        Rows to evaluate after each epoch. A method that adapts to such rows takes a share of `train` if there are none.
    initial
        A posterior whose members are the start.
    """
    images, shared = len(task.input_shape) > 1, isinstance(method.sampler, SharedEnsemble)
    network = with_edges(network, train, task, shared)
    factory = factory_for(network, task.input_shape, task.likelihood.outputs, method.dropout, fine_tune=fine_tune)
    found = recipe if isinstance(recipe, Recipe) else recipe_for(len(train), images, fine_tune, recipe, shared=shared)
    if method.validation_fraction and validation is None and has_labels(train):
        train, held = split(train, method.validation_fraction, seed)
        validation = held.read()
    plan = Plan(method, factory, train, task, found, seed, validation, initial_weights(initial), device)
    check_outputs(plan.template, task.standardize(torch.zeros(2, *task.input_shape)), task.likelihood.outputs)
    return plan


def mixup_mp_for(
    shape: tuple[int, ...],
    network: NetworkChoice,
    ratio: float = 1.0,
    alpha: float = 0.4,
    members: int | None = None,
    share_weights: bool | None = None,
) -> Method:
    """MixupMP for rows of this shape.

    Parameters
    ----------
    members
        None: 16 that share weights, or 4 that do not.
    share_weights
        None: only for tables, where neither a network nor a number of members is given.
    """
    if share_weights is None:
        share_weights = len(shape) == 1 and not network and members is None
    if share_weights:
        return shared_mixup_mp(ratio, alpha, SHARED_MEMBERS if members is None else members)
    return mixup_mp(ratio, alpha, MEMBERS if members is None else members)


def with_edges(
    network: NetworkChoice, train: Rows | DatasetRows | IterableRows, task: Task, shared: bool
) -> NetworkChoice:
    """The default network of members that share weights, and the edges of a piecewise linear encoding from the rows."""
    table = len(task.input_shape) == 1
    if isinstance(network, str) and network == "tabular":
        network = {"name": network}
    if not network and shared and table:
        network = {"name": "tabular", "hidden": SHARED_HIDDEN, "dropout": SHARED_DROPOUT}
    named = isinstance(network, Mapping) and network.get("name") == "tabular" and "edges" not in network
    if not (named and table):
        return network
    (rows,) = train.batches([evenly_spaced(len(train), None if isinstance(train, Rows) else MOST_QUANTILE_ROWS)])
    return {**network, "edges": quantile_edges(task.standardize(rows.inputs))}  # type: ignore[dict-item]


def recipe_for(
    rows: int,
    images: bool,
    fine_tune: bool = False,
    given: Mapping[str, Json] | None = None,
    *,
    shared: bool = False,
) -> Recipe:
    """The default recipe for so many rows, with the given fields in place of its own."""
    recipe, steps, fewest = (IMAGES, IMAGE_STEPS, FEWEST_EPOCHS) if images else (TABLE, TABLE_STEPS, FEWEST_EPOCHS)
    if shared and not images:  # larger batches for more rows: from 64 up to 1,024 for 100,000
        recipe, steps = replace(SHARED, batch_size=min(1024, max(64, 2 ** round(log2(rows / 100))))), SHARED_STEPS
    if fine_tune:
        recipe, steps, fewest = FINE_TUNE, FINE_TUNE_STEPS, FEWEST_FINE_TUNE_EPOCHS
    given = given or {}
    recipe = decode({**encode(recipe), **encode(given)}, Recipe, "recipe")
    if "epochs" in given:
        return recipe
    steps_an_epoch = ceil(rows / (recipe.batch_size or rows))
    return replace(recipe, epochs=min(MOST_EPOCHS, max(fewest, ceil(steps / steps_an_epoch))))


def under_trained(plan: Plan, posterior: Posterior) -> str | None:
    """What to say of members that were trained for less than half of the default steps and do not fit their rows."""
    finished = [s for s in posterior.summaries if s.training_accuracy is not None]
    if not finished:
        return None
    images, shared = len(plan.task.input_shape) > 1, isinstance(plan.method.sampler, SharedEnsemble)
    rows, size = len(plan.train), plan.recipe.batch_size
    default = recipe_for(rows, images, given={"batch_size": size}, shared=shared)
    accuracy = sum(s.training_accuracy or 0.0 for s in finished) / len(finished)
    if plan.recipe.epochs >= default.epochs / 2 or accuracy > WELL_TRAINED:
        return None
    steps = max(s.steps for s in finished)
    usual = default.epochs * ceil(rows / (size or rows))
    return (
        f"members reached {accuracy:.0%} training accuracy in {steps} steps; about {usual} are usual for {rows} rows: "
        "train longer, or leave epochs out"
    )
