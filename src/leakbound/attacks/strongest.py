"""The attacker that does best on records of known membership, by each metric, where luck does not favor who learns."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
from jaxtyping import Float
from scipy import stats

_SURE = 1.645  # standard errors, of a one-sided test at .05

Parts = tuple[Float[np.ndarray, " members"], Float[np.ndarray, " others"]]


def strongest(
    known: Mapping[str, Float[np.ndarray, " n"]], learned: Collection[str], false_positive_rate: float | None = None
) -> str:
    """Attacker with the best AUC, or true-positive rate at a false-positive rate, on records that it knows.

    One that learned from these records was stopped where it did best on some of them, so it is taken only where it
    beats the best of the others in a paired one-sided test at .05.

    Args:
        known: Attacker to its scores, higher means member; the first half are members'. Records for which one has no
            score stay out of its comparisons.
        learned: Attackers that learned from these records.
        false_positive_rate: That of the true-positive rate, in (0, 1); None for the AUC.

    Returns:
        Its name.
    """

    def value(name: str) -> float:
        parts = _parts(known[name], np.isfinite(known[name]), false_positive_rate)
        return float(parts[0].mean()) if parts else -1.0

    def surely_beats(name: str, other: str) -> bool:
        both = np.isfinite(known[name]) & np.isfinite(known[other])
        own, others = (_parts(known[one], both, false_positive_rate) for one in (name, other))
        if own is None or others is None:
            return False
        gains = [one - two for one, two in zip(own, others, strict=True)]
        error = math.sqrt(sum(float(gain.var(ddof=1)) / len(gain) for gain in gains))
        return float(gains[0].mean()) > _SURE * error

    plain = max((name for name in known if name not in learned), key=value)
    return max((name for name in known if name in learned and surely_beats(name, plain)), key=value, default=plain)


def _parts(scores: Float[np.ndarray, " n"], chosen: np.ndarray, false_positive_rate: float | None) -> Parts | None:
    """Part of each member and non-member in a metric, to first order; the members' mean is its value.

    Of the AUC they are the placements (DeLong et al. 1988). Of a true-positive rate they say who lies above the
    threshold, which non-members move along the curve: by its slope, at most the ratio of both rates if it is concave.

    Returns:
        None where fewer than two of a kind are chosen.
    """
    members, others = (half[kept] for half, kept in zip(np.split(scores, 2), np.split(chosen, 2), strict=True))
    if min(len(members), len(others)) < 2:
        return None
    if false_positive_rate is None:
        ranks = stats.rankdata(np.concatenate([members, others]))
        above = (ranks[: len(members)] - stats.rankdata(members)) / len(others)
        return above, 1.0 - (ranks[len(members) :] - stats.rankdata(others)) / len(members)
    threshold = np.sort(others)[::-1][int(false_positive_rate * len(others))]
    found, false = (members > threshold).astype(float), (others >= threshold).astype(float)
    return found, -false * found.mean() / false.mean()
