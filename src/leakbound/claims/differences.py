"""Claims about means: one series above another one or above a number, and closed forms that agree."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from pydantic import model_validator

from leakbound.claims import intervals, statistics
from leakbound.claims.outcomes import ClaimOptions, ClaimTest, Outcome, exact_outcome, exact_steps, outcome, undecidable
from leakbound.claims.selection import Columns, SelectionError, require, select, select_ranked, split
from leakbound.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


class Difference(ClaimOptions):
    """One series above another one, or above a number."""

    a: Conditions
    """Conditions of the series claimed to be larger, or smaller by the test ``less``."""
    b: Conditions | None = None
    """Conditions of the other series."""
    value: float | None = None
    """A number instead of the other series."""
    match: Columns = ("level",)
    """Columns that must agree; ``strength`` ranks each defense's levels from the strongest."""
    margin: float = 0.0
    """Least difference, upward or downward by the test, that counts."""
    paired: bool = False
    """Set where equal replicas of both series belong together, as two attackers on one model do."""
    blocks: bool = False
    """Set where replica r is the same problem at every match and in both series, so that only replicas count."""
    exact: bool = False
    """Set where the rows leave nothing to chance; the means of both series must differ in every match."""

    @model_validator(mode="after")
    def _has_one_reference(self) -> Difference:
        if (self.b is None) == (self.value is None):
            raise ValueError("give exactly one of b and value")
        if self.blocks and (self.exact or self.paired):
            raise ValueError("blocks goes with neither exact nor paired: the replicas are the blocks")
        return self


class Identity(Difference):
    """Two closed forms that agree."""

    tolerance: float = 1e-6
    """Largest relative difference."""


def compare(sign: int, rows: pd.DataFrame, options: Difference, generator: np.random.Generator) -> Outcome:
    """Permutation test of a mean difference at matched levels, with Student's t interval; the effect is the difference.

    Labels are permuted within levels where the replicas of both series are independent, and the signs of differences
    are flipped where they are ``paired``. With ``blocks``, where replica r is the same problem at every level and in
    both series, its differences are averaged first, and the signs of these means are flipped: n replicas can give no
    p-value below 2 · 0.5ⁿ.

    ``sign`` is 1 if the first series is claimed to be larger, -1 if smaller.

    Raises:
        SelectionError: If a column is missing, or paired series have several rows of one replica.
    """
    rows = select_ranked(rows, options.where)
    if options.blocks:
        return _compare_blocks(sign, rows, options, generator)
    margin = sign * options.margin
    pairs = _matched(rows, options)
    if not pairs:
        return undecidable(rows, f"both series share no {', '.join(options.match)}")
    if options.exact:
        steps = sign * (np.concatenate([a - b for a, b in pairs]) - margin)
        return exact_steps(steps, f"{len(pairs)} comparisons")
    chosen = [select(rows, conditions) for conditions in (options.a, options.b) if conditions is not None]
    replicas = min(int(series.groupby("run")["replica"].nunique().min()) for series in chosen)
    if options.paired or options.value is not None:
        differences = [a - b for a, b in pairs]
        count = sum(len(group) for group in differences)
        tested = statistics.paired_greater(np.concatenate(differences) - margin, generator)
        interval = intervals.combined_interval([(len(group) / count, group) for group in differences])
        smallest = partial(statistics.smallest_sign_p, strata=len(differences))
        detail = f"sign-flip test over {count} pairs"
    else:
        tested = statistics.greater([(a - margin, b) for a, b in pairs], generator)
        weighted = [((1 / len(pairs), a), (-1 / len(pairs), b)) for a, b in pairs]
        interval = intervals.combined_interval([group for pair in weighted for group in pair])
        ratios = [(len(a) / replicas, len(b) / replicas) for a, b in pairs]
        smallest = partial(_smallest_split_p, ratios=ratios)
        detail = f"permutation test, stratified over {len(pairs)} matched levels"
    effect = tested.statistic + margin
    return outcome(sign, tested, effect, interval, replicas, _explained(detail, options), smallest)


