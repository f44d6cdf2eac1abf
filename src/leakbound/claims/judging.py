"""Blocks judged: the effect with its intervals, p-values, and the verdict that these give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound.claims.outcomes import Blocks, Rule
from leakbound.claims.power import Design
from leakbound.claims.statistics import Strata, Tails, holm, interval, sign_flips, spread, student

STRATUM = ["dataset", "model"]


@dataclass(frozen=True)
class Judged:
    """Effect over blocks and what speaks for it.

    Args:
        effect: Mean over blocks, in the claim's unit; of fronts the difference from the decisive other.
        low: Lower end of its 95 % interval.
        high: Upper end.
        low_90: Lower end of the 90 % interval, which two one-sided tests of equivalence stand for.
        high_90: Upper end.
        p_value: Of the claim's test, two-sided where the claim is that there is an effect; NaN without blocks.
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
    direction: int = 0
    blocks: int = 0
    falling: tuple[str, ...] = ()


def gathered(settings: dict[tuple[str, str], Blocks]) -> Blocks:
    """Blocks of several (dataset, model) as one table, with these as the first parts of its index."""

    def joined(tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
        kept = {key: table for key, table in zip(settings, tables, strict=True) if table is not None}
        return pd.concat(kept, names=[*STRATUM, "replica"]) if kept else None

    found = list(settings.values())
    effects = joined([one.effects for one in found])
    assert effects is not None  # there is at least one setting
    return replace(
        max(found, key=lambda one: one.levels),
        effects=effects,
        scores=joined([one.scores for one in found]),
        steps=joined([one.steps for one in found]),
        widths={name: width for one in found for name, width in one.widths.items()},
        left_out=sum(one.left_out for one in found),
    )


def part(blocks: Blocks, dataset: str) -> Blocks:
    """The blocks of one dataset."""

    def own(table: pd.DataFrame | None) -> pd.DataFrame | None:
        return None if table is None else table[table.index.get_level_values("dataset") == dataset]

    effects = own(blocks.effects)
    assert effects is not None
    return replace(blocks, effects=effects, scores=own(blocks.scores), steps=own(blocks.steps))


def judge(blocks: Blocks, delta: float, generator: np.random.Generator) -> Judged:
    """Test blocks by sign flips; ``generator`` draws signs where there are too many blocks for all of them."""
    scores = blocks.effects if blocks.scores is None else blocks.scores
    name, p_value, direction = _decisive(blocks, scores, delta, partial(sign_flips, generator=generator))
    values, strata = _column(blocks.effects, name)
    effect = float(values.mean())
    if blocks.rule == "beyond" and np.sign(effect) != blocks.claimed * direction:
        direction = 0  # ranks and means that disagree say nothing of the direction
    low_90, high_90 = interval(values, strata, 0.9)
    return Judged(
        effect,
        *interval(values, strata, 0.95),
        low_90,
        high_90,
        p_value,
        direction,
        len(values),
        _falling(blocks.steps, delta),
    )


def verdict(judged: Judged, rule: Rule, p_adjusted: float, delta: float, alpha: float) -> str:
    """Verdict on a claim or on one dataset of it.

    *negligible* where the 90 % interval of the effect lies inside ±delta; *reproduced* or *contradicted* where the
    adjusted p-value is below ``alpha``, by the direction; *undecided* otherwise, and for a trend of which a step may
    fall by delta: each step's mean must be above -delta by its own one-sided 5 % test, so that a curve one of whose
    steps does fall by delta is called a trend in at most 5 % of cases.
    """
    if rule == "beyond" and _inside((judged.low_90, judged.high_90), delta):
        return "negligible"
    if not p_adjusted < alpha or not judged.direction:
        return "undecided"
    if judged.direction < 0:
        return "contradicted"
    return "undecided" if judged.falling else "reproduced"


def opposed(blocks: Blocks, pooled: str, delta: float, alpha: float) -> list[str]:
    """Datasets that significantly speak against a pooled verdict, or some against others.

    By Student's t of the blocks' effects, Holm-corrected over the datasets: sign flips of a dataset's few blocks can
    seldom reach a level at all, and a dataset that opposes would never be seen. An effect that is negligible on a
    dataset speaks neither way.

    Returns:
        Names of datasets; none where all that speak agree with the verdict.
    """
    found = []
    for dataset in (datasets := list(dict.fromkeys(blocks.effects.index.get_level_values("dataset")))):
        own = part(blocks, dataset)
        name, p_value, way = _decisive(own, own.effects, delta, partial(student, strata=_strata(own.effects)))
        small = blocks.rule == "beyond" and _inside(interval(*_column(own.effects, name), 0.9), delta)
        found.append((p_value, 0 if small else way))
    adjusted = holm([p_value for p_value, _ in found])
    says = {name: way for name, p, (_, way) in zip(datasets, adjusted, found, strict=True) if p < alpha and way}
    claimed, otherwise = ([name for name, way in says.items() if way == side] for side in (1, -1))
    if pooled == "reproduced":
        return otherwise
    if pooled == "contradicted":
        return claimed
    return [*claimed, *otherwise] if claimed and otherwise else []


def promised(blocks: Blocks, delta: float, level: float) -> Design:
    """Design by the spread between these blocks: all that numbers of them can see at a level."""
    steps = {} if blocks.steps is None else {name: spread(*_column(blocks.steps, name)) for name in blocks.steps}
    spreads = tuple(spread(*_column(blocks.effects, name)) for name in blocks.effects)
    back = tuple((one, blocks.widths[name]) for name, one in steps.items())
    return Design(blocks.rule, delta, spreads, back, blocks.levels, level)


def _inside(ends: tuple[float, float], delta: float) -> bool:
    """True if an interval lies inside ±delta."""
    return -delta < ends[0] and ends[1] < delta


def _decisive(blocks: Blocks, scores: pd.DataFrame, delta: float, tails: Tails) -> tuple[str, float, int]:
    """The comparison that decides, its p-value, and 1 or -1 for the claimed direction or the opposite.

    All comparisons must hold, so the weakest speaks for the claim. One that goes the other way is enough against it;
    its p-value is multiplied by their number.
    """
    found = {}
    for name in scores:
        values, _ = _column(scores, name)
        found[str(name)] = _p_value(values * blocks.claimed, blocks.rule, delta, tails)
    against = {name: p for name, (p, direction) in found.items() if direction < 0}
    if against:
        name = min(against, key=lambda one: against[one])
        return name, min(1.0, against[name] * len(found)), -1
    name = max(found, key=lambda one: found[one][0])
    return name, *found[name]


def _p_value(values: Float[np.ndarray, " blocks"], rule: Rule, delta: float, tails: Tails) -> tuple[float, int]:
    """p-value and direction of what is claimed of the mean of values that count in the claimed direction.

    Claims of at most delta are told apart from their opposite by one-sided tests about delta. Only one of both can err,
    so that neither needs a correction.
    """
    if rule == "beyond":
        up, down = tails(values)
        return min(1.0, 2 * min(up, down)), int(np.sign(down - up))
    above, below = tails(values - delta)
    if rule == "within":
        low_above, low_below = tails(values + delta)
        below, above = max(below, low_above), min(above, low_below)
    return (below, 1) if below <= above else (above, -1)


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
