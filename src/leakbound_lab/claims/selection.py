"""Selection of rows of a table by column and value."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Strict

from leakbound.registry import nearest
from leakbound_lab.config.defenses import default_defenses

if TYPE_CHECKING:  # options of plots and claims are checked without loading pandas
    import pandas as pd

    from leakbound_lab.config.catalogue import FigureConfig

Columns = Annotated[tuple[str, ...], Strict(False)]
"""Option with the names of columns of a table."""


class SelectionError(ValueError):
    """A condition on a column that the table does not have."""


class EmptySelectionError(SelectionError):
    """Conditions that no row meets. The message states the condition that leaves no row."""


def require(rows: pd.DataFrame, *columns: str) -> None:
    """Refuse a table that lacks one of the columns that a plot or a claim needs.

    Args:
        rows: Any table.
        columns: Names of the columns.

    Raises:
        SelectionError: With the missing column and the nearest name that exists.
    """
    for column in columns:
        if column not in rows.columns:
            hint = nearest(column, [str(name) for name in rows.columns])
            raise SelectionError(f"a plot or claim needs the column {column!r}; {hint}")


def select(rows: pd.DataFrame, conditions: Mapping[str, Any]) -> pd.DataFrame:
    """Choose the rows that meet every condition.

    Args:
        rows: Any table.
        conditions: Column to a value, to a list of allowed values, or to ``{"not": ...}`` with values that
            are not allowed. ``None`` means a missing value, e.g. the level of undefended runs. Numbers are
            compared up to rounding.

    Returns:
        The rows in their order, newly numbered.

    Raises:
        SelectionError: If a condition has an unknown column, or a key other than ``not``.
        EmptySelectionError: If no row is left. The message states the condition that leaves none, and the
            values in the table.
    """
    left = np.arange(len(rows))  # each condition is only asked of rows that meet those before it
    for column, wanted in conditions.items():
        if column not in rows.columns:
            raise SelectionError(
                f"select.{column}: unknown column; {nearest(column, [str(c) for c in rows.columns])}"
            )
        values = rows[column] if len(left) == len(rows) else rows[column].iloc[left]
        met = _meets(values, wanted)
        if not met.any():
            present = sorted({str(value) for value in values.unique()})
            listed = ", ".join(present[:12]) + (", ..." if len(present) > 12 else "")
            raise EmptySelectionError(
                f"select.{column} = {wanted!r} leaves no row; there are {listed or 'no rows'}"
            )
        left = left[met]
    return rows.iloc[left].reset_index(drop=True)


def select_or_nothing(rows: pd.DataFrame, conditions: Mapping[str, Any]) -> pd.DataFrame:
    """Choose the rows that meet every condition, possibly none.

    Args:
        rows: Any table.
        conditions: As for :func:`select`.

    Raises:
        SelectionError: If a condition names an unknown column.
    """
    try:
        return select(rows, conditions)
    except EmptySelectionError:
        return rows.iloc[:0]


def rows_of(figure: FigureConfig, rows: pd.DataFrame) -> pd.DataFrame:
    """Choose the rows of a table that a figure and its claims use.

    They meet the figure's conditions. Of a table with a column ``chosen``, only rows at chosen learning rates
    are kept, unless the figure has ``rates: all``.

    Args:
        figure: Entry of the catalogue.
        rows: The table that the figure shows.

    Returns:
        The rows in their order, newly numbered, possibly none.

    Raises:
        SelectionError: If a condition names an unknown column.
    """
    if figure.rates == "chosen" and "chosen" in rows.columns:
        rows = rows[rows["chosen"].to_numpy(dtype=bool)]
    return select_or_nothing(rows, figure.select).reset_index(drop=True)


def common_blocks(table: pd.DataFrame) -> pd.MultiIndex:
    """List the blocks that at least half of a study's runs on a dataset and network have.

    A study may share runs with one of more replicas, and a repeat adds replicas of some arms alone. Means of two
    arms are compared, so they are those of common blocks.

    Args:
        table: Rows of a study, with the columns dataset, model, replica and run.

    Returns:
        (dataset, model, replica) of each block.
    """
    setting = ["dataset", "model", "replica"]
    single = table.loc[table["replica"] >= 0, [*setting, "run"]]
    runs = single.groupby(setting)["run"].nunique()
    return runs.index[runs >= runs.groupby(level=setting[:2]).transform("max") / 2]


def shown_rows(figure: FigureConfig, table: pd.DataFrame) -> pd.DataFrame:
    """Choose the rows of a table that a picture shows: those of :func:`rows_of`, on common blocks.

    Args:
        figure: Entry of the catalogue.
        table: The whole table that the figure shows.

    Returns:
        The rows in their order, newly numbered, possibly none. Rows about all replicas (negative numbers) stay.

    Raises:
        SelectionError: If a condition names an unknown column.
    """
    import pandas as pd

    rows = rows_of(figure, table)
    if not {"dataset", "model", "replica", "run"} <= set(table.columns):
        return rows
    blocks = pd.MultiIndex.from_frame(rows[["dataset", "model", "replica"]])
    return rows[blocks.isin(common_blocks(table)) | (rows["replica"] < 0)].reset_index(drop=True)


def larger_is_stronger(rows: pd.DataFrame) -> pd.Series:
    """Mark the rows of defenses that protect most at their largest level. Others protect most at their smallest.

    Args:
        rows: Table with the column defense. The column ``stronger_with`` states the direction. If a defense
            has no entry there, or the table lacks the column, the default for its name applies.

    Returns:
        True or False for each row.
    """
    by_name = rows["defense"].map(
        {name: defense.stronger_with for name, defense in default_defenses().items()}
    )
    stated = rows.get("stronger_with", by_name)
    return stated.where(stated.notna(), by_name) == "larger level"


def with_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Rank each level among the levels of its defense in the column ``strength``, the strongest first.

    Args:
        rows: Any table. It is returned unchanged if it lacks the column defense or level.
    """
    if not {"defense", "level"} <= set(rows.columns):
        return rows
    signed = rows["level"].where(~larger_is_stronger(rows), -rows["level"])
    return rows.assign(strength=signed.groupby(rows["defense"]).rank(method="dense"))


