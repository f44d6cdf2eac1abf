"""Utility over the noise's variance and covariance, with the noises that keep a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from leakbound.claims.selection import require, select, select_or_nothing
from leakbound.figures import style
from leakbound.figures.plots.panels import handle
from leakbound.figures.plots.plot import NoOptions, Plot, canvas, colorbar

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_MOST_IN_A_ROW = 3
_POINTS = {"optimum": ("o", 7.0, "optimum, closed form"), "search": ("x", 4.5, "end of a search")}
_EDGES = {"privacy": ("-", "budget"), "privacy_printed": ((0, (3, 2)), "budget, by the printed Eq. (24)")}


def _noise_surface(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw utility over the noise's variance and covariance, a panel for each budget."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    require(rows, "mi_budget", "variant", "noise_variance", "tilt", "metric", "value")
    budgets = sorted(float(budget) for budget in rows["mi_budget"].unique())
    across = min(_MOST_IN_A_ROW, len(budgets))
    down = -(-len(budgets) // across)
    figure = canvas(min(style.TWO_COLUMNS, 0.8 + 2.1 * across), 0.6 + 1.75 * down)
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    shown = select(rows, {"variant": "grid", "metric": "utility"})
    shares = shown["value"] - shown["mi_budget"]
    norm = Normalize(float(shares.min()), float(shares.max()))
    for axes, budget in zip(grid.flat, budgets, strict=False):
        _panel(axes, select(rows, {"mi_budget": budget}), budget, norm)
    for axes in grid.flat[len(budgets) :]:
        axes.set_visible(False)
    figure.supxlabel(r"noise variance $\sigma^2$", fontsize=style.FONT_SIZE)
    figure.supylabel(r"noise covariance $(n-1)\,\sigma_e^2/\sigma^2$", fontsize=style.FONT_SIZE)
    mapped = ScalarMappable(norm, cmap="cividis")
    colorbar(figure, mapped, "U − ε (bits per client)", ax=grid, aspect=30, pad=0.02)
    figure.legend(handles=_handles(), loc="outside upper center", ncols=2)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, budget: float, norm: Normalize) -> None:
    """Draw one budget's grid, the edge of the noises that keep it, and the optima."""
    fields = {}
    for metric in ("utility", *_EDGES):
        shown = select_or_nothing(rows, {"variant": "grid", "metric": metric})
        fields[metric] = shown.pivot_table(index="tilt", columns="noise_variance", values="value", dropna=False)
    utility = fields["utility"]
    x, y = utility.columns.to_numpy(float), utility.index.to_numpy(float)
    heights = utility.to_numpy(float) - budget
    axes.pcolormesh(x, y, heights, norm=norm, cmap="cividis", shading="gouraud", rasterized=True)
    for metric, (dashes, _) in _EDGES.items():
        field = fields[metric].reindex(index=utility.index, columns=utility.columns).to_numpy(float)
        if np.nanmin(field, initial=np.inf) < budget < np.nanmax(field, initial=-np.inf):
            axes.contour(x, y, field, levels=[budget], colors="white", linewidths=1.0, linestyles=[dashes])
    for variant, (marker, size, _) in _POINTS.items():
        point = select_or_nothing(rows, {"variant": variant, "metric": "utility"})
        axes.plot(point["noise_variance"], point["tilt"], **_mark(marker, size), clip_on=False, zorder=4)
    axes.set(xscale="log", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.grid(False)
    axes.minorticks_off()
    ticks = [x[0] * 1.5, float(np.sqrt(x[0] * x[-1])), x[-1] / 1.5]
    axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
    note: dict[str, Any] = {"transform": axes.transAxes, "color": "white", "va": "top", "ha": "right"}
    axes.text(0.97, 0.96, f"ε = {budget:g} bits", **note)


def _mark(marker: str, size: float) -> dict[str, Any]:
    """Appearance of an optimum, on dark and on light ground."""
    look: dict[str, Any] = {"marker": marker, "ms": size, "ls": "none", "mfc": "none"}
    return {**look, "mec": "#AA3377" if marker == "x" else "white", "mew": 1.4}


def _handles() -> list[Line2D]:
    """Legend, grey for everything white on the surface."""
    grey = style.CONTROL_COLOR
    edges = [handle(label, color=grey, lw=1.0, ls=dashes) for dashes, label in _EDGES.values()]
    changes = {"o": {"mec": grey}, "x": {}}
    points = [handle(label, **{**_mark(marker, size), **changes[marker]}) for marker, size, label in _POINTS.values()]
    return [*edges, *points]


noise_surface = Plot("noise_surface", NoOptions, _noise_surface)
