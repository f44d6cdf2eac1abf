"""Planes: two quantities against each other, levels of a defense connected and named."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import Field

from leakbound import metrics
from leakbound.config import Settings
from leakbound.figures import style
from leakbound.figures.options import Conditions
from leakbound.figures.plots.panels import handle, panels, with_setting
from leakbound.figures.plots.plot import Plot, require
from leakbound.figures.selection import EmptySelectionError, SelectionError, select

_NEAR = tuple(
    (distance * np.cos(angle), distance * np.sin(angle))
    for distance, angle in product((7.0, 12.0, 18.0), np.deg2rad((45, -45, 135, -135, 90, -90, 0, 180)))
)
_ROOM = 1.0
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class _Note:
    """A point and the name of its level; the ends of a line are always named, the others where there is room."""

    x: float
    y: float
    text: str
    color: str
    end: bool


class PlaneOptions(Settings):
    """Options of the plot ``plane``."""

    x: Conditions
    """Rows of the quantity along x."""
    y: Conditions
    """Rows of the quantity along y."""
    where: Conditions = Field(default_factory=dict)
    """Rows that count at all."""
    x_label: str | None = None
    """Label of the x axis, with unit; by default the metric's."""
    y_label: str | None = None
    """Label of the y axis, with unit; by default the metric's."""
    start: Conditions | None = None
    """Rows whose mean is a grey vertical line, labelled ``start``."""
    diagonal: bool = False
    """Whether the line of equal x and y is drawn."""


def _plane(rows: pd.DataFrame, options: PlaneOptions) -> Figure:
    """Draw a plane."""
    rows = with_setting(rows)
    require(rows, "defense", "level", "run", "replica", "value")
    rows = select(rows, options.where)
    points = _points(rows, options)
    made = panels(points, width=style.TWO_COLUMNS * 0.62 if _settings(points) == 1 else None, height=3.0)
    starts: list[float] = []
    waiting: list[tuple[Axes, list[_Note]]] = []
    for axes, own in made.each(points):
        same = rows[(rows["dataset"] == own["dataset"].iloc[0]) & (rows["model"] == own["model"].iloc[0])]
        starts += _references(axes, own, same, options)
        notes = [note for name in style.ordered(_defended(own)) for note in _series(axes, own, name)]
        undefended = own.loc[own["defense"] == "none", ["x", "y"]].itertuples(index=False)
        waiting.append((axes, [*notes, *(_Note(x, y, "", style.CONTROL_COLOR, end=False) for x, y in undefended)]))
    for axes in made.axes.flat:
        _limits(axes, points, starts)
    made.label(options.x_label or _label(rows, options.x), options.y_label or _label(rows, options.y))
    handles: list[Any] = [handle(style.look(name)) for name in style.ordered(_defended(points))]
    if (points["defense"] == "none").any():
        handles.append(Line2D([], [], color=style.CONTROL_COLOR, marker="h", ls=(0, (5, 2)), label="undefended"))
    if options.start is not None:
        handles.append(Line2D([], [], color=style.CONTROL_COLOR, ls=(0, (1.5, 1.5)), label="start of the attack"))
    if options.diagonal:
        handles.append(Line2D([], [], color=style.CONTROL_COLOR, ls=(0, (1, 2)), label="equal"))
    made.legend(handles)
    made.figure.draw_without_rendering()
    for axes, notes in waiting:
        _name_levels(axes, made.figure.get_size_inches()[0], notes)
    return made.figure


def _settings(points: pd.DataFrame) -> int:
    """Number of pairs of a dataset and a model."""
    return len(points[["dataset", "model"]].drop_duplicates())


def _defended(points: pd.DataFrame) -> set[str]:
    """Defenses other than none."""
    return {str(name) for name in points["defense"].unique()} - {"none"}


def _label(rows: pd.DataFrame, conditions: Conditions) -> str:
    """Axis label of a quantity chosen by conditions."""
    return style.axis_label(str(select(rows, conditions)["metric"].iloc[0])) if "metric" in rows.columns else ""


def _points(rows: pd.DataFrame, options: PlaneOptions) -> pd.DataFrame:
    """Mean and interval of both quantities for each run."""
    keys = ["dataset", "model", "defense", "level"]
    sides = []
    for name, conditions in (("x", options.x), ("y", options.y)):
        chosen = select(rows, conditions)
        if chosen.duplicated(["run", "replica"]).any():
            raise SelectionError(f"plot plane: options.{name} chooses several rows of one replica: add a condition")
        records = []
        for key, group in chosen.groupby(keys, dropna=False, sort=True):
            interval = metrics.mean_interval(group["value"].to_numpy(float))
            low, high = (end if np.isfinite(end) else interval.value for end in (interval.low, interval.high))
            records.append((*key, interval.value, interval.value - low, high - interval.value))
        sides.append(pd.DataFrame(records, columns=[*keys, name, f"{name}_below", f"{name}_above"]))
    points = sides[0].merge(sides[1], on=keys)
    if points.empty:
        raise EmptySelectionError("no run has both quantities")
    return points


