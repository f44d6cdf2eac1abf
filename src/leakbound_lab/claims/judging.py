"""Judgement of blocks: the effect with its intervals and p-values, and the verdict that follows from them.

The spread between blocks gives the power of a test, and the number of blocks that a claim needs.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound_lab.claims.outcomes import Blocks, Rule
from leakbound_lab.claims.statistics import (
    Strata,
    Tails,
    holm,
    interval,
    sign_flips,
    skewed,
    smallest_p,
    spread,
    student,
)

_Test = Callable[[Float[np.ndarray, " blocks"], Strata], tuple[float, float]]
"""Test of numbers of blocks with their strata, as ``Tails`` returns it."""
ENOUGH = 0.8
MOST = 1_000
STRATUM = ["dataset", "model"]


@dataclass(frozen=True)
class Design:
    """Design of a claim: the facts that are known before its blocks are run.

    Args:
        rule: Kind of the claim about the effect.
        delta: Smallest effect of interest, in the unit of the effect.
        spreads: Standard deviation between blocks of each comparison. All comparisons must hold.
        steps: For each step of a trend, the standard deviation between blocks, and the distance between the
            ends of the step in the unit of the slope's denominator (doublings or steps).
        levels: Number of values along a trend whose ranks are tested. 0 for tests of means.
        level: Level of the test, in (0, 1).
        share: Share of the blocks, in (0, 1], that must show the effect by themselves. These may be the
            blocks of any datasets.
        step_level: Level of the test of each step of a trend, in (0, 0.5).
    """

    rule: Rule
    delta: float
    spreads: Sequence[float]
    steps: Sequence[tuple[float, float]]
    levels: int
    level: float
    share: float = 1.0
    step_level: float = 0.05

    def smallest_p(self, blocks: int) -> float:
        """Compute the least p-value that sign flips of this many blocks can give.

        Args:
            blocks: Number of blocks of all datasets.

        Returns:
            2^(1 - n) for two-sided tests, half of it for one-sided ones, with n the blocks that must show the
            effect by themselves.
        """
        return smallest_p(self._deciding(blocks)) / (1 if self.rule == "beyond" else 2)

    def _deciding(self, blocks: int) -> int:
        """Return the number of blocks that must show the effect by themselves."""
        return math.floor(self.share * blocks + 1e-9)

    def power(self, blocks: int, times: float = 2.0) -> float:
        """Compute the probability that this many blocks detect an effect of ``times`` delta.

        This is the power of Student's t test of the same mean, which sign flips follow closely. It is 0 if
        this many flips cannot reach the level at all. Page's statistic of k values is as good as slopes of
        3k/(π(k + 1)) times the blocks if noise is normal with equal variances, and better otherwise. With
        several comparisons, or the steps of a trend that rises evenly, the probabilities that each is missed
        are added up. For a claim of at most delta, an effect of ``times`` delta exceeds delta by (``times`` -
        1) delta.

        Args:
            blocks: Number of blocks.
            times: True effect, in multiples of delta.

        Returns:
            Probability, NaN if a spread is not known.
        """
        if not self.spreads or any(math.isnan(spread) for spread in self.spreads):
            return math.nan
        one_sided = self.rule != "beyond"
        if self.smallest_p(blocks) > self.level:
            return 0.0
        shift = (times - one_sided) * self.delta
        efficiency = 3 * self.levels / (math.pi * (self.levels + 1)) if self.levels else 1.0
        tail = self.level if one_sided else self.level / 2
        missed = [
            1 - _power(shift, spread / math.sqrt(efficiency), self._deciding(blocks), tail)
            for spread in self.spreads
        ]
        missed += [
            1 - _power((1 + times * width) * self.delta, spread, blocks, self.step_level)
            for spread, width in self.steps
        ]
        return max(0.0, 1 - sum(missed))

    def needed(self) -> int | None:
        """Find the least number of blocks that detect an effect of twice delta with power .8.

        Returns:
            Number of blocks, None if 1,000 are too few or the spread is not known.
        """
        if not self.power(MOST) >= ENOUGH:
            return None
        low = 1
        high = MOST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(middle) >= ENOUGH else (middle, high)
        return high


def _power(shift: float, spread: float, blocks: int, tail: float) -> float:
    """Compute the power of a one-sided t test of a mean that is ``shift`` away from its bound."""
    from scipy import special  # not scipy.stats, which takes half a second to import

    if blocks < 2 or shift <= 0:
        return 0.0
    if spread == 0 or math.isnan(spread):
        return 1.0
    distance = min(shift * math.sqrt(blocks) / spread, 37.0)  # beyond, the power is 1
    # P(T > q) of T with noncentrality m is P(T < -q) of T with -m, and q is minus the quantile of the tail.
    return float(special.nctdtr(blocks - 1, -distance, special.stdtrit(blocks - 1, tail)))


@dataclass(frozen=True)
class Judged:
    """Mean effect over blocks, with its intervals and p-values.

    Args:
        effect: Mean over blocks, in the claim's unit. For fronts, the difference from the decisive other
            front.
        low: Lower end of its 95 % interval.
        high: Upper end.
        low_90: Lower end of the 90 % interval.
        high_90: Upper end.
        small: True if two one-sided tests at alpha show that the mean effect is inside ±delta.
        negligible: True if they show it for each dataset and network, so that effects of opposite sign do not
            cancel.
        p_value: p-value of the claim's test, two-sided if the claim is that there is an effect, NaN without
            blocks. It is at least that of the test to which the interval belongs. With several settings it is
            the largest over :func:`subsets`, so that at least half of them show the effect.
        pooled: p-value of all blocks together.
        direction: 1 if the effect has the claimed direction, -1 if the opposite one, 0 if neither.
        blocks: Number of blocks.
        falling: Steps that may fall by delta by a one-sided test at alpha, with the lower end of the interval
            of the mean.
    """

    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    low_90: float = math.nan
    high_90: float = math.nan
    small: bool = False
    negligible: bool = False
    p_value: float = math.nan
    pooled: float = math.nan
    direction: int = 0
    blocks: int = 0
    falling: tuple[str, ...] = ()


def joined_blocks(settings: dict[tuple[str, ...], Blocks]) -> Blocks:
    """Join the blocks of several (dataset, model, preset) in one table.

    Args:
        settings: (dataset, model, preset) to its blocks, at least one.

    Returns:
        The blocks of all, whose index begins with dataset, model and preset.
    """

    def joined(tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
        present = {key: table for key, table in zip(settings, tables, strict=True) if table is not None}
        return pd.concat(present, names=[*STRATUM, "preset", "replica"]) if present else None

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
        note="; ".join(f"{' '.join(key[:2])}: {each.note}" for key, each in settings.items() if each.note),
    )


def part(blocks: Blocks, *settings: str) -> Blocks:
    """Choose the blocks of certain settings.

    Args:
        blocks: Blocks of all settings.
        settings: Their names, as :func:`names` lists them.
    """
    several = _several(blocks)

    def rows_of_settings(table: pd.DataFrame) -> pd.DataFrame:
        rows = table[[name in settings for name in _settings(table, several)]]
        empty = np.isnan(rows.to_numpy(float)).all(axis=0)
        # A step between two levels that only other settings have is no step of these.
        return rows.loc[:, ~empty] if empty.any() else rows

    return blocks.changed(rows_of_settings)


def names(blocks: Blocks) -> list[str]:
    """List the settings of blocks: the datasets, each with its network if there are several networks.

    Args:
        blocks: Blocks of all settings.
    """
    return list(dict.fromkeys(_settings(blocks.effects, _several(blocks))))


def subsets(blocks: Blocks) -> Iterator[Blocks]:
    """Yield the blocks of every n − k + 1 of n settings, if at least k = ⌈n/2⌉ settings must show the effect.

    If fewer than k settings show it, the others fill one of these subsets. The largest p-value over the
    subsets therefore errs no more often than the p-value of a single subset.

    Args:
        blocks: Blocks of all settings.

    Source:
        Benjamini and Heller 2008, "Screening for partial conjunction hypotheses", with the test of all blocks
        of a subset instead of Fisher's combination.
    """
    settings = names(blocks)
    for subset in combinations(settings, len(settings) - -(-len(settings) // 2) + 1):
        yield part(blocks, *subset)


def judge(blocks: Blocks, delta: float, alpha: float, generator: np.random.Generator) -> Judged:
    """Test blocks by sign flips, and by Student's t, to which the intervals belong.

    Args:
        blocks: Blocks of all settings.
        delta: Smallest effect of interest, in the unit of the effects.
        alpha: Level of the tests about ±delta, in (0, 0.5).
        generator: Draws signs if there are too many blocks to enumerate them.
    """
    name, pooled, direction = _tested(blocks, delta, generator)
    parts = subsets(blocks) if len(names(blocks)) > 2 else []
    results = [_tested(subset, delta, generator) for subset in parts]
    p_value = max([pooled, *(p if sign == direction else 1.0 for _, p, sign in results)])
    values, strata = _column(blocks.effects, name)
    return Judged(
        float(values.mean()),
        *interval(values, strata, 0.95),
        *interval(values, strata, 0.9),
        _inside(interval(values, strata, 1 - 2 * alpha), delta),
        _negligible(blocks.effects[name], delta, alpha),
        p_value,
        pooled,
        direction,
        len(values),
        _falling(blocks.steps, delta, alpha),
    )


def decides(blocks: int, rule: Rule, alpha: float) -> bool:
    """Return True if sign flips of this many blocks can reach the level. With fewer, every claim is undecided.

    Args:
        blocks: Number of blocks.
        rule: Kind of the claim about the effect.
        alpha: Level of the verdict, in (0, 0.5).

    Example:
        >>> [decides(blocks, "beyond", 0.05) for blocks in (2, 5, 6)]
        [False, False, True]
    """
    return smallest_p(blocks) / (1 if rule == "beyond" else 2) < alpha


def verdict(judged: Judged, rule: Rule, p_adjusted: float, alpha: float) -> str:
    """Return the verdict on a claim, or on one dataset of it.

    The verdict is *undecided* if there are too few blocks for any other (:func:`decides`). It is *negligible*
    if the effect is inside ±delta in each dataset and network, and *undecided* if only their mean is. It is
    *reproduced* or *contradicted*, by the direction, if the adjusted p-value is below ``alpha``. Otherwise it
    is *undecided*. A trend is also *undecided* if a
    step may fall by delta. The mean of each step must be above -delta by a one-sided test of its own, so
    a curve with a step that does fall by delta is called a trend in at most a share alpha of cases.

    Args:
        judged: Effect over the blocks, judged at the same level.
        rule: Kind of the claim about the effect.
        p_adjusted: Adjusted p-value.
        alpha: Level of the verdict, in (0, 0.5).
    """
    if not decides(judged.blocks, rule, alpha):
        return "undecided"
    if rule == "beyond" and (judged.small or judged.negligible):
        return "negligible" if judged.negligible else "undecided"
    if not p_adjusted < alpha or not judged.direction:
        return "undecided"
    if judged.direction < 0:
        return "contradicted"
    return "undecided" if judged.falling else "reproduced"


def sides(blocks: Blocks, delta: float, alpha: float) -> dict[int, list[str]]:
    """List the settings by what their effects significantly show.

    The test is Student's t of the blocks' effects, Holm-corrected over the settings. Sign flips of a
    setting's few blocks can seldom reach a level, so they would never show that a setting opposes. A setting
    with a negligible effect shows neither direction. It differs from the others only if its interval is
    disjoint from that of all others together.

    Args:
        blocks: Blocks of all settings.
        delta: Smallest effect of interest, in the unit of the effects.
        alpha: Level of the tests, in (0, 0.5).

    Returns:
        Settings that show the claimed direction (1), the opposite one (-1), or an effect that is negligible
        and differs from that of the others (0).
    """
    directions: dict[int, list[str]] = {1: [], -1: [], 0: []}
    results = []
    for setting in names(blocks):
        subset = part(blocks, setting)
        name, p_value, side = _decisive(subset, delta, [(subset.effects, student)])
        effects, low, high = subset.effects[name], *interval(*_column(subset.effects, name), 1 - 2 * alpha)
        small = blocks.rule == "beyond" and _negligible(effects, delta, alpha)
        results.append((p_value, 0 if small else side))
        rest = blocks.effects.drop(effects.index)
        if small and len(rest):
            least, most = interval(*_column(rest, name), 1 - 2 * alpha)
            directions[0] += [setting] if high < least or most < low else []
    adjusted = holm([p_value for p_value, _ in results])
    for setting, p, (_, side) in zip(names(blocks), adjusted, results, strict=True):
        if p < alpha and side:
            directions[side].append(setting)
    return directions


def opposed(directions: dict[int, list[str]], pooled: str) -> list[str]:
    """List the datasets that oppose a pooled verdict, or all that show something if they disagree.

    Args:
        directions: Datasets by what they show, as :func:`sides` returns them.
        pooled: Verdict over all blocks.

    Returns:
        Names of datasets, empty if all datasets that show something agree with the verdict.
    """
    if pooled in ("reproduced", "contradicted"):
        return [*directions[-1 if pooled == "reproduced" else 1], *directions[0]]
    several = sum(bool(datasets) for datasets in directions.values()) > 1
    return [dataset for datasets in directions.values() for dataset in datasets] if several else []


def promised(blocks: Blocks, delta: float, level: float, alpha: float) -> Design:
    """Design a test from the spread between these blocks, to predict what a number of blocks can detect.

    Args:
        blocks: Blocks of all settings.
        delta: Smallest effect of interest, in the unit of the effects.
        level: Level of the test after Holm's correction, in (0, 1).
        alpha: Level of the test of each step, in (0, 0.5).
    """
    steps = pd.DataFrame() if blocks.steps is None else blocks.steps
    spreads = tuple(spread(*_column(blocks.effects, name)) for name in blocks.effects)
    back = tuple((spread(*_column(steps, name)), blocks.widths[name]) for name in steps)
    share = len(names(next(subsets(blocks)))) / len(names(blocks))
    return Design(blocks.rule, delta, spreads, back, blocks.levels, level, share, alpha)


def _several(blocks: Blocks) -> bool:
    """Return True if the blocks are of several networks."""
    return len({*_places(blocks.effects, "model")} - {-1}) > 1  # -1: of no name


def _settings(table: pd.DataFrame, several: bool) -> list[str]:
    """List the name of each block's setting: its dataset, with its network if there are several networks."""
    strata = _strata(table)
    by_stratum: dict[Hashable, str] = {}
    for row, stratum in enumerate(strata):
        if stratum not in by_stratum:
            dataset, model, *_ = table.index[row]
            by_stratum[stratum] = f"{dataset} {model}".strip() if several else dataset
    return [by_stratum[stratum] for stratum in strata]


