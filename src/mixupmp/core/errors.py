"""The errors a user can meet. Each says what was wrong, what it was, what it must be, and what to do.

All derive from `MixupMPError`, which the command line turns into one line and exit code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Real
from typing import Any, TypeGuard


class MixupMPError(Exception):
    """Base of every error this package raises on purpose."""

    code = 2  # the exit code of a command that ends with it

    def __reduce__(self) -> tuple[Any, ...]:
        # By its message, not by the arguments of its constructor: errors come back from worker processes.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[MixupMPError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> MixupMPError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class InvalidArgument(MixupMPError, ValueError):
    """An argument has a value that cannot be used."""

    def __init__(self, name: str, value: object, must: str, hint: str = "") -> None:
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        message = f"{name} must be {must}, got {shown} ({type(value).__name__})."
        super().__init__(f"{message} {hint}".strip())


class UnknownName(MixupMPError, ValueError):
    """A dataset, method or network was asked for by a name that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}.{guess} Known: {', '.join(known)}.")


class DataNotFound(MixupMPError, FileNotFoundError):
    """A dataset is not where it was looked for; the message says where that was and how to get it."""


class BadData(MixupMPError, ValueError):
    """Data was found but cannot be used: truncated, of the wrong shape, with NaN, with foreign objects."""


class BadRun(MixupMPError, ValueError):
    """A run or model folder is damaged, incomplete, or of a format that this version does not read."""


class MissingExtra(MixupMPError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'mixupmp[{extra}]'.")


def check(condition: bool, name: str, value: object, must: str, hint: str = "") -> None:
    """Raise `InvalidArgument` unless the condition holds."""
    if not condition:
        raise InvalidArgument(name, value, must, hint)


def whole(value: object, least: int = 1) -> bool:
    """Whether this is a whole number, and not below `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def number(value: object) -> TypeGuard[float]:
    """Whether this is a number; a test against a bound then fails on NaN by itself, and not on text."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_dropout(rate: float) -> None:
    check(number(rate) and 0 <= rate < 1, "dropout", rate, "a rate in [0, 1)")
