"""Claims about slopes: a value that rises faster in one series than in another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound import metrics
from leakbound.claims import intervals, statistics
from leakbound.claims.claim_options import Steepness
from leakbound.claims.outcomes import Outcome, require, undecidable
from leakbound.claims.selection import SelectionError, select


def steepen(rows: pd.DataFrame, options: Steepness, generator: np.random.Generator) -> Outcome:
    """Whether one series rises faster along a column than another one; the effect is the difference of their slopes.

    A replica's slope is that of the least-squares line through its values. Slopes of independent replicas are compared
    by permutation; with ``blocks`` the signs of each replica's difference are flipped.

    Args:
        rows: Rows of one setting.
        options: What is compared.
        generator: Draws permutations where there are too many to visit.

    Raises:
        SelectionError: If a column is missing, or the logarithm of a value along it does not exist.
    """
    rows = select(rows, options.where)
    require(rows, ("replica", "value", options.by))
    smallest: Callable[[int], float]
    first, second = (_slopes(select(rows, conditions), options) for conditions in (options.a, options.b))
    if options.blocks:
        shared = first.index.intersection(second.index)
        differences = (first[shared] - second[shared]).to_numpy(float)
        if not len(differences):
            return undecidable(rows, f"no replica has both series at several values of {options.by}")
        tested, replicas = statistics.paired_greater(differences, generator), len(differences)
        interval = metrics.mean_interval(differences)
        low, high = interval.low, interval.high
        smallest, what = partial(statistics.smallest_sign_p, strata=1), f"sign-flip test over {replicas} replicas"
    else:
        a, b = first.to_numpy(float), second.to_numpy(float)
        if not len(a) or not len(b):
            return undecidable(rows, f"a series has no replica with several values of {options.by}")
        tested, replicas = statistics.greater([(a, b)], generator), min(len(a), len(b))
        low, high = intervals.combined_interval([(1.0, a), (-1.0, b)])
        smallest, what = _smallest_p, f"permutation test of {len(a)} against {len(b)} slopes"
    along = f"{'log ' if options.log else ''}{options.by}"
    detail = f"{what}; effect: difference of the slopes along {along}"
    return Outcome(tested.statistic, low, high, tested.p_value, tested.direction, replicas, detail, smallest_p=smallest)


def _slopes(rows: pd.DataFrame, options: Steepness) -> pd.Series:
    """Slope of each replica that has all values along the column, by replica."""
    table = rows.pivot_table(index="replica", columns=options.by, values="value", aggfunc="mean").dropna()
    x: Float[np.ndarray, " values"] = table.columns.to_numpy(float)
    if options.log:
        if (x <= 0).any():
            raise SelectionError(f"slopes along log {options.by} need values above 0, not {x.min():g}")
        x = np.log(x)
    centred = x - x.mean() if len(x) else x
    if len(x) < 2:
        return pd.Series(dtype=float)
    return pd.Series(table.to_numpy(float) @ centred / (centred @ centred), index=table.index)


def _smallest_p(replicas: int) -> float:
    """Least two-sided p-value of the permutation test with so many slopes of each series."""
    return statistics.smallest_difference_p([(replicas, replicas)])
