"""Lines over levels: the mean over replicas with its 95 % interval, between the control lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import Field, Strict

from leakbound import metrics
from leakbound.config import Settings
from leakbound.figures import style
from leakbound.figures.options import Columns, Conditions
from leakbound.figures.plots.panels import Panels, handle, level_axis, panels, with_setting
from leakbound.figures.plots.plot import Plot, require
from leakbound.figures.selection import EmptySelectionError, SelectionError, select

_DASHES = ((5, 2), (1.5, 1.5), (5, 1.5, 1, 1.5), (3, 1.2, 1, 1.2, 1, 1.2))
_CHANCE_DASHES = (1, 2)


class Control(Settings):
    """Rows drawn as a grey dashed line that says how the others are to be read."""

    label: str
    """Name beside the line."""
    where: Conditions
    """Rows of the control."""


class LevelsOptions(Settings):
    """Options of the plot ``levels``."""

    x: str = "level"
    """Column along x; ``level`` or ``rounds``."""
    series: Columns = ("defense",)
    """Columns that tell lines apart; the first one gives colour and marker."""
    where: Conditions = Field(default_factory=dict)
    """Rows drawn as lines; the others are for the controls."""
    controls: Annotated[tuple[Control, ...], Strict(False)] = ()
    """Control lines; one without rows is left out."""
    x_label: str | None = None
    """Label of the x axis, with unit."""
    y_label: str | None = None
    """Label of the y axis, with unit; by default the metric's."""
    log_x: bool | None = None
    """Logarithmic x axis; by default where levels span a factor of three."""
    log_y: bool = False
    """Logarithmic y axis."""
    chance: float | None = None
    """Height of a dotted control line at a constant."""
    chance_label: str = "chance"
    """Name of that line."""
    replicas: bool = False
    """Whether single replicas are drawn as thin lines."""


@dataclass(frozen=True)
class _Extent:
    """Heights that a line takes: of its values, of its band, and at its right end."""

    low: float
    high: float
    band_low: float
    band_high: float
    end: float


def _levels(rows: pd.DataFrame, options: LevelsOptions) -> Figure:
    """Draw lines over levels."""
    rows = with_setting(rows)
    require(rows, options.x, "value", *options.series)
    lines = select(rows, options.where).dropna(subset=options.x)
    if lines.empty:
        raise EmptySelectionError(f"no row has a value of {options.x} to draw along x")
    made = panels(lines)
    names = style.ordered({_series(row) for row in lines[list(options.series)].itertuples(index=False)})
    extents: list[_Extent] = []
    controls: dict[str, _Extent] = {}
    for axes, own in made.each(lines):
        extents += [_line(axes, part, name, options) for name in names if len(part := _of_series(own, name, options))]
        same = (rows["dataset"] == own["dataset"].iloc[0]) & (rows["model"] == own["model"].iloc[0])
        drawn = _controls(axes, rows[same], sorted(own[options.x].unique()), options)
        extents += drawn.values()
        controls |= drawn
    for axes in made.axes.flat:
        _limits(axes, extents, options)
    _finish(made, lines, names, controls, options)
    return made.figure


def _series(values: Any) -> str:
    """Name of the line that a row belongs to."""
    return " / ".join(str(value) for value in values)


def _of_series(rows: pd.DataFrame, name: str, options: LevelsOptions) -> pd.DataFrame:
    """Rows of one line."""
    parts = name.split(" / ")
    return select_or_nothing(rows, dict(zip(options.series, parts, strict=True)))


def select_or_nothing(rows: pd.DataFrame, conditions: Conditions) -> pd.DataFrame:
    """Rows that meet the conditions, maybe none."""
    try:
        return select(rows, conditions)
    except EmptySelectionError:
        return rows.iloc[:0]


def _look(name: str) -> style.Look:
    """Appearance of a line: by its first column, the others in its label."""
    first, *rest = name.split(" / ")
    look = style.look(first)
    label = ", ".join([look.label, *(style.look(part).label for part in rest)])
    return style.Look(label, look.color, look.marker, look.dashed or bool(rest))


