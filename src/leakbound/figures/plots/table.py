"""Tables as pictures: one line per network, one column per defense, numbers with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, Strict

from leakbound.claims.selection import Columns, SelectionError, require, select, select_or_nothing
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings
from leakbound.figures import style
from leakbound.figures.plots.panels import with_setting
from leakbound.figures.plots.plot import Plot, canvas
from leakbound.figures.plots.series import ranked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_CHARACTER = 0.062
_GAP = 0.16
_LINE = 0.15


class Cell(Settings):
    """One number in each cell of a table: the mean over replicas."""

    where: Conditions = Field(default_factory=dict)
    """Rows of the number."""
    text: str = "{mean:.3g}"
    """Python format of ``mean``, ``low`` and ``high``, the ends of the 95 % interval, and ``half``, half its width."""
    mild: bool = False
    """Grey and small."""


class TableOptions(Settings):
    """Options of the plot ``table``."""

    where: Conditions = Field(default_factory=dict)
    """Rows that count at all."""
    rows: Columns = ("model",)
    """Columns whose values have a line each."""
    columns: Columns = ("defense",)
    """Columns whose values have a column each."""
    cells: Annotated[tuple[Cell, ...], Strict(False), Field(min_length=1)]
    """Numbers of a cell, one under the other; one without rows is left out."""
    printed: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The paper's own numbers, in grey: value of the first of ``rows`` to value of the first of ``columns`` to text."""


@dataclass(frozen=True)
class _Text:
    """One line of text in a cell; mild ones are small and grey."""

    words: str
    mild: bool = False


def _table(rows: pd.DataFrame, options: TableOptions) -> Figure:
    """Draw a table of means over replicas."""
    rows = with_setting(rows)
    require(rows, "value", *options.rows, *options.columns)
    rows = select(rows, options.where)
    lines, columns = (_keys(rows, names) for names in (options.rows, options.columns))
    heads = [_head(dict(zip(options.columns, key, strict=True))) for key in columns]
    body = []
    for line in lines:
        own = {**dict(zip(options.rows, line, strict=True))}
        cells = [_cell(rows, {**own, **dict(zip(options.columns, key, strict=True))}, options) for key in columns]
        body.append([[_Text(_head(own))], *cells])
    return _written([[_Text("")], *([_Text(head)] for head in heads)], body)


def _keys(rows: pd.DataFrame, columns: Columns) -> list[tuple[Any, ...]]:
    """Values of some columns that occur together, in the order of legends."""
    found = {tuple(None if v != v else v for v in row) for row in rows[list(columns)].itertuples(index=False)}
    ranks = [ranked({str(key[index]) for key in found}) for index in range(len(columns))]
    return sorted(found, key=lambda key: [_rank(value, order) for value, order in zip(key, ranks, strict=True)])


def _rank(value: Any, order: list[str]) -> float:
    """Place of a value: numbers by size, words in their order."""
    return float(value) if isinstance(value, int | float) else float(order.index(str(value)))


def _head(key: dict[str, Any]) -> str:
    """Heading of a line or a column."""
    words = []
    for value in key.values():
        if isinstance(value, float):
            words.append("" if math.isnan(value) else f"{value:g}")
        elif value is not None:
            words.append(style.NAMES.get(str(value)) or style.look(str(value)).label)
    return " ".join(word for word in words if word)


def _cell(rows: pd.DataFrame, key: dict[str, Any], options: TableOptions) -> list[_Text]:
    """Numbers of one cell, then the paper's own."""
    own = select_or_nothing(rows, key)
    found = [_number(own, cell) for cell in options.cells]
    line, column = str(key[options.rows[0]]), str(key[options.columns[0]])
    printed = options.printed.get(line, {}).get(column)
    return [text for text in found if text is not None] + ([_Text(printed, mild=True)] if printed else [])


def _number(rows: pd.DataFrame, cell: Cell) -> _Text | None:
    """The mean over replicas as text, or nothing without rows.

    Raises:
        SelectionError: If a replica has several rows, or the format names something else.
    """
    from leakbound import metrics

    chosen = select_or_nothing(rows, cell.where)
    if chosen.empty:
        return None
    if "replica" in chosen.columns and chosen["replica"].duplicated().any():
        raise SelectionError("plot table: a cell has several rows of one replica: add a condition to options.cells")
    interval = metrics.mean_interval(chosen["value"].to_numpy(float))
    numbers = {"mean": interval.value, "low": interval.low, "high": interval.high}
    try:
        words = cell.text.format(**numbers, half=(interval.high - interval.low) / 2)
    except (KeyError, IndexError, ValueError) as error:
        raise SelectionError(
            f"plot table: options.cells.text = {cell.text!r} is no format of its numbers: {error}"
        ) from error
    return _Text(words, cell.mild)


def _written(head: list[list[_Text]], body: list[list[list[_Text]]]) -> Figure:
    """The table as text, between rules."""
    grid = [head, *body]
    widths = [
        _GAP + _CHARACTER * max((len(text.words) for line in grid for text in line[column]), default=1)
        for column in range(len(head))
    ]
    heights = [0.08 + _LINE * max(1, *(len(cell) for cell in line)) for line in grid]
    wide, tall = max(sum(widths), 1.0), sum(heights) + 0.1
    figure = canvas(wide, tall, layout=None)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, wide), ylim=(tall, 0))
    axes.axis("off")
    y = 0.05
    rules = {0: 0.8, 1: 0.5, len(grid): 0.8}
    for index, (line, height) in enumerate(zip(grid, heights, strict=True)):
        if index in rules:
            axes.plot([0.03, wide - 0.03], [y, y], color="black", lw=rules[index], marker="none")
        x = 0.0
        for column, (cell, width) in enumerate(zip(line, widths, strict=True)):
            place = x + _GAP / 2 if column == 0 else x + width - _GAP / 2
            for order, text in enumerate(cell):
                middle = y + 0.04 + _LINE * (order + 0.5)
                look: dict[str, Any] = (
                    {"color": style.CONTROL_COLOR, "size": style.SMALL} if text.mild else {"size": 7.5}
                )
                axes.text(place, middle, text.words, ha="left" if column == 0 else "right", va="center", **look)
            x += width
        y += height
    axes.plot([0.03, wide - 0.03], [y, y], color="black", lw=rules[len(grid)], marker="none")
    return figure


table = Plot("table", TableOptions, _table)
