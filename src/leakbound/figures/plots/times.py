"""Lines over time: many points, so few markers and whole decades, between horizontal control lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, Strict

from leakbound.claims.selection import Columns, EmptySelectionError, require, select, select_or_nothing
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings
from leakbound.figures import style
from leakbound.figures.plots.panels import handles, legend, log_y
from leakbound.figures.plots.plot import Plot, canvas
from leakbound.figures.plots.series import DASHES, Control, mean_line, series_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_MARKERS = 8


class TimesOptions(Settings):
    """Options of the plot ``times``."""

    x: str = "time"
    """Column along x."""
    x_label: str = "time (steps)"
    """Label of the x axis, with unit."""
    y_label: str
    """Label of the y axis, with unit."""
    series: Columns
    """Columns that tell lines apart; the first that varies gives the colour."""
    where: Conditions = Field(default_factory=dict)
    """Rows drawn as lines; the others are for the controls."""
    controls: Annotated[tuple[Control, ...], Strict(False), Field(max_length=3)] = ()
    """Horizontal lines at the mean of their rows; one without rows is left out."""
    until: float | None = None
    """Last time drawn; all of them by default."""
    log_y: bool = True
    """Logarithmic y axis."""
    width: float = Field(default=5.0, gt=1.0, le=7.0)
    """Width of the figure in inches."""


def _times(rows: pd.DataFrame, options: TimesOptions) -> Figure:
    """Draw the mean over replicas with its 95 % interval over time."""
    require(rows, options.x, "value", *options.series)
    shown = select(rows, options.where)
    if options.until is not None:
        shown = shown[shown[options.x] <= options.until]
    if shown.empty:
        raise EmptySelectionError(f"no row has {options.x} up to {options.until}")
    figure = canvas(options.width, 2.6)
    axes = figure.subplots()
    known = series_of(shown, options.series)
    for index, series in enumerate(known):
        own = series.of(shown)
        every = max(1, own[options.x].nunique() // _MARKERS)
        start = index * every // len(known)  # lines that coincide show their markers side by side
        mean_line(axes, own, options.x, series.look, markevery=(start, every))
    for control, dashes in zip(options.controls, DASHES, strict=False):
        own = select_or_nothing(rows, control.where)
        if own.empty:
            continue
        height = float(own["value"].mean())
        axes.axhline(height, color=style.CONTROL_COLOR, lw=1.0, ls=(0, dashes), zorder=2)
        note: dict[str, Any] = {"color": style.CONTROL_COLOR, "size": style.SMALL, "va": "center"}
        axes.text(1.02, height, control.label, transform=axes.get_yaxis_transform(), **note)
    if options.log_y:
        log_y(axes)
    axes.set(xlabel=options.x_label, ylabel=options.y_label)
    axes.margins(x=0.01)
    legend(figure, handles(series.look for series in known))
    return figure


times = Plot("times", TimesOptions, _times)
