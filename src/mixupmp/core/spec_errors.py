"""What was wrong with a settings document, as one of our errors that names where."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, cast

from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from mixupmp.core.errors import InvalidArgument, MixupMPError, UnknownName
from mixupmp.core.foreign import Json


class Mismatch(Exception):
    """A value that is not of the type that is read."""

    def __init__(self, value: object, must: str, hint: str = "") -> None:
        self.value, self.must, self.hint = value, must, hint


def placed_error(error: BaseException, place: str) -> MixupMPError:
    """The first thing that was wrong, as one of our errors that names where."""
    if isinstance(error, ClassValidationError):
        inner: Sequence[BaseException] = error.exceptions
        extra = [e for e in inner if isinstance(e, ForbiddenExtraKeysError)]
        first = extra[0] if extra else inner[0]
        notes = [note.name for note in getattr(first, "__notes__", ()) if hasattr(note, "name")]
        return placed_error(first, ".".join(filter(None, [place, *notes])))
    if isinstance(error, ForbiddenExtraKeysError):
        table = f"setting in [{place}]" if place else "setting"
        return UnknownName(table, sorted(error.extra_fields)[0], (f.name for f in fields(cast(Any, error.cl))))
    if isinstance(error, Mismatch):
        hint = error.hint or (f"Write [{place}] above its keys." if error.must == "a table of settings" else "")
        return InvalidArgument(place or "document", error.value, error.must, hint)
    if isinstance(error, KeyError):
        return InvalidArgument(place or str(error), None, "given")
    if isinstance(error, InvalidArgument):  # refused by the class itself, which does not know where it was written
        refused = InvalidArgument(place, None, "")
        refused.args = (f"{place}.{error}" if place and not str(error).startswith(".") else f"{place}{error}",)
        return refused
    if isinstance(error, MixupMPError):
        return error
    return InvalidArgument(place or "document", type(error).__name__, "readable", str(error))


def unknown_argument(
    function: Callable[..., object], name: str, value: Json, known: Sequence[str], place: str
) -> MixupMPError:
    called = function.__name__.replace("_", "-")
    if difflib.get_close_matches(name, known):
        return UnknownName(f"argument of {called}", name, known)
    return InvalidArgument(f"{place}.{name}", value, f"left out for {called}", f"It takes {', '.join(known)}.")
