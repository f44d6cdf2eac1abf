"""Claims about trade-offs: the front of one defense beyond the fronts of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, Strict

from leakbound.claims.outcomes import Blocks, ClaimOptions, ClaimTest, complete
from leakbound.claims.selection import EmptySelectionError, both_quantities, select, select_or_nothing
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


class Front(ClaimOptions):
    """One front that is claimed to dominate more than each of several others."""

    COMPARED: ClassVar[tuple[str, ...]] = ("best", "against", "x", "y")

    best: Conditions
    """Conditions of the points claimed to have the best trade-off."""
    against: Annotated[tuple[Conditions, ...], Strict(False), Field(min_length=1)]
    """Conditions of the points of each other front. Fronts without points are left out."""
    x: Conditions
    """Conditions of the quantity along x. More is better."""
    y: Conditions
    """Conditions of the quantity along y. More is better."""
    reference: Annotated[tuple[float, float], Strict(False)] = (0.0, 0.0)
    """Corner from which areas are measured."""
    fewer_is_better: Annotated[tuple[Literal["x", "y"], ...], Strict(False)] = ()
    """Axes along which less is better, as for an AUC."""


def rank_fronts(rows: pd.DataFrame, options: Front) -> Blocks:
    """Compare the area that one front dominates with the area of each other front, in each replica.

    A front of more points dominates more, even if none of its points is better, because it has more steps and
    more luck. Choosing some of its points instead would reduce the area of a front with similar points. Only
    fronts with equally many points are therefore compared.

    Args:
        rows: Rows of one dataset and network.
        options: Conditions of the fronts and of both quantities.

    Returns:
        For each replica and each other front, the difference of the areas, in the product of both quantities'
        units.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one point and replica.
        EmptySelectionError: If there is nothing to compare, or numbers of points differ.
    """
    import pandas as pd

    from leakbound.claims.hulls import hypervolume

    rows = select(rows, options.where)
    points = both_quantities(rows, options.x, options.y)
    signs = np.array([-1.0 if axis in options.fewer_is_better else 1.0 for axis in ("x", "y")])
    fronts = {
        _description(conditions): select_or_nothing(points, conditions)
        for conditions in (options.best, *options.against)
    }
    fronts = {name: front for name, front in fronts.items() if len(front)}
    best = _description(options.best)
    if best not in fronts or len(fronts) < 2:
        raise EmptySelectionError(f"{best} and a front to compare it with must both be in the rows")
    counts = {name: int(front.groupby("replica").size().max()) for name, front in fronts.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise EmptySelectionError(
            f"fronts with more points dominate more, and these have {listed}: give each as many levels and rates"
        )
    areas = {
        name: {
            replica: hypervolume(signs * members[["x", "y"]].to_numpy(float), signs * options.reference)
            for replica, members in front.groupby("replica")
            if len(members) == counts[name]
        }
        for name, front in fronts.items()
    }
    (table,), left_out = complete([pd.DataFrame(areas)])
    listed = ", ".join(f"{name} {value:.4g}" for name, value in table.mean().items())
    effects = pd.DataFrame({name: table[best] - table[name] for name in fronts if name != best})
    detail = f"sign flips; areas by {counts[best]} points: {listed}; effect: {best} minus the decisive other"
    return Blocks(effects, 1, detail, left_out=left_out)


def _description(conditions: Conditions) -> str:
    """Describe a front by the values of its conditions."""
    values = [value if isinstance(value, list | tuple) else [value] for value in conditions.values()]
    return " ".join("+".join(str(item) for item in value) for value in values)


front = ClaimTest("front", Front, rank_fronts)
