"""What is not this package's own in a spec: a user's network, kernel or base measure."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from mixupmp.core.errors import InvalidArgument

Json = Any  # None, bool, int, float, str, and lists and dictionaries of them


@dataclass(frozen=True)
class Foreign:
    """A part of a decoded value that is not this package's own. It can be shown and compared, not used."""

    described: str

    def __call__(self, inputs: object, generator: object) -> Any:
        raise InvalidArgument("spec", self.described, "used only by whoever has its code", "Pass the object itself.")

    sample = draw = posterior = __call__

    def __repr__(self) -> str:
        return self.described


def import_path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def identification(value: object, encode: Callable[[object], Json]) -> Json:
    """What tells a callable or an object from others, the same in every process; `encode` is for its parts."""
    if isinstance(value, functools.partial):
        arguments = {"arguments": encode(value.args), "settings": encode(value.keywords)}
        return {"type": "functools.partial", "function": encode(value.func), **arguments}
    if inspect.ismethod(value):
        return {"type": "types.MethodType", "function": import_path(value), "of": encode(value.__self__)}
    if isinstance(value, FunctionType) and "<" in value.__qualname__:
        # A lambda has no name to tell it from the next: tell it by its code, and by what that refers to.
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        held = [item if not isinstance(item, FunctionType) else item.__qualname__ for item in held]
        defaults = encode([value.__defaults__, value.__kwdefaults__])
        return f"{import_path(value)} #{_digest([list(_code(value.__code__, encode)), encode(held), defaults])}"
    if callable(value) and hasattr(value, "__qualname__"):
        return import_path(value)
    if next(kind for kind in type(value).__mro__ if "__repr__" in vars(kind)) is object:
        return {
            "type": import_path(type(value)),
            **{name: encode(item) for name, item in getattr(value, "__dict__", {}).items()},
        }
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # an address is another in the next process


def _code(code: CodeType, encode: Callable[[object], Json]) -> Iterator[object]:
    yield code.co_code.hex()
    yield code.co_names
    yield [list(_code(item, encode)) if isinstance(item, CodeType) else repr(encode(item)) for item in code.co_consts]


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