def _series(axes: Axes, points: pd.DataFrame, name: str) -> list[_Note]:
    """Draw one defense; returns its points with their names."""
    own = points[points["defense"] == name].sort_values("level")
    look = style.look(name)
    axes.errorbar(
        own["x"],
        own["y"],
        xerr=own[["x_below", "x_above"]].to_numpy(float).T,
        yerr=own[["y_below", "y_above"]].to_numpy(float).T,
        fmt="none",
        ecolor=look.color,
        elinewidth=0.6,
        alpha=0.45,
    )
    axes.plot(own["x"], own["y"], **{**look.line(), "lw": 0.9})
    levels = own["level"].tolist()
    ends = {levels[0], levels[-1]}
    return [
        _Note(x, y, f"{level:g}", look.color, end=level in ends)
        for x, y, level in own[["x", "y", "level"]].itertuples(index=False)
    ]


def _references(axes: Axes, points: pd.DataFrame, rows: pd.DataFrame, options: PlaneOptions) -> list[float]:
    """Grey marks: the undefended run, the attack's start, the diagonal; returns where the start is."""
    for _, point in points[points["defense"] == "none"].iterrows():
        axes.plot(point["x"], point["y"], marker="h", color=style.CONTROL_COLOR, ls="none", zorder=4)
        axes.axhline(point["y"], color=style.CONTROL_COLOR, lw=0.8, ls=(0, (5, 2)), zorder=1)
    if options.diagonal:
        axes.axline((0.0, 0.0), slope=1.0, color=style.CONTROL_COLOR, lw=0.8, ls=(0, (1, 2)), zorder=1)
    if options.start is None:
        return []
    start = float(select(rows, options.start)["value"].mean())
    axes.axvline(start, color=style.CONTROL_COLOR, lw=0.8, ls=(0, (1.5, 1.5)), zorder=1)
    return [start]


def _limits(axes: Axes, points: pd.DataFrame, starts: list[float]) -> None:
    """Limits that show all means, the starts, and error bars as far as these do not dwarf the means."""
    for name, set_limits, lines in (("x", axes.set_xlim, starts), ("y", axes.set_ylim, [])):
        low, high = min(float(points[name].min()), *lines, np.inf), max(float(points[name].max()), *lines, -np.inf)
        reach = 0.6 * (high - low) or 0.1 * abs(high) or 0.1
        bottom = max(low - reach, float((points[name] - points[f"{name}_below"]).min()))
        top = min(high + reach, float((points[name] + points[f"{name}_above"]).max()))
        edge = 0.09 * (top - bottom) or reach
        set_limits(bottom - edge, top + edge)


def _name_levels(axes: Axes, inches: float, notes: list[_Note]) -> None:
    """Write levels beside their points, the ends first, where they cover least of the other points and names."""
    scale = float(axes.bbox.width) / (axes.get_position().width * inches) / 72
    spots = {note: np.asarray(axes.transData.transform((note.x, note.y))) / scale for note in notes}
    frame = np.asarray(axes.bbox.extents) / scale
    taken: list[Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in spots.values()]
    look: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center_baseline", "zorder": 5}
    for note in sorted((note for note in notes if note.text), key=lambda note: not note.end):
        wide, tall = 0.62 * style.SMALL * len(note.text) / 2 + 0.5, 0.45 * style.SMALL
        costs = {shift: _cost(spots[note], shift, wide, tall, taken, frame) for shift in _NEAR}
        best = min(costs, key=lambda shift: costs[shift])
        if note.end or costs[best] < _ROOM:
            taken.append(_box(spots[note], best, wide, tall))
            text = axes.annotate(note.text, (note.x, note.y), xytext=best, color=note.color, size=style.SMALL, **look)
            text.set_in_layout(False)


def _box(spot: np.ndarray, shift: tuple[float, float], wide: float, tall: float) -> Box:
    """Rectangle of a name, in points."""
    x, y = spot[0] + shift[0], spot[1] + shift[1]
    return x - wide, y - tall, x + wide, y + tall


def _cost(
    spot: np.ndarray, shift: tuple[float, float], wide: float, tall: float, taken: list[Box], frame: np.ndarray
) -> float:
    """Area that a name would cover, plus a little for distance, plus much for leaving the panel."""
    left, bottom, right, top = _box(spot, shift, wide, tall)
    covered = sum(
        max(0.0, min(right, box[2]) - max(left, box[0])) * max(0.0, min(top, box[3]) - max(bottom, box[1]))
        for box in taken
    )
    outside = left < frame[0] or right > frame[2] or bottom < frame[1] or top > frame[3]
    return covered + 0.02 * float(np.hypot(*shift)) + 1e3 * outside


plane = Plot("plane", PlaneOptions, _plane)
