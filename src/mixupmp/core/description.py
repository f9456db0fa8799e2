"""Any setting as plain JSON, the same in every process: what a resumed run is compared by."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from dataclasses import fields, is_dataclass
from math import isinf
from types import CodeType, FunctionType
from typing import Any

DEEPEST = 8  # objects within objects that are looked into; a user's may go in circles


def plain(value: Any, deep: int = 0) -> Any:
    """A dataclass by its type and fields, a callable by its name and what it holds, infinity as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if not isinf(value) else "inf" if value > 0 else "-inf"
    if deep > DEEPEST:
        return type(value).__qualname__
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **_items({f.name: getattr(value, f.name) for f in fields(value)}, deep)}
    if isinstance(value, dict):
        return _items(value, deep)
    if isinstance(value, list | tuple):
        return [plain(item, deep + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(plain(item, deep + 1)) for item in value)
    return _callable_or_object(value, deep)


def _items(items: dict[Any, Any], deep: int) -> dict[str, Any]:
    return {str(key): plain(item, deep + 1) for key, item in items.items()}


def _callable_or_object(value: Any, deep: int) -> Any:
    if isinstance(value, functools.partial):
        arguments = {"arguments": plain(value.args, deep + 1), "settings": plain(value.keywords, deep + 1)}
        return {"type": "partial", "function": plain(value.func, deep + 1), **arguments}
    if inspect.ismethod(value):
        return {"type": "method", "function": _name(value), "of": plain(value.__self__, deep + 1)}
    if isinstance(value, FunctionType) and "<" in value.__qualname__:
        # A lambda has no name to tell it from the next: tell it by its code, and by what that holds on to.
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        held = [item if not isinstance(item, FunctionType) else item.__qualname__ for item in held]
        defaults = plain([value.__defaults__, value.__kwdefaults__], deep + 1)
        return f"{_name(value)} #{_digest([_code(value.__code__), plain(held, deep + 1), defaults])}"
    if callable(value) and hasattr(value, "__qualname__"):
        return _name(value)
    if next(kind for kind in type(value).__mro__ if "__repr__" in vars(kind)) is object:  # no words of its own
        return {"type": type(value).__qualname__, **_items(getattr(value, "__dict__", {}), deep)}
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # where something lies in memory is nothing of its own


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _code(code: CodeType) -> list[Any]:
    constants = [_code(item) if isinstance(item, CodeType) else repr(plain(item)) for item in code.co_consts]
    return [code.co_code.hex(), code.co_names, constants]


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
