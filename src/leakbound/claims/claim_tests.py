"""The tests that claims name: each takes a figure's rows and says how far they speak for the claim."""

from __future__ import annotations

from functools import partial

from leakbound.claims.claim_options import Association, Difference, Front, Identity, Order, Steepness, Trend
from leakbound.claims.differences import compare, identify
from leakbound.claims.fronts import rank_fronts
from leakbound.claims.outcomes import ClaimTest, Outcome
from leakbound.claims.slopes import steepen
from leakbound.claims.trends import associate, follow, order

__all__ = [
    "ClaimTest",
    "Outcome",
    "concordant",
    "decreasing",
    "discordant",
    "equals",
    "front",
    "greater",
    "increasing",
    "less",
    "ordered",
    "steeper",
]

increasing = ClaimTest("increasing", Trend, partial(follow, 1))
decreasing = ClaimTest("decreasing", Trend, partial(follow, -1))
ordered = ClaimTest("ordered", Order, order)
greater = ClaimTest("greater", Difference, partial(compare, 1))
less = ClaimTest("less", Difference, partial(compare, -1))
steeper = ClaimTest("steeper", Steepness, steepen)
equals = ClaimTest("equals", Identity, identify)
concordant = ClaimTest("concordant", Association, partial(associate, 1))
discordant = ClaimTest("discordant", Association, partial(associate, -1))
front = ClaimTest("front", Front, rank_fronts)
