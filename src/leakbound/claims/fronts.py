"""Claims about trade-offs: the front of one defense beyond those of the others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from leakbound import metrics
from leakbound.claims import intervals
from leakbound.claims.claim_options import Front
from leakbound.claims.outcomes import Outcome, both_quantities, require, undecidable
from leakbound.claims.selection import select


def rank_fronts(rows: pd.DataFrame, options: Front, generator: np.random.Generator) -> Outcome:
    """Hypervolume of one front minus each other's, with the bootstrap's error; the effect is the least difference.

    A front of more levels dominates a larger area though no level is better, so series with different numbers of levels
    are not compared: which levels to leave out would decide the result.

    Args:
        rows: Rows of one setting.
        options: What is compared.
        generator: Draws resamples.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one replica.
    """
    both = both_quantities(select(rows, options.where), options.x, options.y).dropna(subset="level")
    require(both, ("defense",))
    fronts = {
        str(name): [level[["x", "y"]].to_numpy(float) for _, level in series.groupby("level", sort=True)]
        for name, series in both.groupby("defense", sort=True)
    }
    others = [name for name in options.against or fronts if name != options.best and name in fronts]
    if options.best not in fronts or not others:
        return undecidable(rows, f"{options.best} and something to compare it with must both be in the rows")
    compared = {name: fronts[name] for name in (options.best, *others)}
    counts = {name: len(front) for name, front in compared.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        return undecidable(
            rows, f"different numbers of levels ({listed}), with which a front grows: give each defense equally many"
        )
    replicas = min(len(level) for front in compared.values() for level in front)
    corner = np.array(options.reference)
    volume = {
        name: metrics.hypervolume(np.array([level.mean(axis=0) for level in front]), corner)
        for name, front in compared.items()
    }
    if replicas < 2:
        return undecidable(rows, f"{replicas} replica: a front needs at least 2 to be compared")
    draws = {name: _resampled_volumes(front, corner, generator) for name, front in compared.items()}
    results = {
        name: intervals.bootstrap_t(volume[options.best] - volume[name], draws[options.best] - draws[name], replicas)
        for name in others
    }
    beaten_by = [name for name, (tested, _, _) in results.items() if tested.direction < 0]
    if beaten_by:
        decisive = min(beaten_by, key=lambda name: results[name][0].p_value)
        p_value = min(1.0, results[decisive][0].p_value * len(others))
    else:
        decisive = max(results, key=lambda name: results[name][0].p_value)
        p_value = results[decisive][0].p_value
    tested, low, high = results[decisive]
    listed = ", ".join(f"{name} {value:.4g}" for name, value in volume.items())
    detail = f"hypervolumes {listed}; effect: {options.best} minus {decisive}; bootstrap error, Student's t"
    return Outcome(tested.statistic, low, high, p_value, tested.direction, replicas, detail)


def _resampled_volumes(levels: list[np.ndarray], corner: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Hypervolumes of a front whose replicas are resampled level by level."""
    means = [
        level[generator.integers(len(level), size=(intervals.RESAMPLES, len(level)))].mean(axis=1) for level in levels
    ]
    return np.array([metrics.hypervolume(points, corner) for points in np.stack(means, axis=1)])
