"""Lines over a column: the mean over replicas with its 95 % interval, between the control lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from leakbound import metrics
from leakbound.claims.selection import EmptySelectionError, SelectionError, select
from leakbound.figures import style
from leakbound.figures.plot_options import Control, LevelsOptions
from leakbound.figures.plots.panels import (
    Panel,
    Panels,
    handle,
    level_axis,
    log_y,
    panels,
    select_or_nothing,
    with_setting,
)
from leakbound.figures.plots.plot import Plot, require
from leakbound.figures.plots.series import Series, series_of

_DASHES = ((5.0, 2.0), (1.5, 1.5), (5.0, 1.5, 1.0, 1.5), (3.0, 1.2, 1.0, 1.2, 1.0, 1.2))
_CHANCE_DASHES = (1, 2)


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
    columns = tuple(dict.fromkeys((*options.series, "model"))) if options.rows else options.series
    rows = with_setting(rows)
    require(rows, options.x, "value", *columns)
    rows, names = _placed(rows, options)
    lines = select(rows, options.where).dropna(subset=options.x)
    if options.rows:
        lines = pd.concat([select_or_nothing(lines, where) for where in options.rows.values()])
    if lines.empty:
        raise EmptySelectionError(f"no row has a value of {options.x} to draw along x")
    made = panels(lines, series=columns, quantities=options.rows, share_y=options.share_y)
    known = series_of(lines, columns)
    controls: dict[str, _Extent] = {}
    extents: dict[Axes, list[_Extent]] = {}
    for panel in made.shown:
        own = panel.of(lines)
        drawn = [_line(panel.axes, part, one, options) for one in known if len(part := one.of(own))]
        found = _controls(panel, rows, lines, known, options)
        extents[panel.axes] = [*drawn, *found.values()]
        controls |= found
    for axes, heights in _sharing(made, extents, options):
        _limits(axes, heights, options)
    _finish(made, lines, known, controls, options, names)
    return made.figure


def _placed(rows: pd.DataFrame, options: LevelsOptions) -> tuple[pd.DataFrame, dict[float, str]]:
    """Rows with their places along x, and what is written there; nothing where the places are the values."""
    if not options.even_x:
        return rows, {}
    values = sorted(float(value) for value in rows[options.x].dropna().unique())
    places = {value: float(index) for index, value in enumerate(values)}
    return rows.assign(**{options.x: rows[options.x].map(places)}), {places[v]: f"{v:g}" for v in values}


def _sharing(
    made: Panels, extents: dict[Axes, list[_Extent]], options: LevelsOptions
) -> list[tuple[Axes, list[_Extent]]]:
    """Every panel with the heights that its y axis must show: its own, and those of panels that share the axis."""
    if not options.share_y:
        return list(extents.items())
    rows = [list(row) for row in made.axes] if options.rows else [list(made.axes.flat)]
    return [
        (axes, [extent for other in row for extent in extents.get(other, [])])
        for row in rows
        for axes in row
        if axes in extents
    ]


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


def _line(axes: Axes, rows: pd.DataFrame, series: Series, options: LevelsOptions) -> _Extent:
    """Draw one line with its band."""
    line, metric = summarize(rows, options.x), _metric(rows)
    bottom, top = style.BOUNDS.get(metric, (-math.inf, math.inf))
    low, high = line["low"].clip(bottom, top), line["high"].clip(bottom, top)
    look = series.look
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


def _controls(
    panel: Panel, rows: pd.DataFrame, lines: pd.DataFrame, series: list[Series], options: LevelsOptions
) -> dict[str, _Extent]:
    """Draw the control lines that have rows: one for all models where these agree, else one in each model's colour."""
    axes, rows, lines = panel.axes, panel.of(rows), panel.of(lines)
    places = sorted(float(value) for value in lines[options.x].unique())
    drawn: dict[str, _Extent] = {}
    for index, control in enumerate(options.controls):
        own = select_or_nothing(rows, control.where)
        if own.empty:
            continue
        heights = [group["value"].mean() for _, group in own.groupby("model")]
        parts = [(style.CONTROL_COLOR, own)]
        if np.ptp(heights) > 1e-6 * np.abs(heights).max() and any("model" in one.values for one in series):
            colors = {one.values["model"]: one.look.color for one in series}
            parts = [(colors.get(str(model), style.CONTROL_COLOR), group) for model, group in own.groupby("model")]
        spans = [_control(axes, part, places, color, _DASHES[index % len(_DASHES)], options) for color, part in parts]
        low, high = min(span.low for span in spans), max(span.high for span in spans)
        drawn[control.label] = _Extent(low, high, low, high, spans[-1].end)
    if options.chance is not None and (not options.chance_rows or panel.quantity in options.chance_rows):
        axes.axhline(options.chance, color=style.CONTROL_COLOR, lw=1.0, ls=(0, _CHANCE_DASHES), zorder=2)
        drawn[options.chance_label] = _Extent(*[options.chance] * 5)
    return drawn


