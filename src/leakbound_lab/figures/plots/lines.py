"""Lines over a column: the mean over replicas with its 95 % interval, and control lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from pydantic import Field, Strict

from leakbound_lab.claims.selection import Columns, EmptySelectionError, require, select, select_or_nothing
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import (
    MOST_AT_ENDS,
    Panel,
    Panels,
    end_labels,
    handle,
    legend,
    level_axis,
    log,
    panels,
)
from leakbound_lab.figures.plots.plotting import plot
from leakbound_lab.figures.plots.series import (
    DASHES,
    Control,
    Middle,
    Series,
    epsilons,
    explained,
    mark_leaving,
    mean_line,
    metric_of,
    series_of,
    with_names,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CHANCE_DASHES = (1, 2)
_NAME = 8  # characters in a line of a name under its point, unless a word is longer


class LevelsOptions(Settings):
    """Options of the plot ``levels``."""

    x: str = "level"
    """Column along x, e.g. ``level``, ``rounds`` or ``batch_size``."""
    series: Columns = ("defense",)
    """Columns that distinguish lines. The first that varies gives colour and marker. Models have a row of
    panels each unless they are one of these columns."""
    where: Conditions = Field(default_factory=dict)
    """Conditions of the rows that are drawn as lines. Others are for the controls."""
    rows: dict[str, Conditions] = Field(default_factory=dict)
    """Label of a y axis to the rows that its row of panels shows, including controls. Models are lines
    then."""
    controls: Annotated[tuple[Control, ...], Strict(False)] = ()
    """Control lines. One without rows is left out."""
    x_label: str | None = None
    """Label of the x axis, with unit."""
    y_label: str | None = None
    """Label of the y axis, with unit. Default: that of the metric."""
    log_x: bool | None = None
    """Whether the x axis is logarithmic. Default: if its values span a factor of three."""
    even_x: bool = False
    """Whether the values along x are drawn at equal distances."""
    log_y: bool = False
    """Whether the y axis is logarithmic."""
    share_y: bool = False
    """Whether the panels of a row share their y axis."""
    chance: float | None = None
    """Height of a dotted control line at a constant."""
    chance_label: str = "chance"
    """Name of that line."""
    chance_rows: Columns = ()
    """Labels of those of several ``rows`` that have that line. Empty for all."""


class _Extent(NamedTuple):
    """Heights of a line: its values, its right end, and for each place the middle with its interval."""

    values: Sequence[float]
    end: float
    around: Sequence[tuple[float, Middle]] = ()
    color: str = style.CONTROL_COLOR


@plot(LevelsOptions)
def levels(rows: pd.DataFrame, options: LevelsOptions) -> Figure:
    """Draw lines over levels."""
    columns = tuple(dict.fromkeys((*options.series, "model"))) if options.rows else options.series
    require(rows, options.x, "value", *columns)
    names: dict[float, str] = {}
    if options.even_x:  # values along x move to 0, 1, ...
        values = sorted(float(value) for value in rows[options.x].dropna().unique())
        names = {float(place): f"{value:g}" for place, value in enumerate(values)}
        rows = rows.assign(**{options.x: rows[options.x].map(dict(zip(values, names, strict=True)))})
    lines = with_names(_rows_of_lines(rows, options), columns)
    made = panels(lines, series=columns, quantities=options.rows, share_y=options.share_y)
    series = series_of(lines, columns)
    if lines[options.x].nunique() == 1 < len(series):
        lines, names, options = _side_by_side(lines, series, names, options)
    extents: dict[Axes, list[_Extent]] = {}
    ends: dict[str, _Extent] = {}
    controls: dict[str, _Extent] = {}
    for panel in made.shown:
        inside = panel.of(lines)
        with_rows = [(member, part) for member in series if len(part := member.of(inside))]
        curves = {
            member.style.label: _line(panel.axes, part, member, options.x) for member, part in with_rows
        }
        references = _controls(panel, rows, lines, series, options)
        extents[panel.axes] = [*curves.values(), *references.values()]
        ends |= curves
        controls |= references
    for axes in extents:
        _fit(axes, extents, options)
    for panel in made.shown:
        placed = lines if made.axes.shape[0] == 1 and options.share_y else panel.of(lines)
        _ticks(made.figure, panel.axes, placed[options.x], names, options)
    x_label = options.x_label or style.axis_label(options.x, lines.get("defense", ()))
    made.label(x_label, options.y_label or style.axis_label(metric_of(lines)))
    _name_lines(made, lines, series, ends, controls, options)
    return made.figure


def _rows_of_lines(rows: pd.DataFrame, options: LevelsOptions) -> pd.DataFrame:
    """Choose the rows that are drawn as lines.

    Raises:
        EmptySelectionError: If there are none.
    """
    import pandas as pd

    lines = select(rows, options.where).dropna(subset=options.x)
    if options.rows:
        lines = pd.concat([select_or_nothing(lines, where) for where in options.rows.values()])
    if lines.empty:
        raise EmptySelectionError(f"no row has a value of {options.x} to draw along x")
    return lines


def _side_by_side(
    lines: pd.DataFrame, series: list[Series], names: dict[float, str], options: LevelsOptions
) -> tuple[pd.DataFrame, dict[float, str], LevelsOptions]:
    """Give each series a place of its own, with its name under it, if all have one and the same level."""
    import pandas as pd

    level = names.get(0.0) or f"{lines[options.x].iloc[0]:g}"
    label = f"{options.x_label or style.axis_label(options.x, lines.get('defense', ()))}: {level}"
    wrapped = [textwrap.fill(member.style.label, _NAME, break_long_words=False) for member in series]
    placed = [member.of(lines).assign(**{options.x: float(place)}) for place, member in enumerate(series)]
    place_names = {float(place): name for place, name in enumerate(wrapped)}
    return pd.concat(placed), place_names, options.model_copy(update={"x_label": label})


def _fit(axes: Axes, extents: dict[Axes, list[_Extent]], options: LevelsOptions) -> None:
    """Set the limits of y by all panels that share them, and mark intervals that extend beyond."""
    siblings = axes.get_shared_y_axes().get_siblings(axes)
    _limits(axes, [extent for other in siblings for extent in extents.get(other, [])], options)
    for extent in extents[axes]:
        for place, middle in extent.around:
            mark_leaving(axes, Middle(place, place, place, few=False), middle, extent.color)


def _ticks(figure: Figure, axes: Axes, x: pd.Series, names: dict[float, str], options: LevelsOptions) -> None:
    """Set the ticks of x: names of places if there are any, else the values."""
    places = sorted(float(value) for value in x.unique())
    if not names:
        level_axis(figure, axes, places, options.log_x)
        return
    level_axis(figure, axes, places, False, [names[place] for place in places])
    axes.set_xlim(min(names) - 0.3, max(names) + 0.3)


def _name_lines(
    made: Panels,
    lines: pd.DataFrame,
    series: list[Series],
    ends: dict[str, _Extent],
    controls: dict[str, _Extent],
    options: LevelsOptions,
) -> None:
    """Name lines and controls: at their ends in a single panel with few lines, else in the legend."""
    budgets = [
        epsilons(member.of(lines), options.x) if "defense" in member.values else "" for member in series
    ]
    entries = [
        handle(explained(member.style.label, (), budget), **member.style.line())
        for member, budget in zip(series, budgets, strict=True)
    ]
    # With one control line for each model, a name at its end would not say which model it belongs to.
    if made.single and not (options.controls and lines["model"].nunique() > 1):
        at_ends = len(ends) > 1 and len(ends) + len(controls) <= MOST_AT_ENDS and not any(budgets)
        legend(made.figure, entries if (len(entries) > 1 and not at_ends) or any(budgets) else [])
        labelled = {**ends, **controls} if at_ends else controls
        end_labels(
            made.figure, made.axes[0, 0], [(line.end, name, line.color) for name, line in labelled.items()]
        )
        return
    dashes = dict(zip((control.label for control in options.controls), cycle(DASHES), strict=False))
    entries += [
        handle(label, ls=(0, dashes.get(label, _CHANCE_DASHES)), color=style.CONTROL_COLOR, lw=1.0)
        for label in controls
    ]
    legend(made.figure, entries)


def _line(axes: Axes, rows: pd.DataFrame, series: Series, x: str) -> _Extent:
    """Draw one line with its band."""
    line = mean_line(axes, rows, x, series.style)
    around = [(place, Middle(*ends)) for place, *ends in line.itertuples(index=False)]
    return _Extent(rows["value"].tolist(), line["middle"].iloc[-1], around, series.style.color)


def _controls(
    panel: Panel, rows: pd.DataFrame, lines: pd.DataFrame, series: list[Series], options: LevelsOptions
) -> dict[str, _Extent]:
    """Draw the control lines that have rows: one for all models if they agree, else one in each model's colour."""
    axes = panel.axes
    rows = panel.of(rows)
    lines = panel.of(lines)
    places = sorted(float(value) for value in lines[options.x].unique())
    extents: dict[str, _Extent] = {}
    for control, dashes in zip(options.controls, cycle(DASHES), strict=False):
        part = select_or_nothing(rows, control.where)
        if part.empty:
            continue
        means = part.groupby("model")["value"].mean().to_numpy()
        drawings = [(style.CONTROL_COLOR, part)]
        if not _level(means) and any("model" in member.values for member in series):
            colors = {member.values["model"]: member.style.color for member in series}
            drawings = [
                (colors.get(str(model), style.CONTROL_COLOR), group) for model, group in part.groupby("model")
            ]
        spans = [_control(axes, group, places, color, dashes, options.x) for color, group in drawings]
        heights = [height for span in spans for height in span]
        extents[control.label] = _Extent(heights, heights[-1])
    if options.chance is not None and (not options.chance_rows or panel.quantity in options.chance_rows):
        axes.axhline(options.chance, color=style.CONTROL_COLOR, lw=1.0, ls=(0, _CHANCE_DASHES), zorder=2)
        extents[options.chance_label] = _Extent([options.chance], options.chance)
    return extents


