"""How to repeat a run: the Python that fits the same plan again."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from math import isinf
from types import FunctionType

import mixupmp
from mixupmp.core.foreign import Foreign, Json
from mixupmp.core.methods import Method, arguments_of, method_names
from mixupmp.core.recipe import Recipe
from mixupmp.core.spec import decode
from mixupmp.networks import Network
from mixupmp.store.record import FitRecord
from mixupmp.train.settings import DataSettings, is_path


def snippet(record: FitRecord, dataset: str, data: Mapping[str, Json] | None = None) -> str | None:
    """Python that fits the same method, network, recipe and seed. None for networks that did not come from a fit.

    `data` is the spec's, of a run that the command line started: where its rows come from.
    """
    if record.recipe is None or record.rows is None:
        return None
    source = decode(data, DataSettings, "data") if data else DataSettings(name=dataset)
    return "\n".join(
        (
            "import mixupmp",
            "import mixupmp.data",
            *(["import mixupmp.networks"] if isinstance(record.network, Network) else []),
            *(["import mixupmp.train.settings"] if source.rows else []),
            "",
            *_data(source, record.rows),
            f"method = {method_call(record.method)}",
            f"recipe = {recipe_call(record.recipe)}",
            f"network = {code_of(record.network)}",
            f"plan = mixupmp.plan_for(dataset, method, network, recipe, seed={record.seed})",
            "posterior = mixupmp.fit(plan)",
        )
    )


def _data(source: DataSettings, count: int) -> list[str]:
    given = {key: getattr(source, key) for key in ("label", "size") if getattr(source, key)}
    if is_path(source.name) or given:
        given |= {"test_fraction": source.test_fraction, "seed": source.seed}
        arguments = "".join(f", {key}={value!r}" for key, value in given.items())
        lines = [f"dataset = mixupmp.data.load_path({source.name!r}{arguments})"]
    else:
        seed = f", seed={source.seed}" if source.seed else ""
        lines = [f"dataset = mixupmp.data.load({source.name!r}{seed})  # {count} training rows"]
    if source.rows:
        lines.append(f"dataset = mixupmp.train.settings.fewer_rows(dataset, {source.rows}, seed={source.seed})")
    if source.validation:
        lines.append(f"# {source.validation:g} of the rows were kept for validation")
    return lines


def method_call(method: Method) -> str:
    """The call of its constructor that makes this method; in full where none does."""
    arguments = arguments_of(method)
    if arguments is None:
        return code_of(method)
    constructor = method_names()[method.name]
    defaults = {name: parameter.default for name, parameter in inspect.signature(constructor).parameters.items()}
    return f"mixupmp.{constructor.__name__}({_arguments(arguments, defaults, ('ratio', 'alpha', 'members'))})"


def recipe_call(recipe: Recipe) -> str:
    """The recipe, where it differs from the default one."""
    return f"mixupmp.Recipe({_arguments(vars(recipe), vars(Recipe()), ('epochs', 'learning_rate'))})"


def code_of(value: object) -> str:
    """The Python that makes this value."""
    if isinstance(value, Foreign):
        return f"...  # your own: {value}"
    if isinstance(value, float) and isinf(value):
        return f"float('{value}')"
    if isinstance(value, tuple):
        return f"({''.join(f'{code_of(item)}, ' for item in value)})"
    if isinstance(value, FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        name = type(value).__name__
        path = f"mixupmp.{name}" if hasattr(mixupmp, name) else f"{type(value).__module__}.{name}"
        defaults = {entry.name: entry.default for entry in fields(value)}
        return f"{path}({_arguments(vars(value), defaults)})"
    return repr(value)


def _arguments(given: Mapping[str, object], defaults: Mapping[str, object], always: Sequence[str] = ()) -> str:
    """The arguments of a call that are not the default, and those that are always shown."""
    kept = {name: value for name, value in given.items() if name in always or value != defaults.get(name, MISSING)}
    return ", ".join(f"{name}={code_of(value)}" for name, value in kept.items())
