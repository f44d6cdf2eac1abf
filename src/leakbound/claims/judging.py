"""Blocks judged: the effect with its intervals, p-values, and the verdict that these give."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound.claims.design import Design
from leakbound.claims.outcomes import Blocks, Rule
from leakbound.claims.statistics import Strata, Tails, holm, interval, sign_flips, skewed, spread, student

STRATUM = ["dataset", "model"]


@dataclass(frozen=True)
class Judged:
    """Effect over blocks and what speaks for it.

    Args:
        effect: Mean over blocks, in the claim's unit. Of fronts the difference from the decisive other.
        low: Lower end of its 95 % interval.
        high: Upper end.
        low_90: Lower end of the 90 % interval, which two one-sided tests of equivalence stand for.
        high_90: Upper end.
        p_value: Of the claim's test, two-sided where the claim is that there is an effect, or NaN without
            blocks. Of several datasets the largest of :func:`subsets`, so that at least half of them show it.
        pooled: The same of all blocks together.
        direction: 1 if the effect goes the claimed way, -1 if the opposite way, 0 if neither.
        blocks: Number of blocks.
        falling: Steps that may fall by delta, with the lower end of the mean's 90 % interval.
    """

    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    low_90: float = math.nan
    high_90: float = math.nan
    p_value: float = math.nan
    pooled: float = math.nan
    direction: int = 0
    blocks: int = 0
    falling: tuple[str, ...] = ()


def joined_blocks(settings: dict[tuple[str, str], Blocks]) -> Blocks:
    """Join the blocks of several (dataset, model) in one table, with these as the first parts of its index."""

    def joined(tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
        kept = {key: table for key, table in zip(settings, tables, strict=True) if table is not None}
        return pd.concat(kept, names=[*STRATUM, "replica"]) if kept else None

    parts = list(settings.values())
    effects = joined([blocks.effects for blocks in parts])
    assert effects is not None  # there is at least one setting
    return replace(
        max(parts, key=lambda blocks: blocks.levels),
        effects=effects,
        scores=joined([blocks.scores for blocks in parts]),
        steps=joined([blocks.steps for blocks in parts]),
        widths={name: width for blocks in parts for name, width in blocks.widths.items()},
        left_out=sum(blocks.left_out for blocks in parts),
    )


def part(blocks: Blocks, *datasets: str) -> Blocks:
    """Choose the blocks of certain datasets."""

    def chosen(table: pd.DataFrame | None) -> pd.DataFrame | None:
        return None if table is None else table[table.index.get_level_values("dataset").isin(datasets)]

    effects = chosen(blocks.effects)
    assert effects is not None
    return replace(blocks, effects=effects, scores=chosen(blocks.scores), steps=chosen(blocks.steps))


def names(blocks: Blocks) -> list[str]:
    """List the datasets of blocks."""
    return list(dict.fromkeys(blocks.effects.index.get_level_values("dataset")))


def subsets(blocks: Blocks) -> Iterator[Blocks]:
    """List the blocks of all n − k + 1 of n datasets, where at least k = ⌈n/2⌉ of them must show what is claimed.

    If fewer did, those that do not would fill one of these subsets, so that the largest of their p-values
    errs no more often than one of them.

    Source:
        Benjamini and Heller 2008, "Screening for partial conjunction hypotheses", with the test of all blocks of a
        subset in the place of Fisher's combination.
    """
    datasets = names(blocks)
    for some in combinations(datasets, len(datasets) - -(-len(datasets) // 2) + 1):
        yield part(blocks, *some)


def judge(blocks: Blocks, delta: float, generator: np.random.Generator) -> Judged:
    """Test blocks by sign flips.

    Args:
        blocks: Blocks of all settings.
        delta: Smallest effect of interest.
        generator: Draws signs where there are too many blocks for all of them.
    """
    name, pooled, direction = _tested(blocks, delta, generator)
    results = (
        [_tested(subset, delta, generator) for subset in subsets(blocks)] if len(names(blocks)) > 2 else []
    )
    p_value = max([pooled, *(p if way == direction else 1.0 for _, p, way in results)])
    values, strata = _column(blocks.effects, name)
    low_90, high_90 = interval(values, strata, 0.9)
    return Judged(
        float(values.mean()),
        *interval(values, strata, 0.95),
        low_90,
        high_90,
        p_value,
        pooled,
        direction,
        len(values),
        _falling(blocks.steps, delta),
    )


def verdict(judged: Judged, rule: Rule, p_adjusted: float, delta: float, alpha: float) -> str:
    """Reach the verdict on a claim or on one dataset of it.

    *negligible* where the 90 % interval of the effect lies inside ±delta. *reproduced* or *contradicted* where the
    adjusted p-value is below ``alpha``, by the direction. *undecided* otherwise, and for a trend of which a
    step may fall by delta: each step's mean must be above -delta by its own one-sided 5 % test, so that a
    curve one of whose steps does fall by delta is called a trend in at most 5 % of cases.
    """
    if rule == "beyond" and _inside((judged.low_90, judged.high_90), delta):
        return "negligible"
    if not p_adjusted < alpha or not judged.direction:
        return "undecided"
    if judged.direction < 0:
        return "contradicted"
    return "undecided" if judged.falling else "reproduced"


def opposed(blocks: Blocks, pooled: str, delta: float, alpha: float) -> list[str]:
    """List the datasets that significantly speak against a pooled verdict, or that contradict each other.

    By Student's t of the blocks' effects, Holm-corrected over the datasets: sign flips of a dataset's few
    blocks can seldom reach a level at all, and a dataset that opposes would never be seen. An effect that is
    negligible on a dataset speaks neither way.

    Returns:
        Names of datasets, none where all that speak agree with the verdict.
    """
    claimed, otherwise = (speaking(blocks, direction, delta, alpha) for direction in (1, -1))
    if pooled == "reproduced":
        return otherwise
    if pooled == "contradicted":
        return claimed
    return [*claimed, *otherwise] if claimed and otherwise else []


def speaking(blocks: Blocks, direction: int, delta: float, alpha: float) -> list[str]:
    """List the datasets that speak significantly for a direction: 1 is the claimed one, -1 the other."""
    results = []
    for dataset in names(blocks):
        subset = part(blocks, dataset)
        name, p_value, side = _decisive(
            subset, subset.effects, delta, partial(student, strata=_strata(subset.effects))
        )
        small = blocks.rule == "beyond" and _inside(interval(*_column(subset.effects, name), 0.9), delta)
        results.append((p_value, 0 if small else side))
    adjusted = holm([p_value for p_value, _ in results])
    return [
        name
        for name, p, (_, side) in zip(names(blocks), adjusted, results, strict=True)
        if p < alpha and side == direction
    ]


def promised(blocks: Blocks, delta: float, level: float) -> Design:
    """Design a test by the spread between these blocks: what how many of them can see at a level."""
    steps = (
        {} if blocks.steps is None else {name: spread(*_column(blocks.steps, name)) for name in blocks.steps}
    )
    spreads = tuple(spread(*_column(blocks.effects, name)) for name in blocks.effects)
    back = tuple((value, blocks.widths[name]) for name, value in steps.items())
    subset = next(subsets(blocks))
    return Design(
        blocks.rule, delta, spreads, back, blocks.levels, level, len(names(subset)) / len(names(blocks))
    )


def _inside(ends: tuple[float, float], delta: float) -> bool:
    """True if an interval lies inside ±delta."""
    return -delta < ends[0] and ends[1] < delta


def _tested(blocks: Blocks, delta: float, generator: np.random.Generator) -> tuple[str, float, int]:
    """The comparison that decides, its p-value and direction, as :func:`_decisive`.

    Ranks follow medians, which fall where skewed errors spread more and their mean stays. A trend therefore
    asks its slopes too, by sign flips, which take them to be symmetric, and by a test that allows for
    skewness. All must agree.
    """
    flips = partial(sign_flips, generator=generator)
    name, p_value, direction = _decisive(blocks, blocks.effects, delta, flips)
    if blocks.scores is not None:
        results = [
            _decisive(blocks, blocks.scores, delta, flips),
            _decisive(blocks, blocks.effects, delta, partial(skewed, strata=_strata(blocks.effects))),
        ]
        p_value = max(p_value, *(p for _, p, _ in results))
        direction = direction if all(sign == direction for _, _, sign in results) else 0
    return name, p_value, direction


def _decisive(blocks: Blocks, scores: pd.DataFrame, delta: float, tails: Tails) -> tuple[str, float, int]:
    """The comparison that decides, its p-value, and 1 or -1 for the claimed direction or the opposite.

    All comparisons must hold, so the weakest speaks for the claim. One that goes the other way is enough
    against it. Its p-value is multiplied by their number.
    """
    results = {}
    for name in scores:
        values, _ = _column(scores, name)
        holds, fails = _p_values(values * blocks.claimed, blocks.rule, delta, tails)
        results[str(name)] = (min(holds, fails), int(np.sign(fails - holds)))
    against = {name: p for name, (p, direction) in results.items() if direction < 0}
    if against:
        name = min(against, key=lambda comparison: against[comparison])
        return name, min(1.0, against[name] * len(results)), -1
    name = max(results, key=lambda comparison: results[comparison][0])
    return name, *results[name]


def _p_values(
    values: Float[np.ndarray, " blocks"], rule: Rule, delta: float, tails: Tails
) -> tuple[float, float]:
    """p-values of what is claimed of the mean of values that count in the claimed direction, and of the opposite.

    Where nothing is true, either may seem so: both are two-sided. Claims of at most delta are distinguished
    from their opposite by one-sided tests about delta. Wherever the mean is, only one of both can err, so
    neither needs a correction, but a mean that is within ±delta may seem outside on two sides.
    """
    if rule == "beyond":
        up, down = tails(values)
        return min(1.0, 2 * up), min(1.0, 2 * down)
    above, below = tails(values - delta)
    if rule == "within":
        low_above, low_below = tails(values + delta)
        below, above = max(below, low_above), min(1.0, 2 * min(above, low_below))
    return below, above


def _falling(steps: pd.DataFrame | None, delta: float) -> tuple[str, ...]:
    """Steps whose mean is not above -delta by a one-sided test at 5 %, which the 90 % interval is."""
    lows = {} if steps is None else {name: interval(*_column(steps, name), 0.9)[0] for name in steps}
    return tuple(f"{name} ({low:+.2g})" for name, low in lows.items() if not low > -delta)


def _column(table: pd.DataFrame, name: object) -> tuple[Float[np.ndarray, " blocks"], Strata]:
    """The blocks that have a column, and the stratum of each."""
    kept = table[name].dropna()
    return kept.to_numpy(float), _strata(kept)


def _strata(table: pd.DataFrame | pd.Series) -> Strata:
    """Dataset and network of each block."""
    return list(zip(*(table.index.get_level_values(level) for level in STRATUM), strict=True))
