"""Lines over time, with so many points that only some have markers.

``times`` has one panel with horizontal control lines. ``budgets`` has a panel for each dataset with its
network, and a shade for each value of a number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, Strict

from leakbound_lab.claims.selection import Columns, EmptySelectionError, require, select, select_or_nothing
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import (
    MOST_AT_ENDS,
    end_labels,
    handles,
    legend,
    level_axis,
    log,
    panels,
)
from leakbound_lab.figures.plots.plotting import canvas, plot
from leakbound_lab.figures.plots.series import DASHES, Control, mean_line, series_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SHADE_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_SHADES = (0.12, 0.82)
_MARKERS = 8
_MARKERS_IN_PANELS = 10


class _LinesOptions(Settings):
    """Options that both plots have."""

    y_label: str
    """Label of the y axis, with unit."""
    where: Conditions = Field(default_factory=dict)
    """Conditions of the rows that are drawn as lines. Others are for the controls, if the plot has any."""


class TimesOptions(_LinesOptions):
    """Options of the plot ``times``."""

    x_label: str = "time (steps)"
    """Label of the x axis, with unit."""
    series: Columns
    """Columns that distinguish lines. The first that varies gives the colour."""
    controls: Annotated[tuple[Control, ...], Strict(False), Field(max_length=3)] = ()
    """Horizontal lines at the mean of their rows. One without rows is left out."""
    until: float | None = None
    """Last time to draw. Default: all."""
    width: float = Field(default=5.0, gt=1.0, le=7.0)
    """Width of the figure in inches."""


@plot(TimesOptions)
def times(rows: pd.DataFrame, options: TimesOptions) -> Figure:
    """Draw the mean over replicas with its 95 % interval over time."""
    require(rows, "time", "value", *options.series)
    part = select(rows, options.where)
    if options.until is not None:
        part = part[part["time"] <= options.until]
    if part.empty:
        raise EmptySelectionError(f"no row has a time up to {options.until}")
    figure = canvas(options.width, 2.6)
    axes = figure.subplots()
    lines = series_of(part, options.series)
    ends: list[tuple[float, str, str]] = []
    for index, series in enumerate(lines):
        of_line = series.of(part)
        every = max(1, of_line["time"].nunique() // _MARKERS)
        start = index * every // len(lines)  # lines that coincide show their markers side by side
        line = mean_line(axes, of_line, "time", series.style, markevery=(start, every))
        ends.append((float(line["middle"].iloc[-1]), series.style.label, series.style.color))
    controls: list[tuple[float, str, str]] = []
    for control, dashes in zip(options.controls, DASHES, strict=False):
        of_line = select_or_nothing(rows, control.where)
        if of_line.empty:
            continue
        height = float(of_line["value"].mean())
        axes.axhline(height, color=style.CONTROL_COLOR, lw=1.0, ls=(0, dashes), zorder=2)
        controls.append((height, control.label, style.CONTROL_COLOR))
    log(axes, "y")
    axes.set(xlabel=options.x_label, ylabel=options.y_label)
    axes.margins(x=0.01)
    at_ends = len(ends) + len(controls) <= MOST_AT_ENDS
    legend(figure, [] if at_ends else handles(series.style for series in lines))
    end_labels(figure, axes, [*ends, *controls] if at_ends else controls)
    return figure


class BudgetsOptions(_LinesOptions):
    """Options of the plot ``budgets``."""

    x: str = "communication_round"
    """Column along x."""
    x_label: str = "communication round"
    """Label of the x axis, with unit."""
    series: str
    """Column that distinguishes lines: names, or numbers as shades. A missing number is the line without
    noise."""
    label: str = "{:g}"
    """Python format of a number in the legend."""
    log_x: bool = False
    """Whether the x axis is logarithmic."""
    log_y: bool = False
    """Whether the y axis is logarithmic."""


@plot(BudgetsOptions)
def budgets(rows: pd.DataFrame, options: BudgetsOptions) -> Figure:
    """Draw the mean over replicas with its 95 % interval, a line for each value of a column."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    require(rows, options.x, options.series, "value")
    lines = select(rows, options.where).assign(model="")  # each dataset has one network
    if "replica" not in lines.columns:
        lines = lines.assign(replica=0)
    styles = _styles(lines[options.series], options.label)
    made = panels(lines, share_y=False)
    for panel in made.shown:
        inside = panel.of(lines)
        for value, appearance in styles.items():
            of_line = inside[
                inside[options.series].isna() if value != value else inside[options.series] == value
            ]
            if not of_line.empty:
                every = max(1, of_line[options.x].nunique() // _MARKERS_IN_PANELS)
                mean_line(panel.axes, of_line, options.x, appearance, band=0.15, markevery=every)
        if options.log_y:
            log(panel.axes, "y")
        places = sorted(float(place) for place in inside[options.x].unique())
        level_axis(made.figure, panel.axes, places, options.log_x)
        if len(places) > _MARKERS_IN_PANELS and not options.log_x:
            panel.axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            panel.axes.xaxis.set_minor_locator(NullLocator())
    made.label(options.x_label, options.y_label)
    legend(made.figure, handles(styles.values()) if len(styles) > 1 else [])
    return made.figure


def _styles(values: pd.Series, label: str) -> dict[Any, style.SeriesStyle]:
    """Return the style of each line, in the order of the legend: by name, or shades from small to large numbers."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex
    from pandas.api.types import is_numeric_dtype

    if not is_numeric_dtype(values):
        return {name: style.style_of(name) for name in style.ordered(values)}
    numbers = sorted(float(value) for value in values.dropna().unique())
    low, high = _SHADES
    styles: dict[Any, style.SeriesStyle] = {}
    for index, number in enumerate(numbers):
        place = low + (high - low) * index / max(1, len(numbers) - 1)
        marker = _SHADE_MARKERS[index % len(_SHADE_MARKERS)]
        styles[number] = style.SeriesStyle(label.format(number), to_hex(colormaps["viridis"](place)), marker)
    if values.isna().any():
        styles[math.nan] = style.SeriesStyle(
            "no noise", style.style_of("none").color, style.style_of("none").marker, dashed=True
        )
    return styles
