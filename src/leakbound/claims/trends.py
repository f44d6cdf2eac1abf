"""Claims about trends: values that move along a column, series that lie above each other, slopes that differ.

A trend is seen by Page's statistic, the rank correlation within a block. Page's own null takes all orders of
a block's values to be equally likely, which fails where levels differ in variance: with 3 and 4 levels of
standard deviations 4, 1, …, 4 it errs in 7 % of cases at a level of 5 %. Its sign is therefore flipped from
block to block. The effect is the slope in the metric's unit: for each doubling of the column, or for each
step from value to value where the column has values that are not positive or are mere places. It must be seen
by itself too, as ranks follow medians and not means.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field, Strict

from leakbound.claims.outcomes import ROUNDING, Blocks, ClaimOptions, ClaimTest, Exact, complete, exactly
from leakbound.claims.selection import (
    Columns,
    EmptySelectionError,
    SelectionError,
    require,
    select,
    select_ranked,
    series_means,
    split,
)
from leakbound.claims.statistics import rank_correlation
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


_PER = {True: " per doubling", False: " per step"}


class Trend(ClaimOptions):
    """A value that moves one way along a column."""

    COMPARED: ClassVar[tuple[str, ...]] = ("by",)

    by: str = "level"
    """Column along which the value moves."""
    within: Columns = ()
    """Columns whose values have trends of their own, of which a block counts the mean."""
    exact: bool = False
    """Set where the rows are closed forms, of which no step may go back by more than rounding, and some go on."""


class Order(ClaimOptions):
    """Series that lie above each other."""

    COMPARED: ClassVar[tuple[str, ...]] = ("series",)

    series: Annotated[tuple[Conditions, ...], Strict(False), Field(min_length=2)]
    """Conditions of each series, from the lowest to the highest."""
    match: Columns = ("level",)
    """Columns that must agree; ``strength`` ranks each defense's levels from the strongest."""


class Steepness(ClaimOptions):
    """A value that rises faster along a column in one series than in another one."""

    COMPARED: ClassVar[tuple[str, ...]] = ("a", "b", "by")

    a: Conditions
    """Conditions of the series claimed to be steeper."""
    b: Conditions
    """Conditions of the other series."""
    by: str = "level"
    """Column along which values rise."""


def follow(sign: int, rows: pd.DataFrame, options: Trend) -> Blocks | Exact:
    """Measure the trend along a column within each replica.

    Args:
        sign: 1 if it is claimed to rise, -1 to fall.
        rows: Rows of one dataset and network.
        options: Options of the claim.

    Raises:
        SelectionError: If a column is missing, or an exact trend has several rows for a value.
        EmptySelectionError: If there is no replica, or no second value.
    """
    rows = select(rows, options.where)
    require(rows, options.by, *options.within, "value")
    if options.exact:
        return _exact(sign, rows, options)
    require(rows, "replica")
    tables = [_table(group, options.by) for group in split(rows, options.within).values()]
    tables = [table for table in tables if table.shape[1] > 1]
    if not tables:
        raise EmptySelectionError(f"only one value of {options.by}: no trend to see")
    return _moved(sign, tables, options.by, _is_ratio(*tables))


def order(rows: pd.DataFrame, options: Order) -> Blocks:
    """Measure the trend from series to series within each replica. The effect is the mean step.

    Series without rows are left out, and named, where at least two others have some.

    Raises:
        SelectionError: If a column is missing.
        EmptySelectionError: If fewer than two series have rows, or they share nothing that must match.
    """
    rows = select_ranked(rows, options.where)
    present, absent = [], []
    for conditions in options.series:
        try:
            present.append(select(rows, conditions))
        except EmptySelectionError as reason:
            absent.append(reason)
    if len(present) < 2:
        raise absent[0]
    moved = _moved(1, series_means(present, options.match), "the series", False)
    note = f"; {len(absent)} series without rows left out" if absent else ""
    return replace(moved, detail=moved.detail + note)


