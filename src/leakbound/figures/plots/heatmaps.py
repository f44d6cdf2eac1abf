"""Heatmaps that print their numbers, with the controls beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from leakbound.claims.selection import EmptySelectionError, require, select, select_or_nothing
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings
from leakbound.figures import style
from leakbound.figures.plots.panels import bare, with_setting
from leakbound.figures.plots.plot import Plot, canvas, colorbar

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_CELL = 0.54
_LINE = 0.36
_MAP = "cividis"  # readable in grey and with colour blindness


class HeatmapOptions(Settings):
    """Options of the plot ``heatmap``."""

    where: Conditions = Field(default_factory=dict)
    """Rows of the cells."""
    constants: dict[str, Conditions] = Field(default_factory=dict)
    """Label to the rows of a control that has no level: a column of its own at the right, e.g. the prior."""
    floor: Conditions | None = None
    """Rows of a control with the cells' levels, printed small in each cell, e.g. the oracle."""
    label: str | None = None
    """Label of the colours, with unit; by default the metric's."""
    log: bool = False
    """Logarithmic colours."""
    digits: int = Field(default=4, ge=0, le=6)
    """Decimals printed."""


def _heatmap(rows: pd.DataFrame, options: HeatmapOptions) -> Figure:
    """Draw heatmaps of defenses by levels, one under the other for each dataset and model."""
    import pandas as pd
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    rows = with_setting(rows)
    require(rows, "defense", "level", "value")
    cells = select(rows, options.where)
    levelled = cells.dropna(subset="level")
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
    tall = 0.55 + len(settings) * (titled + 0.12 + _LINE * len(names))
    figure = canvas(wide, tall)
    grid = figure.subplots(len(settings), 1, sharex=True, squeeze=False)[:, 0]
    shown = pd.concat([levelled, *constants.values()])
    means = shown.groupby(["dataset", "model", "defense", "level", "variant"], dropna=False)["value"].mean()
    bounds = float(means.min()), float(means.max())
    norm = LogNorm(*bounds) if options.log and bounds[0] > 0 else Normalize(*bounds)
    for axes, (title, where) in zip(grid, settings.items(), strict=True):
        own = select(levelled, where)
        floor = select_or_nothing(rows, {**where, **options.floor}) if options.floor is not None else rows.iloc[:0]
        sides = {label: select_or_nothing(found, where)["value"].mean() for label, found in constants.items()}
        _panel(axes, own, floor, names, levels, sides, norm, options)
        if titled:
            axes.set_title(title, pad=2.5)
    grid[-1].set_xlabel(style.axis_label("level"))
    label = options.label or style.axis_label(str(levelled["metric"].iloc[0]))
    colorbar(figure, ScalarMappable(norm), label, ax=list(grid), aspect=10 + 4 * len(settings), pad=0.02)
    return figure


def _settings(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Title of each panel to its dataset and model; models are named where there are several."""
    models = style.ordered(rows["model"], style.NAMES)
    found = {}
    for dataset in style.ordered(rows["dataset"], style.NAMES):
        for model in models:
            where = {"dataset": dataset, "model": model}
            if len(select_or_nothing(rows, where)):
                names = [style.written(dataset), *([style.written(model)] if len(models) > 1 else [])]
                found[", ".join(name for name in names if name)] = where
    return found


def _panel(
    axes: Axes,
    rows: pd.DataFrame,
    floor: pd.DataFrame,
    names: list[str],
    levels: list[float],
    sides: dict[str, float],
    norm: Normalize,
    options: HeatmapOptions,
) -> None:
    """Draw the cells of one panel: levels, a gap, constant controls."""
    grid, floors = _grid(rows, names, levels), _grid(floor, names, levels)
    positions = [float(j) for j in range(len(levels))] + [len(levels) + 0.25 + j for j in range(len(sides))]
    columns = [*grid.T, *(np.array([value]) for value in sides.values())]
    for x, column in zip(positions, columns, strict=True):
        edges = np.linspace(-0.5, len(names) - 0.5, len(column) + 1)
        axes.pcolormesh([x - 0.5, x + 0.5], edges, column[:, None], norm=norm, cmap=_MAP)
    for i in range(len(names)):
        for j in range(len(levels)):
            _number(axes, float(j), float(i), grid[i, j], floors[i, j], norm, options)
    for x, value in zip(positions[len(levels) :], sides.values(), strict=True):
        _number(axes, x, (len(names) - 1) / 2, value, np.nan, norm, options)
    axes.set_xticks(positions, [*(f"{level:g}" for level in levels), *sides])
    axes.set_yticks(range(len(names)), [style.look(name).label for name in names])
    axes.set(xlim=(-0.5, positions[-1] + 0.5), ylim=(len(names) - 0.5, -0.5))
    bare(axes)


def _grid(rows: pd.DataFrame, names: list[str], levels: list[float]) -> np.ndarray:
    """Means over replicas, (defenses, levels), NaN where there is none."""
    means = rows.pivot_table(index="defense", columns="level", values="value")
    return means.reindex(index=names, columns=levels).to_numpy(float)


def _number(
    axes: Axes, x: float, y: float, value: float, floor: float, norm: Normalize, options: HeatmapOptions
) -> None:
    """Print a cell's number, and its floor under it, in black or white by the cell's luminance."""
    from matplotlib import colormaps

    if not np.isfinite(value):
        axes.text(x, y, "–", ha="center", va="center", color=style.CONTROL_COLOR)
        return
    mapped = colormaps[_MAP](norm(value))
    light = 0.2126 * mapped[0] + 0.7152 * mapped[1] + 0.0722 * mapped[2] > 0.45
    note: dict[str, Any] = {"ha": "center", "va": "center", "color": "black" if light else "white"}
    shift = 0.14 if np.isfinite(floor) else 0.0
    axes.text(x, y - shift, _written(value, options.digits), size=7.5, **note)
    if np.isfinite(floor):
        axes.text(x, y + 0.26, _written(floor, options.digits), size=5.5, **note)


def _written(value: float, digits: int) -> str:
    """A number with a fixed number of decimals, without the zero before the point."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{max(1, digits - 2)}f}"


heatmap = Plot("heatmap", HeatmapOptions, _heatmap)
