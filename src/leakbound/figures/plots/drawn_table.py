"""Tables as pictures: one line per network, one column per defense, numbers with their intervals."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, Strict

from leakbound.claims.estimates import mean_interval
from leakbound.claims.selection import Columns, SelectionError, require, select, select_or_nothing
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings
from leakbound.figures import style
from leakbound.figures.plots.plotting import canvas, plot
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


class _Text(NamedTuple):
    """One line of text in a cell. Mild ones are small and grey."""

    words: str
    mild: bool = False


@plot(TableOptions)
def table(rows: pd.DataFrame, options: TableOptions) -> Figure:
    """Draw a table of means over replicas."""
    require(rows, "value", *options.rows, *options.columns)
    rows = select(rows, options.where)
    lines, columns = (_keys(rows, names) for names in (options.rows, options.columns))
    grid = [[[_Text("")], *([_Text(_head(key))] for key in columns)]]
    for line in lines:
        grid.append([[_Text(_head(line))], *(_cell(rows, {**line, **key}, options) for key in columns)])
    return _written(grid)


def _keys(rows: pd.DataFrame, columns: Columns) -> list[dict[str, Any]]:
    """Values of some columns that occur together, in the order of legends: numbers by size, words in their order."""
    combinations = {
        tuple(None if v != v else v for v in row) for row in rows[list(columns)].itertuples(index=False)
    }
    ranks = [ranked({str(value) for value in values}) for values in zip(*combinations, strict=True)]

    def place(key: tuple[Any, ...]) -> list[Any]:
        return [
            v if isinstance(v, int | float) else order.index(str(v))
            for v, order in zip(key, ranks, strict=True)
        ]

    return [dict(zip(columns, key, strict=True)) for key in sorted(combinations, key=place)]


def _head(key: dict[str, Any]) -> str:
    """Heading of a line or a column."""
    words = []
    for value in key.values():
        if isinstance(value, float):
            words.append(f"{value:g}")
        elif value not in (None, ""):
            words.append(style.NAMES.get(str(value)) or style.look(str(value)).label)
    return " ".join(words)


def _cell(rows: pd.DataFrame, key: dict[str, Any], options: TableOptions) -> list[_Text]:
    """Numbers of one cell, then the paper's own."""
    chosen = select_or_nothing(rows, key)
    numbers = [_number(chosen, cell) for cell in options.cells]
    line, column = str(key[options.rows[0]]), str(key[options.columns[0]])
    printed = options.printed.get(line, {}).get(column)
    return [text for text in numbers if text is not None] + ([_Text(printed, mild=True)] if printed else [])


def _number(rows: pd.DataFrame, cell: Cell) -> _Text | None:
    """The mean over replicas as text, or nothing without rows.

    Raises:
        SelectionError: If a replica has several rows, or the format names something else.
    """
    chosen = select_or_nothing(rows, cell.where)
    if chosen.empty:
        return None
    if "replica" in chosen.columns and chosen["replica"].duplicated().any():
        raise SelectionError(
            "plot table: a cell has several rows of one replica: add a condition to options.cells"
        )
    interval = mean_interval(chosen["value"].to_numpy(float))
    numbers = {"mean": interval.value, "low": interval.low, "high": interval.high}
    try:
        words = cell.text.format(**numbers, half=(interval.high - interval.low) / 2)
    except (KeyError, IndexError, ValueError) as error:
        raise SelectionError(
            f"plot table: options.cells.text = {cell.text!r} is no format of its numbers: {error}"
        ) from error
    return _Text(words, cell.mild)


def _written(grid: list[list[list[_Text]]]) -> Figure:
    """Lines of cells as text, the first one the head, between rules."""
    widths = [
        _GAP + _CHARACTER * max(len(text.words) for cell in column for text in cell)
        for column in zip(*grid, strict=True)
    ]
    heights = [0.08 + _LINE * max(1, *(len(cell) for cell in line)) for line in grid]
    wide, tall = max(sum(widths), 1.0), sum(heights) + 0.1
    figure = canvas(wide, tall, layout=None)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, wide), ylim=(tall, 0))
    axes.axis("off")
    tops = list(accumulate(heights, initial=0.05))
    for line, width in ((0, 0.8), (1, 0.5), (len(grid), 0.8)):
        axes.plot([0.03, wide - 0.03], [tops[line]] * 2, color="black", lw=width, marker="none")
    rights = list(accumulate(widths))
    mild: dict[str, Any] = {"color": style.CONTROL_COLOR, "size": style.SMALL}
    for cells, top in zip(grid, tops, strict=False):
        for column, cell in enumerate(cells):
            place, side = (rights[column] - _GAP / 2, "right") if column else (_GAP / 2, "left")
            for order, text in enumerate(cell):
                look = mild if text.mild else {"size": 7.5}
                axes.text(place, top + 0.04 + _LINE * (order + 0.5), text.words, ha=side, va="center", **look)
    return figure
