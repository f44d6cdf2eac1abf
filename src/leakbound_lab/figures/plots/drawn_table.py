"""Tables as pictures and in LaTeX: by default a line for each network and a column for each defense."""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, Strict

from leakbound_lab.claims.selection import Columns, SelectionError, require, select_or_nothing
from leakbound_lab.claims.statistics import mean_interval, median_interval
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.plotting import canvas, drawable, plot
from leakbound_lab.figures.plots.series import Center, ranked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_CHARACTER = 0.062
_GAP = 0.16
_LINE = 0.15
_SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"–": "--", "—": "---", "“": "``", "”": "''", "‘": "`", "’": "'", "…": r"\ldots{}", "\u00a0": "~"},
}
_MATHEMATICAL = {
    **{"≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "±": r"\pm", "−": "-", "×": r"\times"},
    **{
        "∞": r"\infty",
        "·": r"\cdot",
        "√": r"\surd",
        "→": r"\to",
        "‖": r"\|",
        "∝": r"\propto",
        "∇": r"\nabla",
    },
    **{"∈": r"\in", "∑": r"\sum", "⟨": r"\langle", "⟩": r"\rangle", "ℓ": r"\ell", "½": r"\tfrac{1}{2}"},
}
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (\w+)")
_ACCENTS = {"\u0303": r"\tilde", "\u0302": r"\hat", "\u0304": r"\bar", "\u0307": r"\dot"}


class Cell(Settings):
    """One number in each cell of a table, a mean or median over replicas."""

    where: Conditions = Field(default_factory=dict)
    """Conditions of the rows of the number."""
    text: str = "{mean:.3g}"
    """Python format of ``mean`` (or ``median``, if that is the center), ``low`` and ``high``, the ends of the 95 %
    interval, and ``half``, half its width."""
    center: Center = "mean"
    """Middle of replicas. The median is for ratios, of which a mean may be that of one replica. Its interval is the
    exact one between order statistics, so that of a ratio is positive."""


class TableOptions(Settings):
    """Options of the plot ``table``."""

    rows: Columns = ("model",)
    """Columns whose values have a line each."""
    columns: Columns = ("defense",)
    """Columns whose values have a column each."""
    cells: Annotated[tuple[Cell, ...], Strict(False), Field(min_length=1)]
    """Numbers of a cell, one under the other. A number without rows is left out."""
    printed: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The paper's own numbers, in grey: value of the first of ``rows`` to value of the first of ``columns`` to text."""


class _Text(NamedTuple):
    """One line of text in a cell. Mild ones are small and grey."""

    words: str
    mild: bool = False


@plot(TableOptions)
def table(rows: pd.DataFrame, options: TableOptions) -> Figure:
    """Draw a table of means or medians over replicas."""
    return _written(_grid(rows, options))


def booktabs(rows: pd.DataFrame, options: TableOptions) -> str:
    """Write the same table as a tabular of booktabs, with the paper's numbers in brackets.

    Args:
        rows: Rows of the figure.
        options: Options of the plot.
    """
    cells = [
        [latex("; ".join(f"[{text.words}]" if text.mild else text.words for text in cell)) for cell in line]
        for line in _grid(drawable(rows), options)
    ]
    head, *lines = map(" & ".join, cells)
    columns = "l" + "r" * (len(cells[0]) - 1)
    body = "".join(f"{line} \\\\\n" for line in lines)
    top = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head} \\\\\n\\midrule\n"
    return f"{top}{body}\\bottomrule\n\\end{{tabular}}\n"


def _grid(rows: pd.DataFrame, options: TableOptions) -> list[list[list[_Text]]]:
    """Write the lines of cells of a table, each a list of texts. The first line is the head."""
    require(rows, "value", *options.rows, *options.columns)
    lines, columns = (_keys(rows, names) for names in (options.rows, options.columns))
    grid = [[[_Text("")], *([_Text(_head(key))] for key in columns)]]
    return grid + [
        [[_Text(_head(line))], *(_cell(rows, {**line, **key}, options) for key in columns)] for line in lines
    ]


