"""The test rows worth looking at, as pictures, with each member's vote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from mixupmp.web.pages.markup import Markup, element
from mixupmp.web.report.evaluation import confidently_wrong, most_uncertain
from mixupmp.web.report.png import data_uri, is_picture
from mixupmp.web.report.reading import percentage
from mixupmp.web.report.subject import Subject

SHOWN = 12
CHIPS = 10  # up to so many members each has a chip of its own; beyond, votes are counted
FEATURES = 6


def galleries(subject: Subject) -> Markup:
    """The most uncertain rows, and the most confidently wrong ones."""
    evaluation = subject.evaluation
    wrong = confidently_wrong(evaluation.members, evaluation.labels, SHOWN).tolist()
    unsure = most_uncertain(evaluation.members, SHOWN).tolist()
    bold = _gallery(subject, wrong) if wrong else element("p", {}, "It is wrong on none of the test rows.")
    return element(
        "div",
        {},
        element("h3", {"class": "part"}, "Wrong, and most confident about it"),
        bold,
        element("h3", {"class": "part"}, "Most uncertain"),
        _gallery(subject, unsure),
    )


def _gallery(subject: Subject, rows: Sequence[int]) -> Markup:
    return element("ul", {"class": "gallery"}, [element("li", {}, _row(subject, row)) for row in rows])


def _row(subject: Subject, row: int) -> Markup:
    evaluation = subject.evaluation
    mean = evaluation.probabilities[row]
    predicted, label = int(mean.argmax()), int(evaluation.labels[row])
    name, truth = evaluation.classes[predicted], evaluation.classes[label]
    verdict = element(
        "p",
        {"class": "answer"},
        element("span", {"class": "good" if predicted == label else "bad"}, "✓ " if predicted == label else "✗ "),
        "says ",
        element("b", {}, name),
        f" ({percentage(float(mean[predicted]))})",
        "" if predicted == label else ", is ",
        "" if predicted == label else element("b", {}, truth),
    )
    picture = _picture(evaluation.input_of(row), f"Test row {row}, labeled {truth}")
    votes = _votes(evaluation.members[:, row], evaluation.classes, label)
    return element("div", {}, picture, verdict, votes, element("small", {}, f"row {row}"))


def _picture(inputs: Tensor | None, name: str) -> Markup | None:
    if inputs is None:
        return None
    if is_picture(inputs):
        return element("img", {"src": data_uri(inputs), "alt": name, "width": 96, "height": 96, "loading": "lazy"})
    values = [f"{float(value):.3g}" for value in inputs.flatten()[:FEATURES]]
    more = ", …" if inputs.numel() > FEATURES else ""
    hidden = element("span", {"class": "visually-hidden"}, name)
    return element("p", {"class": "features"}, hidden, f"({', '.join(values)}{more})")


def _votes(members: Tensor, classes: Sequence[str], label: int) -> Markup:
    """What each member votes for: a chip each while they are few, counts beyond."""
    top, choice = members.max(-1)
    if len(members) <= CHIPS:
        chips = [
            _chip(classes[int(k)], int(k) == label, f"member {m} says {classes[int(k)]}, {percentage(float(p))}")
            for m, (p, k) in enumerate(zip(top, choice, strict=True))
        ]
        return element("ul", {"class": "votes", "aria-label": "Members' votes"}, chips)
    counted = Counter(choice.tolist()).most_common(4)
    chips = [
        _chip(f"{count} × {classes[k]}", k == label, f"{count} of {len(members)} members say {classes[k]}")
        for k, count in counted
    ]
    return element("ul", {"class": "votes", "aria-label": "Members' votes"}, chips)


def _chip(words: str, right: bool, said: str) -> Markup:
    return element("li", {"class": "chip right" if right else "chip", "title": said}, words)
