"""Claims that two quantities rise together from level to level, or that one rises as the other falls."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from leakbound.claims.outcomes import Blocks, ClaimOptions, ClaimTest
from leakbound.claims.selection import EmptySelectionError, both_quantities, select
from leakbound.claims.statistics import rank_correlation
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


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
