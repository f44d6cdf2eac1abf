"""Heatmaps that print their numbers, with the controls beside them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from leakbound.claims.selection import EmptySelectionError, require, select, select_or_nothing
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings
from leakbound.figures import style
from leakbound.figures.plots.panels import bare
from leakbound.figures.plots.plotting import canvas, colorbar, plot

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_CELL = 0.54
_LINE = 0.36
_TALL = 0.44  # with numbers above and below
_MAP = "cividis"  # readable in grey and with colour blindness
_UNDER, _OVER = "#dcb4cf", "#ffffff"
"""Colours of controls below and above all cells: the bar ends where the cells do, so that these can be told apart."""


class HeatmapOptions(Settings):
    """Options of the plot ``heatmap``."""

    where: Conditions = Field(default_factory=dict)
    """Rows of the cells."""
    constants: dict[str, Conditions] = Field(default_factory=dict)
    """Label to the rows of a control that has no level: a column of its own at the right, e.g. the prior."""
    floor: Conditions | None = None
    """Rows of a control with the cells' levels, printed small in each cell, e.g. the oracle."""
    beside: Conditions | None = None
    """Rows with the cells' levels, printed small above each number, e.g. another attacker."""
    label: str | None = None
    """Label of the colours, with unit; by default the metric's."""
    log: bool = False
    """Logarithmic colours."""
    digits: int = Field(default=4, ge=0, le=6)
    """Decimals printed."""


@plot(HeatmapOptions)
def heatmap(rows: pd.DataFrame, options: HeatmapOptions) -> Figure:
    """Draw heatmaps of defenses by levels, one under the other for each dataset and model."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    require(rows, "defense", "level", "value")
    levelled = select(rows, options.where).dropna(subset="level")
    if levelled.empty:
        raise EmptySelectionError("no row has a level")
    levels = sorted(float(level) for level in levelled["level"].unique())
    names = style.ordered(levelled["defense"])
    constants = {
        label: found for label, where in options.constants.items() if len(found := select_or_nothing(rows, where))
    }
    settings = _settings(levelled)
    wide = min(style.TWO_COLUMNS, 1.9 + _CELL * (len(levels) + len(constants)))
    titled = 0.2 if len(settings) > 1 else 0.0
    figure = canvas(
        wide, 0.55 + len(settings) * (titled + 0.12 + (_LINE if options.beside is None else _TALL) * len(names))
    )
    grid = figure.subplots(len(settings), 1, sharex=True, squeeze=False)[:, 0]
    means = levelled.groupby(["dataset", "model", "defense", "level", "variant"], dropna=False)["value"].mean()
    bounds = float(means.min()), float(means.max())
    norm = LogNorm(*bounds) if options.log and bounds[0] > 0 else Normalize(*bounds)
    colors = colormaps[_MAP].with_extremes(under=_UNDER, over=_OVER)
    beyond = {"min": False, "max": False}
    positions = [*map(float, range(len(levels))), *(len(levels) + 0.25 + j for j in range(len(constants)))]
    for axes, (title, where) in zip(grid, settings.items(), strict=True):
        cells = _grid(select(levelled, where), names, levels)
        above, below = (
            _grid(rows.iloc[:0] if small is None else select_or_nothing(rows, {**where, **small}), names, levels)
            for small in (options.beside, options.floor)
        )
        sides = [select_or_nothing(found, where)["value"].mean() for found in constants.values()]
        beyond["min"] |= any(value < bounds[0] for value in sides)
        beyond["max"] |= any(value > bounds[1] for value in sides)
        for x, column in zip(positions, [*cells.T, *(np.array([value]) for value in sides)], strict=True):
            edges = np.linspace(-0.5, len(names) - 0.5, len(column) + 1)
            cells_of = axes.pcolormesh([x - 0.5, x + 0.5], edges, column[:, None], norm=norm, cmap=colors)
            cells_of.set(edgecolor=style.CONTROL_COLOR if len(column) == 1 else "none", linewidth=0.4)
        for i, j in product(range(len(names)), range(len(levels))):
            small = above[i, j], below[i, j]
            _number(axes, float(j), float(i), cells[i, j], small, norm, options.digits)
        for x, value in zip(positions[len(levels) :], sides, strict=True):
            _number(axes, x, (len(names) - 1) / 2, value, (np.nan, np.nan), norm, options.digits)
        axes.set_xticks(positions, [*(f"{level:g}" for level in levels), *constants])
        axes.set_yticks(range(len(names)), [style.look(name).label for name in names])
        axes.set(xlim=(-0.5, positions[-1] + 0.5), ylim=(len(names) - 0.5, -0.5))
        bare(axes)
        if titled:
            axes.set_title(title, pad=2.5)
    grid[-1].set_xlabel(style.axis_label("level"))
    label = options.label or style.axis_label(str(levelled["metric"].iloc[0]))
    extend = "both" if all(beyond.values()) else next((end for end in beyond if beyond[end]), "neither")
    shape: dict[str, Any] = {"aspect": 10 + 4 * len(settings), "pad": 0.02, "extend": extend}
    bar = colorbar(figure, ScalarMappable(norm, colors), label, ax=list(grid), **shape)
    bar.outline.set(visible=extend != "neither", linewidth=0.4)
    return figure


def _settings(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Title of each panel to its dataset and model; models are named where there are several."""
    datasets, models = (style.ordered(rows[column], style.NAMES) for column in ("dataset", "model"))
    found = {}
    for dataset, model in product(datasets, models):
        where = {"dataset": dataset, "model": model}
        if len(select_or_nothing(rows, where)):
            names = [style.written(dataset), style.written(model) if len(models) > 1 else ""]
            found[", ".join(name for name in names if name)] = where
    return found


def _grid(rows: pd.DataFrame, names: list[str], levels: list[float]) -> np.ndarray:
    """Means over replicas, (defenses, levels), NaN where there is none."""
    means = rows.pivot_table(index="defense", columns="level", values="value")
    return means.reindex(index=names, columns=levels).to_numpy(float)


def _number(
    axes: Axes, x: float, y: float, value: float, small: tuple[float, float], norm: Normalize, digits: int
) -> None:
    """Print a cell's number, and small ones above and below it, in black or white by the cell's luminance."""
    from matplotlib import colormaps

    if not np.isfinite(value):
        axes.text(x, y, "–", ha="center", va="center", color=style.CONTROL_COLOR)
        return
    mapped = colormaps[_MAP].with_extremes(under=_UNDER, over=_OVER)(norm(value))
    light = 0.2126 * mapped[0] + 0.7152 * mapped[1] + 0.0722 * mapped[2] > 0.45
    note: dict[str, Any] = {"ha": "center", "va": "center", "color": "black" if light else "white"}
    shift = 0.14 * (int(np.isfinite(small[1])) - int(np.isfinite(small[0])))
    axes.text(x, y - shift, _written(value, digits), size=7.5, **note)
    for one, offset in zip(small, (-0.3, 0.3), strict=True):
        if np.isfinite(one):
            axes.text(x, y + offset, _written(one, digits), size=5.5, **note)


def _written(value: float, digits: int) -> str:
    """A number with a fixed number of decimals, without the zero before the point."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{max(1, digits - 2)}f}"
