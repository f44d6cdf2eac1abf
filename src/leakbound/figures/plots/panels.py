"""Small multiples: one panel per dataset and model, with shared axes and one legend outside of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from leakbound.figures import style


@dataclass(frozen=True)
class Panels:
    """A figure with its panels, rows of models by columns of datasets.

    Args:
        figure: The figure.
        axes: Panels, (models, datasets).
        datasets: Names of the columns.
        models: Names of the rows.
    """

    figure: Figure
    axes: np.ndarray
    datasets: list[str]
    models: list[str]

    @property
    def single(self) -> bool:
        """Whether there is one panel alone."""
        return self.axes.size == 1

    def each(self, rows: pd.DataFrame) -> Iterator[tuple[Axes, pd.DataFrame]]:
        """Every panel that has rows, with its rows; panels without are hidden."""
        for i, model in enumerate(self.models):
            for j, dataset in enumerate(self.datasets):
                own = rows[(rows["dataset"] == dataset) & (rows["model"] == model)]
                if own.empty:
                    self.axes[i, j].set_visible(False)
                else:
                    yield self.axes[i, j], own

    def label(self, x: str, y: str) -> None:
        """Label the outer axes, and name datasets above and models at the right."""
        if self.single:
            self.axes[0, 0].set(xlabel=x, ylabel=y)
            return
        self.figure.supxlabel(x, fontsize=style.FONT_SIZE)
        self.figure.supylabel(y, fontsize=style.FONT_SIZE)
        for axes, dataset in zip(self.axes[0], self.datasets, strict=True):
            note: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "va": "bottom"}
            axes.annotate(style.written(dataset), (0.5, 1), xycoords="axes fraction", annotation_clip=False, **note)
        if len(self.models) > 1:
            for axes, model in zip(self.axes[:, -1], self.models, strict=True):
                note = {"xytext": (4, 0), "textcoords": "offset points", "ha": "left", "va": "center", "rotation": -90}
                axes.annotate(style.written(model), (1, 0.5), xycoords="axes fraction", annotation_clip=False, **note)

    def legend(self, handles: list[Any]) -> None:
        """One legend above the panels, in as many columns as fit."""
        if not handles:
            return
        inches = self.figure.get_size_inches()[0]
        columns = fitting_columns([str(handle.get_label()) for handle in handles], inches)
        self.figure.legend(handles=handles, loc="outside upper center", ncols=columns)


def panels(rows: pd.DataFrame, *, width: float | None = None, height: float = style.HEIGHT) -> Panels:
    """Empty panels for the datasets and models of ``rows``.

    Args:
        rows: Table; without the columns dataset and model there is one panel.
        width: Inches; one column for a single panel, two otherwise, if not given.
        height: Inches of a row of a single panel; several are drawn smaller.
    """
    datasets, models = ([str(v) for v in sorted(rows[column].unique())] for column in ("dataset", "model"))
    single = len(datasets) * len(models) == 1
    wide = width or (style.ONE_COLUMN if single else min(style.TWO_COLUMNS, 1.0 + 2.2 * len(datasets)))
    tall = height if single else 0.7 + len(models) * min(height, 0.8 * wide / len(datasets))
    figure = Figure(figsize=(wide, tall), layout="constrained")
    axes = figure.subplots(len(models), len(datasets), sharex=True, sharey=True, squeeze=False)
    return Panels(figure, axes, datasets, models)


def with_setting(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the columns dataset and model, empty where the table has none."""
    missing = {column: "" for column in ("dataset", "model") if column not in rows.columns}
    return rows.assign(**missing)


def fitting_columns(labels: list[str], inches: float) -> int:
    """Columns of a legend that fit a width."""
    widest = max(len(label) for label in labels) * 0.062 + 0.5
    return max(1, min(len(labels), int(inches / widest)))


def handle(look: style.Look, **changes: Any) -> Line2D:
    """Legend entry of a series."""
    return Line2D([], [], label=look.label, **{**look.line(), **changes})


def level_axis(figure: Figure, axes: Axes, levels: list[float], log: bool | None) -> None:
    """Ticks at the levels themselves; a log axis where they span a factor of three or more.

    Args:
        figure: Figure of the panel.
        axes: Panel.
        levels: Levels shown, ascending.
        log: Forced on or off, or None to decide by the levels.
    """
    positive = bool(levels) and levels[0] > 0
    if log is None:
        log = positive and levels[-1] / levels[0] >= 3
    positions = np.log(levels) if log and positive else np.array(levels)
    span = float(positions[-1] - positions[0]) or 1.0
    if log and positive:
        axes.set_xscale("log")
    inches = axes.get_position().width * figure.get_size_inches()[0]
    shown: list[int] = []
    for index in range(len(levels)):
        room = (positions[index] - positions[shown[-1]]) / span * inches if shown else np.inf
        if room > 0.06 * (len(f"{levels[index]:g}") + 1.5):
            shown.append(index)
    axes.xaxis.set_major_locator(FixedLocator([levels[index] for index in shown]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(FixedLocator(levels) if len(shown) < len(levels) else NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=2)
