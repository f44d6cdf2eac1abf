"""Where the parts of a plane lie in its picture: numbers and paths for a template, nothing drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from leakbound.figures import style
from leakbound.figures.report.planes import Plane, Point

WIDTH, HEIGHT = 420.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 10.0, 12.0, 46.0
_RADIUS = 6.0
_TICKS = 5
_EDGE = 0.07


@dataclass(frozen=True)
class Tick:
    """A number on an axis and where it lies."""

    at: float
    text: str


@dataclass(frozen=True)
class Mark:
    """A point of a plane in the picture.

    Attributes:
        x: Horizontal position, to the right.
        y: Vertical position, downward.
        shape: Path of the marker around the origin.
        seeds: Positions of its replicas.
        end: Whether it is the first or the last of its line, and so named always.
        value: The point itself.
        text: The point in words.
    """

    x: float
    y: float
    shape: str
    seeds: tuple[tuple[float, float], ...]
    end: bool
    value: Point
    text: str


@dataclass(frozen=True)
class Line:
    """The points of one defense in the picture."""

    label: str
    color: str
    shape: str
    path: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Picture:
    """A plane in the picture.

    Attributes:
        plane: What it shows.
        id: Name within the page.
        x_ticks: Numbers along x.
        y_ticks: Numbers along y.
        lines: One for each defense.
        start: Horizontal position of the attack's start, if it is shown.
        diagonal: Ends (x₁, y₁, x₂, y₂) of the line of equal values, if it is shown and within the picture.
    """

    plane: Plane
    id: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    start: float | None
    diagonal: tuple[float, float, float, float] | None


@dataclass(frozen=True)
class _Axis:
    """From values to positions; the first end may be the larger one, as downward."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Position of a value, to a tenth."""
        return round(self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first), 1)

    def ticks(self) -> tuple[Tick, ...]:
        """Round numbers within the axis."""
        values = [float(value) for value in MaxNLocator(_TICKS).tick_values(self.low, self.high)]
        step = values[1] - values[0]
        digits = max(0, -math.floor(math.log10(step) + 1e-9)) + (1 if _halves(step) else 0)
        inside = [value for value in values if self.low <= value <= self.high]
        return tuple(Tick(self.at(value), f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")) for value in inside)


def picture(plane: Plane) -> Picture:
    """Lay out a plane.

    Args:
        plane: With at least one point; all its numbers are finite.
    """
    points = plane.points
    seeds = [seed for point in points for seed in point.seeds]
    starts = [] if plane.start is None else [plane.start]
    x = _axis([seed.x for seed in seeds] + starts, LEFT, WIDTH - RIGHT)
    y = _axis([seed.y for seed in seeds], HEIGHT - BOTTOM, TOP)
    return Picture(
        plane=plane,
        id="-".join(["plane", plane.figure.replace("/", "-"), plane.dataset, plane.model]),
        x_ticks=x.ticks(),
        y_ticks=y.ticks(),
        lines=tuple(_line(line, plane, x, y) for line in plane.lines),
        start=None if plane.start is None else x.at(plane.start),
        diagonal=_diagonal(x, y) if plane.diagonal else None,
    )


def _halves(step: float) -> bool:
    """Whether a step such as 2.5 or 0.25 needs one more digit than its magnitude has."""
    leading = step / 10 ** math.floor(math.log10(step) + 1e-9)
    return abs(leading - round(leading)) > 1e-6


def _axis(values: Sequence[float], first: float, last: float) -> _Axis:
    """An axis that holds all values with some room at its ends."""
    low, high = min(values), max(values)
    room = _EDGE * (high - low) or 0.1 * abs(high) or 0.1
    return _Axis(low - room, high + room, first, last)


def _line(points: Sequence[Point], plane: Plane, x: _Axis, y: _Axis) -> Line:
    """The points of one defense."""
    look = style.look(points[0].defense)
    shape = _marker(look.marker)
    marks = tuple(
        Mark(
            x=x.at(point.x),
            y=y.at(point.y),
            shape=shape,
            seeds=tuple((x.at(seed.x), y.at(seed.y)) for seed in point.seeds),
            end=index in (0, len(points) - 1),
            value=point,
            text=_words(point, look.label, plane),
        )
        for index, point in enumerate(points)
    )
    path = " ".join(f"{'L' if index else 'M'}{mark.x:g} {mark.y:g}" for index, mark in enumerate(marks))
    return Line(look.label, look.color, shape, path, marks)


def _words(point: Point, label: str, plane: Plane) -> str:
    """A point for who cannot see it."""
    named = f"{label} {point.name}".strip()
    count = f"mean of {len(point.seeds)} seeds" if len(point.seeds) > 1 else "one seed"
    return f"{named}: {plane.x_label} {point.x:.4g}, {plane.y_label} {point.y:.4g}, {count}; run {point.run}"


def _diagonal(x: _Axis, y: _Axis) -> tuple[float, float, float, float] | None:
    """Ends of the line of equal values."""
    low, high = max(x.low, y.low), min(x.high, y.high)
    return (x.at(low), y.at(low), x.at(high), y.at(high)) if low < high else None


def _marker(name: str) -> str:
    """Path of a matplotlib marker, upright in a picture whose y axis points down."""
    style_of = MarkerStyle(name)
    path = style_of.get_path().transformed(style_of.get_transform())
    scale = 2 * _RADIUS
    words = []
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
    for vertices, code in path.iter_segments(simplify=False):
        if code == Path.CLOSEPOLY:
            words.append("Z")
            continue
        numbers = [f"{value * scale * (-1 if index % 2 else 1):.2f}" for index, value in enumerate(vertices)]
        words.append(letters[code] + " ".join(numbers))
    return "".join(words)