def _keys(rows: pd.DataFrame, columns: Columns) -> list[dict[str, Any]]:
    """List the values of columns that occur together, in the order of legends. Numbers are sorted by size."""
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
    """Write the heading of a line or a column."""
    words = []
    for value in key.values():
        if isinstance(value, float):
            words.append(f"{value:g}")
        elif value not in (None, ""):
            words.append(style.NAMES.get(str(value)) or style.style_of(str(value)).label)
    return " ".join(words)


def _cell(rows: pd.DataFrame, key: dict[str, Any], options: TableOptions) -> list[_Text]:
    """Write the numbers of one cell, then the paper's own."""
    part = select_or_nothing(rows, key)
    numbers = [_number(part, cell) for cell in options.cells]
    line, column = (str(key[names[0]]) for names in (options.rows, options.columns))
    printed = options.printed.get(line, {}).get(column)
    return [text for text in numbers if text is not None] + ([_Text(printed, mild=True)] if printed else [])


def _number(rows: pd.DataFrame, cell: Cell) -> _Text | None:
    """Write the middle of replicas, or return None without rows.

    Raises:
        SelectionError: If a replica has several rows, or the format has an unknown name.
    """
    part = select_or_nothing(rows, cell.where)
    if part.empty:
        return None
    if "replica" in part.columns and part["replica"].duplicated().any():
        raise SelectionError(
            "plot table: a cell has several rows of one replica: add a condition to options.cells"
        )
    middle = {"mean": mean_interval, "median": median_interval}[cell.center]
    interval = middle(part["value"].to_numpy(float))
    numbers = {cell.center: interval.value, "low": interval.low, "high": interval.high}
    try:
        words = cell.text.format(**numbers, half=(interval.high - interval.low) / 2)
    except (KeyError, IndexError, ValueError) as error:
        raise SelectionError(
            f"plot table: options.cells.text = {cell.text!r} is no format of its numbers: {error}"
        ) from error
    return _Text(words)


def _written(grid: list[list[list[_Text]]]) -> Figure:
    """Draw lines of cells as text between rules. The first line is the head."""
    widths = [
        _GAP + _CHARACTER * max(len(text.words) for cell in column for text in cell)
        for column in zip(*grid, strict=True)
    ]
    heights = [0.08 + _LINE * max(1, *(len(cell) for cell in line)) for line in grid]
    wide = max(sum(widths), 1.0)
    tall = sum(heights) + 0.1
    figure = canvas(wide, tall, layout=None)
    figure.set_size_inches(wide, tall)  # words need their room however wide the page is
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
                font = mild if text.mild else {"size": 7.5}
                axes.text(place, top + 0.04 + _LINE * (order + 0.5), text.words, ha=side, va="center", **font)
    return figure


def latex(text: str) -> str:
    r"""Escape commands of LaTeX, and write Greek letters, signs, indices and powers as mathematics.

    Args:
        text: Plain text, e.g. a caption.

    Returns:
        LaTeX, in ASCII but for letters of languages.

    Example:
        >>> print(latex("50 % of κ₁ ≤ 2·10⁻³ nats"))
        50 \% of $\kappa$$_{1}$ $\leq$ 2$\cdot$10$^{-}$$^{3}$ nats
    """
    written = ""
    for character in unicodedata.normalize("NFC", text):
        if character in _ACCENTS and written:
            written = f"{written[:-1]}${_ACCENTS[character]}{{{written[-1]}}}$"
        else:
            written += _as_latex(character)
    return written


def _as_latex(character: str) -> str:
    """Write one character."""
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in _MATHEMATICAL:
        return f"${_MATHEMATICAL[character]}$"
    if letter := _GREEK.fullmatch(unicodedata.name(character, "")):
        name = letter[2].lower()
        return f"$\\{name if letter[1] == 'SMALL' else name.capitalize()}$"
    kind, *codes = unicodedata.decomposition(character).split() or [""]
    if kind in ("<super>", "<sub>"):
        inner = "".join(chr(int(code, 16)) for code in codes).replace("−", "-")
        return f"${'^' if kind == '<super>' else '_'}{{{inner}}}$"
    return character
