"""Figures that need no training: closed forms and spectra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from leakbound.claims.selection import EmptySelectionError, select
from leakbound.figures import style
from leakbound.figures.plot_options import NoOptions, ShapesOptions
from leakbound.figures.plots.panels import fitting_columns, handle, level_axis, log_y
from leakbound.figures.plots.plot import Plot, require

_FILL = "#c9ccd1"
_SPACES = {"parameters": ("white", "noise on the gradient"), "data": ("natural", "noise on the data")}


def _surface(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw capacity over eigenvalue and noise variance, both logarithmic, with contours."""
    require(rows, "eigenvalue", "noise_variance", "value")
    grid = rows.pivot(index="noise_variance", columns="eigenvalue", values="value")
    x, y, z = grid.columns.to_numpy(float), grid.index.to_numpy(float), grid.to_numpy(float)
    figure = Figure(figsize=(style.ONE_COLUMN, 2.7), layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="eigenvalue of the data λ", ylabel="noise variance σ")
    mesh = axes.pcolormesh(x, y, z, cmap="cividis", shading="gouraud", rasterized=True)
    drawn = np.array([0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0])
    lines = axes.contour(
        x, y, z, levels=drawn[(drawn > 5 * z.min()) & (drawn < 0.9 * z.max())], colors="white", linewidths=0.7
    )
    axes.clabel(lines, fmt=lambda value: f"{value:g}", fontsize=style.SMALL)
    axes.grid(False)
    bar = figure.colorbar(mesh, ax=axes, aspect=18)
    bar.set_label("capacity per dimension (nats)")
    bar.outline.set_visible(False)
    return figure


def _densities(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw the gradient's density with and without noise, weights by kinds of noise."""
    require(rows, "weight", "noise", "metric", "gradient", "value")
    weights = sorted(rows["weight"].unique())
    figure = Figure(figsize=(style.TWO_COLUMNS * 0.72, 3.4), layout="constrained")
    grid = figure.subplots(len(weights), len(_SPACES), sharex="row", sharey="row", squeeze=False)
    for i, weight in enumerate(weights):
        for j, (noise, (color, _)) in enumerate(_SPACES.items()):
            axes, here = grid[i, j], select(rows, {"weight": weight})
            clean, noisy = (select(here, {"metric": "density", "noise": kind}) for kind in ("none", noise))
            axes.fill_between(clean["gradient"], clean["value"], color=_FILL, lw=0)
            axes.plot(noisy["gradient"], noisy["value"], color=style.look(color).color)
            capacity = float(select(here, {"metric": "capacity", "noise": noise})["value"].iloc[0])
            note: dict[str, Any] = {"transform": axes.transAxes, "va": "top", "size": 7.0}
            axes.text(0.02, 0.96, f"W = {weight:g}", **note)
            axes.text(0.98, 0.96, f"C = {capacity:.3g} nats", ha="right", **note)
            axes.set_ylim(0, 1.3 * float(clean["value"].max()))
            axes.set_xlim(clean["gradient"].min(), clean["gradient"].max())
    figure.supxlabel("gradient 2WD", fontsize=style.FONT_SIZE)
    figure.supylabel("probability density", fontsize=style.FONT_SIZE)
    handles: list[Any] = [Patch(color=_FILL, label="clean gradient")]
    handles += [Line2D([], [], color=style.look(color).color, label=label) for color, label in _SPACES.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def _compression(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw capacity left, noise of the same capacity, and each eigenvalue's own loss."""
    require(rows, "level", "order", "dropped", "metric", "value")
    panels = (
        ("largest_first", "capacity", "capacity left (nats)", "largest eigenvalues dropped"),
        ("largest_first", "noise_variance", "σ of equal capacity", "largest eigenvalues dropped"),
        ("alone", "loss", "capacity lost (nats)", "index of the only one dropped"),
    )
    figure = Figure(figsize=(style.TWO_COLUMNS, 2.2), layout="constrained")
    levels = sorted(rows["level"].unique())
    shades = np.linspace(1.0, 0.4, len(levels))
    for axes, (order, metric, y_label, x_label) in zip(figure.subplots(1, 3), panels, strict=True):
        shown = select(rows, {"order": order, "metric": metric})
        for level, shade in zip(levels, shades, strict=True):
            line = select(shown, {"level": level}).sort_values("dropped")
            axes.plot(line["dropped"], line["value"], color=style.look("natural").color, alpha=shade, marker=".", ms=3)
        axes.set(xlabel=x_label, ylabel=y_label)
        if metric != "capacity":
            log_y(axes)
        if order == "alone":
            axes.set_xscale("log")
    if len(levels) > 1:
        color = style.look("natural").color
        handles = [
            Line2D([], [], color=color, alpha=shade, label=f"κ = {level:g} nats before")
            for level, shade in zip(levels, shades, strict=True)
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(levels))
    return figure


def _shapes(rows: pd.DataFrame, options: ShapesOptions) -> Figure:
    """Draw one panel per metric, one line per channel shape, over the capacity."""
    require(rows, "defense", "level", "metric", "value")
    names = style.ordered({str(name) for name in rows["defense"].unique()})
    count = len(options.labels)
    figure = Figure(figsize=(min(style.TWO_COLUMNS, 0.4 + 2.2 * count), 2.5), layout="constrained")
    for axes, (metric, label) in zip(figure.subplots(1, count, squeeze=False)[0], options.labels.items(), strict=True):
        shown = select(rows, {"metric": metric})
        for name in names:
            line = shown[shown["defense"] == name].sort_values("level")
            axes.plot(line["level"], line["value"], **style.look(name).line())
        _logarithmic(axes, shown)
        level_axis(figure, axes, sorted(float(level) for level in shown["level"].unique()), None)
        axes.set(xlabel=style.axis_label("level"), ylabel=label)
    labels = [style.look(name).label for name in names]
    columns = fitting_columns(labels, figure.get_size_inches()[0])
    figure.legend(handles=[handle(style.look(name)) for name in names], loc="outside upper center", ncols=columns)
    return figure


def _logarithmic(axes: Axes, shown: pd.DataFrame) -> None:
    """Logarithmic y axis where values span more than a factor of thirty."""
    low, high = float(shown["value"].min()), float(shown["value"].max())
    if not np.isfinite(low):
        raise EmptySelectionError("no value is finite")
    if low > 0 and high / low > 30:
        log_y(axes)


surface = Plot("surface", NoOptions, _surface)
densities = Plot("densities", NoOptions, _densities)
compression = Plot("compression", NoOptions, _compression)
shapes = Plot("shapes", ShapesOptions, _shapes)
