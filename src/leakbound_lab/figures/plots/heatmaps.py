"""Heatmaps with printed numbers, and controls next to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from leakbound_lab.claims.selection import EmptySelectionError, require, select, select_or_nothing
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import bare, legend, settings_of, title_of
from leakbound_lab.figures.plots.plotting import canvas, colorbar, plot

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

_CELL = 0.54
_LINE = 0.36
_TALL = 0.44  # with numbers above and below
_MAP = "cividis"  # readable in grey and with colour blindness
_UNDER = "#dcb4cf"
"""Colour of controls below all cells. The colour bar spans the cells alone, so that controls are distinct."""
_OVER = "#ffffff"
"""Colour of controls above all cells."""


class HeatmapOptions(Settings):
    """Options of the plot ``heatmap``."""

    where: Conditions = Field(default_factory=dict)
    """Conditions of the rows of the cells."""
    constants: dict[str, Conditions] = Field(default_factory=dict)
    """Label to the rows of a control without levels, e.g. the prior. It has a column of its own at the
    right."""
    floor: Conditions | None = None
    """Rows of a control with the cells' levels, printed small in each cell, e.g. the oracle."""
    beside: Conditions | None = None
    """Rows with the cells' levels, printed small above each number, e.g. another attacker."""
    label: str | None = None
    """Label of the colours, with unit. Default: that of the metric."""
    digits: int = Field(default=4, ge=0, le=6)
    """Printed decimals."""


@plot(HeatmapOptions)
def heatmap(rows: pd.DataFrame, options: HeatmapOptions) -> Figure:
    """Draw heatmaps of defenses by levels, one under the other for each dataset and model."""
    require(rows, "defense", "level", "value")
    levelled = select(rows, options.where).dropna(subset="level")
    if levelled.empty:
        raise EmptySelectionError("no row has a level")
    levels = sorted(float(level) for level in levelled["level"].unique())
    names = style.ordered(levelled["defense"])
    constants = {
        label: part
        for label, where in options.constants.items()
        if len(part := select_or_nothing(rows, where))
    }
    # A panel for each dataset and network, and one scale of colours for all.
    settings = settings_of(levelled)
    titled = 0.2 if len(settings) > 1 else 0.0
    wide = min(style.TWO_COLUMNS, 1.9 + _CELL * (len(levels) + len(constants)))
    tall = titled + 0.12 + (_LINE if options.beside is None else _TALL) * len(names)
    figure = canvas(wide, 0.55 + len(settings) * tall)
    grid = figure.subplots(len(settings), 1, sharex=True, squeeze=False)[:, 0]
    scale = _scale(levelled)
    places = [*map(float, range(len(levels))), *(len(levels) + 0.25 + j for j in range(len(constants)))]
    beside: list[float] = []
    for axes, where in zip(grid, settings, strict=True):
        small = [
            _grid(
                rows.iloc[:0] if wanted is None else select_or_nothing(rows, {**where, **wanted}),
                names,
                levels,
            )
            for wanted in (options.beside, options.floor)
        ]
        sides = [select_or_nothing(part, where)["value"].mean() for part in constants.values()]
        beside += sides
        _cells(axes, _grid(select(levelled, where), names, levels), small, scale, options.digits)
        for place, value in zip(places[len(levels) :], sides, strict=True):
            _side(axes, place, value, len(names), scale, options.digits)
        _label(axes, places, [*(f"{level:g}" for level in levels), *constants], names)
        if titled:
            axes.set_title(title_of(where, settings), pad=2.5)
    grid[-1].set_xlabel(style.axis_label("level", names))
    label = options.label or style.axis_label(str(levelled["metric"].iloc[0]))
    extend = _extend(scale, np.array(beside))
    aspect = 10 + 4 * len(settings)
    bar = colorbar(figure, scale, label, ax=list(grid), aspect=aspect, pad=0.02, extend=extend)
    bar.outline.set(visible=extend != "neither", linewidth=0.4)
    legend(figure, _beyond(extend), _small_numbers(options))
    return figure


def _label(axes: Axes, places: Sequence[float], columns: Sequence[str], names: Sequence[str]) -> None:
    """Write the names of columns and defenses at the axes of a panel."""
    axes.set_xticks(places, columns)
    axes.set_yticks(range(len(names)), [style.style_of(name).label for name in names])
    axes.set(xlim=(-0.5, places[-1] + 0.5), ylim=(len(names) - 0.5, -0.5))
    bare(axes)


