"""Claims about ranks: values that move along a column, series that lie above each other, quantities that go together.

The effect is a share of ascending minus descending pairs, in [-1, 1]. Its 95 % interval is made from resampled
replicas (``intervals.rank_interval``).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from leakbound.claims import intervals, statistics
from leakbound.claims.claim_options import Association, Order, Trend
from leakbound.claims.outcomes import Outcome, both_quantities, exact_outcome, require, split, undecidable
from leakbound.claims.selection import EmptySelectionError, SelectionError, select
from leakbound.config.strength import with_strength


def follow(sign: int, rows: pd.DataFrame, options: Trend, generator: np.random.Generator) -> Outcome:
    """Whether values rise (sign 1) or fall (sign -1) along a column.

    By Jonckheere and Terpstra where the replicas at each value are independent of those at the others. With
    ``blocks``, where replica r is the same problem at every value, by Page within each replica.

    Args:
        sign: 1 or -1.
        rows: Rows of one setting.
        options: What is compared.
        generator: Draws permutations and resamples.

    Raises:
        SelectionError: If a column is missing, or an exact trend has several rows for a value.
    """
    rows = select(rows, options.where)
    require(rows, (options.by, *options.within, "value"))
    if options.blocks:
        return _follow_blocks(sign, rows, options, generator)
    strata = [
        [group["value"].to_numpy(float) for _, group in stratum.groupby(options.by, sort=True)]
        for stratum in split(rows, options.within).values()
    ]
    if options.exact:
        if any(len(group) != 1 for stratum in strata for group in stratum):
            raise SelectionError(f"an exact trend along {options.by} needs one row for each of its values")
        steps = sign * np.concatenate([np.diff(np.concatenate(stratum)) for stratum in strata])
        return exact_outcome(steps, f"{len(steps)} steps along {options.by}")
    strata = [stratum for stratum in strata if len(stratum) > 1]
    if not strata:
        return undecidable(rows, f"only one value of {options.by}: no trend to see")
    values = max(len(stratum) for stratum in strata)
    return _jonckheere(sign, strata, f"Jonckheere–Terpstra over {values} values of {options.by}", generator)


def _follow_blocks(sign: int, rows: pd.DataFrame, options: Trend, generator: np.random.Generator) -> Outcome:
    """Page's test; the effect is the mean over replicas of the share of ascending minus descending pairs."""
    require(rows, ("replica",))
    table = rows.pivot_table(index="replica", columns=options.by, values="value", aggfunc="mean").dropna()
    if table.empty or table.shape[1] < 2:
        return undecidable(rows, f"no replica has several values of {options.by}: no trend to see")
    return _page(sign, table.to_numpy(float), f"{table.shape[1]} values of {options.by}", generator)


def _page(sign: int, values: Float[np.ndarray, "replicas count"], what: str, generator: np.random.Generator) -> Outcome:
    """Outcome of Page's test on one row per replica, columns in the claimed order."""
    replicas, count = values.shape
    tested = statistics.page(values, generator)
    shares = np.array([statistics.trend_effect([[np.full((1, 1), x) for x in row]]).item() for row in values])
    low, high = math.nan, math.nan
    if replicas > 1:
        draws = intervals.resampled(shares, generator).mean(axis=1)
        low, high = intervals.rank_interval(float(shares.mean()), draws, replicas)
    return Outcome(
        float(shares.mean()),
        low,
        high,
        tested.p_value,
        sign * tested.direction,
        replicas,
        f"Page's test over {what} within {replicas} replicas; effect: ascending minus descending share of a replica's "
        "pairs",
        smallest_p=lambda n: statistics.smallest_trend_p([[1] * count] * n),
    )


def order(rows: pd.DataFrame, options: Order, generator: np.random.Generator) -> Outcome:
    """Jonckheere–Terpstra across series, stratified by what must match; with ``blocks`` Page's test across replicas.

    Series without rows are left out, and named, where at least two others have some.

    Args:
        rows: Rows of one setting.
        options: What is compared.
        generator: Draws permutations and resamples.

    Raises:
        SelectionError: If a column is missing, or fewer than two series have rows.
    """
    rows = with_strength(select(rows, options.where))
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
    without = f", {len(absent)} series without rows left out" if absent else ""
    if options.blocks:
        return _order_blocks([[groups[key] for key in shared] for groups in series], rows, without, generator)
    strata = [[groups[key]["value"].to_numpy(float) for groups in series] for key in shared]
    what = f"Jonckheere–Terpstra over {len(series)} series{without}, {len(strata)} strata"
    return _jonckheere(1, strata, what, generator)


