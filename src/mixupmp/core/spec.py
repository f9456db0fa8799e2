"""A fit's settings as one JSON document, and back: `encode` and `decode`.

A TOML file, a run's config.json, the cache key of the reproduction, the model card and the report all hold this
document. Every value is written with its class, {"type": "Mixup", "alpha": 2.0}; infinity is the text "inf". Reading is
strict and runs no code of the document's: only the classes in `REGISTRY` are built, and no import path is followed.

What is not this package's own (a user's network, kernel or base measure) is encoded as a stable identification, the
same in every process, so that a resumed run can be compared with it. It cannot be decoded.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import cattrs
from cattrs.gen import make_dict_structure_fn

from mixupmp.core.base_measures import BASE_MEASURES, BaseMeasure
from mixupmp.core.columns import Column
from mixupmp.core.encoders import Encoder
from mixupmp.core.errors import UnknownName, check_known
from mixupmp.core.fields import Field, Fields
from mixupmp.core.foreign import Foreign, Json, identification, import_path
from mixupmp.core.kernels import KERNELS, Compose, Kernel, identity
from mixupmp.core.likelihoods import Categorical, Gaussian, Likelihood
from mixupmp.core.methods import Method, method_names
from mixupmp.core.posterior import Task
from mixupmp.core.predictive import Predictive
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Standardize
from mixupmp.core.sampler_catalog import SAMPLERS
from mixupmp.core.samplers import Sampler
from mixupmp.core.spec_errors import Mismatch, placed_error, unknown_argument
from mixupmp.core.weights import Dirichlet, Expected, StabilizedDirichlet, Weights

T = TypeVar("T")

# Kernels and base measures as a settings file names them: kernel = ["pad-crop", "flip"].
NAMED: dict[object, tuple[str, Mapping[str, object]]] = {
    BaseMeasure: ("base measure", BASE_MEASURES),
    Kernel: ("kernel", KERNELS),
}
# Types that stand for one of several classes, distinguished by "type".
FAMILIES: dict[object, tuple[object, ...]] = {
    BaseMeasure: tuple(dict.fromkeys(map(type, BASE_MEASURES.values()))),
    Kernel: (identity, *dict.fromkeys(map(type, KERNELS.values()))),
    Weights: (Expected, Dirichlet, StabilizedDirichlet),
    Sampler: tuple(SAMPLERS.values()),
    Likelihood: (Categorical, Gaussian),
    Categorical | Gaussian: (Categorical, Gaussian),
    Standardize | Fields: (Standardize, Fields),
    Encoder: get_args(Encoder),
}
REGISTRY: dict[str, Any] = {
    member.__name__: member  # type: ignore[attr-defined]
    for member in (
        *(m for family in FAMILIES.values() for m in family),
        Field,
        Column,
        Task,
        Predictive,
        Method,
        Recipe,
    )
}
_READERS: dict[type, Callable[[Json], object]] = {}
DEEPEST = 8  # levels of a user's objects that are encoded: they may refer to each other in circles


def register(cls: type[T], reader: Callable[[Json], T] | None = None) -> type[T]:
    """Add a dataclass of an upper floor to those that `decode` builds, with a reader of its own where it needs one."""
    REGISTRY[cls.__name__] = cls
    if reader is not None:
        _READERS[cls] = reader
    return cls


def register_family(kind: object, *members: type) -> None:
    """Add a type that stands for one of several dataclasses of an upper floor."""
    FAMILIES[kind] = members
    REGISTRY.update({member.__name__: member for member in members})


def encode(value: object, depth: int = 0) -> Json:
    """The value as JSON: equal values, and only those, give equal documents, in any process."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Foreign):
        return value.described
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if not math.isinf(number) else "inf" if number > 0 else "-inf"
    if depth > DEEPEST:
        return type(value).__qualname__
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        # What was added later is left out where it is not used, so that older documents stay the same.
        later = [f.name for f in fields(value) if "later" in f.metadata and parts[f.name] == f.default]
        kept = {name: part for name, part in parts.items() if name not in later}
        return {"type": _tag(type(value)), **_items(kept, depth)}
    if isinstance(value, Mapping):
        return _items(value, depth)
    if isinstance(value, list | tuple):
        return [encode(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(encode(item, depth + 1)) for item in value)
    return {"type": _tag(value)} if _own(value) else identification(value, lambda item: encode(item, depth + 1))


def decode(document: Json, kind: type[T], place: str = "", *, keep_foreign: bool = False) -> T:
    """The value that a document describes.

    Parameters
    ----------
    document
        What `encode` gave, or what a person wrote: "type" may be left out where the class is known, keys that have a
        default may be left out, and a method may be a call of its constructor, {"name": "mixup-mp", "ratio": 1.0}.
    kind
        The class, or a type that stands for several, as `BaseMeasure`.
    place
        Where the document lies in a larger one, for error messages: "recipe" makes "recipe.epochs must be ...".
    keep_foreign
        Put a `Foreign` in the place of what is not this package's own, where it is otherwise refused.
    """
    try:
        return _converter(keep_foreign).structure(document, kind)
    except Exception as error:  # noqa: BLE001 - cattrs and the classes raise what they like
        raise placed_error(error, place) from None


def decode_arguments(function: Callable[..., object], arguments: Mapping[str, Json], place: str) -> dict[str, Any]:
    """Arguments of a function or class, read by the types of its signature."""
    parameters, hints = inspect.signature(function).parameters, _hints(function)
    known = [name for name in parameters if name in hints]
    for name, value in arguments.items():
        if name not in known:
            raise unknown_argument(function, name, value, known, place)
    return {name: decode(value, hints[name], f"{place}.{name}") for name, value in arguments.items()}


def shown(value: Json) -> str:
    """An encoded value as the call that makes it: "Mixup(alpha=2.0)"."""
    if not isinstance(value, Mapping):
        return str(value)
    if value.get("path") and isinstance(value.get("arguments"), Mapping):  # a Network
        value = {"type": value["path"], **value["arguments"]}
    arguments = ", ".join(f"{name}={shown(item)}" for name, item in value.items() if name != "type")
    return f"{value.get('type', '')}({arguments})"


@functools.cache
def _converter(keep_foreign: bool) -> cattrs.Converter:
    """Typed reading without coercion: "3" is no number and 3 is no text."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook_factory(lambda kind: kind is Any, lambda _: lambda value, _: value)
    for kind, name, accepted in (
        (int, "a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
        (bool, "true or false", lambda v: isinstance(v, bool)),
        (str, "text", lambda v: isinstance(v, str)),
    ):
        converter.register_structure_hook(kind, functools.partial(_simple, name, accepted))
    converter.register_structure_hook(float, lambda value, _: _float(value))
    converter.register_structure_hook_factory(_is_origin(Literal), lambda kind: functools.partial(_literal, kind))
    converter.register_structure_hook_factory(
        _is_origin(tuple, Sequence, list), lambda kind: functools.partial(_sequence, converter, kind)
    )
    converter.register_structure_hook_factory(
        _is_origin(Union, UnionType), lambda kind: functools.partial(_union, converter, kind)
    )
    converter.register_structure_hook_factory(
        lambda kind: kind in FAMILIES, lambda kind: functools.partial(_member, converter, kind, keep_foreign)
    )
    converter.register_structure_hook_factory(
        lambda kind: isinstance(kind, type) and kind in REGISTRY.values(), lambda kind: _dataclass_hook(converter, kind)
    )
    return converter


def _is_origin(*origins: object) -> Callable[[object], bool]:
    return lambda kind: kind not in FAMILIES and get_origin(kind) in origins


def _simple(name: str, accepted: Callable[[object], bool], value: Json, _: type) -> Json:
    if not accepted(value):
        raise Mismatch(value, name)
    return value


def _float(value: Json) -> float:
    if (isinstance(value, int | float) and not isinstance(value, bool)) or value in ("inf", "-inf"):
        return float(value)
    raise Mismatch(value, "a number")


def _literal(kind: object, value: Json, _: type) -> Json:
    if value not in get_args(kind):
        raise Mismatch(value, f"one of {', '.join(map(str, get_args(kind)))}")
    return value


def _sequence(converter: cattrs.Converter, kind: object, value: Json, _: type) -> tuple[object, ...]:
    kinds = get_args(kind)
    repeated = len(kinds) == 1 or kinds[1] is Ellipsis
    if not isinstance(value, list | tuple) or not (repeated or len(value) == len(kinds)):
        raise Mismatch(value, "a list" if repeated else f"a list of {len(kinds)}")
    each = (kinds[0],) * len(value) if repeated else kinds
    return tuple(converter.structure(item, inner) for item, inner in zip(value, each, strict=True))


def _union(converter: cattrs.Converter, kind: object, value: Json, _: type) -> object:
    options = [option for option in get_args(kind) if option is not NoneType]
    if value is None and len(options) < len(get_args(kind)):
        return None
    wrong: list[Mismatch] = []
    for option in options:
        try:
            return converter.structure(value, option)
        except Mismatch as error:
            wrong.append(error)
    must = " or ".join(error.must for error in wrong)
    raise Mismatch(value, must if len(options) == len(get_args(kind)) else f"{must} or left out", wrong[-1].hint)


def _member(converter: cattrs.Converter, kind: object, keep_foreign: bool, value: Json, _: type) -> object:
    """One of a family's classes or functions, by its "type"."""
    if kind in NAMED and isinstance(value, str) and "." not in value:
        family, known = NAMED[kind]
        if value not in known:
            raise UnknownName(family, value, known)
        return known[value]
    if kind == Kernel and isinstance(value, list | tuple):
        return Compose(tuple(cast(Kernel, _member(converter, Kernel, keep_foreign, item, _)) for item in value))
    names = [member.__name__ for member in FAMILIES[kind]]  # type: ignore[attr-defined]
    tag: Any = value.get("type") if isinstance(value, Mapping) else value
    if tag in names:
        found = REGISTRY[tag]
        return converter.structure(value, found) if isinstance(found, type) else found
    if keep_foreign:
        return Foreign(shown(value))
    if isinstance(value, Mapping) and isinstance(tag, str) and "." not in tag:
        raise UnknownName("type", tag, names)
    raise Mismatch(value, f"one of {', '.join(names)}", "Pass what is your own in Python: it is not read from a file.")


def _dataclass_hook(converter: cattrs.Converter, cls: Any) -> Callable[[Json, type], object]:
    build = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

    def structure(value: Json, _: type) -> object:
        if not isinstance(value, Mapping):
            raise Mismatch(value, "a table of settings")
        tag = value.get("type", cls.__name__)
        if tag != cls.__name__:
            raise Mismatch(tag, f"a {cls.__name__}")
        if cls in _READERS:
            return _READERS[cls](value)
        if cls is Method and "type" not in value:
            return _called(value)
        return build({name: item for name, item in value.items() if name != "type"}, cls)

    return structure


def _called(value: Mapping[str, Json]) -> Method:
    """A method as a call of its constructor: its name, and the arguments that are not the default."""
    known, name = method_names(), value.get("name", "mixup-mp")
    check_known("method", name, known)
    arguments = {key: item for key, item in value.items() if key != "name"}
    return known[name](**decode_arguments(known[name], arguments, ""))


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    target = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    return {**dict.fromkeys(inspect.signature(function).parameters, Any), **get_type_hints(target)}


def _own(value: object) -> bool:
    return isinstance(value, FunctionType) and REGISTRY.get(value.__name__) is value


def _tag(value: Any) -> str:
    """The registered name of our own classes and functions, the import path of any other."""
    name: str = value.__name__
    return name if REGISTRY.get(name) is value else import_path(value)


def _items(items: Mapping[Any, object], depth: int) -> dict[str, Json]:
    return {str(key): encode(item, depth + 1) for key, item in items.items()}
