"""HTML and SVG as values: text is escaped unless it says that it is markup already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TypeAlias

VOID = frozenset({"meta", "link", "img", "input", "br", "hr", "col", "wbr"})


class Markup(str):
    """Text that goes into a page as it stands."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"


def element(name: str, attributes: Mapping[str, object] | None = None, *children: Child) -> Markup:
    """One element. An attribute that is None or False is left out; one that is True stands alone."""
    given = "".join(_attribute(key, value) for key, value in (attributes or {}).items())
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """The children one after another, escaped where they are plain text."""
    return Markup("".join(_parts(children)))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{escape(str(value))}"'


def _parts(child: Child) -> Iterable[str]:
    if child is None:
        return
    if isinstance(child, Markup):
        yield child
    elif isinstance(child, str | int | float):
        yield escape(str(child), quote=False)
    else:
        for part in child:
            yield from _parts(part)
