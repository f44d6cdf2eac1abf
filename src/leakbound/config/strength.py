"""Which way a defense's level protects, so that the levels of different defenses can be matched."""

from __future__ import annotations

import pandas as pd

STRONGER_WITH_LEVEL = ("dpsgd", "dppsac", "parameter_noise", "large_batch")
"""Defenses whose largest level protects most: noise multipliers, noise deviations, factors on the batch size. Of the
others the smallest does: capacities, the fraction of a gradient that is kept, the rank of the direction dropped."""


def with_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the rank of their level among their defense's levels as column ``strength``, the strongest first.

    Args:
        rows: Table; without the columns defense and level it is returned as it is.
    """
    if not {"defense", "level"} <= set(rows.columns):
        return rows
    signed = rows["level"].where(~rows["defense"].isin(STRONGER_WITH_LEVEL), -rows["level"])
    return rows.assign(strength=signed.groupby(rows["defense"]).rank(method="dense"))