def split(rows: pd.DataFrame, columns: Iterable[str]) -> dict[tuple[Hashable, ...], pd.DataFrame]:
    """Split rows by their values in ``columns``. A missing value counts as a value.

    Args:
        rows: Any table.
        columns: Names of the columns.

    Returns:
        The values of the columns to the rows that have them.

    Raises:
        SelectionError: If the table lacks a column.
    """
    columns = list(columns)
    require(rows, *columns)
    if not columns:
        return {(): rows}
    groups = rows.groupby(columns, sort=True, dropna=False)
    return {tuple(None if value != value else value for value in key): group for key, group in groups}


def series_means(series: Sequence[pd.DataFrame], match: Iterable[str]) -> list[pd.DataFrame]:
    """Average each replica of several series, for each value of ``match`` that all series have.

    Args:
        series: Rows of each series.
        match: Columns that must agree.

    Returns:
        For each shared value, a table with a row for each replica in any series, and a column for each series
        in order.

    Raises:
        SelectionError: If a column is missing.
        EmptySelectionError: If the series share no value.
    """
    import pandas as pd

    match = list(match)
    for rows in series:
        require(rows, "replica", "value")
    groups = [split(rows, match) for rows in series]
    shared = [key for key in groups[0] if all(key in members for members in groups)]
    if not shared:
        raise EmptySelectionError(f"the series share no {', '.join(match)}")
    means = [[members[key].groupby("replica")["value"].mean() for members in groups] for key in shared]
    return [pd.concat(columns, axis=1, keys=range(len(groups))) for columns in means]


def both_quantities(rows: pd.DataFrame, x: Mapping[str, Any], y: Mapping[str, Any]) -> pd.DataFrame:
    """Join two quantities as columns x and y, one row for each run, replica and recipe (learning rate, length).

    Args:
        rows: Any table with the columns run, replica and value.
        x: Conditions of the first quantity, as for :func:`select`.
        y: Conditions of the second quantity.

    Raises:
        SelectionError: If the conditions of a quantity choose several rows of a run, replica and recipe.
    """
    require(rows, "run", "replica", "value")
    point = [column for column in ("run", "replica", "learning_rate", "length") if column in rows.columns]
    first = select(rows, x)
    second = select(rows, y)
    for quantity, name in ((first, "x"), (second, "y")):
        if quantity.duplicated(point).any():
            raise SelectionError(
                f"the conditions of {name} choose several rows of one {', '.join(point)}: choose one"
            )
    return first.rename(columns={"value": "x"}).merge(
        second[[*point, "value"]].rename(columns={"value": "y"}), on=point
    )


def _meets(column: pd.Series, wanted: Any) -> np.ndarray:
    """Return True for each entry of a column that meets a condition."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if isinstance(wanted, Mapping):
        if set(wanted) != {"not"}:
            raise SelectionError(
                f"select.{column.name} = {dict(wanted)!r}: give a value, a list of values or {{not: ...}}"
            )
        return ~_meets(column, wanted["not"])
    values = wanted if isinstance(wanted, list | tuple) else [wanted]
    met = column.isna().to_numpy(dtype=bool) & (None in values)
    if not is_numeric_dtype(column) or is_bool_dtype(column):
        return met | column.isin([value for value in values if value is not None]).to_numpy(dtype=bool)
    numbers = column.to_numpy(dtype=float, na_value=np.nan)
    for value in values:
        if isinstance(value, int | float):
            met |= np.isclose(numbers, value, rtol=1e-9, atol=0.0)
    return met