def _negligible(effects: pd.Series, delta: float, alpha: float) -> bool:
    """Return True if two one-sided tests show that the effect of each dataset and network is small."""
    finite = effects.dropna()
    values = finite.to_numpy(float)
    strata = _strata(finite)
    parts = ([other == stratum for other in strata] for stratum in dict.fromkeys(strata))
    return all(_inside(interval(values[part], [0] * sum(part), 1 - 2 * alpha), delta) for part in parts)


def _inside(ends: tuple[float, float], delta: float) -> bool:
    """Return True if an interval is inside ±delta."""
    return -delta < ends[0] and ends[1] < delta


def _tested(blocks: Blocks, delta: float, generator: np.random.Generator) -> tuple[str, float, int]:
    """Return the comparison that decides, its p-value, and 1 or -1 for the claimed direction or the opposite.

    Sign flips assume nothing of the spread, but few of them resolve little; the interval next to a verdict is
    Student's. Both must show the effect, so that no verdict contradicts its interval. Ranks follow medians. If
    skewed errors spread more, the median falls although the mean stays. A trend therefore tests its ranks and
    its slopes, the latter also by a test that allows for skewness. All tests must agree.
    """

    def flips(values: Float[np.ndarray, " blocks"], strata: Strata) -> tuple[float, float]:
        del strata  # signs are flipped in each block alike
        return sign_flips(values, generator)

    tests: list[tuple[pd.DataFrame, _Test]] = [(blocks.effects, flips), (blocks.effects, student)]
    if blocks.scores is not None:
        tests += [(blocks.scores, flips), (blocks.effects, skewed)]
    return _decisive(blocks, delta, tests)


