"""Claims about trends: values that rise or fall along a column or with each other, series in order, slopes.

Page's statistic, the rank correlation within a block, detects a trend. Page's null distribution assumes that
all orders of a block's values are equally likely. This fails if levels differ in variance: with 3 and 4
levels of standard deviations 4, 1, …, 4 it errs in 7 % of cases at a level of 5 %. The sign of the statistic
is therefore flipped from block to block. The effect is the slope in the metric's unit. It counts per doubling
of the column, or per step from value to value if the column has values that are not positive or only order
the rows. The slope is tested by itself too, because ranks follow medians and not means.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field, Strict

from leakbound_lab.claims.outcomes import ROUNDING, Blocks, ClaimOptions, ClaimTest, Exact, complete, exactly
from leakbound_lab.claims.selection import (
    Columns,
    EmptySelectionError,
    SelectionError,
    both_quantities,
    require,
    select,
    series_means,
    split,
    with_strength,
)
from leakbound_lab.claims.statistics import rank_correlation
from leakbound_lab.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd

_PER = {True: " per doubling", False: " per step"}


class Trend(ClaimOptions):
    """A value that rises or falls along a column."""

    COMPARED: ClassVar[tuple[str, ...]] = ("by",)

    by: str = "level"
    """Column along which the value moves."""
    within: Columns = ()
    """Columns for each of whose values there is a trend. The number of a block is their mean."""
    exact: bool = False
    """True if the rows are closed forms. No step may then go back by more than rounding, and one must go on."""


class Order(ClaimOptions):
    """Series that lie above each other."""

    COMPARED: ClassVar[tuple[str, ...]] = ("series",)

    series: Annotated[tuple[Conditions, ...], Strict(False), Field(min_length=2)]
    """Conditions of each series, from the lowest to the highest."""
    match: Columns = ("level",)
    """Columns that must agree. ``strength`` ranks the levels of each defense from the strongest."""


class Steepness(ClaimOptions):
    """A value that rises faster along a column in one series than in another."""

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
        sign: 1 if the value is claimed to rise, -1 to fall.
        rows: Rows of one dataset and network.
        options: Column of the trend, and conditions of the rows.

    Returns:
        The slope of each replica, in the metric's unit per doubling or per step. For closed forms, whether
        the claim holds.

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

    Series without rows are left out, and the detail counts them, if at least two others have rows.

    Args:
        rows: Rows of one dataset and network.
        options: Conditions of each series, from the lowest to the highest.

    Returns:
        The mean step of each replica, in the metric's unit.

    Raises:
        SelectionError: If a column is missing.
        EmptySelectionError: If fewer than two series have rows, or the series have no match in common.
    """
    rows = with_strength(select(rows, options.where))
    present = []
    absent = []
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

    Args:
        rows: Rows of one dataset and network.
        options: Conditions of both series, and the column of the trend.

    Returns:
        The difference of the slopes of each replica, in the metric's unit per doubling or per step.

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
    """Check the steps of closed forms, each of which must have the claimed direction."""
    steps = []
    slack = []
    for stratum in split(rows, options.within).values():
        if stratum.duplicated(options.by).any():
            raise SelectionError(f"an exact trend along {options.by} needs one row for each of its values")
        values = stratum.sort_values(options.by)["value"].to_numpy(float)
        rounding = ROUNDING * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
        steps.append(sign * np.diff(values))
        flat = not (steps[-1] > rounding).any()  # a flat series does not rise
        slack.append(np.full(len(rounding), -np.inf) if flat else rounding)
    gaps = np.concatenate(steps)
    if not len(gaps):
        raise EmptySelectionError(f"only one value of {options.by}: no trend to see")
    return exactly(gaps, np.concatenate(slack), f"{len(gaps)} steps along {options.by}")


