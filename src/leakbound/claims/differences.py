"""Claims about means: one series above another one or above a number, and closed forms that agree."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd

from leakbound import metrics
from leakbound.claims import intervals, statistics
from leakbound.claims.claim_options import Difference, Identity
from leakbound.claims.outcomes import Outcome, exact_outcome, require, split, undecidable
from leakbound.claims.selection import SelectionError, select
from leakbound.config.strength import with_strength


def compare(sign: int, rows: pd.DataFrame, options: Difference, generator: np.random.Generator) -> Outcome:
    """Permutation test of a mean difference at matched levels, with Student's t interval; the effect is the difference.

    Labels are permuted within levels where the replicas of both series are independent, and the signs of differences
    are flipped where they are ``paired``. With ``blocks``, where replica r is the same problem at every level and in
    both series, its differences are averaged first, and the signs of these means are flipped: n replicas can give no
    p-value below 2 · 0.5ⁿ.

    Args:
        sign: 1 if the first series is claimed to be larger, -1 if smaller.
        rows: Rows of one setting.
        options: What is compared.
        generator: Draws permutations where there are too many to visit.

    Raises:
        SelectionError: If a column is missing, or paired series have several rows of one replica.
    """
    rows = with_strength(select(rows, options.where))
    if options.blocks:
        return _compare_blocks(sign, rows, options, generator)
    margin = sign * options.margin
    first, second = _matched(rows, options)
    if not first:
        return undecidable(rows, f"both series share no {', '.join(options.match)}")
    if options.exact:
        return exact_outcome(sign * (np.concatenate(_differences(first, second)) - margin), f"{len(first)} comparisons")
    chosen = [select(rows, conditions) for conditions in (options.a, options.b) if conditions is not None]
    replicas = min(int(series.groupby("run")["replica"].nunique().min()) for series in chosen)
    if options.paired or options.value is not None:
        differences = _differences(first, second)
        shifted = np.concatenate(differences) - margin
        tested = statistics.paired_greater(shifted, generator)
        low, high = intervals.combined_interval([(len(group) / len(shifted), group) for group in differences])
        smallest = partial(statistics.smallest_sign_p, strata=len(differences))
        what = f"sign-flip test over {len(shifted)} pairs"
    else:
        strata = [(a - margin, b) for a, b in zip(first, second, strict=True)]
        tested = statistics.greater(strata, generator)
        parts = [
            (weight / len(strata), group)
            for pair in zip(first, second, strict=True)
            for weight, group in zip((1.0, -1.0), pair, strict=True)
        ]
        low, high = intervals.combined_interval(parts)
        ratios = [(len(a) / replicas, len(b) / replicas) for a, b in strata]
        smallest = partial(_smallest_split_p, ratios=ratios)
        what = f"permutation test, stratified over {len(strata)} matched levels"
    return _difference(sign, tested, low, high, replicas, what, options, smallest)


def _compare_blocks(sign: int, rows: pd.DataFrame, options: Difference, generator: np.random.Generator) -> Outcome:
    """Sign flips of each replica's mean difference over the matched levels."""
    require(rows, ("replica", "value"))
    first = _by_replica(select(rows, options.a), options)
    second = None if options.value is not None else _by_replica(select(rows, options.b or {}), options)
    shared = [key for key in first if second is None or key in second]
    if not shared:
        return undecidable(rows, f"both series share no {', '.join(options.match)}")
    gaps = [first[key] - (options.value if second is None else second[key]) for key in shared]
    means = pd.concat(gaps, axis=1).dropna().mean(axis=1).to_numpy(float)
    if not len(means):
        return undecidable(rows, f"no replica has both series at every {', '.join(options.match)} that they share")
    tested = statistics.paired_greater(means - sign * options.margin, generator)
    interval = metrics.mean_interval(means)
    what = f"sign-flip test over {len(means)} replicas, each the mean over {len(shared)} matched levels"
    smallest = partial(statistics.smallest_sign_p, strata=1)
    return _difference(sign, tested, interval.low, interval.high, len(means), what, options, smallest)


def _difference(
    sign: int,
    tested: statistics.Tested,
    low: float,
    high: float,
    replicas: int,
    what: str,
    options: Difference,
    smallest: partial[float],
) -> Outcome:
    """Outcome of a test of differences that the margin was taken from."""
    margin = f", margin {options.margin:g}" if options.margin else ""
    return Outcome(
        tested.statistic + sign * options.margin,
        low,
        high,
        tested.p_value,
        sign * tested.direction,
        replicas,
        f"{what}{margin}; effect: mean difference",
        smallest_p=smallest,
    )


def identify(rows: pd.DataFrame, options: Identity, generator: np.random.Generator) -> Outcome:
    """Largest relative difference of two closed forms.

    Args:
        rows: Rows of one setting.
        options: What is compared.
        generator: Not used.

    Raises:
        SelectionError: If a column is missing.
    """
    rows = with_strength(select(rows, options.where))
    first, second = _matched(rows, options)
    if not first:
        return undecidable(rows, f"both series share no {', '.join(options.match)}")
    gaps = np.abs(np.concatenate(_differences(first, second)))
    scale = np.abs(np.concatenate([np.broadcast_to(b, a.shape) for a, b in zip(first, second, strict=True)]))
    worst = float((gaps / np.maximum(scale, 1e-300)).max())
    holds = worst <= options.tolerance
    detail = f"exact: largest relative difference {worst:.3g}, allowed {options.tolerance:g}"
    return Outcome(worst, math.nan, math.nan, 0.0 if holds else 1.0, 1 if holds else -1, 1, detail, exact=True)


def _matched(rows: pd.DataFrame, options: Difference) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Values of both series, match by match; in the order of the replicas where these are paired."""
    match = (*options.match, "replica") if options.paired else options.match
    first = split(select(rows, options.a), match)
    if options.value is not None:
        constant = np.array([options.value])
        groups = [group["value"].to_numpy(float) for group in first.values()]
        return groups, [constant] * len(groups)
    second = split(select(rows, options.b or {}), match)
    shared = [key for key in first if key in second]
    pairs = [(first[key]["value"].to_numpy(float), second[key]["value"].to_numpy(float)) for key in shared]
    if options.exact:
        return [np.array([a.mean()]) for a, _ in pairs], [np.array([b.mean()]) for _, b in pairs]
    if options.paired:
        if any(len(a) != 1 or len(b) != 1 for a, b in pairs):
            raise SelectionError(f"more than one row of a series has the same {', '.join(match)}: choose one")
        keys = [key[:-1] for key in shared]
        order = {key: [index for index, other in enumerate(keys) if other == key] for key in keys}
        return (
            [np.concatenate([pairs[index][0] for index in indices]) for indices in order.values()],
            [np.concatenate([pairs[index][1] for index in indices]) for indices in order.values()],
        )
    return [a for a, _ in pairs], [b for _, b in pairs]


def _by_replica(rows: pd.DataFrame, options: Difference) -> dict[tuple[object, ...], pd.Series]:
    """Mean of each replica, match by match."""
    return {key: group.groupby("replica")["value"].mean() for key, group in split(rows, options.match).items()}


def _differences(first: list[np.ndarray], second: list[np.ndarray]) -> list[np.ndarray]:
    """First minus second, match by match; a single second value serves all first ones."""
    return [a - b for a, b in zip(first, second, strict=True)]


def _smallest_split_p(replicas: int, ratios: list[tuple[float, float]]) -> float:
    """Least two-sided p-value of the permutation test if every sample grows in proportion."""
    return statistics.smallest_difference_p([(round(a * replicas), round(b * replicas)) for a, b in ratios])
