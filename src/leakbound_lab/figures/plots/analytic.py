"""Plots of closed forms and spectra, which need no training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leakbound.words import in_nats
from leakbound_lab.claims.selection import require, select, select_or_nothing
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import handle, handles, legend, level_axis, log
from leakbound_lab.figures.plots.plotting import NoOptions, canvas, colorbar, plot
from leakbound_lab.figures.plots.series import mean_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_FILL = "#c9ccd1"
_MOST_IN_A_ROW = 3
_POINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "optimum": ("optimum, closed form", {"marker": "o", "ms": 7.0, "mec": "white"}),
    "search": ("end of a search", {"marker": "x", "ms": 4.5, "mec": "#AA3377"}),
}
_OPEN: dict[str, Any] = {"ls": "none", "mfc": "none", "mew": 1.4}
_EDGES: dict[str, tuple[Any, str, str]] = {
    "privacy": ("-", "white", "budget"),
    "privacy_printed": ((0, (3, 2)), "black", "budget, by the printed Eq. (24)"),
}
_SPACES = {"parameters": ("white", "noise on the gradient"), "data": ("natural", "noise on the data")}


class ShapesOptions(Settings):
    """Options of the plot ``shapes``."""

    labels: dict[str, str]
    """Metric to the label of its panel's y axis, in the order of the panels."""


