"""A fit as settings: a TOML file, flags over it, and the plan they make.

    seed = 0
    engine = "auto"
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

Every key is a field of the classes below or of `Recipe`; a key that is not is refused with the nearest that is.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mixupmp.core.errors import BadData, InvalidArgument, UnknownName
from mixupmp.core.plan import plain
from mixupmp.core.recipe import Recipe
from mixupmp.train.run import CheckpointInterval, Engine


@dataclass(frozen=True)
class DataSettings:
    """Which rows."""

    name: str = "digits"  # a name, or the path of a file or folder
    root: str | None = None
    download: bool = False
    rows: int | None = None  # only so many training rows, stratified
    validation: float = 0.0  # share of them on which each epoch is judged, and which is not trained on
    seed: int = 0  # chooses rows and splits; apart from the fit's, so that fits of several seeds share a test set
    label: str | None = None  # a table's label column
    size: int | None = None  # images of a folder are resized to this side
    test_fraction: float = 0.2  # where the data has no test set of its own


@dataclass(frozen=True)
class NetworkSettings:
    """Which network; what is left out is as its class has it."""

    name: str | None = None  # None: the CNN for images, the MLP for tables
    hidden: tuple[int, ...] | None = None
    width: int | None = None
    bias: bool | None = None
    dropout: float | None = None


@dataclass(frozen=True)
class MethodSettings:
    """Which method; what is left out is as its function has it."""

    name: str = "mixup-mp"
    ratio: float | None = None
    alpha: float | None = None
    members: int | None = None
    kernel: tuple[str, ...] = ()
    dropout: float | None = None
    variance: float | None = None
    low: float | None = None
    high: float | None = None
    atoms: int | None = None
    bound: float | None = None
    subset: str | None = None
    structure: str | None = None
    validation_fraction: float | None = None
    initial: str | None = None  # a run whose members are the start


@dataclass(frozen=True)
class Settings:
    """Everything that `mixupmp fit` can be told."""

    data: DataSettings = field(default_factory=DataSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    method: MethodSettings = field(default_factory=MethodSettings)
    # Half the rate of `Recipe`: without BatchNorm the small networks lose members to divergence at .1.
    recipe: Recipe = field(default_factory=lambda: Recipe(learning_rate=0.05))
    checkpoints: CheckpointInterval = field(default_factory=CheckpointInterval)
    seed: int = 0
    engine: Engine = "auto"
    device: str = "cpu"

    def to_dict(self) -> dict[str, Any]:
        """Itself as JSON, for a run's folder."""
        return _without_types(plain(self))


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, unchecked."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise BadData(f"the configuration {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadData(f"the configuration {path} is not TOML: {error}") from error


def settings_from(told: Mapping[str, Any], flags: Mapping[str, Any]) -> Settings:
    """Settings from a file or a run, with flags ("method.ratio": 1.0) over them; None is a flag not given."""
    merged = dict(told)
    for place, value in flags.items():
        if value is not None:
            merged = _with(merged, place.split("."), value)
    settings: Settings = _read(Settings(), merged, "")
    return settings


def absolute(path: str | None) -> str | None:
    """A path that means the same from everywhere, for a run that is resumed from elsewhere."""
    return None if path is None else os.path.abspath(os.path.expanduser(path))


def _with(told: Mapping[str, Any], place: list[str], value: Any) -> dict[str, Any]:
    if len(place) == 1:
        return {**told, place[0]: value}
    inner = told.get(place[0], {})
    if not isinstance(inner, Mapping):
        raise InvalidArgument(place[0], inner, "a table of settings", f"Write [{place[0]}] above its keys.")
    return {**told, place[0]: _with(inner, place[1:], value)}


def _read(default: Any, told: Any, where: str) -> Any:
    """A settings object with what a table says in place of its defaults, each value of its field's type."""
    if not isinstance(told, Mapping):
        raise InvalidArgument(where, told, "a table of settings", f"Write [{where}] above its keys.")
    hints = get_type_hints(type(default))
    values = {}
    for name, value in told.items():
        place = f"{where}.{name}" if where else str(name)
        if name not in hints:
            raise UnknownName(f"setting in [{where}]" if where else "setting", str(name), hints)
        before = getattr(default, name)
        values[name] = _read(before, value, place) if is_dataclass(before) else _value(hints[name], value, place)
    return replace(default, **values)


def _value(kind: Any, value: Any, where: str) -> Any:
    """The value as this type, or an error that names the setting."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for option in options:
        found, result = _as(option, value, where)
        if found:
            return result
    raise InvalidArgument(where, value, " or ".join(map(_called, options)))


def _as(kind: Any, value: Any, where: str) -> tuple[bool, Any]:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        if whole or isinstance(value, float):
            return True, float(value)
        return (True, float(value)) if value in ("inf", "-inf") else (False, None)
    if kind is int:
        return whole, value
    if get_origin(kind) is Literal:
        return value in get_args(kind), value
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return isinstance(value, list | tuple), tuple(_value(inner, item, where) for item in _items(value))
    return isinstance(value, kind), value


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _called(kind: Any) -> str:
    names = {float: "a number", int: "a whole number", str: "text", bool: "true or false", NoneType: "left out"}
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        return f"a list, each {_called(get_args(kind)[0])}"
    return names.get(kind, str(kind))


def _without_types(value: Any) -> Any:
    """The description of a dataclass without the names of its types, which the fields imply."""
    if isinstance(value, dict):
        return {name: _without_types(item) for name, item in value.items() if name != "type"}
    return value