def _tails(test: _Test, strata: Strata) -> Tails:
    """Return a test of numbers whose strata are known."""
    return lambda values: test(values, strata)


def _decisive(
    blocks: Blocks, delta: float, tests: Sequence[tuple[pd.DataFrame, _Test]]
) -> tuple[str, float, int]:
    """Return the comparison that decides, its largest p-value over tests, and the direction in which they agree.

    All comparisons must hold, so the weakest decides in favor of the claim. One that has the opposite
    direction is enough against the claim. Its p-value is multiplied by the number of comparisons.
    """
    results = {}
    for name in blocks.effects:
        both = []
        for scores, test in tests:
            values, strata = _column(scores, name)
            both.append(_p_values(values * blocks.claimed, blocks.rule, delta, _tails(test, strata)))
        directions = {int(np.sign(fails - holds)) for holds, fails in both}
        agreed = directions.pop() if len(directions) == 1 else 0
        results[str(name)] = (max(min(each) for each in both), agreed)
    against = {name: p for name, (p, direction) in results.items() if direction < 0}
    if against:
        name = min(against, key=lambda comparison: against[comparison])
        return name, min(1.0, against[name] * len(results)), -1
    name = max(results, key=lambda comparison: (results[comparison][1] == 0, results[comparison][0]))
    return name, *results[name]


