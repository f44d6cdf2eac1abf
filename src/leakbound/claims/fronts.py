"""Claims about trade-offs: the front of one defense beyond those of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Strict

from leakbound.claims import intervals
from leakbound.claims.outcomes import ClaimOptions, ClaimTest, Outcome, both_quantities, undecidable
from leakbound.claims.selection import Columns, require, select
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


class Front(ClaimOptions):
    """One series' front above each other's; all must have equally many levels."""

    best: str
    """Defense claimed to have the best trade-off."""
    against: Columns = ()
    """The others; all that are in the rows if empty."""
    x: Conditions
    """Conditions of the quantity along x, more is better."""
    y: Conditions
    """Conditions of the quantity along y, more is better."""
    reference: Annotated[tuple[float, float], Strict(False)] = (0.0, 0.0)
    """Corner from which hypervolumes are measured."""


def rank_fronts(rows: pd.DataFrame, options: Front, generator: np.random.Generator) -> Outcome:
    """Hypervolume of one front minus each other's, with the bootstrap's error; the effect is the least difference.

    A front of more levels dominates a larger area though no level is better, so series with different numbers of levels
    are not compared: which levels to leave out would decide the result.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one replica.
    """
    from leakbound.metrics import hypervolume

    both = both_quantities(select(rows, options.where), options.x, options.y).dropna(subset="level")
    require(both, "defense")
    fronts = {
        str(name): [level[["x", "y"]].to_numpy(float) for _, level in series.groupby("level", sort=True)]
        for name, series in both.groupby("defense", sort=True)
    }
    others = [name for name in options.against or fronts if name != options.best and name in fronts]
    if options.best not in fronts or not others:
        return undecidable(rows, f"{options.best} and something to compare it with must both be in the rows")
    compared = {name: fronts[name] for name in (options.best, *others)}
    if len({len(front) for front in compared.values()}) > 1:
        counts = ", ".join(f"{name} {len(front)}" for name, front in compared.items())
        return undecidable(
            rows, f"different numbers of levels ({counts}), with which a front grows: give each defense equally many"
        )
    replicas = min(len(level) for front in compared.values() for level in front)
    if replicas < 2:
        return undecidable(rows, f"{replicas} replica: a front needs at least 2 to be compared")
    corner = np.array(options.reference)
    volume, draws = {}, {}
    for name, front in compared.items():
        volume[name] = hypervolume(np.array([level.mean(axis=0) for level in front]), corner)
        means = np.stack([intervals.resampled(level, generator).mean(axis=1) for level in front], axis=1)
        draws[name] = np.array([hypervolume(points, corner) for points in means])
    results = {
        name: intervals.bootstrap_t(volume[options.best] - volume[name], draws[options.best] - draws[name], replicas)
        for name in others
    }
    beaten_by = [name for name, (tested, _, _) in results.items() if tested.direction < 0]
    decisive = (min if beaten_by else max)(beaten_by or others, key=lambda name: results[name][0].p_value)
    tested, low, high = results[decisive]
    p_value = min(1.0, tested.p_value * len(others)) if beaten_by else tested.p_value
    listed = ", ".join(f"{name} {value:.4g}" for name, value in volume.items())
    detail = f"hypervolumes {listed}; effect: {options.best} minus {decisive}; bootstrap error, Student's t"
    return Outcome(tested.statistic, low, high, p_value, tested.direction, replicas, detail)


front = ClaimTest("front", Front, rank_fronts)
