"""Tests and intervals of one number per block or replica: exact, by sign flips, or by Student's t.

A block is one problem that all compared runs share. Without an effect, its number is therefore as likely to
be ``x`` as ``-x``, whatever its distribution. Sign flips assume only this: neither equal variances of
datasets or levels nor normal noise.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_CONFIDENCE = 0.95
Sample = Float[np.ndarray, " blocks"]
Strata = Sequence[Hashable]
Tails = Callable[[Sample], tuple[float, float]]
"""Test: numbers of blocks to the one-sided p-values of a mean above 0 and of a mean below 0."""
FLIPS = 9_999
_MOST_EXACT = 20


class Estimate(NamedTuple):
    """An estimate with the ends of its 95 % interval, NaN where the replicas allow none."""

    value: float
    low: float
    high: float


def mean_interval(values: Float[np.ndarray, " replicas"]) -> Estimate:
    """Estimate the mean over replicas, with Student's t interval.

    Args:
        values: One number for each replica.

    Returns:
        The mean and the ends of its 95 % interval in the unit of the values. The ends are NaN for a single
        value.

    Raises:
        ValueError: If there is no value, or one is not finite.
    """
    from scipy import special

    _check(values)
    mean = float(np.mean(values))
    if len(values) == 1:
        return Estimate(mean, math.nan, math.nan)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(special.stdtrit(len(values) - 1, 0.5 + _CONFIDENCE / 2)) * error
    return Estimate(mean, mean - half, mean + half)


def median_interval(values: Float[np.ndarray, " replicas"]) -> Estimate:
    """Estimate the median over replicas, with the exact interval between two order statistics.

    The function serves quantities without a lower bound. Fewer than 6 values allow no such interval of 95 %.
    The interval is then the whole range, which contains the median with probability 1 − 2^(1−n).

    Args:
        values: One number for each replica.

    Returns:
        The median and the ends of its interval in the unit of the values. The ends are NaN for a single
        value.

    Raises:
        ValueError: If there is no value, or one is not finite.
    """
    from scipy import special

    _check(values)
    median = float(np.median(values))
    count = len(values)
    if count == 1:
        return Estimate(median, math.nan, math.nan)
    # As many values are left out at each end as are all on one side of the median in at most 2.5 % of samples.
    chances = special.bdtr(np.arange(count), count, 0.5)
    left_out = max(int((chances < (1 - _CONFIDENCE) / 2).sum()) - 1, 0)
    ordered = np.sort(values)
    return Estimate(median, float(ordered[left_out]), float(ordered[count - 1 - left_out]))


def _check(values: np.ndarray) -> None:
    """Refuse an empty array, and values that are not finite."""
    if len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"{len(values)} values, some not finite: leave out diverged replicas before summarising"
        )


def sign_flips(values: Sample, generator: np.random.Generator) -> tuple[float, float]:
    """Compute one-sided p-values of a sign-flip test of the mean.

    Up to 20 blocks, all 2ⁿ choices of signs are enumerated. For more blocks, 9,999 random ones are drawn.

    Args:
        values: One number per block, symmetric about 0 under the null hypothesis.
        generator: Draws the random signs.

    Returns:
        p-values of a mean above 0 and of a mean below 0, each at least 2⁻ⁿ.
    """
    n = len(values)
    if n == 0:
        return 1.0, 1.0
    observed = float(values.sum())
    slack = 1e-9 * float(np.abs(values).sum())  # equal sums may differ by rounding
    if n <= _MOST_EXACT:
        up = _as_far(values, observed - slack)
        down = _as_far(-values, -observed - slack)
        return up / 2**n, down / 2**n
    sums = (1.0 - 2.0 * generator.integers(0, 2, size=(FLIPS, n))) @ values
    up = int(np.sum(sums >= observed - slack))
    down = int(np.sum(sums <= observed + slack))
    return (1 + up) / (1 + FLIPS), (1 + down) / (1 + FLIPS)


def _as_far(values: Sample, least: float) -> int:
    """Count the choices of signs whose sum is at least a number.

    Each sum is one of the first half of the values plus one of the second. A binary search in the sorted sums
    of the second half counts those that suffice, so 2^(n/2) searches replace 2ⁿ comparisons.
    """
    first, second = (_sums(half) for half in np.array_split(values, 2))
    return int((len(second) - np.searchsorted(np.sort(second), least - first)).sum())


def _sums(values: Sample) -> Float[np.ndarray, " sums"]:
    """Return the sums of values under all choices of their signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def smallest_p(blocks: int) -> float:
    """Compute the least two-sided p-value that sign flips of this many blocks can give, 2^(1 − n).

    Args:
        blocks: Number of blocks n.
    """
    return min(1.0, 2.0 ** (1 - blocks))


