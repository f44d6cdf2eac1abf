"""Planes: two quantities against each other, with the levels of each defense connected and named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from leakbound_lab.claims.selection import (
    Columns,
    EmptySelectionError,
    SelectionError,
    larger_is_stronger,
    require,
    select,
)
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import handle, legend, log, panels
from leakbound_lab.figures.plots.plotting import drawable, plot
from leakbound_lab.figures.plots.series import (
    FEWEST,
    Center,
    Middle,
    Series,
    center_interval,
    dots_of,
    epsilons,
    explained,
    mark_leaving,
    metric_of,
    series_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT = "run:"
"""Prefix of the identifier of a run's point in the drawing, which the run's slug follows."""

_NEAR = tuple(
    (distance * np.cos(angle), distance * np.sin(angle))
    for distance, angle in product((7.0, 12.0, 18.0), np.deg2rad((45, -45, 135, -135, 90, -90, 0, 180)))
)
_ROOM = 1.0
_MOST_NAMED = 3
_SMALLEST = 3.4
_LARGEST = 6.0
_SHADES = "along a line: pale is the strongest protection, dark the weakest"
_PALEST = 0.15
"""Share of a line's color in the point of its strongest protection."""
_KEYS = ("dataset", "model", "defense", "stronger_with", "level", "rounds", "batch_size", "run", "epsilon")


class PlaneOptions(Settings):
    """Options of the plot ``plane``."""

    x: Conditions
    """Conditions of the rows of the quantity along x."""
    y: Conditions
    """Conditions of the rows of the quantity along y."""
    along: Literal["level", "rounds", "batch_size"] = "level"
    """Column along which the points of a line are connected, and whose values name them."""
    series: Columns = ("defense",)
    """Columns that distinguish lines. Models have a row of panels each unless they are one of these
    columns."""
    x_label: str | None = None
    """Label of the x axis, with unit. Default: that of the metric."""
    y_label: str | None = None
    """Label of the y axis, with unit. Default: that of the metric."""
    center: Center = "mean"
    """Middle of replicas along both axes. The median has the exact interval between order statistics."""
    start: Conditions | None = None
    """Conditions of rows whose middle is drawn as a grey vertical line, the start of the attack."""
    diagonal: bool = False
    """Whether the line of equal x and y is drawn."""
    log_x: bool = False
    """Whether the x axis is logarithmic, for errors that spread over powers of ten."""
    names: bool = True
    """Whether up to three lines have names at their points. False where points lie on each other."""


@dataclass(frozen=True)
class _Note:
    """A point and the name of its level. The ends of a line are always named, other points if there is room."""

    x: float
    y: float
    text: str
    color: str
    end: bool


@plot(PlaneOptions)
def plane(rows: pd.DataFrame, options: PlaneOptions) -> Figure:
    """Draw a plane.

    Up to three lines in one panel have the names of their levels next to their points. With more lines, names
    would overlap. Points then become darker and larger from the strongest to the weakest protection, and the
    legend lists the levels. In the SVG each point has the name of its run.
    """
    require(rows, "defense", "level", "run", "replica", "value", *options.series)
    points = _points(rows, options)
    replicas = _replicas(rows, options)
    lines = points[points["defense"] != "none"]
    series = series_of(lines, options.series) if len(lines) else []
    made = panels(points, series=options.series, share_x=False, share_y=False, height=3.0)
    names = options.names and len(series) <= _MOST_NAMED and (len(series) == 1 or made.axes.size <= 2)
    # Points, lines and references of each panel, whose names wait for the final layout.
    waiting: list[tuple[Axes, list[_Note]]] = []
    for panel in made.shown:
        undefended = panel.of(points[points["defense"] == "none"])
        start = _references(panel.axes, undefended, panel.of(rows), series, options)
        _replica_dots(panel.axes, panel.of(replicas), series)
        notes = _lines(panel.axes, panel.of(lines), series, names, options)
        blocked = [_Note(x, y, "", "", end=False) for x, y in undefended[["x", "y"]].itertuples(index=False)]
        waiting.append((panel.axes, [*notes, *blocked]))
        _limits(panel.axes, panel.of(points), start, log_x=options.log_x)
        _mark_leaving(panel.axes, panel.of(lines), series)
    made.label(*_labels(rows, options))
    shaded = not names and any(
        len(member.of(panel.of(lines))) > 1 for member in series for panel in made.shown
    )
    legend(made.figure, _handles(points, lines, series, names, options), _SHADES if shaded else "")
    made.figure.draw_without_rendering()
    for axes, written in waiting:
        _name_levels(axes, made.figure.get_size_inches()[0], written)
    return made.figure