def _compare_blocks(sign: int, rows: pd.DataFrame, options: Difference, generator: np.random.Generator) -> Outcome:
    """Sign flips of each replica's mean difference over the matched levels."""
    import pandas as pd

    require(rows, "replica", "value")
    chosen = [select(rows, conditions) for conditions in (options.a, options.b) if conditions is not None]
    sides = [
        {key: group.groupby("replica")["value"].mean() for key, group in split(series, options.match).items()}
        for series in chosen
    ]
    shared = [key for key in sides[0] if key in sides[-1]]
    if not shared:
        return undecidable(rows, f"both series share no {', '.join(options.match)}")
    gaps = [sides[0][key] - (sides[1][key] if options.value is None else options.value) for key in shared]
    means = pd.concat(gaps, axis=1).dropna().mean(axis=1).to_numpy(float)
    if not len(means):
        return undecidable(rows, f"no replica has both series at every {', '.join(options.match)} that they share")
    detail = f"sign-flip test over {len(means)} replicas, each the mean over {len(shared)} matched levels"
    return flipped(sign, means, sign * options.margin, _explained(detail, options), generator)


def flipped(
    sign: int, values: Float[np.ndarray, " replicas"], margin: float, detail: str, generator: np.random.Generator
) -> Outcome:
    """Outcome of a sign-flip test of one number per replica against a margin, with Student's t interval."""
    from leakbound import metrics

    tested = statistics.paired_greater(values - margin, generator)
    found = metrics.mean_interval(values)
    smallest = partial(statistics.smallest_sign_p, strata=1)
    return outcome(sign, tested, tested.statistic + margin, (found.low, found.high), len(values), detail, smallest)


def identify(rows: pd.DataFrame, options: Identity, generator: np.random.Generator) -> Outcome:
    """Largest relative difference of two closed forms; ``generator`` is not used.

    Raises:
        SelectionError: If a column is missing.
    """
    rows = select_ranked(rows, options.where)
    pairs = _matched(rows, options)
    if not pairs:
        return undecidable(rows, f"both series share no {', '.join(options.match)}")
    gaps = np.abs(np.concatenate([a - b for a, b in pairs]))
    scale = np.abs(np.concatenate([np.broadcast_to(b, a.shape) for a, b in pairs]))
    worst = float((gaps / np.maximum(scale, 1e-300)).max())
    detail = f"largest relative difference {worst:.3g}, allowed {options.tolerance:g}"
    return exact_outcome(worst, worst <= options.tolerance, detail)


def _matched(rows: pd.DataFrame, options: Difference) -> list[tuple[np.ndarray, np.ndarray]]:
    """Values of both series, match by match; in the order of the replicas where these are paired."""
    match = (*options.match, "replica") if options.paired else options.match
    first = split(select(rows, options.a), match)
    if options.value is not None:
        constant = np.array([options.value])
        return [(group["value"].to_numpy(float), constant) for group in first.values()]
    second = split(select(rows, options.b or {}), match)
    shared = [key for key in first if key in second]
    pairs = [(first[key]["value"].to_numpy(float), second[key]["value"].to_numpy(float)) for key in shared]
    if options.exact:
        return [(np.array([a.mean()]), np.array([b.mean()])) for a, b in pairs]
    if not options.paired:
        return pairs
    if any(len(a) != 1 or len(b) != 1 for a, b in pairs):
        raise SelectionError(f"more than one row of a series has the same {', '.join(match)}: choose one")
    gathered: dict[tuple[object, ...], list[tuple[np.ndarray, np.ndarray]]] = {}
    for key, pair in zip(shared, pairs, strict=True):
        gathered.setdefault(key[:-1], []).append(pair)
    return [(np.concatenate(a), np.concatenate(b)) for a, b in (zip(*own, strict=True) for own in gathered.values())]


def _explained(test: str, options: Difference) -> str:
    """The test in words, with its margin and effect."""
    return test + (f", margin {options.margin:g}" if options.margin else "") + "; effect: mean difference"


def _smallest_split_p(replicas: int, ratios: list[tuple[float, float]]) -> float:
    """Least two-sided p-value of the permutation test if every sample grows in proportion."""
    return statistics.smallest_trend_p([(round(a * replicas), round(b * replicas)) for a, b in ratios])


greater = ClaimTest("greater", Difference, partial(compare, 1))
less = ClaimTest("less", Difference, partial(compare, -1))
equals = ClaimTest("equals", Identity, identify)
