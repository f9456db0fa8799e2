"""Charts and figures as values; `report.html.j2` draws them as SVG.

They are sized to be read at a phone's width, and take their colors from the page's theme by class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10

from mixupmp.web.report.table import ReportTable

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
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


@dataclass(frozen=True)
class Axis:
    """One direction of a chart; without `ticks`, round numbers between its ends."""

    label: str
    low: float
    high: float
    format: Callable[[float], str] = plain_number
    ticks: tuple[float, ...] | None = None

    def tick_values(self) -> tuple[float, ...]:
        return self.ticks if self.ticks is not None else ticks_between(self.low, self.high)

    def share(self, value: float) -> float:
        """Where a value lies between the ends, clipped to [0, 1]."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


@dataclass(frozen=True)
class Mark:
    """One SVG element: its tag, attributes, text, and what a pointer over it shows."""

    tag: str
    attributes: dict[str, object]
    text: str = ""
    title: str = ""


@dataclass
class Chart:
    """A plot to which marks are added in the units of its axes; `name` is its text alternative."""

    x: Axis
    y: Axis
    name: str
    height: int = 280
    width: int = 380
    left: float | None = None  # margin; None is what the axis' label and its longest number need
    marks: list[Mark] = field(default_factory=list)

    top, right, bottom = 10, 12, 44

    def __post_init__(self) -> None:
        longest = max((len(self.y.format(value)) for value in self.y.tick_values()), default=0)
        self.margin = self.left if self.left is not None else 31 + 6.6 * longest

    def at(self, x: float, y: float) -> Point:
        """A point in SVG units."""
        across = self.margin + self.x.share(x) * (self.width - self.margin - self.right)
        down = self.height - self.bottom - self.y.share(y) * (self.height - self.top - self.bottom)
        return round(across, 1), round(down, 1)

    def line(self, points: Sequence[Point], css: str, dash: str = "none") -> None:
        path = "M" + "L".join(f"{x} {y}" for x, y in (self.at(*point) for point in points))
        dashes = {} if dash == "none" else {"stroke-dasharray": dash}
        self.marks.append(Mark("path", {"d": path, "class": css, **dashes}))

    def dot(self, point: Point, css: str, title: str, radius: float = 4) -> None:
        x, y = self.at(*point)
        self.marks.append(Mark("circle", {"cx": x, "cy": y, "r": radius, "class": f"dot {css}"}, title=title))

    def bar(self, corners: tuple[float, float, float, float], css: str, title: str) -> None:
        """A box between two corners (x, y, x, y)."""
        (x1, y1), (x2, y2) = self.at(*corners[:2]), self.at(*corners[2:])
        size = {"width": round(abs(x2 - x1), 1), "height": round(abs(y2 - y1), 1)}
        self.marks.append(Mark("rect", {"x": min(x1, x2), "y": min(y1, y2), **size, "class": css}, title=title))

    def text(self, point: Point, text: str, anchor: str = "middle", shift: Point = (0, 0)) -> None:
        x, y = self.at(*point)
        self.marks.append(Mark("text", {"x": x + shift[0], "y": y + shift[1], "text-anchor": anchor}, text))

    def elements(self) -> Iterator[Mark]:
        """Everything to draw: the grid, the marks, and the axes' labels."""
        for value in self.y.tick_values():
            x, y = self.at(self.x.low, value)
            yield Mark("path", {"d": f"M{x} {y}H{self.width - self.right}", "class": "grid"})
            yield Mark("text", {"x": x - 6, "y": y + 4, "text-anchor": "end"}, self.y.format(value))
        for value in self.x.tick_values():
            x, y = self.at(value, self.y.low)
            yield Mark("path", {"d": f"M{x} {y}v4", "class": "tick"})
            yield Mark("text", {"x": x, "y": y + 17, "text-anchor": "middle"}, self.x.format(value))
        yield from self.marks
        middle = (self.margin + self.width - self.right) / 2
        yield Mark("text", {"x": middle, "y": self.height - 6, "text-anchor": "middle", "class": "label"}, self.x.label)
        turned = f"translate(12 {(self.top + self.height - self.bottom) / 2}) rotate(-90)"
        yield Mark("text", {"transform": turned, "text-anchor": "middle", "class": "label"}, self.y.label)


@dataclass(frozen=True)
class Heatmap:
    """A square matrix of shares, with the same interface to the template as a chart."""

    values: Sequence[Sequence[float]]
    name: str
    width: int = 380

    @property
    def cell(self) -> int:
        return min(52, 330 // len(self.values))

    @property
    def height(self) -> int:
        return 26 + len(self.values) * self.cell

    def elements(self) -> Iterator[Mark]:
        cell = self.cell
        most = max(max(row) for row in self.values) or 1.0
        for i, row in enumerate(self.values):
            middle = (i + 0.5) * cell
            yield Mark("text", {"x": 22, "y": 22 + middle, "text-anchor": "end"}, str(i))
            yield Mark("text", {"x": 28 + middle, "y": 12, "text-anchor": "middle"}, str(i))
            for j, value in enumerate(row):
                place: dict[str, object] = {"x": 28 + j * cell, "y": 18 + i * cell}
                shade = {"class": "heat", "fill-opacity": round(0.04 + 0.6 * value / most, 3)}
                size = {"width": cell - 2, "height": cell - 2, "rx": 4}
                yield Mark("rect", place | size | shade, title=f"{i} and {j} differ on {percent(value)}")
                if i != j:
                    label = {"x": 27 + (j + 0.5) * cell, "y": 21 + middle, "text-anchor": "middle", "class": "cell"}
                    yield Mark("text", label, f"{100 * value:.1f}")


@dataclass(frozen=True)
class Figure:
    """Charts under a title that says what they show, their numbers as a table, and whether a legend is needed."""

    title: str
    charts: Sequence[Chart | Heatmap]
    caption: str = ""
    table: ReportTable | None = None
    legend: bool = False
