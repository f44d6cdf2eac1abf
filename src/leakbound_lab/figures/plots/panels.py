"""Small multiples: datasets in columns, models or quantities in rows, and one legend outside of the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from leakbound_lab.claims.selection import select_or_nothing
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.plotting import canvas

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MOST_AT_ENDS = 6
"""Largest number of lines that are named at their ends."""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        axes: Its axes.
        where: Conditions of its rows.
        above: Title, which may be empty.
        quantity: Label of its quantity, for explicit rows of panels.
    """

    axes: Axes
    where: Conditions
    above: str
    quantity: str = ""

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Choose the rows of the panel, which may be none."""
        return select_or_nothing(rows, self.where)


@dataclass(frozen=True)
class Panels:
    """A figure with its panels.

    Attributes:
        figure: The figure.
        axes: All axes.
        shown: Panels that have rows.
        y_labels: Labels of explicit rows of panels. Empty if all panels show one quantity.
        right: Name at the right of each row of panels, which may be empty.
    """

    figure: Figure
    axes: np.ndarray
    shown: list[Panel]
    y_labels: list[str]
    right: list[str]

    @property
    def single(self) -> bool:
        """True if there is only one panel."""
        return self.axes.size == 1

    def label(self, x: str, y: str) -> None:
        """Label the outer axes, and name datasets above and models at the right."""
        if self.single:
            self.axes[0, 0].set(xlabel=x, ylabel=self.y_labels[0] if self.y_labels else y)
        else:
            self.figure.supxlabel(x, fontsize=style.FONT_SIZE)
            if self.y_labels:
                for axes, label in zip(self.axes[:, 0], self.y_labels, strict=True):
                    axes.set_ylabel(label)
                self.figure.align_ylabels()
            else:
                self.figure.supylabel(y, fontsize=style.FONT_SIZE)
        around: dict[str, Any] = {
            "xycoords": "axes fraction",
            "textcoords": "offset points",
            "annotation_clip": False,
        }
        for panel in self.shown:
            panel.axes.annotate(panel.above, (0.5, 1), (0, 4), ha="center", va="bottom", **around)
        for axes, name in zip(self.axes[:, -1], self.right, strict=True):
            axes.annotate(name, (1, 0.5), (4, 0), ha="left", va="center", rotation=-90, **around)


def panels(
    drawn: pd.DataFrame,
    *,
    series: Sequence[str] = (),
    quantities: dict[str, Conditions] | None = None,
    share_x: bool = True,
    share_y: bool,
    height: float = style.HEIGHT,
) -> Panels:
    """Lay out empty panels for rows.

    Datasets have a column each. Models have a row each unless they are series. Explicit quantities replace
    them. A single row of panels is broken after two, so that there is room for each.

    Args:
        drawn: Table with the columns dataset and model.
        series: Columns that distinguish lines of one panel.
        quantities: Label of a row of panels to its conditions. None or empty for a single quantity.
        share_x: True if all panels share their x axis.
        share_y: True if panels share their y axis: all of them, or those of one row if rows are quantities.
        height: Inches of a row with a single panel. Several panels are smaller.
    """
    datasets = style.ordered(drawn["dataset"], style.NAMES)
    rows = _rows_of_panels(drawn, series, quantities)
    most = style.panels_in_a_row()
    broken = len(rows) == 1 and len(datasets) > most
    shape = (-(-len(datasets) // most), most) if broken else (len(rows), len(datasets))
    figure = _canvas_of(shape, height)
    sharing: Any = ("row" if quantities else "all") if share_y else "none"
    axes = figure.subplots(
        *shape, sharex="all" if share_x and not broken else "none", sharey=sharing, squeeze=False
    )
    laid_out = []
    for index, (cell, (row, dataset)) in enumerate(zip(axes.flat, product(rows, datasets), strict=False)):
        conditions, _, label = row
        where = {"dataset": dataset, **conditions}
        if select_or_nothing(drawn, where).empty:
            cell.set_visible(False)
            continue
        titled = len(datasets) > 1 and (broken or index < len(datasets))
        laid_out.append(Panel(cell, where, style.written(dataset) if titled else "", label))
    for cell in axes.flat[len(rows) * len(datasets) :]:
        cell.set_visible(False)
    right = [""] * shape[0] if broken else [name for _, name, _ in rows]
    return Panels(figure, axes, laid_out, list(quantities or ()), right)


def _rows_of_panels(
    rows: pd.DataFrame, series: Sequence[str], quantities: dict[str, Conditions] | None
) -> list[tuple[Conditions, str, str]]:
    """List the conditions of each row of panels, its name at the right, and the label of its y axis."""
    models = style.ordered(rows["model"], style.NAMES)
    if quantities:
        return [(conditions, "", label) for label, conditions in quantities.items()]
    if "model" in series or len(models) == 1:
        return [({}, "", "")]
    return [({"model": model}, style.written(model), "") for model in models]


def _canvas_of(shape: tuple[int, int], height: float) -> Figure:
    """Make an empty figure with room for rows and columns of panels."""
    wide = style.at_most(style.ONE_COLUMN if shape[1] <= style.panels_in_a_row() else style.TWO_COLUMNS)
    tall = height if shape == (1, 1) else 0.75 + shape[0] * min(height * 0.8, 0.8 * wide / shape[1])
    return canvas(wide, tall)


def settings_of(rows: pd.DataFrame) -> list[dict[str, str]]:
    """List the datasets and models that occur together, in the order of panels."""
    pairs = {
        (str(dataset), str(model)) for dataset, model in rows[["dataset", "model"]].itertuples(index=False)
    }
    datasets, models = (style.ordered(names, style.NAMES) for names in zip(*pairs, strict=True))
    return [
        {"dataset": name, "model": model}
        for name, model in product(datasets, models)
        if (name, model) in pairs
    ]


def title_of(where: dict[str, str], settings: Sequence[dict[str, str]]) -> str:
    """Write the title of a panel: its dataset, and its network if the panels have several networks."""
    several = len({setting["model"] for setting in settings}) > 1
    names = [style.written(where[column]) for column in ("dataset", "model")[: 1 + several]]
    return ", ".join(filter(None, names))


def handle(label: str, **appearance: Any) -> Line2D:
    """Make an entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **appearance)