def summarize(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean over replicas with its 95 % t interval for each value of a column; NaN ends for one replica.

    Raises:
        SelectionError: If a replica has several rows at one value: a condition is missing.
    """
    if "replica" in rows.columns and rows.duplicated([by, "replica"]).any():
        known = {by, "replica", "value", "run", "low", "high"}
        varying = [str(column) for column in rows.columns if column not in known and rows[column].nunique() > 1]
        raise SelectionError(
            f"a replica has several rows at one {by}: choose one by {', '.join(varying) or 'a column'}"
        )
    records = []
    for value, group in rows.groupby(by, sort=True):
        interval = metrics.mean_interval(group["value"].to_numpy(float))
        records.append((value, interval.value, interval.low, interval.high))
    return pd.DataFrame(records, columns=[by, "mean", "low", "high"])


def _line(axes: Axes, rows: pd.DataFrame, name: str, options: LevelsOptions) -> _Extent:
    """Draw one line with its band."""
    line, metric = summarize(rows, options.x), _metric(rows)
    bottom, top = style.BOUNDS.get(metric, (-math.inf, math.inf))
    low, high = line["low"].clip(bottom, top), line["high"].clip(bottom, top)
    look = _look(name)
    axes.fill_between(line[options.x], low, high, color=look.color, alpha=0.16, lw=0)
    if options.replicas:
        for _, single in rows.groupby("replica"):
            ordered = single.sort_values(options.x)
            axes.plot(ordered[options.x], ordered["value"], color=look.color, lw=0.4, alpha=0.5)
    axes.plot(line[options.x], line["mean"], **look.line(), zorder=3)
    values = rows["value"].to_numpy(float)
    band = np.nanmin([low.min(), values.min()]), np.nanmax([high.max(), values.max()])
    return _Extent(values.min(), values.max(), float(band[0]), float(band[1]), float(line["mean"].iloc[-1]))


def _metric(rows: pd.DataFrame) -> str:
    """The metric of rows, empty if they have several or none."""
    names = rows["metric"].unique() if "metric" in rows.columns else []
    return str(names[0]) if len(names) == 1 else ""


def _controls(axes: Axes, rows: pd.DataFrame, levels: list[float], options: LevelsOptions) -> dict[str, _Extent]:
    """Draw the control lines that have rows: level by level where they differ, else straight across."""
    drawn: dict[str, _Extent] = {}
    for index, control in enumerate(options.controls):
        own = select_or_nothing(rows, control.where)
        if own.empty:
            continue
        means = own.dropna(subset=options.x).groupby(options.x)["value"].mean()
        means = means[means.index.isin(levels)]
        heights = means.to_numpy(float)
        if len(heights) < 2 or np.ptp(heights) <= 1e-6 * np.abs(heights).max():
            heights = np.array([own["value"].mean()])
            line = axes.axhline(heights[0])
        else:
            (line,) = axes.plot(means.index, heights)
        line.set(color=style.CONTROL_COLOR, linewidth=1.0, linestyle=(0, _DASHES[index % len(_DASHES)]), zorder=2)
        low, high = float(heights.min()), float(heights.max())
        drawn[control.label] = _Extent(low, high, low, high, float(heights[-1]))
    if options.chance is not None:
        axes.axhline(options.chance, color=style.CONTROL_COLOR, lw=1.0, ls=(0, _CHANCE_DASHES), zorder=2)
        drawn[options.chance_label] = _Extent(*[options.chance] * 5)
    return drawn


def _limits(axes: Axes, extents: list[_Extent], options: LevelsOptions) -> None:
    """Limits of y that show all values, and bands as far as they do not dwarf the values."""
    low, high = min(extent.low for extent in extents), max(extent.high for extent in extents)
    if options.log_y and low > 0:
        axes.set_yscale("log")
        return
    reach = 0.5 * (high - low) or 0.05 * abs(high) or 0.05
    bottom = max(low - reach, min(extent.band_low for extent in extents))
    top = min(high + reach, max(extent.band_high for extent in extents))
    edge = 0.06 * (top - bottom) or reach
    axes.set_ylim(bottom - edge, top + edge)


def _direct_labels(figure: Figure, axes: Axes, drawn: dict[str, _Extent]) -> None:
    """Names of the control lines at their right ends, outside of the data and apart from each other."""
    if not drawn:
        return
    transform = axes.transScale + axes.transLimits
    wanted = sorted((float(transform.transform((1.0, extent.end))[1]), label) for label, extent in drawn.items())
    tall = axes.get_position().height * figure.get_size_inches()[1]
    apart = 1.25 * style.SMALL / 72 / tall
    heights = [height for height, _ in wanted]
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + apart)
    overshoot = max(0.0, heights[-1] - 1.0)
    for index in reversed(range(len(heights))):
        ceiling = heights[index + 1] - apart if index + 1 < len(heights) else math.inf
        heights[index] = min(heights[index] - (overshoot if index + 1 == len(heights) else 0.0), ceiling)
    for (_, label), height in zip(wanted, heights, strict=True):
        note: dict[str, Any] = {"va": "center", "color": style.CONTROL_COLOR, "size": style.SMALL}
        axes.text(1.02, height, label, transform=axes.transAxes, **note)


def _finish(
    made: Panels, rows: pd.DataFrame, names: list[str], controls: dict[str, _Extent], options: LevelsOptions
) -> None:
    """Axes, labels and legend."""
    levels = sorted(float(value) for value in rows[options.x].unique())
    for axes in made.axes.flat:
        level_axis(made.figure, axes, levels, options.log_x)
    made.label(options.x_label or style.axis_label(options.x), options.y_label or style.axis_label(_metric(rows)))
    handles: list[Any] = [handle(_look(name)) for name in names]
    if made.single:
        made.legend(handles if len(handles) > 1 else [])
        _direct_labels(made.figure, made.axes[0, 0], controls)
        return
    labels = [control.label for control in options.controls]
    for label in controls:
        dashes = _DASHES[labels.index(label) % len(_DASHES)] if label in labels else _CHANCE_DASHES
        handles.append(Line2D([], [], color=style.CONTROL_COLOR, lw=1.0, ls=(0, dashes), label=label))
    made.legend(handles)


levels = Plot("levels", LevelsOptions, _levels)
