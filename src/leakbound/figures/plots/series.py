"""Lines of a figure: which rows make one, and what it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from leakbound.figures import style
from leakbound.figures.plots.panels import select_or_nothing


@dataclass(frozen=True)
class Series:
    """One line.

    Args:
        values: What its rows have in the columns that tell lines apart.
        look: Its appearance.
    """

    values: dict[str, str] = field(compare=False)
    look: style.Look

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Its rows, maybe none."""
        return select_or_nothing(rows, self.values)


def series_of(rows: pd.DataFrame, columns: Sequence[str]) -> list[Series]:
    """The lines that rows make, in the order of legends.

    Only columns that vary tell lines apart; where none does, the first one gives the look. The first that varies gives
    colour and marker, so that a defense, or else a model, looks alike in all figures; a second one gives the marker,
    and markers and dashes of its own to every value but the first.

    Args:
        rows: Rows of all lines of the figure.
        columns: Columns that may tell lines apart.
    """
    varying = [column for column in columns if rows[column].nunique() > 1] or list(columns[:1])
    ranks = {column: _ranked({str(value) for value in rows[column].unique()}) for column in varying}
    found = {tuple(str(value) for value in line) for line in rows[varying].drop_duplicates().itertuples(index=False)}
    ordered = sorted(found, key=lambda line: [ranks[c].index(v) for c, v in zip(varying, line, strict=True)])
    return [Series(dict(zip(varying, line, strict=True)), _look(line, list(ranks.values()))) for line in ordered]


def _ranked(names: set[str]) -> list[str]:
    """Values of a column in the order of legends."""
    return style.ordered_names(names) if names <= set(style.NAMES) else style.ordered(names)


def _look(values: tuple[str, ...], ranks: list[list[str]]) -> style.Look:
    """Appearance of a line."""
    first, *rest = (style.look(value) for value in values)
    if not rest:
        return first
    later = any(value != names[0] for value, names in zip(values[1:], ranks[1:], strict=True))
    label = ", ".join([first.label, *(look.label for look in rest)])
    return style.Look(label, first.color, rest[0].marker, first.dashed or later)