def _small_numbers(options: HeatmapOptions) -> str:
    """Say what the small numbers in the cells are, by the variant whose rows they show. Empty without any."""
    said = [
        f"{side}, {style.style_of(str(where['variant'])).label}"
        for side, where in (("above", options.beside), ("below", options.floor))
        if where is not None and isinstance(where.get("variant"), str)
    ]
    return f"small numbers: {'; '.join(said)}" if said else ""


def _beyond(extend: str) -> list[Any]:
    """Make the entries of the legend for controls beyond the colours of the cells."""
    from matplotlib.patches import Patch

    ends = {"min": ("below all cells", _UNDER), "max": ("above all cells", _OVER)}
    return [
        Patch(facecolor=color, edgecolor=style.CONTROL_COLOR, linewidth=0.4, label=label)
        for end, (label, color) in ends.items()
        if extend in (end, "both")
    ]


def _extend(scale: ScalarMappable, values: np.ndarray) -> str:
    """Return the ends of the colour bar that get an arrow because a value lies beyond them."""
    low, high = scale.get_clim()
    beyond = (bool((values < low).any()), bool((values > high).any()))
    return {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond, "neither")


def _scale(rows: pd.DataFrame) -> ScalarMappable:
    """Make the colours that span the means of some rows, with extra colours for values beyond these."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    means = rows.groupby(["dataset", "model", "defense", "level", "variant"], dropna=False)["value"].mean()
    span = Normalize(float(means.min()), float(means.max()))
    return ScalarMappable(span, colormaps[_MAP].with_extremes(under=_UNDER, over=_OVER))


def _cells(axes: Axes, cells: np.ndarray, small: list[np.ndarray], scale: Any, digits: int) -> None:
    """Draw the cells of one panel, with small numbers above and below their own."""
    edges = np.linspace(-0.5, len(cells) - 0.5, len(cells) + 1)
    for place, column in enumerate(cells.T):
        mesh = axes.pcolormesh(
            [place - 0.5, place + 0.5], edges, column[:, None], norm=scale.norm, cmap=scale.cmap
        )
        mesh.set(edgecolor=style.CONTROL_COLOR if len(column) == 1 else "none", linewidth=0.4)
    for (row, place), value in np.ndenumerate(cells):
        above, below = (float(numbers[row, place]) for numbers in small)
        _number(axes, float(place), float(row), value, (above, below), scale, digits)


def _side(axes: Axes, place: float, value: float, rows: int, scale: Any, digits: int) -> None:
    """Draw a control without levels as one framed cell over all rows."""
    mesh = axes.pcolormesh(
        [place - 0.5, place + 0.5], [-0.5, rows - 0.5], [[value]], norm=scale.norm, cmap=scale.cmap
    )
    mesh.set(edgecolor=style.CONTROL_COLOR, linewidth=0.4)
    _number(axes, place, (rows - 1) / 2, value, (np.nan, np.nan), scale, digits)


def _grid(rows: pd.DataFrame, names: list[str], levels: list[float]) -> np.ndarray:
    """Compute means over replicas, (defenses, levels), NaN without rows."""
    means = rows.pivot_table(index="defense", columns="level", values="value")
    return means.reindex(index=names, columns=levels).to_numpy(float)


def _number(
    axes: Axes, x: float, y: float, value: float, small: tuple[float, float], scale: Any, digits: int
) -> None:
    """Print a cell's number, and small ones above and below it, in black or white by the cell's luminance."""
    if not np.isfinite(value):
        axes.text(x, y, "–", ha="center", va="center", color=style.CONTROL_COLOR)
        return
    luminance = np.dot(scale.cmap(scale.norm(value))[:3], (0.2126, 0.7152, 0.0722))
    note: dict[str, Any] = {"ha": "center", "va": "center", "color": "black" if luminance > 0.45 else "white"}
    shift = 0.14 * (int(np.isfinite(small[1])) - int(np.isfinite(small[0])))
    axes.text(x, y - shift, _written(value, digits), size=7.5, **note)
    for number, offset in zip(small, (-0.3, 0.3), strict=True):
        if np.isfinite(number):
            axes.text(x, y + offset, _written(number, digits), size=5.5, **note)


def _written(value: float, digits: int) -> str:
    """Write a number with fixed decimals, without a zero before the point."""
    return (
        f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{max(1, digits - 2)}f}"
    )