def _replica_dots(axes: Axes, replicas: pd.DataFrame, series: list[Series]) -> None:
    """Draw a small dot for each replica of runs with few replicas, in the style of its line."""
    for defense, group in replicas.groupby("defense"):
        styles = [member.style for member in series if member.values.get("defense") == defense]
        appearance = [*styles, style.style_of(str(defense))][0]
        dots_of(axes, group[["x", "y"]].itertuples(index=False), appearance)


def _lines(
    axes: Axes, points: pd.DataFrame, series: list[Series], names: bool, options: PlaneOptions
) -> list[_Note]:
    """Draw all lines of a panel and return their points with their names."""
    drawn = [_series(axes, member.of(points), member, names, options) for member in series]
    return [note for notes in drawn for note in notes]


def _mark_leaving(axes: Axes, points: pd.DataFrame, series: list[Series]) -> None:
    """Mark intervals that leave the panel, in the colour of their line."""
    for member in series:
        for point in member.of(points).to_dict("records"):
            mark_leaving(axes, *_around(point), member.style.color)


def _handles(
    points: pd.DataFrame, lines: pd.DataFrame, series: list[Series], names: bool, options: PlaneOptions
) -> list[Any]:
    """Make the legend: the lines, with their levels unless points have names, and the reference marks."""
    handles: list[Any] = []
    for member in series:
        part = member.of(lines)
        grows = _grows(part, options)
        values = sorted(part[options.along].dropna().unique(), reverse=grows)
        texts = [_text(str(part["defense"].iloc[0]), float(value), options) for value in values]
        label = explained(
            member.style.label, [] if names else texts, epsilons(part, options.along, descending=grows)
        )
        handles.append(handle(label, **member.style.line()))
    if (points["defense"] == "none").any():
        handles.append(handle("undefended", color=style.CONTROL_COLOR, marker="h", ls=(0, (5, 2))))
    if options.start is not None:
        handles.append(handle("start of the attack", color=style.CONTROL_COLOR, ls=(0, (1.5, 1.5))))
    if options.diagonal:
        handles.append(handle("equal", color=style.CONTROL_COLOR, ls=(0, (1, 2))))
    return handles


def _text(defense: str, value: float, options: PlaneOptions) -> str:
    """Write the name of a point: its value along the line."""
    return style.level_label(defense, value) if options.along == "level" else f"{value:g}"


def _grows(points: pd.DataFrame, options: PlaneOptions) -> bool:
    """Return True if a larger level protects more, so that its point comes first."""
    return options.along == "level" and bool(larger_is_stronger(points).any())


def _labels(rows: pd.DataFrame, options: PlaneOptions) -> tuple[str, str]:
    """Return the labels of both axes, by default those of their metrics."""

    def default(conditions: Conditions) -> str:
        if "metric" not in rows.columns:
            return ""
        return style.axis_label(str(select(rows, conditions)["metric"].iloc[0]))

    return options.x_label or default(options.x), options.y_label or default(options.y)