def _control(
    axes: Axes, rows: pd.DataFrame, places: list[float], color: str, dashes: tuple[float, ...], x: str
) -> np.ndarray:
    """Draw one control line, place by place if it varies along x, else straight across. Return its heights."""
    means = rows.dropna(subset=x).groupby(x)["value"].mean()
    means = means[means.index.isin(places)]
    heights = means.to_numpy(float)
    if len(heights) < 2 or _level(heights):
        heights = np.array([rows["value"].mean()])
        line = axes.axhline(heights[0])
    else:
        (line,) = axes.plot(means.index, heights)
    line.set(color=color, linewidth=1.0, linestyle=(0, dashes), zorder=2)
    return heights


def _level(heights: np.ndarray) -> bool:
    """Return True for heights that are equal up to rounding."""
    return bool(np.ptp(heights) <= 1e-6 * np.abs(heights).max())


def _limits(axes: Axes, extents: list[_Extent], options: LevelsOptions) -> None:
    """Set limits of y that show all values, and bands as far as they do not dwarf the values."""
    values = [height for extent in extents for height in extent.values]
    bands = [
        end for extent in extents for _, middle in extent.around for end in (middle.low, middle.high)
    ] or values
    low = min(values)
    high = max(values)
    if options.log_y and low > 0:
        log(axes, "y")
        return
    reach = 0.5 * (high - low) or 0.05 * abs(high) or 0.05
    bottom = max(low - reach, min(low, *bands))
    top = min(high + reach, max(high, *bands))
    edge = 0.06 * (top - bottom) or reach
    axes.set_ylim(bottom - edge, top + edge)
