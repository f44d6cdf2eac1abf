"""Claims about ranks: values that move along a column, series that lie above each other.

The effect is a share of ascending minus descending pairs, in [-1, 1]. Its 95 % interval is made from resampled
replicas (``intervals.rank_interval``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Float
from pydantic import Field, Strict, model_validator

from leakbound.claims import intervals, statistics
from leakbound.claims.outcomes import ClaimOptions, ClaimTest, Outcome, exact_steps, outcome, undecidable
from leakbound.claims.selection import (
    Columns,
    EmptySelectionError,
    SelectionError,
    require,
    select,
    select_ranked,
    split,
)
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


class Trend(ClaimOptions):
    """A value that moves one way along a column."""

    by: str = "level"
    """Column along which the value moves."""
    within: Columns = ()
    """Columns whose values are compared only among themselves."""
    blocks: bool = False
    """Set where replica r is the same problem at every value of ``by``, so that values compare only within replicas."""
    exact: bool = False
    """Set where the rows are closed forms, which must be strictly monotone."""

    @model_validator(mode="after")
    def _has_one_design(self) -> Trend:
        if self.blocks and (self.exact or self.within):
            raise ValueError("blocks goes with neither exact nor within: the replicas are the blocks")
        return self


class Order(ClaimOptions):
    """Series that lie above each other."""

    series: Annotated[tuple[Conditions, ...], Strict(False), Field(min_length=2)]
    """Conditions of each series, from the lowest to the highest."""
    match: Columns = ("level",)
    """Columns that must agree; ``strength`` ranks each defense's levels from the strongest."""
    blocks: bool = False
    """Set where replica r is the same problem at every match and in every series, so that only replicas count."""


def follow(sign: int, rows: pd.DataFrame, options: Trend, generator: np.random.Generator) -> Outcome:
    """Test that values rise (sign 1) or fall (sign -1) along a column.

    By Jonckheere and Terpstra where the replicas at each value are independent of those at the others. With
    ``blocks``, where replica r is the same problem at every value, by Page within each replica; the effect is the mean
    over replicas then.

    Raises:
        SelectionError: If a column is missing, or an exact trend has several rows for a value.
    """
    rows = select(rows, options.where)
    require(rows, options.by, *options.within, "value")
    if options.blocks:
        require(rows, "replica")
        table = rows.pivot_table(index="replica", columns=options.by, values="value", aggfunc="mean").dropna()
        if table.empty or table.shape[1] < 2:
            return undecidable(rows, f"no replica has several values of {options.by}: no trend to see")
        return _page(sign, table.to_numpy(float), f"{table.shape[1]} values of {options.by}", generator)
    strata = [
        [group["value"].to_numpy(float) for _, group in stratum.groupby(options.by, sort=True)]
        for stratum in split(rows, options.within).values()
    ]
    if options.exact:
        if any(len(group) != 1 for stratum in strata for group in stratum):
            raise SelectionError(f"an exact trend along {options.by} needs one row for each of its values")
        steps = sign * np.concatenate([np.diff(np.concatenate(stratum)) for stratum in strata])
        return exact_steps(steps, f"{len(steps)} steps along {options.by}")
    strata = [stratum for stratum in strata if len(stratum) > 1]
    if not strata:
        return undecidable(rows, f"only one value of {options.by}: no trend to see")
    values = max(len(stratum) for stratum in strata)
    return _jonckheere(sign, strata, f"{values} values of {options.by}", generator)


def order(rows: pd.DataFrame, options: Order, generator: np.random.Generator) -> Outcome:
    """Jonckheere–Terpstra across series, stratified by what must match; with ``blocks`` Page's test across replicas.

    Series without rows are left out, and named, where at least two others have some.

    Raises:
        SelectionError: If a column is missing, or fewer than two series have rows.
    """
    rows = select_ranked(rows, options.where)
    series, absent = [], []
    for conditions in options.series:
        try:
            series.append(split(select(rows, conditions), options.match))
        except EmptySelectionError as reason:
            absent.append(reason)
    if len(series) < 2:
        raise absent[0]
    shared = [key for key in series[0] if all(key in groups for groups in series)]
    if not shared:
        return undecidable(rows, f"the series share no {', '.join(options.match)}")
    compared = f"{len(series)} series" + (f", {len(absent)} series without rows left out" if absent else "")
    if options.blocks:
        return _order_blocks([[groups[key] for key in shared] for groups in series], rows, compared, generator)
    strata = [[groups[key]["value"].to_numpy(float) for groups in series] for key in shared]
    return _jonckheere(1, strata, f"{compared}, {len(strata)} strata", generator)


def _order_blocks(
    series: list[list[pd.DataFrame]], rows: pd.DataFrame, compared: str, generator: np.random.Generator
) -> Outcome:
    """Page's test of each replica's means over the matches, series by series."""
    import pandas as pd

    require(rows, "replica")
    columns = {
        place: pd.concat([group.groupby("replica")["value"].mean() for group in groups], axis=1).dropna().mean(axis=1)
        for place, groups in enumerate(series)
    }
    table = pd.DataFrame(columns).dropna()
    if table.empty:
        return undecidable(rows, "no replica has all series at every match that they share")
    return _page(1, table.to_numpy(float), compared, generator)


def _page(
    sign: int, values: Float[np.ndarray, "replicas count"], compared: str, generator: np.random.Generator
) -> Outcome:
    """Outcome of Page's test on one row per replica, columns in the claimed order."""
    replicas, count = values.shape
    tested = statistics.page(values, generator)
    shares = np.array([statistics.trend_effect([[np.full((1, 1), x) for x in row]]).item() for row in values])
    effect = float(shares.mean())
    interval = intervals.rank_interval(effect, intervals.resampled(shares, generator).mean(axis=1), replicas)
    detail = (
        f"Page's test over {compared} within {replicas} replicas; effect: ascending minus descending share of a "
        "replica's pairs"
    )
    return outcome(
        sign, tested, effect, interval, replicas, detail, lambda n: statistics.smallest_trend_p([[1] * count] * n)
    )


def _jonckheere(sign: int, strata: list[list[np.ndarray]], compared: str, generator: np.random.Generator) -> Outcome:
    """Outcome of the test over groups of independent replicas."""
    sizes = [[len(group) for group in stratum] for stratum in strata]
    replicas = min(min(groups) for groups in sizes)
    tested = statistics.jonckheere(strata, generator)
    effect = statistics.trend_effect([[group[None, :] for group in stratum] for stratum in strata]).item()
    draws = [[intervals.resampled(group, generator) for group in stratum] for stratum in strata]
    interval = intervals.rank_interval(effect, statistics.trend_effect(draws), replicas)
    detail = f"Jonckheere–Terpstra over {compared}; effect: ascending minus descending share of pairs"
    return outcome(
        sign,
        tested,
        effect,
        interval,
        replicas,
        detail,
        lambda n: statistics.smallest_trend_p([[n] * len(groups) for groups in sizes]),
    )


increasing = ClaimTest("increasing", Trend, partial(follow, 1))
decreasing = ClaimTest("decreasing", Trend, partial(follow, -1))
ordered = ClaimTest("ordered", Order, order)
