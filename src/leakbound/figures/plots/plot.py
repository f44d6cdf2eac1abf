"""What every plot is: a function of rows with declared options, drawn in the house style."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from leakbound.claims.options import parse
from leakbound.claims.selection import EmptySelectionError, SelectionError
from leakbound.config.settings import Settings
from leakbound.figures import style
from leakbound.registry import nearest

T = TypeVar("T", bound=Settings)


@dataclass(frozen=True)
class Plot(Generic[T]):
    """A plot with its declared options; called with rows and plain options."""

    name: str
    settings: type[T]
    render: Callable[[pd.DataFrame, T], Figure]

    def check(self, options: Mapping[str, Any]) -> T:
        """The options, or an OptionsError with every mistake in them."""
        return parse(self.settings, options, f"plot {self.name}")

    def __call__(self, rows: pd.DataFrame, *, options: Mapping[str, Any]) -> Figure:
        """Draw rows, leaving out values that are not finite.

        Where nothing is left to draw, e.g. because every replica diverged, the picture says so and why.

        Raises:
            OptionsError: If an option is wrong.
            SelectionError: If the rows lack a column.
        """
        checked = self.check(options)
        require(rows, "value")
        finite = rows[np.isfinite(rows["value"].to_numpy(float))].reset_index(drop=True)
        with style.applied():
            try:
                return self.render(finite, checked)
            except EmptySelectionError as reason:
                return _empty(_undefined(rows, finite) or str(reason))


def _undefined(rows: pd.DataFrame, finite: pd.DataFrame) -> str:
    """Sentence that names the metrics of which no value is finite; empty if there are none."""
    if "metric" not in rows.columns:
        return ""
    lost = sorted({str(name) for name in rows["metric"].unique()} - {str(name) for name in finite["metric"].unique()})
    return f"no value of {', '.join(lost)} is defined; the caption says what it needs" if lost else ""


def _empty(reason: str) -> Figure:
    """A picture that says why it shows nothing."""
    figure = Figure(figsize=(style.ONE_COLUMN, style.HEIGHT / 2))
    text = "\n".join(textwrap.wrap(f"Nothing to show: {reason}", 52))
    figure.text(0.5, 0.5, text, ha="center", va="center", color=style.CONTROL_COLOR)
    return figure


def require(rows: pd.DataFrame, *columns: str) -> None:
    """Refuse a table that lacks one of the columns a plot needs.

    Raises:
        SelectionError: Naming the column and the nearest one there is.
    """
    for column in columns:
        if column not in rows.columns:
            known = nearest(column, [str(name) for name in rows.columns])
            raise SelectionError(f"a plot needs the column {column!r}; {known}")
