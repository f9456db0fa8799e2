"""From settings to a plan: what a file, a run's record and the command line's options say, and the data they name.

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
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mixupmp import data
from mixupmp.core.base_measures import SentenceSplice
from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import BadData, InvalidArgument, check
from mixupmp.core.foreign import Json
from mixupmp.core.methods import Method, arguments_of, martingale_posterior, mixup_mp
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Dataset, Rows
from mixupmp.core.spec import decode, encode, register
from mixupmp.core.split import split
from mixupmp.core.tokenizers import Vocabulary
from mixupmp.data.files import ROOT_VARIABLE
from mixupmp.store.load import load
from mixupmp.train.job import CheckpointInterval
from mixupmp.train.plans import MEMBERS, mixup_mp_for, plan_for
from mixupmp.train.run import Engine


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
    text: str | None = None  # the column of sentences in a CSV, TSV or JSON Lines file
    tokens: str = field(default="words", metadata={"later": True})  # what sentences are cut into: words or pieces
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
    return spelled or (name.lower() not in data.DATASETS and os.path.exists(name))


def load_data(settings: DataSettings, encoder: Encoder | None = None) -> Dataset:
    """The whole dataset, by name or by path; sentences, sounds and columns of a table encoded as those of a fit."""
    if is_path(settings.name):
        return data.load_path(
            settings.name,
            label=settings.label,
            text=settings.text,
            size=settings.size,
            test_fraction=settings.test_fraction,
            seed=settings.seed,
            tokens=settings.tokens,
            encoder=encoder,
        )
    for name, value in (("label", settings.label), ("text", settings.text), ("size", settings.size)):
        check(value is None, f"data.{name}", value, f"left out for {settings.name}, which has its own")
    where = (settings.name, settings.root, settings.download, settings.seed)
    return data.load(*where, tokens=settings.tokens, encoder=encoder)


def fewer_rows(dataset: Dataset, rows: int | None, seed: int) -> Dataset:
    """Only so many training rows, with each class's share as it was."""
    if rows is None:
        return dataset
    there, classes = len(dataset.train), len(dataset.classes)
    check(classes <= rows <= there, "rows", rows, f"from {classes} (one for each class) to {there}, which there are")
    if rows == there:
        return dataset
    return dataset.with_train(split(dataset.train, (there - rows) / there, seed)[0])


def training_part(settings: DataSettings, dataset: Dataset) -> tuple[Dataset, Rows | None]:
    """The dataset with the rows that are trained on, and those that are evaluated after each epoch, if any."""
    dataset = fewer_rows(dataset, settings.rows, settings.seed)
    if not settings.validation:
        return dataset, None
    train, validation = split(dataset.train, settings.validation, settings.seed)
    return dataset.with_train(train), validation


def plan_from(settings: Settings, dataset: Dataset) -> Plan:
    """The plan that these settings make of their dataset."""
    dataset, validation = training_part(settings.data, dataset)
    return plan_for(
        dataset,
        _method(settings, dataset),
        settings.network,
        settings.recipe,
        seed=settings.seed,
        validation=validation,
        initial=None if settings.initial is None else load(settings.initial),
        device=settings.device,
    )


def _method(settings: Settings, dataset: Dataset) -> Method:
    """The method of the settings; where none is named, MixupMP as it suits these rows."""
    method, shape = settings.method, tuple(dataset.train.inputs.shape[1:])
    if "method.type" in settings.given or "method.name" in settings.given or len(shape) != 1:
        return method
    predictive = method.predictive
    alpha = getattr(predictive.base, "alpha", 1.0)
    members = method.sampler.networks if "method.members" in settings.given else None
    if isinstance(dataset.encoder, Vocabulary):  # token numbers cannot be blended, sentences can be spliced
        return martingale_posterior(predictive.ratio, SentenceSplice(alpha), members or MEMBERS, predictive.kernel)
    return mixup_mp_for(shape, settings.network, predictive.ratio, alpha, members, rows=len(dataset.train))
