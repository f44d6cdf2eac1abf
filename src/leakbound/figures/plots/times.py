"""Lines over time: many points, so few markers and whole decades, between horizontal control lines."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from leakbound import metrics
from leakbound.claims.selection import EmptySelectionError, select
from leakbound.figures import style
from leakbound.figures.plot_options import TimesOptions
from leakbound.figures.plots.panels import fitting_columns, handle, log_y, select_or_nothing
from leakbound.figures.plots.plot import Plot, require
from leakbound.figures.plots.series import series_of

_MARKERS = 8
_DASHES = ((5.0, 2.0), (1.5, 1.5), (5.0, 1.5, 1.0, 1.5))


def _times(rows: pd.DataFrame, options: TimesOptions) -> Figure:
    """Draw the mean over replicas with its 95 % interval over time."""
    require(rows, options.x, "value", *options.series)
    shown = select(rows, options.where)
    if options.until is not None:
        shown = shown[shown[options.x] <= options.until]
    if shown.empty:
        raise EmptySelectionError(f"no row has {options.x} up to {options.until}")
    figure = Figure(figsize=(options.width, 2.6), layout="constrained")
    axes = figure.subplots()
    known = series_of(shown, options.series)
    for index, series in enumerate(known):
        line = _summary(series.of(shown), options.x)
        look = series.look
        every = max(1, len(line) // _MARKERS)
        axes.fill_between(line.index, line["low"], line["high"], color=look.color, alpha=0.16, lw=0)
        start = index * every // len(known)  # lines that coincide show their markers side by side
        axes.plot(line.index, line["mean"], **look.line(), markevery=(start, every), zorder=3)
    for control, dashes in zip(options.controls, _DASHES, strict=False):
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
    labels = [series.look.label for series in known]
    columns = fitting_columns(labels, figure.get_size_inches()[0])
    figure.legend(handles=[handle(series.look) for series in known], loc="outside upper center", ncols=columns)
    return figure


def _summary(rows: pd.DataFrame, x: str) -> pd.DataFrame:
    """Mean with its 95 % t interval at each time; NaN ends for one replica."""
    found = {}
    for time, group in rows.groupby(x, sort=True):
        interval = metrics.mean_interval(group["value"].to_numpy(float))
        found[time] = (interval.value, interval.low, interval.high)
    return pd.DataFrame.from_dict(found, orient="index", columns=["mean", "low", "high"])


times = Plot("times", TimesOptions, _times)
