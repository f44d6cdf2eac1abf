"""Power of a claim's test given the spread between blocks, and the number of blocks that a claim needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leakbound.claims.outcomes import Rule
from leakbound.claims.statistics import smallest_p

ENOUGH = 0.8
MOST = 1_000


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

    def needed(self, times: float = 2.0) -> int | None:
        """Find the least number of blocks that detect an effect of ``times`` delta with power .8.

        Args:
            times: True effect, in multiples of delta.

        Returns:
            Number of blocks, None if 1,000 are too few or the spread is not known.
        """
        if not self.power(MOST, times) >= ENOUGH:
            return None
        low, high = 1, MOST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(middle, times) >= ENOUGH else (middle, high)
        return high


def _power(shift: float, spread: float, blocks: int, tail: float) -> float:
    """Compute the power of a one-sided t test of a mean that is ``shift`` away from its bound."""
    from scipy import stats

    if blocks < 2 or shift <= 0:
        return 0.0
    if spread == 0 or math.isnan(spread):
        return 1.0
    distance = min(shift * math.sqrt(blocks) / spread, 37.0)  # beyond, nct overflows and the power is 1
    return float(stats.nct.sf(stats.t.isf(tail, blocks - 1), blocks - 1, distance))