def _table(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the mean value of each replica (row) at each value of a column."""
    return rows.pivot_table(index="replica", columns=by, values="value", aggfunc="mean")


def _moved(sign: int, tables: list[pd.DataFrame], by: str, ratio: bool) -> Blocks:
    """Measure slopes, ranks and steps of each replica along the columns of tables, averaged over tables."""
    import pandas as pd

    shared, left_out = complete(tables)
    slopes = sum(_slopes(table, ratio) for table in shared) / len(shared)
    ranks = [rank_correlation(np.broadcast_to(_places(t, ratio), t.shape), t.to_numpy(float)) for t in shared]
    steps = [t.diff(axis=1).iloc[:, 1:].set_axis(list(_widths(t, False)), axis=1) for t in shared]
    mean_steps = pd.concat(steps, axis=1).T.groupby(level=0, sort=False).mean().T
    levels = max(table.shape[1] for table in shared)
    return Blocks(
        pd.DataFrame({"slope": slopes}),
        sign,
        f"sign flips of Page's statistic over {levels} values of {by}, and of slopes; effect: mean slope{_PER[ratio]}",
        scores=pd.DataFrame({"slope": np.mean(ranks, axis=0)}, index=shared[0].index),
        steps=sign * mean_steps,
        widths={name: width for table in shared for name, width in _widths(table, ratio).items()},
        levels=levels,
        per=_PER[ratio],
        left_out=left_out,
    )


def _is_ratio(*tables: pd.DataFrame) -> bool:
    """Return True if all values along the tables are positive, so that doublings can be counted."""
    return all((table.columns.to_numpy(float) > 0).all() for table in tables)


def _places(table: pd.DataFrame, ratio: bool) -> Float[np.ndarray, " values"]:
    """Return the places of the values along a table, in doublings or in steps from value to value."""
    x = table.columns.to_numpy(float)
    return np.log2(x) if ratio else np.arange(len(x), dtype=float)


def _slopes(table: pd.DataFrame, ratio: bool) -> pd.Series[float]:
    """Compute the least-squares slope of each row."""
    centred = _places(table, ratio) - _places(table, ratio).mean()
    return table @ (centred / (centred @ centred))


def _widths(table: pd.DataFrame, ratio: bool) -> dict[str, float]:
    """Return the distance between the ends of each step, by the name of the step."""
    names = [f"{low:g} to {high:g}" for low, high in zip(table.columns[:-1], table.columns[1:], strict=True)]
    return dict(zip(names, map(float, np.diff(_places(table, ratio))), strict=True))


increasing = ClaimTest("increasing", Trend, partial(follow, 1))
decreasing = ClaimTest("decreasing", Trend, partial(follow, -1))
ordered = ClaimTest("ordered", Order, order)
steeper = ClaimTest("steeper", Steepness, steepen)


class Association(ClaimOptions):
    """Two quantities of the same runs."""

    COMPARED: ClassVar[tuple[str, ...]] = ("x", "y")

    x: Conditions
    """Conditions of the first quantity."""
    y: Conditions
    """Conditions of the second quantity."""


def associate(sign: int, rows: pd.DataFrame, options: Association) -> Blocks:
    """Correlate two quantities over the levels of each replica by Spearman's ρ.

    Args:
        sign: 1 if the claim is that they rise together, -1 if one falls as the other rises.
        rows: Rows of one dataset and network.
        options: Conditions of both quantities.

    Returns:
        A rank correlation, in [-1, 1], for each replica that has both quantities at all levels.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one run and replica.
        EmptySelectionError: If no replica has both quantities at two levels.
    """
    import pandas as pd

    both = both_quantities(select(rows, options.where), options.x, options.y)
    most = int(both.groupby("replica").size().max()) if len(both) else 0
    if most < 2:
        raise EmptySelectionError("no replica has both quantities at several levels")
    correlations: dict[int, float] = {}
    for replica, group in both.groupby("replica"):
        if len(group) == most:
            x, y = (group[name].to_numpy(float)[np.newaxis] for name in ("x", "y"))
            correlations[replica] = rank_correlation(x, y).item()
    return Blocks(
        pd.DataFrame({"correlation": correlations}),
        sign,
        f"sign flips; effect: mean rank correlation over {most} levels",
        left_out=both["replica"].nunique() - len(correlations),
    )


concordant = ClaimTest("concordant", Association, partial(associate, 1))
discordant = ClaimTest("discordant", Association, partial(associate, -1))
