"""Choose rows of a table by column and value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from leakbound.registry import nearest


class SelectionError(ValueError):
    """A condition that names a column that the table does not have."""


class EmptySelectionError(SelectionError):
    """Conditions that no row meets; the message names the one that leaves nothing."""


def select(rows: pd.DataFrame, conditions: Mapping[str, Any]) -> pd.DataFrame:
    """Rows that meet every condition.

    Args:
        rows: Any table.
        conditions: Column to a value, to a list of values of which a row may have any, or to ``{"not": ...}`` with
            those that it may not have. ``None`` stands for a missing value, e.g. the level of undefended runs. Numbers
            are equal up to rounding.

    Returns:
        The rows in their order, newly numbered.

    Raises:
        SelectionError: If a condition names an unknown column, or says something else than ``not``.
        EmptySelectionError: If no row is left, naming the condition that leaves none and the values there were.
    """
    for column, wanted in conditions.items():
        if column not in rows.columns:
            raise SelectionError(f"select.{column}: unknown column; {nearest(column, [str(c) for c in rows.columns])}")
        kept = rows[_meets(rows[column], wanted)]
        if kept.empty:
            present = sorted({str(value) for value in rows[column].unique()})
            shown = ", ".join(present[:12]) + (", ..." if len(present) > 12 else "")
            raise EmptySelectionError(f"select.{column} = {wanted!r} leaves no row; there are {shown or 'no rows'}")
        rows = kept
    return rows.reset_index(drop=True)


def _meets(column: pd.Series, wanted: Any) -> np.ndarray:
    """Whether each entry of a column is as a condition wants it."""
    if isinstance(wanted, Mapping):
        if set(wanted) != {"not"}:
            raise SelectionError(
                f"select.{column.name} = {dict(wanted)!r}: give a value, a list of values or {{not: ...}}"
            )
        return ~_meets(column, wanted["not"])
    return _matches(column, list(wanted) if isinstance(wanted, list | tuple) else [wanted])


def _matches(column: pd.Series, values: list[Any]) -> np.ndarray:
    """Whether each entry of a column is one of ``values``."""
    missing = column.isna().to_numpy(dtype=bool)
    found = missing & any(value is None for value in values)
    wanted = [value for value in values if value is not None]
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(dtype=float, na_value=np.nan)
        for value in wanted:
            if isinstance(value, int | float):
                found |= np.isclose(numbers, value, rtol=1e-9, atol=0.0)
        return found
    return found | column.isin(wanted).to_numpy(dtype=bool)