def steepen(rows: pd.DataFrame, options: Steepness) -> Blocks:
    """Compare the slopes of two series within each replica.

    Raises:
        SelectionError: If a column is missing.
        EmptySelectionError: If no replica has both series at several values.
    """
    rows = select(rows, options.where)
    require(rows, "replica", "value", options.by)
    tables = [_table(select(rows, conditions), options.by) for conditions in (options.a, options.b)]
    if min(table.shape[1] for table in tables) < 2:
        raise EmptySelectionError(f"a series has only one value of {options.by}: no slope to see")
    (a, b), left_out = complete(tables)
    ratio = _is_ratio(a, b)
    effects = _slopes(a, ratio) - _slopes(b, ratio)
    detail = f"sign flips; effect: difference of the slopes{_PER[ratio]} of {options.by}"
    return Blocks(effects.to_frame("slope"), 1, detail, per=_PER[ratio], left_out=left_out)


def _exact(sign: int, rows: pd.DataFrame, options: Trend) -> Exact:
    """Steps of closed forms, of which each must go the claimed way."""
    steps, slack = [], []
    for stratum in split(rows, options.within).values():
        if stratum.duplicated(options.by).any():
            raise SelectionError(f"an exact trend along {options.by} needs one row for each of its values")
        values = stratum.sort_values(options.by)["value"].to_numpy(float)
        rounding = ROUNDING * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
        steps.append(sign * np.diff(values))
        slack.append(
            rounding if (steps[-1] > rounding).any() else np.full(len(rounding), -np.inf)
        )  # one that is flat does not rise
    gaps = np.concatenate(steps)
    if not len(gaps):
        raise EmptySelectionError(f"only one value of {options.by}: no trend to see")
    return exactly(gaps, np.concatenate(slack), f"{len(gaps)} steps along {options.by}")


def _table(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean value of each replica at each value of a column, a row a replica."""
    return rows.pivot_table(index="replica", columns=by, values="value", aggfunc="mean")


def _moved(sign: int, tables: list[pd.DataFrame], by: str, ratio: bool) -> Blocks:
    """Slopes, ranks and steps of each replica along the columns of tables, averaged over the tables."""
    import pandas as pd

    shared, left_out = complete(tables)
    slopes = sum(_slopes(table, ratio) for table in shared) / len(shared)
    ranks = [rank_correlation(np.broadcast_to(_places(t, ratio), t.shape), t.to_numpy(float)) for t in shared]
    steps = pd.concat([_steps(table) for table in shared], axis=1).T.groupby(level=0, sort=False).mean().T
    levels = max(table.shape[1] for table in shared)
    return Blocks(
        pd.DataFrame({"slope": slopes}),
        sign,
        f"sign flips of Page's statistic over {levels} values of {by}, and of slopes; effect: mean slope{_PER[ratio]}",
        scores=pd.DataFrame({"slope": np.mean(ranks, axis=0)}, index=shared[0].index),
        steps=sign * steps,
        widths={name: width for table in shared for name, width in _widths(table, ratio).items()},
        levels=levels,
        per=_PER[ratio],
        left_out=left_out,
    )


def _is_ratio(*tables: pd.DataFrame) -> bool:
    """True if all values along the tables are positive, so that they double."""
    return all((table.columns.to_numpy(float) > 0).all() for table in tables)


def _places(table: pd.DataFrame, ratio: bool) -> Float[np.ndarray, " values"]:
    """Places of the values along a table: doublings, or steps from value to value."""
    x = table.columns.to_numpy(float)
    return np.log2(x) if ratio else np.arange(len(x), dtype=float)


def _slopes(table: pd.DataFrame, ratio: bool) -> pd.Series[float]:
    """Least-squares slope of each row."""
    centred = _places(table, ratio) - _places(table, ratio).mean()
    return table @ (centred / (centred @ centred))


def _steps(table: pd.DataFrame) -> pd.DataFrame:
    """Differences between neighbouring columns, named by both."""
    return table.diff(axis=1).iloc[:, 1:].set_axis(list(_widths(table, False)), axis=1)


def _widths(table: pd.DataFrame, ratio: bool) -> dict[str, float]:
    """Name of each step to how far apart its ends lie."""
    names = [f"{low:g} to {high:g}" for low, high in zip(table.columns[:-1], table.columns[1:], strict=True)]
    return dict(zip(names, map(float, np.diff(_places(table, ratio))), strict=True))


increasing = ClaimTest("increasing", Trend, partial(follow, 1))
decreasing = ClaimTest("decreasing", Trend, partial(follow, -1))
ordered = ClaimTest("ordered", Order, order)
steeper = ClaimTest("steeper", Steepness, steepen)
