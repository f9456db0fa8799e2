"""The server's page: an image in, the members' votes out."""

from __future__ import annotations

from functools import cache

from mixupmp.web.pages import Markup, asset, document, element, theme_switch
from mixupmp.web.pages.markup import joined

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self' 'unsafe-inline'; connect-src 'self' data:; "
    "img-src data: blob: 'self'"
)


@cache
def page() -> str:
    """The whole page as text."""
    body = joined(
        element("a", {"href": "#votes", "class": "skip"}, "Skip to the votes"),
        element("main", {}, _masthead(), element("div", {"class": "desk"}, _inputs(), _votes())),
        element("script", {"type": "module", "src": "static/serve.js"}),
    )
    return document("mixupmp server", body, asset("serve.css", __package__), policy=POLICY)


def _masthead() -> Markup:
    return element(
        "header", {"class": "masthead"},
        element("p", {"class": "kicker"}, "mixupmp server", theme_switch()),
        element("h1", {"id": "title"}, "How sure is it, and do its members agree?"),
        element("p", {"id": "about"}, "Asking what is served…"),
        element("form", {"id": "token-form", "hidden": True, "class": "card"},
                element("label", {"for": "token"}, "This server wants its token"),
                element("input", {"type": "password", "id": "token", "autocomplete": "off"}),
                element("button", {"type": "submit"}, "Use it")),
    )  # fmt: skip


def _inputs() -> Markup:
    given = {"type": "file", "id": "file", "accept": "image/*", "class": "visually-hidden"}
    return element(
        "div", {"class": "card inputs"},
        element("div", {"id": "image-inputs", "hidden": True},
                element("h2", {"class": "small"}, "Draw, drop or choose an image"),
                element("div", {"class": "drop", "id": "drop"},
                        element("canvas", {"id": "pad", "width": 280, "height": 280, "tabindex": "0", "role": "img",
                                           "aria-label": "A pad to draw on with the mouse or a finger"})),
                element("div", {"class": "buttons"},
                        element("label", {"class": "button", "for": "file"}, "Choose a file", element("input", given)),
                        element("button", {"type": "button", "class": "quiet", "id": "clear"}, "Clear")),
                element("div", {"id": "examples-part", "hidden": True},
                        element("h2", {"class": "small"}, "Or try a held-out one"),
                        element("ul", {"id": "examples", "class": "examples"}))),
        element("form", {"id": "row-inputs", "hidden": True},
                element("h2", {"class": "small"},
                        element("label", {"for": "row"}, "A row of numbers, with commas between them")),
                element("textarea", {"id": "row", "rows": 4, "spellcheck": "false"}),
                element("button", {"type": "submit"}, "Predict")),
    )  # fmt: skip


def _votes() -> Markup:
    return element(
        "div", {"class": "card", "id": "votes"},
        element("div", {"role": "status", "aria-live": "polite"},
                element("h2", {"id": "verdict"}, "Nothing asked yet"),
                element("p", {"id": "detail"}, "Draw on the pad, drop an image on it, or choose a file.")),
        element("div", {"class": "scroll"}, element("table", {"id": "table", "hidden": True},
                element("caption", {}, "Probability of each class: the bar is the mean, each tick one member"),
                element("thead", {}, element("tr", {}, element("th", {"scope": "col"}, "Class"),
                        element("th", {"scope": "col", "class": "bars"}, "All members"),
                        element("th", {"scope": "col", "class": "number"}, "Mean"),
                        element("th", {"scope": "col", "class": "number"}, "Votes"))),
                element("tbody", {"id": "bars"}))),
        element("dl", {"class": "facts", "id": "facts", "hidden": True}),
        element("p", {}, element("small", {"id": "promise"})),
        element("p", {}, element("small", {}, "For programs: ", element("code", {}, "POST predict"), ", described in ",
                element("a", {"href": "docs"}, "docs"), "; ", element("a", {"href": "metadata"}, "metadata"), ", ",
                element("a", {"href": "metrics"}, "metrics"), ".")),
    )  # fmt: skip