def _order_blocks(
    series: list[list[pd.DataFrame]], rows: pd.DataFrame, without: str, generator: np.random.Generator
) -> Outcome:
    """Page's test of each replica's means over the matches, series by series."""
    require(rows, ("replica",))
    columns = {
        place: pd.concat([group.groupby("replica")["value"].mean() for group in groups], axis=1).dropna().mean(axis=1)
        for place, groups in enumerate(series)
    }
    table = pd.DataFrame(columns).dropna()
    if table.empty:
        return undecidable(rows, "no replica has all series at every match that they share")
    return _page(1, table.to_numpy(float), f"{len(series)} series{without}", generator)


def _jonckheere(sign: int, strata: list[list[np.ndarray]], what: str, generator: np.random.Generator) -> Outcome:
    """Outcome of the test over groups of independent replicas."""
    sizes = [[len(group) for group in stratum] for stratum in strata]
    replicas = min(min(groups) for groups in sizes)
    tested = statistics.jonckheere(strata, generator)
    effect = statistics.trend_effect([[group[None, :] for group in stratum] for stratum in strata]).item()
    low, high = math.nan, math.nan
    if replicas > 1:
        draws = [[intervals.resampled(group, generator) for group in stratum] for stratum in strata]
        low, high = intervals.rank_interval(effect, statistics.trend_effect(draws), replicas)
    return Outcome(
        effect,
        low,
        high,
        tested.p_value,
        sign * tested.direction,
        replicas,
        f"{what}; effect: ascending minus descending share of pairs",
        smallest_p=lambda n: statistics.smallest_trend_p([[n] * len(groups) for groups in sizes]),
    )


def associate(sign: int, rows: pd.DataFrame, options: Association, generator: np.random.Generator) -> Outcome:
    """Kendall's τ between two quantities over levels and replicas.

    Args:
        sign: 1 if they are claimed to go together, -1 if against each other.
        rows: Rows of one setting.
        options: What is compared.
        generator: Draws resamples.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one replica.
    """
    both = both_quantities(select(rows, options.where), options.x, options.y)
    x, y = both["x"].to_numpy(float), both["y"].to_numpy(float)
    replicas = int(both.groupby("run").size().min()) if len(both) else 0
    if len(both) < 4 or len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return undecidable(rows, f"{len(both)} replicas with different values of both: too few to see a relation")
    effect, p_value = stats.kendalltau(x, y)
    runs = list(both.groupby("run", sort=True).indices.values())
    low, high = math.nan, math.nan
    if replicas > 1:
        low, high = intervals.rank_interval(float(effect), _tau_draws(x, y, runs, generator), replicas)
    return Outcome(
        float(effect),
        low,
        high,
        float(p_value),
        sign * int(np.sign(effect)),
        replicas,
        f"Kendall's τ over {len(both)} replicas of {len(runs)} runs",
        smallest_p=lambda n: min(1.0, 2 * math.exp(-math.lgamma(n * len(runs) + 1))),
    )


def _tau_draws(
    x: np.ndarray, y: np.ndarray, runs: list[np.ndarray], generator: np.random.Generator
) -> Float[np.ndarray, " draws"]:
    """Kendall's τ after resampling the replicas of each run; 0 where a resample has no spread."""
    first, second = (np.sign(values[:, None] - values[None, :]) for values in (x, y))
    chosen = np.concatenate([intervals.resampled(run, generator) for run in runs], axis=1)
    draws = np.zeros(len(chosen))
    for draw, index in enumerate(chosen):
        a, b = first[np.ix_(index, index)], second[np.ix_(index, index)]
        spread = math.sqrt((a * a).sum() * (b * b).sum())
        draws[draw] = (a * b).sum() / spread if spread else 0.0
    return draws
