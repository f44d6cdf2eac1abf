"""Lines of federated averaging: one panel for each dataset with its own network, budgets as shades."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pydantic import Field

from leakbound.claims.selection import require, select
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings
from leakbound.figures import style
from leakbound.figures.plots.panels import handles, legend, level_axis, log_y, panels, with_setting
from leakbound.figures.plots.plot import Plot
from leakbound.figures.plots.series import mean_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_MOST_MARKERS = 10
_SHADES = (0.12, 0.82)


class BudgetsOptions(Settings):
    """Options of the plot ``budgets``."""

    x: str = "communication_round"
    """Column along x."""
    x_label: str = "communication round"
    """Label of the x axis, with unit."""
    y_label: str
    """Label of the y axis, with unit."""
    series: str
    """Column that tells lines apart: names, or numbers, which get shades; a missing number is the undisturbed line."""
    label: str = "{:g}"
    """Python format of a number in the legend."""
    where: Conditions = Field(default_factory=dict)
    """Rows drawn as lines."""
    log_x: bool = False
    """Logarithmic x axis."""
    log_y: bool = False
    """Logarithmic y axis."""


def _budgets(rows: pd.DataFrame, options: BudgetsOptions) -> Figure:
    """Draw the mean over replicas with its 95 % interval, a line for each value of a column."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    require(rows, options.x, options.series, "value")
    lines = with_setting(select(rows, options.where)).assign(model="")  # each dataset has one network
    if "replica" not in lines.columns:
        lines = lines.assign(replica=0)
    looks = _looks(lines[options.series], options.label)
    made = panels(lines, share_y=False)
    for panel in made.shown:
        own = panel.of(lines)
        for value, look in looks.items():
            chosen = own[own[options.series].isna() if value != value else own[options.series] == value]
            if not chosen.empty:
                every = max(1, chosen[options.x].nunique() // _MOST_MARKERS)
                mean_line(panel.axes, chosen, options.x, look, band=0.15, markevery=every)
        if options.log_y:
            log_y(panel.axes)
        places = sorted(float(place) for place in own[options.x].unique())
        level_axis(made.figure, panel.axes, places, options.log_x)
        if len(places) > _MOST_MARKERS and not options.log_x:
            panel.axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            panel.axes.xaxis.set_minor_locator(NullLocator())
    made.label(options.x_label, options.y_label)
    legend(made.figure, handles(looks.values()) if len(looks) > 1 else [])
    return made.figure


def _looks(values: pd.Series, label: str) -> dict[Any, style.Look]:
    """Appearance of each line, in the order of the legend: known names, or shades from small to large numbers."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex
    from pandas.api.types import is_numeric_dtype

    if not is_numeric_dtype(values):
        return {name: style.look(name) for name in style.ordered(values)}
    numbers = sorted(float(value) for value in values.dropna().unique())
    low, high = _SHADES
    shades = colormaps["viridis"]
    found: dict[Any, style.Look] = {}
    for index, number in enumerate(numbers):
        place = low + (high - low) * index / max(1, len(numbers) - 1)
        found[number] = style.Look(label.format(number), to_hex(shades(place)), _MARKERS[index % len(_MARKERS)])
    if values.isna().any():
        found[math.nan] = style.Look("no noise", style.look("none").color, style.look("none").marker, dashed=True)
    return found


budgets = Plot("budgets", BudgetsOptions, _budgets)
