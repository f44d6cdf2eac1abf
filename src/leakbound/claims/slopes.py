"""Claims about slopes: a value that rises faster in one series than in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from leakbound.claims import intervals, statistics
from leakbound.claims.differences import flipped
from leakbound.claims.outcomes import ClaimOptions, ClaimTest, Outcome, outcome, undecidable
from leakbound.claims.selection import SelectionError, require, select
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


class Steepness(ClaimOptions):
    """A value that rises faster along a column in one series than in another one."""

    a: Conditions
    """Conditions of the series claimed to be steeper."""
    b: Conditions
    """Conditions of the other series."""
    by: str = "level"
    """Column along which values rise."""
    log: bool = False
    """Set to take slopes along the logarithm of the column."""
    blocks: bool = False
    """Set where replica r is the same problem in both series, so that their slopes are paired."""


def steepen(rows: pd.DataFrame, options: Steepness, generator: np.random.Generator) -> Outcome:
    """Test that one series rises faster along a column than another one; the effect is the difference of their slopes.

    A replica's slope is that of the least-squares line through its values. Slopes of independent replicas are compared
    by permutation; with ``blocks`` the signs of each replica's difference are flipped.

    Raises:
        SelectionError: If a column is missing, or the logarithm of a value along it does not exist.
    """
    rows = select(rows, options.where)
    require(rows, "replica", "value", options.by)
    first, second = (_slopes(select(rows, conditions), options) for conditions in (options.a, options.b))
    effect = f"effect: difference of the slopes along {'log ' if options.log else ''}{options.by}"
    if options.blocks:
        shared = first.index.intersection(second.index)
        differences = (first[shared] - second[shared]).to_numpy(float)
        if not len(differences):
            return undecidable(rows, f"no replica has both series at several values of {options.by}")
        return flipped(1, differences, 0.0, f"sign-flip test over {len(differences)} replicas; {effect}", generator)
    a, b = first.to_numpy(float), second.to_numpy(float)
    if not len(a) or not len(b):
        return undecidable(rows, f"a series has no replica with several values of {options.by}")
    tested = statistics.greater([(a, b)], generator)
    interval = intervals.combined_interval([(1.0, a), (-1.0, b)])
    detail = f"permutation test of {len(a)} against {len(b)} slopes; {effect}"
    replicas = min(len(a), len(b))
    return outcome(
        1, tested, tested.statistic, interval, replicas, detail, lambda n: statistics.smallest_trend_p([(n, n)])
    )


def _slopes(rows: pd.DataFrame, options: Steepness) -> pd.Series:
    """Slope of each replica that has all values along the column, by replica."""
    import pandas as pd

    table = rows.pivot_table(index="replica", columns=options.by, values="value", aggfunc="mean").dropna()
    x: Float[np.ndarray, " values"] = table.columns.to_numpy(float)
    if options.log:
        if (x <= 0).any():
            raise SelectionError(f"slopes along log {options.by} need values above 0, not {x.min():g}")
        x = np.log(x)
    if len(x) < 2:
        return pd.Series(dtype=float)
    centred = x - x.mean()
    return pd.Series(table.to_numpy(float) @ centred / (centred @ centred), index=table.index)


steeper = ClaimTest("steeper", Steepness, steepen)