def _p_values(
    values: Float[np.ndarray, " blocks"], rule: Rule, delta: float, tails: Tails
) -> tuple[float, float]:
    """Return the p-values of a claim about the mean of values, and of its opposite.

    Values count in the claimed direction. If there is no effect, the claim or its opposite may seem true, so
    both p-values are two-sided. A claim of at most delta is distinguished from its opposite by one-sided
    tests about delta. Whatever the mean is, only one of the two tests can err, so neither needs a correction.
    But a mean within ±delta may seem outside on two sides.
    """
    if rule == "beyond":
        up, down = tails(values)
        return min(1.0, 2 * up), min(1.0, 2 * down)
    above, below = tails(values - delta)
    if rule == "within":
        low_above, low_below = tails(values + delta)
        below = max(below, low_above)
        above = min(1.0, 2 * min(above, low_below))
    return below, above


def _falling(steps: pd.DataFrame | None, delta: float, alpha: float) -> tuple[str, ...]:
    """List the steps whose mean is not above -delta by a one-sided test at alpha."""
    share = 1 - 2 * alpha
    lows = {} if steps is None else {name: interval(*_column(steps, name), share)[0] for name in steps}
    return tuple(f"{name} ({low:+.2g})" for name, low in lows.items() if not low > -delta)


def _column(table: pd.DataFrame, name: object) -> tuple[Float[np.ndarray, " blocks"], Strata]:
    """Return the blocks that have a column, and the stratum of each."""
    values = table[name].to_numpy(float)
    present = ~np.isnan(values)
    return values[present], [stratum for stratum, has in zip(_strata(table), present, strict=True) if has]


def _strata(table: pd.DataFrame | pd.Series) -> Strata:
    """List the dataset and network of each block, as places among all datasets and networks of the index.

    Names are strings of Arrow, which pandas reads slowly one by one.
    """
    return list(zip(*(_places(table, level) for level in STRATUM), strict=True))


def _places(table: pd.DataFrame | pd.Series, level: str) -> list[int]:
    """List the place of each block's name among all names of a level of the index."""
    index = cast(pd.MultiIndex, table.index)
    return index.codes[index.names.index(level)].tolist()
