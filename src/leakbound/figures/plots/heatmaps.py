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

from leakbound.claims.selection import EmptySelectionError, select
from leakbound.figures import style
from leakbound.figures.plot_options import HeatmapOptions
from leakbound.figures.plots.panels import select_or_nothing, with_setting
from leakbound.figures.plots.plot import Plot, require

_CELL = 0.54
_LINE = 0.36


def _heatmap(rows: pd.DataFrame, options: HeatmapOptions) -> Figure:
    """Draw heatmaps of defenses by levels, one under the other for each dataset and model."""
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
    settings = _settings(levelled)
    wide = min(style.TWO_COLUMNS, 1.9 + _CELL * (len(levels) + len(constants)))
    titled = 0.2 if len(settings) > 1 else 0.0
    tall = 0.55 + len(settings) * (titled + 0.12 + _LINE * len(names))
    figure = Figure(figsize=(wide, tall), layout="constrained")
    grid = figure.subplots(len(settings), 1, sharex=True, squeeze=False)[:, 0]
    shown = pd.concat([levelled, *constants.values()])
    means = shown.groupby(["dataset", "model", "defense", "level", "variant"], dropna=False)["value"].mean()
    bounds = float(means.min()), float(means.max())
    norm = LogNorm(*bounds) if options.log and bounds[0] > 0 else Normalize(*bounds)
    for axes, (title, where) in zip(grid, settings.items(), strict=True):
        own = select(levelled, where)
        floor = select_or_nothing(rows, {**where, **options.floor}) if options.floor is not None else rows.iloc[:0]
        sides = {label: _mean(select_or_nothing(found, where)) for label, found in constants.items()}
        _panel(axes, own, floor, names, levels, sides, norm, options)
        if titled:
            axes.set_title(title, pad=2.5)
    grid[-1].set_xlabel(style.axis_label("level"))
    colors = figure.colorbar(ScalarMappable(norm), ax=list(grid), aspect=10 + 4 * len(settings), pad=0.02)
    colors.set_label(options.label or style.axis_label(str(levelled["metric"].iloc[0])))
    colors.outline.set_visible(False)
    return figure


def _settings(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """What is written over each panel, and its dataset and model; models are named where there are several."""
    models = style.ordered_names({str(name) for name in rows["model"].unique()})
    found = {}
    for dataset in style.ordered_names({str(name) for name in rows["dataset"].unique()}):
        for model in models:
            where = {"dataset": dataset, "model": model}
            if len(select_or_nothing(rows, where)):
                parts = [style.written(dataset), *([style.written(model)] if len(models) > 1 else [])]
                found[", ".join(part for part in parts if part)] = where
    return found


def _mean(rows: pd.DataFrame) -> float:
    """Mean of the values, NaN if there are none."""
    return float(rows["value"].mean()) if len(rows) else float("nan")


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
        axes.text(x, y + 0.26, _written(floor, options.digits), size=5.5, **note)


def _written(value: float, digits: int) -> str:
    """A number with a fixed number of decimals, without the zero before the point."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{max(1, digits - 2)}f}"


heatmap = Plot("heatmap", HeatmapOptions, _heatmap)
