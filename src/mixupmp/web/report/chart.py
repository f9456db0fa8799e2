"""Small SVG charts. They are sized to be read at a phone's width, and take their colors from the page's theme."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10

from mixupmp.web.pages.markup import Child, Markup, element, joined

Point = tuple[float, float]


def percent(value: float) -> str:
    """.5 as 50%."""
    return f"{100 * value:.4g}%"


def plain_number(value: float) -> str:
    return f"{value:,.4g}"


def ticks_between(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """Round numbers from low to high: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return (low,)
    raw = (high - low) / about
    power = 10.0 ** floor(log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = ceil(low / step - 1e-9)
    last = floor(high / step + 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


@dataclass(frozen=True)
class Axis:
    """One direction of a chart."""

    label: str
    low: float
    high: float
    show: Callable[[float], str] = plain_number
    ticks: tuple[float, ...] | None = None

    def marks(self) -> tuple[float, ...]:
        return self.ticks if self.ticks is not None else ticks_between(self.low, self.high)

    def share(self, value: float) -> float:
        """Where a value lies between the ends, kept within them."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


@dataclass
class Chart:
    """A plot that marks are added to, in the units of its axes."""

    x: Axis
    y: Axis
    name: str  # what it shows, for those who do not see it
    height: int = 280
    width: int = 380
    left: int | None = None  # the margin there; None: what the numbers on the axis need
    marks: list[Markup] = field(default_factory=list)

    top, right, bottom = 10, 12, 44

    @property
    def margin(self) -> float:
        """How far the plot is from the left edge: room for the axis' label and its longest number."""
        if self.left is not None:
            return self.left
        return 31 + 6.6 * max((len(self.y.show(value)) for value in self.y.marks()), default=0)

    def at(self, x: float, y: float) -> Point:
        across = self.margin + self.x.share(x) * (self.width - self.margin - self.right)
        down = self.height - self.bottom - self.y.share(y) * (self.height - self.top - self.bottom)
        return round(across, 1), round(down, 1)

    def line(self, points: Sequence[Point], style: str, kind: str = "line") -> None:
        """A line through these points."""
        path = "M" + "L".join(f"{a} {b}" for a, b in (self.at(x, y) for x, y in points))
        self.marks.append(element("path", {"d": path, "class": kind, "style": style}))

    def dot(self, point: Point, style: str, said: str, radius: float = 4) -> None:
        """A point that says what it is."""
        x, y = self.at(*point)
        circle = {"cx": x, "cy": y, "r": radius, "class": "dot", "style": style}
        self.marks.append(element("circle", circle, element("title", {}, said)))

    def bar(self, corners: tuple[float, float, float, float], style: str, said: str, kind: str = "bar") -> None:
        """A box from (x, y) to (x, y) that says what it is."""
        (x1, y1), (x2, y2) = self.at(corners[0], corners[1]), self.at(corners[2], corners[3])
        box = {
            "x": min(x1, x2), "y": min(y1, y2), "class": kind, "style": style,
            "width": round(abs(x2 - x1), 1), "height": round(abs(y2 - y1), 1),
        }  # fmt: skip
        self.marks.append(element("rect", box, element("title", {}, said)))

    def text(self, point: Point, words: str, anchor: str = "middle", shift: Point = (0, 0)) -> None:
        x, y = self.at(*point)
        place = {"x": x + shift[0], "y": y + shift[1], "text-anchor": anchor}
        self.marks.append(element("text", place, words))

    def render(self) -> Markup:
        """The SVG."""
        return svg(self.width, self.height, self.name, joined(self._grid(), self.marks, self._labels()))

    def _grid(self) -> Iterable[Markup]:
        for value in self.y.marks():
            x, y = self.at(self.x.low, value)
            yield element("path", {"d": f"M{x} {y}H{self.width - self.right}", "class": "grid"})
            yield element("text", {"x": x - 6, "y": y + 4, "text-anchor": "end"}, self.y.show(value))
        for value in self.x.marks():
            x, y = self.at(value, self.y.low)
            yield element("path", {"d": f"M{x} {y}v4", "class": "tick"})
            yield element("text", {"x": x, "y": y + 17, "text-anchor": "middle"}, self.x.show(value))

    def _labels(self) -> Iterable[Markup]:
        x, y = self.at(self.x.low, self.y.low)
        yield element("path", {"d": f"M{x} {y}H{self.width - self.right}", "class": "axis"})
        middle = (self.margin + self.width - self.right) / 2
        yield element(
            "text", {"x": middle, "y": self.height - 8, "text-anchor": "middle", "class": "label"}, self.x.label
        )
        across = (self.top + self.height - self.bottom) / 2
        turn = f"translate(12 {across}) rotate(-90)"
        yield element("text", {"transform": turn, "text-anchor": "middle", "class": "label"}, self.y.label)


def svg(width: int, height: int, name: str, content: Child) -> Markup:
    """A picture with a name, which is what a screen reader reads in its place."""
    given = {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": name, "class": "chart"}
    return element("svg", given, content)


def figure(title: str, picture: Child, caption: Child = None, numbers: Child = None) -> Markup:
    """A figure whose title says what is to be seen in it; its numbers are there for those who want or need them."""
    details = None
    if numbers is not None:
        details = element("details", {"class": "numbers"}, element("summary", {}, "The numbers"), numbers)
    under = element("figcaption", {}, caption) if caption is not None else None
    return element("figure", {"class": "card"}, element("h3", {}, title), picture, under, details)


def table(
    caption: str, head: Sequence[str], lines: Iterable[Sequence[Child]], names: int = 1, sortable: bool = False
) -> Markup:
    """A table whose first `names` columns are words and the others numbers."""
    cells = [
        element("th", {"scope": "col", "class": "number" if place >= names else None}, words)
        for place, words in enumerate(head)
    ]
    body = [element("tr", {}, _line(line, names)) for line in lines]
    parts = (
        element("caption", {}, caption),
        element("thead", {}, element("tr", {}, cells)),
        element("tbody", {}, body),
    )
    whole = element("table", {"data-sortable": sortable}, parts)
    return element("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": caption}, whole)


def _line(line: Sequence[Child], names: int) -> Iterable[Markup]:
    for place, cell in enumerate(line):
        if place == 0:
            yield element("th", {"scope": "row", "class": None if names else "number"}, cell)
        else:
            yield element("td", {"class": "number" if place >= names else None}, cell)
