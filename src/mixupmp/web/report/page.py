"""The report: everything above, in one file that needs nothing else."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mixupmp.core.errors import BadData, check
from mixupmp.core.files import write_atomically
from mixupmp.core.version import __version__
from mixupmp.web.pages import Markup, asset, document, element, theme_switch
from mixupmp.web.pages.markup import Child, joined
from mixupmp.web.report import figures, members
from mixupmp.web.report.gallery import galleries
from mixupmp.web.report.reading import compared, leaders, percentage, says, sure, verdict
from mixupmp.web.report.recipe_text import snippet
from mixupmp.web.report.subject import Subject, told_apart
from mixupmp.web.report.tables import class_headline, classes_table, differences_table, measures_table, repeats_table

Section = tuple[str, str, str, Child]  # anchor, short name, heading, content


def write_report(subjects: Sequence[Subject], path: str | Path, title: str | None = None) -> Path:
    """Write the report of these runs, the first of which the others are compared with; returns its absolute path."""
    path = Path(path)
    check(path.suffix.lower() in (".html", ".htm"), "path", str(path), "a name that ends in .html")
    content = render_report(subjects, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.encode())
    return path.absolute()


def render_report(subjects: Sequence[Subject], title: str | None = None) -> str:
    """The report of these runs as text."""
    check(len(subjects) > 0, "subjects", list(subjects), "at least one run")
    subjects = told_apart(subjects)
    classes = {subject.evaluation.classes for subject in subjects}
    if len(classes) > 1:
        raise BadData(
            "these runs know different classes, so their scores cannot stand side by side: report them apart."
        )
    heading = title or _title(subjects)
    sections = [section for section in _sections(subjects) if section[3]]
    body = joined(
        element("a", {"href": "#main", "class": "skip"}, "Skip to the content"),
        element("main", {"id": "main"}, _masthead(subjects, heading), _contents(sections),
                [_section(*section) for section in sections], _footer(subjects)),
    )  # fmt: skip
    return document(heading, body, asset("report.css", __package__), asset("report.js", __package__))


def _title(subjects: Sequence[Subject]) -> str:
    dataset = subjects[0].evaluation.dataset
    if len(subjects) == 1:
        return f"{subjects[0].title} on {dataset}"
    if len(subjects) == 2:
        return f"{subjects[0].title} and {subjects[1].title} on {dataset}"
    return f"{len(subjects)} ways to be unsure about {dataset}"


def _masthead(subjects: Sequence[Subject], heading: str) -> Markup:
    evaluation = subjects[0].evaluation
    rows = f"{len(evaluation.labels):,} test rows, {len(evaluation.classes)} classes"
    return element(
        "header",
        {"class": "masthead"},
        element("p", {"class": "kicker"}, f"mixupmp report · {evaluation.dataset} · {rows}", theme_switch()),
        element("h1", {}, heading),
        element("div", {"class": "card short"}, element("ul", {}, _short(subjects))),
    )


def _short(subjects: Sequence[Subject]) -> list[Markup]:
    """What a reader in a hurry should know."""
    points = [element("li", {}, leaders(subjects))] if len(subjects) > 2 else []
    for subject in subjects:
        accuracy = percentage(subject.measures.value("acc"), 1)
        opening = f"{subject.title} is right on {accuracy} of the test rows and {verdict(subject.measures)}. "
        missing = f"Only {subject.members} networks are left; the others diverged. " if subject.members else ""
        detail = f" {sure(subject.measures)}" if len(subjects) < 3 else ""
        points.append(element("li", {}, opening, missing, element("b", {}, says(subject.measures)), detail))
    if len(subjects) == 2 and _same_rows(subjects[1], subjects[0]):
        points.append(element("li", {}, compared(subjects[1], subjects[0])))
    return points


def _contents(sections: Sequence[Section]) -> Markup:
    links = [element("li", {}, element("a", {"href": f"#{anchor}"}, name)) for anchor, name, _, _ in sections]
    return element("nav", {"class": "contents", "aria-label": "Contents"}, element("ul", {}, links))


def _section(anchor: str, name: str, heading: str, content: Child) -> Markup:
    return element("section", {"id": anchor, "aria-label": name}, element("h2", {}, heading), content)


def _sections(subjects: Sequence[Subject]) -> list[Section]:
    grid = _grid
    many = len(subjects) > 1
    rejection = element("div", {"class": "figures pair"}, figures.abstaining(subjects), _slider(subjects))
    return [
        ("measures", "Measures", "How good, and how sure of that", _measures(subjects)),
        ("calibration", "Calibration", "Does it mean what it says?", _calibration(subjects)),
        ("abstaining", "Abstaining", "What abstaining buys", rejection),
        ("shift", "Shift", "When inputs get worse", grid(members.shift(subjects))),
        ("members", "Members", "Where members differ", grid([members.agreement(s) for s in subjects])),
        ("rows", "Rows to look at", "Rows to look at", _folded(subjects, lambda s: s.title, galleries, many)),
        ("classes", "Classes", "Class by class", _folded(subjects, class_headline, classes_table, many)),
        ("training", "Training", "How training went", _training(subjects)),
        ("repeat", "Repeat it", "What was trained, and how to repeat it",
         _folded(subjects, lambda s: s.title, _repeat, many)),
    ]  # fmt: skip


def _calibration(subjects: Sequence[Subject]) -> Child:
    first = [figures.over_and_under(subjects), *(figures.reliability(s) for s in subjects)]
    second = [figures.confidences(s) for s in subjects]
    if len(subjects) == 1:
        return (figures.how_to_read(), _grid(first + second))
    words = (
        "Below, how sure each run was where it was right, upwards, and where it was wrong, downwards; each half sums "
        "to 100%. Mistakes belong on the left: a confident mistake is one that nobody checks."
    )
    return (figures.how_to_read(), _grid(first), element("p", {}, words), _grid(second))


def _training(subjects: Sequence[Subject]) -> Child:
    drawn = _grid([members.training(s) for s in subjects])
    words = (
        "A line for each member. The loss counts the imagined rows too where r > 0, so it need not fall to zero there."
    )
    return (element("p", {}, words), drawn) if drawn else None


def _grid(parts: Sequence[Markup | None]) -> Markup | None:
    drawn = [part for part in parts if part is not None]
    return element("div", {"class": "figures"}, drawn) if drawn else None


def _measures(subjects: Sequence[Subject]) -> Child:
    words = (
        "ACC, NLL and Brier score judge the answers; ECE is how far confidence is from accuracy, OE the part of it "
        "that is too sure and UE the part that is too modest. Standard errors say how far each figure may be off for "
        "having no more test rows; they say nothing of what another seed would give."
    )
    parts: list[Child] = [element("p", {}, words), measures_table(subjects), repeats_table(subjects)]
    same = [s for s in subjects[1:] if _same_rows(s, subjects[0])]
    if same:
        parts.append(element("p", {}, "Row by row, so that easy and hard rows cancel out: ✓ and ✗ mark differences of "
                             "more than two standard errors."))  # fmt: skip
        parts.append(differences_table([subjects[0], *same], subjects[0]))
    if len(same) < len(subjects) - 1:
        parts.append(element("p", {}, "Some runs were evaluated on other test rows and cannot be paired."))
    return parts


def _same_rows(subject: Subject, other: Subject) -> bool:
    return subject.evaluation.fingerprint == other.evaluation.fingerprint


def _slider(subjects: Sequence[Subject]) -> Child:
    """A threshold to move. It needs a script, so a script shows it."""
    curves = [
        {
            "title": subject.title,
            "threshold": [round(value, 5) for value in subject.rejection.threshold.tolist()],
            "coverage": [round(value, 5) for value in subject.rejection.coverage.tolist()],
            "accuracy": [round(value, 5) for value in subject.rejection.accuracy.tolist()],
        }
        for subject in subjects
    ]
    # "<" may not stand in a script element as it is: a class could be named </script>.
    data = json.dumps(curves).replace("<", "\\u003c")
    given = {"type": "range", "id": "threshold", "min": 0, "max": 1000, "value": 900}
    label = element("label", {"for": "threshold"}, "Answer only when the confidence is at least ",
                    element("output", {"for": "threshold"}))  # fmt: skip
    box = element("div", {"class": "card abstain", "hidden": True, "style": "align-self:start"}, label,
                  element("input", given), element("ul", {"aria-live": "polite"}))  # fmt: skip
    return (box, element("script", {"type": "application/json", "id": "rejection-data"}, Markup(data)))


def _folded(
    subjects: Sequence[Subject], name: Callable[[Subject], str], part: Callable[[Subject], Markup], many: bool
) -> Child:
    """One fold for each run, the last open; a single run needs no fold."""
    if not many:
        return (element("h3", {}, name(subjects[0])), part(subjects[0]))
    last = subjects[-1]
    return [
        element("details", {"class": "run-part", "open": subject is last},
                element("summary", {}, name(subject)), part(subject))
        for subject in subjects
    ]  # fmt: skip


def _repeat(subject: Subject) -> Markup:
    description = subject.description
    data, versions = description.get("data", {}), description.get("versions", {})
    network = description.get("network", "")
    path = network.get("path", "") if isinstance(network, dict) else str(network)
    count = subject.evaluation.members.shape[0]
    seconds = sum(summary.seconds for summary in subject.summaries)
    facts = {
        "Method": subject.title,
        "Members": str(count) + (f" ({subject.members} networks)" if subject.members else ""),
        "Network": path.rpartition(".")[2],
        "Training": _training_words(description),
        "Time": f"{seconds:,.1f} s, summed over members" if seconds else None,
        "Seed": str(description.get("seed", "")) or None,
        "Data": f"{subject.evaluation.dataset}, SHA-256 {data.get('sha256', '–')[:16]}…",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Command": _command(subject.config.get("command")),
        "Folder": subject.source or None,
        "Notes": "; ".join(subject.notes) or None,
    }  # fmt: skip
    pairs = [(element("dt", {}, key), element("dd", {}, value)) for key, value in facts.items() if value]
    code = snippet(description, subject.evaluation.dataset, subject.config.get("settings"))
    full = json.dumps(subject.config or {"plan": description}, indent=2)
    return element(
        "div",
        {},
        element("dl", {"class": "facts"}, pairs),
        element("pre", {"tabindex": "0"}, element("code", {}, code)) if code else None,
        element("details", {"class": "numbers"}, element("summary", {}, "Everything that was written down"),
                element("pre", {"tabindex": "0"}, full)),
    )  # fmt: skip


def _command(told: Any) -> str | None:
    """The command line that started the run, where one did."""
    if not isinstance(told, list) or len(told) < 2 or Path(str(told[0])).stem not in ("mixupmp", "__main__"):
        return None
    return shlex.join(["mixupmp", *map(str, told[1:])])


def _training_words(description: dict[str, Any]) -> str | None:
    recipe, data = description.get("recipe"), description.get("data")
    if not recipe or not data:
        return None
    return (
        f"{data['rows']:,} rows, {recipe['epochs']} epochs, {recipe['optimizer']}, rate {recipe['learning_rate']:g} "
        f"({recipe['schedule']}), weight decay {recipe['weight_decay']:g}"
    )


def _footer(subjects: Sequence[Subject]) -> Markup:
    made = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC")
    return element("footer", {}, f"Made by mixupmp {__version__} on {made}. This file holds everything it shows.")
