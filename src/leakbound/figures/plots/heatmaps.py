"""Heatmaps that print their numbers, with the controls beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from pydantic import Field

from leakbound.config import Settings
from leakbound.figures import style
from leakbound.figures.options import Conditions
from leakbound.figures.plots.lines import select_or_nothing
from leakbound.figures.plots.panels import panels, with_setting
from leakbound.figures.plots.plot import Plot, require
from leakbound.figures.selection import EmptySelectionError, select


class HeatmapOptions(Settings):
    """Options of the plot ``heatmap``."""

    where: Conditions = Field(default_factory=dict)
    """Rows of the cells."""
    constants: dict[str, Conditions] = Field(default_factory=dict)
    """Label to the rows of a control that has no level: a column of its own at the right, e.g. the prior."""
    floor: Conditions | None = None
    """Rows of a control with the cells' levels, printed small in each cell, e.g. the oracle."""
    floor_label: str = "oracle"
    """Name of that control."""
    label: str | None = None
    """Label of the colours, with unit; by default the metric's."""
    log: bool = False
    """Logarithmic colours."""
    digits: int = Field(default=4, ge=0, le=6)
    """Decimals printed."""


def _heatmap(rows: pd.DataFrame, options: HeatmapOptions) -> Figure:
    """Draw a heatmap of defenses by levels."""
    rows = with_setting(rows)
    require(rows, "defense", "level", "value")
    cells = select(rows, options.where)
    levelled = cells.dropna(subset="level")
    if levelled.empty:
        raise EmptySelectionError("no row has a level")
    levels = sorted(float(level) for level in levelled["level"].unique())
    names = style.ordered({str(name) for name in levelled["defense"].unique()})
    constants = {
        label: found for label, where in options.constants.items() if len(found := select_or_nothing(rows, where))
    }
    settings = len(cells[["dataset", "model"]].drop_duplicates())
    wide = 1.9 + 0.62 * (len(levels) + len(constants)) * settings  # as wide as the numbers need
    made = panels(levelled, width=wide, height=0.95 + 0.4 * len(names))
    shown = pd.concat([levelled, *constants.values()])
    means = shown.groupby(["dataset", "model", "defense", "level", "variant"], dropna=False)["value"].mean()
    bounds = float(means.min()), float(means.max())
    norm = LogNorm(*bounds) if options.log and bounds[0] > 0 else Normalize(*bounds)
    for axes, own in made.each(levelled):
        same = rows[(rows["dataset"] == own["dataset"].iloc[0]) & (rows["model"] == own["model"].iloc[0])]
        floor = select_or_nothing(same, options.floor) if options.floor is not None else same.iloc[:0]
        sides = {label: float(_of(found, own)["value"].mean()) for label, found in constants.items()}
        _panel(axes, own, floor, names, levels, sides, norm, options)
    made.label(style.axis_label("level"), "")
    colors = made.figure.colorbar(ScalarMappable(norm), ax=made.axes, aspect=14, shrink=0.95, pad=0.02)
    colors.set_label(options.label or style.axis_label(str(levelled["metric"].iloc[0])))
    colors.outline.set_visible(False)
    return made.figure


def _of(rows: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Rows of the dataset and model of other rows."""
    return rows[(rows["dataset"] == like["dataset"].iloc[0]) & (rows["model"] == like["model"].iloc[0])]


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
        axes.pcolormesh([x - 0.5, x + 0.5], edges, column[:, None], norm=norm, cmap=_map())
    for i in range(len(names)):
        for j in range(len(levels)):
            _number(axes, float(j), float(i), grid[i, j], floors[i, j], norm, options)
    for x, value in zip(positions[len(levels) :], sides.values(), strict=True):
        _number(axes, x, (len(names) - 1) / 2, value, np.nan, norm, options)
    axes.set_xticks(positions, [*(f"{level:g}" for level in levels), *sides])
    axes.set_yticks(range(len(names)), [style.look(name).label for name in names])
    axes.set(xlim=(-0.5, positions[-1] + 0.5), ylim=(len(names) - 0.5, -0.5))
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _map() -> str:
    """Colour map: readable in grey and with colour blindness."""
    return "cividis"


def _grid(rows: pd.DataFrame, names: list[str], levels: list[float]) -> np.ndarray:
    """Means over replicas, (defenses, levels), NaN where there is none."""
    means = rows.groupby(["defense", "level"])["value"].mean()
    return np.array([[means.get((name, level), np.nan) for level in levels] for name in names], dtype=float)


def _number(
    axes: Axes, x: float, y: float, value: float, floor: float, norm: Normalize, options: HeatmapOptions
) -> None:
    """Print a cell's number, and its floor under it, in black or white by the cell's luminance."""
    if not np.isfinite(value):
        axes.text(x, y, "–", ha="center", va="center", color=style.CONTROL_COLOR)
        return
    mapped = colormaps[_map()](norm(value))
    light = 0.2126 * mapped[0] + 0.7152 * mapped[1] + 0.0722 * mapped[2] > 0.45
    note: dict[str, Any] = {"ha": "center", "va": "center", "color": "black" if light else "white"}
    shift = 0.14 if np.isfinite(floor) else 0.0
    axes.text(x, y - shift, _written(value, options.digits), size=7.5, **note)
    if np.isfinite(floor):
        axes.text(x, y + 0.24, f"{options.floor_label} {_written(floor, options.digits)}", size=5.0, **note)


def _written(value: float, digits: int) -> str:
    """A number with a fixed number of decimals, without the zero before the point."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{max(1, digits - 2)}f}"


heatmap = Plot("heatmap", HeatmapOptions, _heatmap)
