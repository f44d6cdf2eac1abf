"""Lines of federated averaging: one panel for each dataset with its own network, budgets as shades."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from leakbound.claims.selection import select
from leakbound.figures import style
from leakbound.figures.plot_options import BudgetsOptions
from leakbound.figures.plots.lines import summarize
from leakbound.figures.plots.panels import handle, level_axis, log_y, panels, with_setting
from leakbound.figures.plots.plot import Plot, require

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_MOST_MARKERS = 10
_SHADES = (0.12, 0.82)


def _budgets(rows: pd.DataFrame, options: BudgetsOptions) -> Figure:
    """Draw the mean over replicas with its 95 % interval, a line for each value of a column."""
    require(rows, options.x, options.series, "value")
    lines = with_setting(select(rows, options.where)).assign(model="")  # each dataset has one network
    looks = _looks(lines[options.series], options.label)
    made = panels(lines, share_y=False)
    for panel in made.shown:
        own = panel.of(lines)
        for value, look in looks.items():
            chosen = own[own[options.series].isna() if pd.isna(value) else own[options.series] == value]
            if not chosen.empty:
                _line(panel.axes, chosen, look, options)
        if options.log_y:
            log_y(panel.axes)
        places = sorted(float(place) for place in own[options.x].unique())
        level_axis(made.figure, panel.axes, places, options.log_x)
        if len(places) > _MOST_MARKERS and not options.log_x:
            panel.axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5, integer=True))
            panel.axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    made.label(options.x_label, options.y_label)
    made.legend([handle(look) for look in looks.values()] if len(looks) > 1 else [])
    return made.figure


def _line(axes: Axes, rows: pd.DataFrame, look: style.Look, options: BudgetsOptions) -> None:
    """Draw one line with its band."""
    replicated = rows if "replica" in rows.columns else rows.assign(replica=0)
    line = summarize(replicated, options.x)
    metric = str(rows["metric"].iloc[0]) if "metric" in rows.columns else ""
    bottom, top = style.BOUNDS.get(metric, (-math.inf, math.inf))
    x = line[options.x].astype(float)
    axes.fill_between(
        x, line["low"].clip(bottom, top), line["high"].clip(bottom, top), color=look.color, alpha=0.15, lw=0
    )
    axes.plot(x, line["mean"], **look.line(), markevery=max(1, len(line) // _MOST_MARKERS), zorder=3)


def _looks(values: pd.Series, label: str) -> dict[Any, style.Look]:
    """Appearance of each line, in the order of the legend: known names, or shades from small to large numbers."""
    if not pd.api.types.is_numeric_dtype(values):
        return {name: style.look(name) for name in style.ordered({str(value) for value in values.unique()})}
    numbers = sorted(float(value) for value in values.dropna().unique())
    low, high = _SHADES
    shades = mpl.colormaps["viridis"]
    found: dict[Any, style.Look] = {}
    for index, number in enumerate(numbers):
        place = low + (high - low) * index / max(1, len(numbers) - 1)
        found[number] = style.Look(label.format(number), to_hex(shades(place)), _MARKERS[index % len(_MARKERS)])
    if values.isna().any():
        found[math.nan] = style.Look("no noise", style.look("none").color, style.look("none").marker, dashed=True)
    return found


budgets = Plot("budgets", BudgetsOptions, _budgets)