@plot(NoOptions)
def surface(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw capacity over eigenvalue and noise variance, both logarithmic, with contours."""
    require(rows, "eigenvalue", "noise_variance", "value")
    grid = rows.pivot(index="noise_variance", columns="eigenvalue", values="value")
    x, y, z = (values.to_numpy(float) for values in (grid.columns, grid.index, grid))
    figure = canvas(style.ONE_COLUMN, 2.7)
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="eigenvalue of the data λ", ylabel="noise variance σ")
    mesh = axes.pcolormesh(x, y, z, cmap="cividis", shading="gouraud", rasterized=True)
    contour_levels = np.array([0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0])
    lines = axes.contour(
        x,
        y,
        z,
        levels=contour_levels[(contour_levels > 5 * z.min()) & (contour_levels < 0.9 * z.max())],
        colors="white",
        linewidths=0.7,
    )
    axes.clabel(lines, fmt=lambda value: f"{value:g}", fontsize=style.SMALL)
    axes.grid(False)
    colorbar(figure, mesh, "capacity per dimension (nats)", ax=axes, aspect=18)
    return figure


@plot(NoOptions)
def densities(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw the gradient's density with and without noise, weights by kinds of noise."""
    from matplotlib.patches import Patch

    require(rows, "weight", "noise", "metric", "gradient", "value")
    weights = sorted(rows["weight"].unique())
    figure = canvas(style.ONE_COLUMN, 3.2)
    grid = figure.subplots(len(weights), len(_SPACES), sharex="row", sharey="row", squeeze=False)
    for panels, weight in zip(grid, weights, strict=True):
        part = select(rows, {"weight": weight})
        for axes, (noise, (color, _)) in zip(panels, _SPACES.items(), strict=True):
            clean, noisy = (select(part, {"metric": "density", "noise": kind}) for kind in ("none", noise))
            axes.fill_between(clean["gradient"], clean["value"], color=_FILL, lw=0)
            axes.plot(noisy["gradient"], noisy["value"], color=style.style_of(color).color)
            capacity = float(select(part, {"metric": "capacity", "noise": noise})["value"].iloc[0])
            note: dict[str, Any] = {"transform": axes.transAxes, "va": "top", "size": 7.0}
            axes.text(0.02, 0.96, f"W = {weight:g}", **note)
            axes.text(0.98, 0.96, f"C = {in_nats(f'{capacity:.3g}')}", ha="right", **note)
            axes.set_ylim(0, 1.3 * float(clean["value"].max()))
            axes.set_xlim(clean["gradient"].min(), clean["gradient"].max())
    figure.supxlabel("gradient 2WD", fontsize=style.FONT_SIZE)
    figure.supylabel("probability density", fontsize=style.FONT_SIZE)
    lines = [handle(label, color=style.style_of(color).color) for color, label in _SPACES.values()]
    legend(figure, [Patch(color=_FILL, label="clean gradient"), *lines])
    return figure


@plot(NoOptions)
def compression(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw capacity left, noise of the same capacity, and each eigenvalue's own loss."""
    require(rows, "level", "order", "dropped", "metric", "value")
    panels = (
        ("largest_first", "capacity", "capacity left (nats)", "largest eigenvalues dropped"),
        ("largest_first", "noise_variance", "σ of equal capacity", "largest eigenvalues dropped"),
        ("alone", "loss", "capacity lost (nats)", "index of the only one dropped"),
    )
    figure = canvas(style.TWO_COLUMNS, 2.2)
    levels = sorted(rows["level"].unique())
    color = style.style_of("natural").color
    shades = np.linspace(1.0, 0.4, len(levels))
    for axes, (order, metric, y_label, x_label) in zip(figure.subplots(1, 3), panels, strict=True):
        part = select(rows, {"order": order, "metric": metric})
        for level, shade in zip(levels, shades, strict=True):
            line = select(part, {"level": level}).sort_values("dropped")
            axes.plot(line["dropped"], line["value"], color=color, alpha=shade, marker=".", ms=3)
        axes.set(xlabel=x_label, ylabel=y_label)
        if metric != "capacity":
            log(axes, "y")
        if order == "alone":
            axes.set_xscale("log")
    entries = [
        handle(f"κ = {in_nats(f'{level:g}')} before", color=color, alpha=shade)
        for level, shade in zip(levels, shades, strict=True)
    ]
    legend(figure, entries if len(levels) > 1 else [])
    return figure


@plot(ShapesOptions)
def shapes(rows: pd.DataFrame, options: ShapesOptions) -> Figure:
    """Draw one panel per metric, one line per channel shape, over the capacity."""
    require(rows, "defense", "level", "metric", "value")
    names = style.ordered(rows["defense"])
    count = len(options.labels)
    figure = canvas(min(style.TWO_COLUMNS, 0.4 + 2.2 * count), 2.5)
    for axes, (metric, label) in zip(
        figure.subplots(1, count, squeeze=False)[0], options.labels.items(), strict=True
    ):
        part = select(rows, {"metric": metric})
        for name in names:
            mean_line(axes, part[part["defense"] == name], "level", style.style_of(name), band=None, zorder=2)
        low = float(part["value"].min())
        high = float(part["value"].max())
        if low > 0 and high / low > 30:
            log(axes, "y")
        level_axis(figure, axes, sorted(float(level) for level in part["level"].unique()), None)
        axes.set(xlabel=style.axis_label("level"), ylabel=label)
    legend(figure, handles(style.style_of(name) for name in names))
    return figure


@plot(NoOptions)
def noise_surface(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw utility over the noise's variance and covariance, a panel for each budget."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    require(rows, "mi_budget", "variant", "noise_variance", "tilt", "metric", "value")
    budgets = sorted(float(budget) for budget in rows["mi_budget"].unique())
    across = min(_MOST_IN_A_ROW, len(budgets))
    down = -(-len(budgets) // across)
    figure = canvas(min(style.TWO_COLUMNS, 0.8 + 2.1 * across), 0.6 + 1.75 * down)
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    part = select(rows, {"variant": "grid", "metric": "utility"})
    shares = part["value"] - part["mi_budget"]
    norm = Normalize(float(shares.min()), float(shares.max()))
    for axes, budget in zip(grid.flat, budgets, strict=False):
        _noise_panel(axes, select(rows, {"mi_budget": budget}), budget, norm)
    for axes in grid.flat[len(budgets) :]:
        axes.set_visible(False)
    figure.supxlabel(r"noise variance $\sigma^2$", fontsize=style.FONT_SIZE)
    figure.supylabel(r"noise covariance $(n-1)\,\sigma_e^2/\sigma^2$", fontsize=style.FONT_SIZE)
    colorbar(
        figure, ScalarMappable(norm, cmap="cividis"), "U − ε (bits per client)", ax=grid, aspect=30, pad=0.02
    )
    grey = style.CONTROL_COLOR  # for marks that are white on the surface
    handles = [
        handle(label, color=color, lw=1.0, ls=dashes, path_effects=_outlined(color))
        for dashes, color, label in _EDGES.values()
    ]
    handles += [
        handle(label, **_OPEN, **{**mark, "mec": grey if mark["mec"] == "white" else mark["mec"]})
        for label, mark in _POINTS.values()
    ]
    legend(figure, handles)
    return figure


def _noise_panel(axes: Axes, rows: pd.DataFrame, budget: float, norm: Normalize) -> None:
    """Draw one budget's grid, the edge of the region that keeps the budget, and the optima."""
    fields = {}
    for metric in ("utility", *_EDGES):
        part = select_or_nothing(rows, {"variant": "grid", "metric": metric})
        fields[metric] = part.pivot_table(
            index="tilt", columns="noise_variance", values="value", dropna=False
        )
    utility = fields["utility"]
    x, y = (values.to_numpy(float) for values in (utility.columns, utility.index))
    heights = utility.to_numpy(float) - budget
    axes.pcolormesh(x, y, heights, norm=norm, cmap="cividis", shading="gouraud", rasterized=True)
    for metric, (dashes, color, _) in _EDGES.items():
        field = fields[metric].reindex(index=utility.index, columns=utility.columns).to_numpy(float)
        if np.nanmin(field, initial=np.inf) < budget < np.nanmax(field, initial=-np.inf):
            axes.contour(x, y, field, levels=[budget], colors=color, linewidths=1.0, linestyles=[dashes]).set(
                path_effects=_outlined(color)
            )
    for variant, (_, mark) in _POINTS.items():
        point = select_or_nothing(rows, {"variant": variant, "metric": "utility"})
        axes.plot(point["noise_variance"], point["tilt"], **mark, **_OPEN, clip_on=False, zorder=4)
    axes.set(xscale="log", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.grid(False)
    axes.minorticks_off()
    ticks = [x[0] * 1.5, float(np.sqrt(x[0] * x[-1])), x[-1] / 1.5]
    axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
    axes.set_title(f"ε = {budget:g} bits", pad=3)


def _outlined(color: str) -> list[Any]:
    """Make the path effects of a line that is visible on every shade, by an edge of the opposite color."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.2, foreground="white" if color == "black" else "black")]
