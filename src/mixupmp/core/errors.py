"""Errors for users: which argument, what it was, what it must be, and what to do.

All derive from `MixupMPError`, which the command line prints as one line, with exit code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import TypeGuard


class MixupMPError(Exception):
    """Base class of this package's errors."""

    code = 2  # the exit code of a command that ends with it

    def __reduce__(self) -> tuple[object, ...]:
        # By message, not by the arguments of __init__: errors are pickled by worker processes.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[MixupMPError], arguments: tuple[object, ...], attributes: dict[str, object]) -> MixupMPError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class InvalidArgument(MixupMPError, ValueError):
    """An argument has an invalid value."""

    def __init__(self, name: str, value: object, must: str, hint: str = "") -> None:
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        message = f"{name} must be {must}, got {shown} ({type(value).__name__})."
        super().__init__(f"{message} {hint}".strip())


class UnknownName(MixupMPError, ValueError):
    """There is no dataset, method or network of this name."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}.{guess} Known: {', '.join(known)}.")


class DataNotFound(MixupMPError, FileNotFoundError):
    """A dataset's files are missing; the message says where they were expected and how to get them."""


class BadData(MixupMPError, ValueError):
    """Data is invalid: truncated, of the wrong shape, not finite, or with objects that are not data."""


class BadRun(MixupMPError, ValueError):
    """A run folder is damaged, incomplete, or of a format that this version does not read."""


class MissingExtra(MixupMPError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str, then: str = "") -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'mixupmp[{extra}]'{then}.")


@contextmanager
def extra(package: str, name: str, purpose: str) -> Iterator[None]:
    """For the import of an optional dependency: `MissingExtra` where it is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(package, name, purpose) from error


def check(condition: bool, name: str, value: object, must: str, hint: str = "") -> None:
    """Raise `InvalidArgument` unless the condition holds."""
    if not condition:
        raise InvalidArgument(name, value, must, hint)


def check_known(kind: str, name: object, known: Collection[str]) -> None:
    """Raise `UnknownName` unless this is one of the known names."""
    if name not in known:
        raise UnknownName(kind, str(name), known)


def is_whole(value: object, least: int = 1) -> bool:
    """Whether this is an int (not a bool) of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a real number (not a bool); NaN is one, but fails a comparison with any bound."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_dropout(rate: float) -> None:
    """Raise `InvalidArgument` unless this can be a dropout rate."""
    check(is_number(rate) and 0 <= rate < 1, "dropout", rate, "a rate in [0, 1)")
