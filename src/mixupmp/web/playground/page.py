"""The playground's page."""

from __future__ import annotations

from functools import cache

from mixupmp.web.pages import Markup, asset, document, element, theme_switch
from mixupmp.web.pages.markup import Child, joined

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src data: blob: 'self'"
)
CHOICES = (
    ("mixup-mp", "MixupMP", "repeats of the data, and blends of pairs"),
    ("bayesian-bootstrap", "BB", "the data alone, weighed at random"),
    ("dp-mp-perturbed", "DP-MP Perturbed", "the data, and noisy copies of it"),
    ("dp-mp-uniform", "DP-MP Uniform", "the data, and noise with random labels"),
)

FIRST = CHOICES[0][0]


@cache
def page() -> str:
    """The whole page as text."""
    body = joined(
        element("a", {"href": "#stage", "class": "skip"}, "Skip to the pictures"),
        element("main", {"id": "main"}, _masthead(), element("div", {"class": "desk"}, _controls(), _stage())),
        element("script", {"type": "module", "src": "static/playground.js"}),
    )
    return document("mixupmp playground", body, asset("playground.css", __package__), policy=POLICY)


def _masthead() -> Markup:
    words = (
        "Say what future data will look like, simulate futures, fit a network to each: where the fits differ, "
        "nobody should be sure. Move r, the share of imagined data, and watch."
    )
    return element(
        "header",
        {"class": "masthead"},
        element("p", {"class": "kicker"}, "mixupmp playground", theme_switch()),
        element("h1", {}, "What do you believe about data you have not seen?"),
        element("p", {}, words),
    )


def _controls() -> Markup:
    return element(
        "form", {"class": "controls card", "id": "controls", "aria-label": "What to simulate"},
        _predictives(),
        _slider("ratio", "Ratio r of imagined to seen rows", 0, 100, 50),
        _slider("alpha", "Mixing α of Mixup", 0, 100, 50),
        _slider("variance", "Variance of the noise", 0, 100, 50),
        _drawing(),
        element("details", {}, element("summary", {}, "Training"),
                _slider("members", "Members", 1, 16, 10), _slider("steps", "Steps", 200, 10000, 3000, 200),
                _slider("seed", "Seed", 0, 20, 0)),
    )  # fmt: skip


def _predictives() -> Markup:
    radios = [
        element("label", {"class": "choice"},
                element("input", {"type": "radio", "name": "predictive", "value": value, "checked": value == FIRST}),
                element("span", {}, element("b", {}, name), element("small", {}, said)))
        for value, name, said in CHOICES
    ]  # fmt: skip
    return element("fieldset", {}, element("legend", {}, "The future consists of"), radios)


def _slider(name: str, label: str, low: int, high: int, value: int, step: int = 1) -> Markup:
    given = {"type": "range", "id": name, "name": name, "min": low, "max": high, "value": value, "step": step}
    heading = element("label", {"for": name}, label, element("output", {"for": name, "id": f"{name}-said"}))
    hint = element("small", {"id": f"{name}-hint"})
    return element("div", {"class": "slider", "id": f"{name}-row"}, heading, element("input", given), hint)


def _drawing() -> Markup:
    tools: list[Child] = [
        element("div", {"class": "brushes", "id": "brushes", "role": "group", "aria-label": "Class to draw"}),
        element("div", {"class": "buttons"},
                _button("erase", "Erase", pressed="false"), _button("clear", "Clear"),
                _button("reset", "Paper's clusters")),
        element("small", {}, "Draw on either picture. By keyboard: focus it, arrows move, space draws, Delete erases."),
    ]  # fmt: skip
    return element("fieldset", {}, element("legend", {}, "Draw your own points"), tools)


def _stage() -> Markup:
    return element(
        "div", {"class": "stage", "id": "stage"},
        element("div", {"class": "pictures"},
                _picture("future", "A future: rows that a member is trained on", _future_legend()),
                _picture("landscape", "How unsure the members are together", _landscape_legend())),
        element("div", {"class": "card status"},
                element("progress", {"id": "progress", "max": 1, "value": 0, "aria-label": "Training"}),
                element("p", {"id": "status", "role": "status"}, "Starting…"),
                element("div", {"class": "buttons"},
                        _button("pause", "Stop"), _button("link", "Copy link to this view"))),
        element("details", {"class": "card", "open": True}, element("summary", {}, "The same in Python"),
                element("pre", {"tabindex": "0"}, element("code", {"id": "snippet"})),
                _button("copy", "Copy")),
    )  # fmt: skip


def _button(name: str, words: str, pressed: str | None = None) -> Markup:
    return element("button", {"type": "button", "class": "quiet", "id": name, "aria-pressed": pressed}, words)


def _picture(name: str, title: str, legend: Child) -> Markup:
    canvas = {"id": name, "width": 640, "height": 640, "tabindex": "0", "role": "img", "aria-describedby": "status",
              "aria-label": title}  # fmt: skip
    return element("figure", {"class": "card"}, element("h2", {"id": f"{name}-title"}, title),
                   element("canvas", canvas), element("figcaption", {}, legend))  # fmt: skip


def _future_legend() -> Child:
    return "Larger dots count more. Colors blend where a row is partly of one class and partly of another."


def _landscape_legend() -> Child:
    bar = element("span", {"class": "ramp", "id": "ramp"}, element("span", {}, "sure"), element("span", {}, "unsure"))
    lines = element("label", {}, element("input", {"type": "checkbox", "id": "boundaries", "checked": True}),
                    " each member's decision boundaries")  # fmt: skip
    return (bar, lines)