def handles(styles: Iterable[style.SeriesStyle]) -> list[Any]:
    """Make the entries of a legend for several series."""
    return [handle(appearance.label, **appearance.line()) for appearance in styles]


def legend(figure: Figure, handles: list[Any], note: str = "") -> None:
    """Add one legend below all panels, in as many columns as fit. The figure grows, so panels keep their size.

    Call it last, because it moves the common label of the x axes to its head, where it does not overlap.

    Args:
        figure: The figure.
        handles: Entries. If there are none, and no note, there is no legend.
        note: Sentence at the head of the legend.
    """
    if not handles and not note:
        return
    wide, tall = figure.get_size_inches()
    widest = max((len(str(handle.get_label())) for handle in handles), default=0) * 0.056 + 0.45
    columns = max(1, min(len(handles), int(wide / widest)))
    heads = [text for text in (figure.get_supxlabel(), note) if text]
    figure.supxlabel("")
    figure.set_size_inches(wide, tall + 0.1 + 0.155 * (bool(note) + -(-len(handles) // columns)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, title="\n".join(heads) or None)


def end_labels(figure: Figure, axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names of lines at their right ends, outside of the data and without overlaps.

    Args:
        figure: The figure.
        axes: Its only panel, with final limits.
        ends: Height, name and colour of each line.
    """
    if not ends:
        return
    axes.get_ylim()  # brings limits up to date
    transform = axes.transScale + axes.transLimits
    heights = transform.transform([(1.0, height) for height, _, _ in ends])[:, 1]
    spacing = 1.25 * style.SMALL / 72 / (axes.get_position().height * figure.get_size_inches()[1])
    order = np.argsort(heights, kind="stable")
    places = np.sort(heights)
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + spacing)
    places[-1] = min(places[-1], 1.0)
    for index in reversed(range(len(places) - 1)):
        places[index] = min(places[index], places[index + 1] - spacing)
    for index, place in zip(order, places, strict=True):
        _, name, color = ends[index]
        axes.plot(
            [1.0, 1.03],
            [heights[index], place],
            transform=axes.transAxes,
            scalex=False,
            scaley=False,
            color=color,
            lw=0.5,
            marker="none",
            clip_on=False,
        )
        axes.text(1.04, place, name, transform=axes.transAxes, va="center", color=color, size=style.SMALL)


def bare(axes: Axes) -> None:
    """Remove grid, tick marks and spines of a panel that is itself a picture."""
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


_LONG = 6.0  # ratio of the ends of a panel's axis from which 0.003 and 0.004 would touch


def _has_room(x: float, view: Sequence[float]) -> bool:
    """Return whether numbers side by side leave room for this one: on a long axis 1, 2 and 4 of a decade."""
    low, high = sorted(view)
    return x <= 0 or low <= 0 or high / low < _LONG or f"{x:.0e}"[0] in "124"


@cache
def _plain_numbers() -> Any:
    """Make the class of formatters that write short numbers plainly at logarithmic ticks, else whole powers of ten."""
    from matplotlib.axis import XAxis
    from matplotlib.ticker import LogFormatterMathtext

    class PlainNumbers(LogFormatterMathtext):
        """Formatter, which writes nothing if the neighbours of a tick leave no room."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            label = super().__call__(x, pos)
            if label and isinstance(self.axis, XAxis) and not _has_room(x, self.axis.get_view_interval()):
                return ""
            if label and 1e-3 <= x < 1e5:
                return f"{x:g}"
            return label if x > 0 and math.isclose(math.log10(x), round(math.log10(x)), abs_tol=1e-9) else ""

    return PlainNumbers


def log(axes: Axes, name: Literal["x", "y"]) -> None:
    """Make an axis of a panel logarithmic, with plain numbers."""
    axes.set(**{f"{name}scale": "log"})
    axis = {"x": axes.xaxis, "y": axes.yaxis}[name]
    axis.set_major_formatter(_plain_numbers()())
    axis.set_minor_formatter(_plain_numbers()(labelOnlyBase=False))


def level_axis(
    figure: Figure, axes: Axes, levels: Sequence[float], log: bool | None, names: Sequence[str] | None = None
) -> None:
    """Set ticks at the levels, as many as there is room for.

    Args:
        figure: The figure.
        axes: One of its panels.
        levels: Levels in ascending order.
        log: True for a logarithmic axis. None if that depends on whether levels span a factor of three.
        names: Names of the levels, instead of their numbers.
    """
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    log = levels[0] > 0 and (levels[-1] / levels[0] >= 3 if log is None else log)
    names = list(names) if names else [f"{level:g}" for level in levels]
    positions = np.log(levels) if log else np.array(levels)
    span = float(positions[-1] - positions[0]) or 1.0
    if log:
        axes.set_xscale("log")
    inches = axes.get_position().width * figure.get_size_inches()[0]
    wide = [0.06 * (max(map(len, name.split("\n"))) + 1.5) for name in names]
    ticks: list[int] = []
    # The last level first, then as many as fit.
    for index in dict.fromkeys((len(levels) - 1, *range(len(levels)))):
        room = [abs(positions[index] - positions[other]) / span * inches for other in ticks]
        if all(free > (wide[index] + wide[other]) / 2 for free, other in zip(room, ticks, strict=True)):
            ticks.append(index)
    ticks.sort()
    written = {levels[index]: names[index] for index in ticks}
    axes.xaxis.set_major_locator(FixedLocator([levels[index] for index in ticks]))
    axes.xaxis.set_major_formatter(lambda value, _: written.get(value, f"{value:g}"))
    axes.xaxis.set_minor_locator(FixedLocator(list(levels)) if len(ticks) < len(levels) else NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=2)
