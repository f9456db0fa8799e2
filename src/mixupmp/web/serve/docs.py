"""The page that describes the API: ours, because the usual one is fetched from elsewhere and this may be offline."""

from __future__ import annotations

from typing import Any

from mixupmp.web.pages import Markup, document, element, theme_switch
from mixupmp.web.pages.markup import joined

STYLE = """
.masthead { padding: 1.4rem 0 .8rem; }
.masthead .kicker { max-width: none; color: var(--muted); font-size: .85rem; margin: 0 0 .3rem; display: flex;
  justify-content: space-between; align-items: center; }
section { margin: 1.6rem 0; } dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; }
dt { color: var(--muted); } dd { margin: 0; } .verb { color: var(--accent); }
"""
EXAMPLES = (
    ("A row or several as JSON", "curl {base}predict -H 'Content-Type: application/json' -d '{{\"inputs\": [[...]]}}'"),
    ("An image", "curl '{base}predict?resize=true' -H 'Content-Type: image/png' --data-binary @image.png"),
    ("A .npy file", "curl {base}predict -H 'Content-Type: application/octet-stream' --data-binary @rows.npy"),
    ("A form", "curl '{base}predict?resize=true' -F 'file=@image.png;type=image/png'"),
)


def docs_page(openapi: dict[str, Any], base: str) -> str:
    """The API's description as a page, from its OpenAPI document."""
    parts = [
        _operation(path, verb, operation)
        for path, operations in openapi["paths"].items()
        for verb, operation in operations.items()
    ]
    calls = [(element("h3", {}, name), element("pre", {}, call.format(base=base))) for name, call in EXAMPLES]
    body = element(
        "main", {},
        element("header", {"class": "masthead"}, element("p", {"class": "kicker"}, "mixupmp server", theme_switch()),
                element("h1", {}, openapi["info"]["title"]), element("p", {}, openapi["info"]["description"]),
                element("p", {}, "For programs: ", element("a", {"href": "openapi.json"}, "openapi.json"))),
        parts,
        element("section", {}, element("h2", {}, "Examples"), calls),
    )  # fmt: skip
    return document(openapi["info"]["title"], joined(body), STYLE)


def _operation(path: str, verb: str, operation: dict[str, Any]) -> Markup:
    heading = element("h2", {}, element("span", {"class": "verb"}, verb.upper()), " ", element("code", {}, path))
    about = element("p", {}, operation.get("description") or operation.get("summary", ""))
    kinds = list(operation.get("requestBody", {}).get("content", {}))
    taken = element("p", {}, "Takes ", ", ".join(kinds), ".") if kinds else None
    answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    row = answer.get("properties", {}).get("predictions", {}).get("items", {}).get("properties", {})
    fields = [
        (element("dt", {}, element("code", {}, name)), element("dd", {}, told.get("description", "")))
        for name, told in row.items()
    ]
    statuses = [
        (element("dt", {}, code), element("dd", {}, told["description"]))
        for code, told in operation["responses"].items()
    ]
    return element("section", {"class": "card"}, heading, about, taken,
                   (element("h3", {}, "Each of the predictions has"), element("dl", {}, fields)) if fields else None,
                   element("h3", {}, "Answers"), element("dl", {}, statuses))  # fmt: skip
