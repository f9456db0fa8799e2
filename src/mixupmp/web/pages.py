"""The Jinja2 templates, style sheet and scripts of the report, the playground and the server's pages."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

GENERATOR = "mixupmp"  # the meta tag by which a page of ours is recognized


@cache
def asset(name: str) -> str:
    """The text of a file in `mixupmp/web/static`."""
    return (files("mixupmp.web") / "static" / name).read_text(encoding="utf-8")


def content_security_policy(*scripts: str, served: bool) -> str:
    """What a page may load: the inlined style sheet and scripts, by their SHA-256.

    A page from a server may also load that server's scripts and call it; one from disk may fetch nothing.
    """
    rules = {
        "default-src": "'none'",
        "style-src": _hashes("style.css"),
        "script-src": _hashes("theme.js", *scripts),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if served:
        rules["script-src"] += " 'self'"
        rules["img-src"] = "'self' data: blob:"
        rules |= {"connect-src": "'self' data:", "frame-ancestors": "'none'"}
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def render(template: str, **context: object) -> str:
    """A page of `mixupmp/web/templates` as text; every value is escaped unless it is `Markup`."""
    return _environment().get_template(template).render(context)


def _hashes(*names: str) -> str:
    digests = (hashlib.sha256(asset(name).encode()).digest() for name in names)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mixupmp.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "inline": lambda name: Markup(asset(name)),
        "generator": GENERATOR,
        "content_security_policy": content_security_policy,
    }
    return environment