def numbers(rows: pd.DataFrame, options: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """List the points of a plane in words, for tooltips, screen readers and tables.

    Args:
        rows: Rows of the figure.
        options: Options of the plane.

    Returns:
        Head and lines of a table: run, name of the point, both quantities with their 95 % intervals, and
        number of replicas. Both are empty if no run has both quantities.
    """
    checked = plane.check(options)
    try:
        rows = drawable(rows)
        head = ["run", "point", *_labels(rows, checked), "replicas"]
        points = _points(rows, checked)
    except EmptySelectionError:
        return [], []
    lines = []
    for point in points.to_dict("records"):
        defense = str(point["defense"])
        level = _text(defense, float(point[checked.along]), checked)
        name = f"{style.style_of(defense).label} {level}".strip()
        if (epsilon := point.get("epsilon", math.nan)) == epsilon:
            name += f", ε = {style.epsilon_text(epsilon)}"
        written = [_written(middle) for middle in _around(point)]
        lines.append([str(point["run"]), name, *written, str(min(point["x_replicas"], point["y_replicas"]))])
    return head, lines


def _written(middle: Middle) -> str:
    """Write a middle with its interval, or with the range of few replicas."""
    value, low, high, is_range = middle
    if low == high:
        return f"{value:.4g}"
    return f"{value:.4g} ({low:.4g} to {high:.4g})" if is_range else f"{value:.4g} [{low:.4g}, {high:.4g}]"


def _around(point: Mapping[Any, Any]) -> tuple[Middle, Middle]:
    """Return both quantities of a point."""
    x, y = (Middle(*(point[f"{axis}{end}"] for end in ("", "_low", "_high", "_few"))) for axis in "xy")
    return x, y


def _points(rows: pd.DataFrame, options: PlaneOptions) -> pd.DataFrame:
    """Compute middle and interval of both quantities for each run."""
    import pandas as pd

    keys = [key for key in _KEYS if key in rows.columns]
    sides = []
    for name, conditions in (("x", options.x), ("y", options.y)):
        part = select(rows, conditions)
        if part.duplicated(["run", "replica"]).any():
            raise SelectionError(
                f"plot plane: options.{name} chooses several rows of one replica: add a condition"
            )
        records = [
            (*key, *center_interval(group["value"], options.center, metric_of(part)), len(group))
            for key, group in part.groupby(keys, dropna=False, sort=True)
        ]
        ends = [f"{name}{end}" for end in ("", "_low", "_high", "_few", "_replicas")]
        sides.append(pd.DataFrame(records, columns=[*keys, *ends]))
    points = sides[0].merge(sides[1], on=keys)
    if points.empty:
        raise EmptySelectionError("no run has both quantities")
    return points


def _replicas(rows: pd.DataFrame, options: PlaneOptions) -> pd.DataFrame:
    """Return both quantities of each replica, for runs with few replicas."""
    keys = [*(key for key in _KEYS if key in rows.columns), "replica"]
    x, y = (
        select(rows, where)[[*keys, "value"]].rename(columns={"value": name})
        for name, where in (("x", options.x), ("y", options.y))
    )
    both = x.merge(y, on=keys)
    count = both.groupby("run")["replica"].transform("size")
    return both[(count > 1) & (count < FEWEST)]


def _series(
    axes: Axes, points: pd.DataFrame, series: Series, names: bool, options: PlaneOptions
) -> list[_Note]:
    """Draw one line and return its points with their names."""
    if points.empty:
        return []
    points = points.sort_values(options.along, ascending=not _grows(points, options))
    with_intervals = points[~(points["x_few"] | points["y_few"])]
    bars: dict[str, Any] = {"color": series.style.color, "lw": 0.6, "alpha": 0.45}
    axes.hlines(with_intervals["y"], with_intervals["x_low"], with_intervals["x_high"], **bars)
    axes.vlines(with_intervals["x"], with_intervals["y_low"], with_intervals["y_high"], **bars)
    appearance = {**series.style.line(), "lw": 0.9}
    axes.plot(points["x"], points["y"], **{**appearance, "marker": "none"})
    _marks(axes, points, grow=not names, **appearance)
    if not names:
        return []
    values = points[options.along].tolist()
    texts = [
        _text(str(name), float(value), options) for name, value in zip(points["defense"], values, strict=True)
    ]
    return [
        _Note(x, y, text, series.style.color, end=value in (values[0], values[-1]))
        for x, y, text, value in zip(points["x"], points["y"], texts, values, strict=True)
    ]


def _marks(axes: Axes, points: pd.DataFrame, *, grow: bool, **appearance: Any) -> None:
    """Draw a marker for each point, with the name of its run, so that a page can link to it.

    If markers grow, the one of the strongest protection, which comes first, is palest and smallest.
    """
    from matplotlib.colors import to_rgb

    shares = np.linspace(0.0, 1.0, len(points)) if grow and len(points) > 1 else np.ones(len(points))
    for share, (run, x, y) in zip(shares, points[["run", "x", "y"]].itertuples(index=False), strict=True):
        shape = dict(appearance)
        if grow:
            strength = _PALEST + (1 - _PALEST) * share
            shape["mfc"] = tuple(1 - strength * (1 - part) for part in to_rgb(appearance["color"]))
            shape |= {"ms": _SMALLEST + (_LARGEST - _SMALLEST) * share, "mew": 0.8}
        (mark,) = axes.plot(x, y, **{**shape, "ls": "none"})
        mark.set_gid(f"{POINT}{run}")


def _references(
    axes: Axes, undefended: pd.DataFrame, rows: pd.DataFrame, series: list[Series], options: PlaneOptions
) -> float:
    """Draw undefended runs, the attack's start and the diagonal. Return the place of the start, NaN without one."""
    colors = {member.values["model"]: member.style.color for member in series if "model" in member.values}
    for model, points in undefended.groupby("model"):
        color = colors.get(str(model), style.CONTROL_COLOR)
        dashed: dict[str, Any] = {"color": color, "lw": 0.8, "ls": (0, (5, 2))}
        if len(points) > 1:
            points = points.sort_values(options.along)
            axes.plot(points["x"], points["y"], zorder=4, **dashed)
        elif not colors:
            axes.axhline(points["y"].iloc[0], zorder=1, **dashed)
        _marks(axes, points, grow=False, marker="h", color=color, mfc="white" if colors else color, zorder=4)
    if options.diagonal:
        axes.axline((0.0, 0.0), slope=1.0, color=style.CONTROL_COLOR, lw=0.8, ls=(0, (1, 2)), zorder=1)
    if options.start is None:
        return np.nan
    start = float(select(rows, options.start)["value"].agg(options.center))
    axes.axvline(start, color=style.CONTROL_COLOR, lw=0.8, ls=(0, (1.5, 1.5)), zorder=1)
    return start


def _limits(axes: Axes, points: pd.DataFrame, start: float, *, log_x: bool) -> None:
    """Set limits that show all middles, the start, and error bars as far as they do not dwarf the middles."""
    if log_x and points["x"].min() > 0 and not start <= 0:
        log(axes, "x")
        ends = [*points["x"], *points.loc[points["x_low"] > 0, "x_low"], *points["x_high"], start]
        axes.set_xlim(np.nanmin(ends) / 1.3, np.nanmax(ends) * 1.3)
    for name, set_limits, line in (("x", axes.set_xlim, start), ("y", axes.set_ylim, np.nan)):
        if name == "x" and axes.get_xscale() == "log":
            continue
        low = np.fmin(points[name].min(), line)
        high = np.fmax(points[name].max(), line)
        reach = 0.6 * (high - low) or 0.1 * abs(high) or 0.1
        bottom = max(low - reach, min(low, float(points[f"{name}_low"].min())))
        top = min(high + reach, max(high, float(points[f"{name}_high"].max())))
        edge = 0.09 * (top - bottom) or reach
        set_limits(bottom - edge, top + edge)
    if axes.get_xscale() != "log":
        axes.locator_params("x", nbins=4)
    axes.locator_params("y", nbins=6)


def _name_levels(axes: Axes, inches: float, notes: list[_Note]) -> None:
    """Write levels next to their points, ends of lines first, where they overlap least with points and names.

    The cost of a place is the area of overlap, plus a little for its distance, and much for leaving the
    panel. Units are points.
    """
    scale = float(axes.bbox.width) / (axes.get_position().width * inches) / 72
    spots = {note: np.asarray(axes.transData.transform((note.x, note.y))) / scale for note in notes}
    left, bottom, right, top = np.asarray(axes.bbox.extents) / scale
    taken = [np.array([spot - 3, spot + 3]) for spot in spots.values()]
    behind = {"facecolor": "white", "alpha": 0.75, "linewidth": 0.0, "pad": 0.4}
    for note in sorted((note for note in notes if note.text), key=lambda note: not note.end):
        half = np.array([0.62 * style.SMALL * len(note.text) / 2 + 0.5, 0.45 * style.SMALL])
        names = {shift: np.array([spots[note] + shift - half, spots[note] + shift + half]) for shift in _NEAR}
        costs = {}
        for shift, (low, high) in names.items():
            covered = sum(
                np.prod(np.maximum(0, np.minimum(high, end) - np.maximum(low, start))) for start, end in taken
            )
            outside = (low < (left, bottom)).any() or (high > (right, top)).any()
            costs[shift] = covered + 0.02 * float(np.hypot(*shift)) + 1e3 * outside
        best = min(costs, key=lambda shift: costs[shift])
        if note.end or costs[best] < _ROOM:
            taken.append(names[best])
            text = axes.annotate(note.text, (note.x, note.y), best, textcoords="offset points", zorder=5)
            text.set(ha="center", va="center_baseline", color=note.color, size=style.SMALL, bbox=behind)
            text.set_in_layout(False)
