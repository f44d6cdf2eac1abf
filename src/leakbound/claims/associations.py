"""Claims about two quantities that go together, or against each other."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from leakbound.claims import intervals
from leakbound.claims.outcomes import ClaimOptions, ClaimTest, Outcome, both_quantities, outcome, undecidable
from leakbound.claims.selection import select
from leakbound.claims.statistics import Tested
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


class Association(ClaimOptions):
    """Two quantities of the same replicas."""

    x: Conditions
    """Conditions of the one quantity."""
    y: Conditions
    """Conditions of the other one."""


def associate(sign: int, rows: pd.DataFrame, options: Association, generator: np.random.Generator) -> Outcome:
    """Kendall's τ between two quantities over levels and replicas.

    ``sign`` is 1 if they are claimed to go together, -1 if against each other; ``generator`` draws resamples.

    Raises:
        SelectionError: If a column is missing, or a quantity has several rows of one replica.
    """
    from scipy import stats

    both = both_quantities(select(rows, options.where), options.x, options.y)
    x, y = both["x"].to_numpy(float), both["y"].to_numpy(float)
    replicas = int(both.groupby("run").size().min()) if len(both) else 0
    if len(both) < 4 or len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return undecidable(rows, f"{len(both)} replicas with different values of both: too few to see a relation")
    effect, p_value = map(float, stats.kendalltau(x, y))
    runs = list(both.groupby("run", sort=True).indices.values())
    interval = intervals.rank_interval(effect, _tau_draws(x, y, runs, generator), replicas)
    detail = f"Kendall's τ over {len(both)} replicas of {len(runs)} runs"
    return outcome(
        sign,
        Tested(effect, p_value, int(np.sign(effect))),
        effect,
        interval,
        replicas,
        detail,
        lambda n: min(1.0, 2 * math.exp(-math.lgamma(n * len(runs) + 1))),
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


concordant = ClaimTest("concordant", Association, partial(associate, 1))
discordant = ClaimTest("discordant", Association, partial(associate, -1))