def _control(
    axes: Axes, rows: pd.DataFrame, places: list[float], color: str, dashes: tuple[float, ...], options: LevelsOptions
) -> _Extent:
    """Draw one control line: place by place where it varies along x, else straight across."""
    means = rows.dropna(subset=options.x).groupby(options.x)["value"].mean()
    means = means[means.index.isin(places)]
    heights = means.to_numpy(float)
    if len(heights) < 2 or np.ptp(heights) <= 1e-6 * np.abs(heights).max():
        heights = np.array([rows["value"].mean()])
        line = axes.axhline(heights[0])
    else:
        (line,) = axes.plot(means.index, heights)
    line.set(color=color, linewidth=1.0, linestyle=(0, dashes), zorder=2)
    low, high = float(heights.min()), float(heights.max())
    return _Extent(low, high, low, high, float(heights[-1]))


def _limits(axes: Axes, extents: list[_Extent], options: LevelsOptions) -> None:
    """Limits of y that show all values, and bands as far as they do not dwarf the values."""
    low, high = min(extent.low for extent in extents), max(extent.high for extent in extents)
    if options.log_y and low > 0:
        log_y(axes)
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
    made: Panels,
    rows: pd.DataFrame,
    series: list[Series],
    controls: dict[str, _Extent],
    options: LevelsOptions,
    names: dict[float, str],
) -> None:
    """Axes, labels and legend."""
    for panel in made.shown:
        shown = rows if made.axes.shape[0] == 1 and options.share_y else panel.of(rows)
        places = sorted(float(value) for value in shown[options.x].unique())
        written = [names[place] for place in places] if names else None
        level_axis(made.figure, panel.axes, places, False if names else options.log_x, written)
        if names:
            panel.axes.set_xlim(min(names) - 0.3, max(names) + 0.3)
    made.label(options.x_label or style.axis_label(options.x), options.y_label or style.axis_label(_metric(rows)))
    handles: list[Any] = [handle(one.look) for one in series]
    labels = {control.label: index for index, control in enumerate(options.controls)}
    if made.single and not _crowded(options.controls, rows):
        made.legend(handles if len(handles) > 1 else [])
        _direct_labels(made.figure, made.axes[0, 0], controls)
        return
    for label in controls:
        dashes = _DASHES[labels[label] % len(_DASHES)] if label in labels else _CHANCE_DASHES
        handles.append(Line2D([], [], color=style.CONTROL_COLOR, lw=1.0, ls=(0, dashes), label=label))
    made.legend(handles)


def _crowded(controls: tuple[Control, ...], rows: pd.DataFrame) -> bool:
    """Whether control lines may be one for each model, so that no name at their end tells which they are."""
    return len(controls) > 0 and rows["model"].nunique() > 1


levels = Plot("levels", LevelsOptions, _levels)