def mean_error(values: Sample, strata: Strata) -> tuple[float, float]:
    """Estimate the standard error of the mean over blocks with fixed strata, and its degrees of freedom.

    The error is √(Σ_s w_s² s_s²/n_s) with w_s = n_s/n. This is the limit of a bootstrap with the same strata,
    without its bias for few blocks. There are (Σ v_s)² / Σ v_s²/(n_s − 1) degrees of freedom with v_s = w_s²
    s_s²/n_s. If a stratum has only one block, all blocks count as one stratum. The differences between strata
    then increase the error.

    Args:
        values: One number per block.
        strata: Stratum of each block, e.g. its dataset and network.

    Returns:
        Error in the unit of the values, and degrees of freedom. Both are NaN for fewer than two blocks. The
        error is 0 if all blocks of each stratum agree.

    Source:
        Welch 1947, Satterthwaite 1946.
    """
    groups = _groups(values, strata)
    if any(len(group) < 2 for group in groups):
        return math.nan, math.nan
    parts = np.array([len(group) * group.var(ddof=1) for group in groups]) / len(values) ** 2
    total = float(parts.sum())
    if total == 0:
        return 0.0, float(len(values) - len(groups))
    return math.sqrt(total), total**2 / float((parts**2 / [len(group) - 1 for group in groups]).sum())


def spread(values: Sample, strata: Strata) -> float:
    """Estimate the standard deviation between the blocks of a stratum, pooled over strata.

    Args:
        values: One number per block.
        strata: Stratum of each block.

    Returns:
        Standard deviation in the unit of the values, NaN for fewer than two blocks.
    """
    groups = _groups(values, strata)
    freedom = sum(len(group) - 1 for group in groups)
    if freedom < 1:
        return math.nan
    return math.sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom)


def interval(values: Sample, strata: Strata, confidence: float) -> tuple[float, float]:
    """Compute Student's t interval of the mean over blocks, stratified.

    Args:
        values: One number per block.
        strata: Stratum of each block.
        confidence: Probability that the interval contains the mean, in (0, 1).

    Returns:
        Both ends in the unit of the values, NaN for fewer than two blocks.
    """
    from scipy import special

    error, freedom = mean_error(values, strata)
    half = float(special.stdtrit(freedom, 0.5 + confidence / 2)) * error if error else error
    return float(values.mean()) - half, float(values.mean()) + half


def student(values: Sample, strata: Strata) -> tuple[float, float]:
    """Compute one-sided p-values of Student's t test of the mean, stratified.

    Args:
        values: One number per block.
        strata: Stratum of each block.

    Returns:
        p-values of a mean above 0 and of a mean below 0, both 1 for fewer than two blocks.
    """
    from scipy import special

    error, freedom = mean_error(values, strata)
    mean = float(values.mean()) if len(values) else 0.0
    if math.isnan(error):
        return 1.0, 1.0
    if error == 0:
        return (0.0 if mean > 0 else 1.0), (0.0 if mean < 0 else 1.0)
    return float(special.stdtr(freedom, -mean / error)), float(special.stdtr(freedom, mean / error))


def skewed(values: Sample, strata: Strata) -> tuple[float, float]:
    """Compute one-sided p-values of Student's t test of the mean, corrected for skewness.

    The statistic is t + γt²/3 + γ²t³/27 + γ/6, where γ estimates the skewness of the mean from an unbiased
    third moment.

    Args:
        values: One number per block.
        strata: Stratum of each block.

    Returns:
        p-values of a mean above 0 and of a mean below 0. They are those of :func:`student` if the error is 0
        or unknown.

    Source:
        Hall 1992, "On the removal of skewness by transformation".
    """
    from scipy import special

    error, freedom = mean_error(values, strata)
    if not error > 0:
        return student(values, strata)
    third = 0.0
    for group in _groups(values, strata):
        if (n := len(group)) > 2:
            third += n**2 / ((n - 1) * (n - 2)) * float(((group - group.mean()) ** 3).sum())
    skewness = third / (len(values) * error) ** 3
    t = float(values.mean()) / error
    t += skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
    return float(special.stdtr(freedom, -t)), float(special.stdtr(freedom, t))


def rank_correlation(x: Float[np.ndarray, "blocks k"], y: Float[np.ndarray, "blocks k"]) -> Sample:
    """Compute Spearman's ρ of each row.

    Equal values share their mean rank. For x in rising order and no ties, ρ is Page's L of one block (Page
    1963), centred and scaled to [-1, 1].

    Args:
        x: First quantity, k values for each block.
        y: Second quantity, likewise.

    Returns:
        One correlation for each block, 0 if one of the quantities is constant.
    """
    ranks = [_centred_ranks(values) for values in (x, y)]
    product, first, second = (
        (a * b).sum(axis=1) for a, b in ((ranks[0], ranks[1]), (ranks[0],) * 2, (ranks[1],) * 2)
    )
    scale = np.sqrt(first * second)
    return np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0)


def _centred_ranks(values: Float[np.ndarray, "blocks k"]) -> Float[np.ndarray, "blocks k"]:
    """Rank the values of each row, with mean 0. Equal values share their mean rank."""
    of, others = values[:, :, np.newaxis], values[:, np.newaxis, :]
    ranks = ((of > others).sum(axis=2) - (of < others).sum(axis=2)) / 2
    return np.where(np.isnan(values).any(axis=1, keepdims=True), np.nan, ranks)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's step-down rule.

    If all hypotheses with adjusted p-values below α are rejected, the probability of any false rejection is
    at most α.

    Args:
        p_values: p-values in any order.

    Returns:
        Adjusted p-values in the same order.

    Source:
        Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _groups(values: Sample, strata: Strata) -> list[Float[np.ndarray, " _"]]:
    """Return the values of each stratum, or all values as one group if a stratum has a single block."""
    labels = list(strata)
    groups = [values[[label == stratum for label in labels]] for stratum in dict.fromkeys(labels)]
    return groups if groups and min(len(group) for group in groups) > 1 else [values]
