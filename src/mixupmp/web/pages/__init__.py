"""What report, playground and server page share: one visual language, and HTML that escapes by default."""

from __future__ import annotations

from importlib.resources import files

from mixupmp.web.pages.markup import Markup, element

__all__ = ["GENERATOR", "Markup", "asset", "document", "element"]

# Nothing may be fetched: a page that tries to is broken, and the browser says so.
OFFLINE = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

GENERATOR = "mixupmp"


def asset(name: str, package: str = "mixupmp.web.pages") -> str:
    """The text of a style sheet or script that lies beside the code."""
    return (files(package) / name).read_text(encoding="utf-8")


def document(title: str, body: Markup, styles: str = "", script: str = "", policy: str = OFFLINE) -> str:
    """A whole page in one text, with the shared style sheet and the theme switch built in."""
    head = [
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}) if policy else None,
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("meta", {"name": "generator", "content": GENERATOR}),
        element("title", {}, title),
        element("link", {"rel": "icon", "href": "data:,"}),
        element("style", {}, Markup(asset("style.css") + styles)),
        element("script", {}, Markup(asset("theme.js"))),
    ]
    code = element("script", {}, Markup(script)) if script else None
    page = element("html", {"lang": "en"}, element("head", {}, head), element("body", {}, body, code))
    return f"<!doctype html>\n{page}\n"


def theme_switch() -> Markup:
    """The button that goes round system, light and dark. It needs a script, so a script shows it."""
    return element("button", {"type": "button", "class": "quiet", "data-theme-switch": "", "hidden": True}, "Theme")
