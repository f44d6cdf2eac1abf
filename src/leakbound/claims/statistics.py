"""Tests and intervals of one number per block: exact or by sign flips, with Student's t where few blocks need it.

A block is one problem, the same for everything that is compared, so that under no effect its number is as
likely to be ``x`` as ``-x``: whatever its distribution, its spread, and what its values share. That is all
that sign flips assume: neither equal variances of datasets or levels nor normal noise.
"""

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from jaxtyping import Float

Sample = Float[np.ndarray, " blocks"]
Strata = Sequence[Hashable]
Tails = Callable[[Sample], tuple[float, float]]
"""Numbers of blocks to the one-sided p-values of a mean above 0 and of one below."""

FLIPS = 9_999
_MOST_EXACT = 20


def sign_flips(values: Sample, generator: np.random.Generator) -> tuple[float, float]:
    """Compute one-sided p-values of a sign-flip test of the mean.

    All 2ⁿ ways to choose signs are visited for up to 20 blocks, 9,999 random ones for more.

    Args:
        values: One number per block, symmetric about 0 under the null.
        generator: Draws the random signs.

    Returns:
        p-value of a mean above 0 and of one below, each at least 2⁻ⁿ.
    """
    n = len(values)
    if n == 0:
        return 1.0, 1.0
    observed = float(values.sum())
    slack = 1e-9 * float(np.abs(values).sum())  # rounding must not part equal sums
    if n <= _MOST_EXACT:
        half = values[:1]  # the first sign stays; the other half of the sums is this one's negative
        for value in values[1:]:
            half = np.concatenate([half + value, half - value])
        up = int(np.sum(half >= observed - slack) + np.sum(-half >= observed - slack))
        down = int(np.sum(half <= observed + slack) + np.sum(-half <= observed + slack))
        return up / 2**n, down / 2**n
    sums = (1.0 - 2.0 * generator.integers(0, 2, size=(FLIPS, n))) @ values
    up, down = int(np.sum(sums >= observed - slack)), int(np.sum(sums <= observed + slack))
    return (1 + up) / (1 + FLIPS), (1 + down) / (1 + FLIPS)


def smallest_p(blocks: int) -> float:
    """Find the least two-sided p-value that sign flips of so many blocks can give, 2^(1 − n)."""
    return min(1.0, 2.0 ** (1 - blocks))


def mean_error(values: Sample, strata: Strata) -> tuple[float, float]:
    """Estimate the standard error of the mean over blocks, the share of each stratum fixed, and its degrees of freedom.

    √(Σ_s w_s² s_s²/n_s) with w_s = n_s/n, the limit of a bootstrap stratified likewise, its bias for few
    blocks corrected; (Σ v_s)² / Σ v_s²/(n_s − 1) degrees of freedom with v_s = w_s² s_s²/n_s. Where a stratum
    has but one block all count as one stratum, whose differences then make the error larger.

    Args:
        values: One number per block.
        strata: Stratum of each block, e.g. its dataset and network.

    Returns:
        Error and degrees of freedom, NaN for fewer than two blocks. Error 0 where blocks of a stratum all
        agree.

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
    """Standard deviation between the blocks of a stratum, all strata pooled, or NaN for fewer than two blocks."""
    groups = _groups(values, strata)
    freedom = sum(len(group) - 1 for group in groups)
    if freedom < 1:
        return math.nan
    return math.sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom)


def interval(values: Sample, strata: Strata, confidence: float) -> tuple[float, float]:
    """Compute Student's t interval of the mean over blocks, stratified, NaN for fewer than two blocks."""
    from scipy import stats

    error, freedom = mean_error(values, strata)
    half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error if error else error
    return float(values.mean()) - half, float(values.mean()) + half


def student(values: Sample, strata: Strata) -> tuple[float, float]:
    """Compute one-sided p-values of Student's t test of the mean, stratified, (1, 1) for fewer than two blocks."""
    from scipy import stats

    error, freedom = mean_error(values, strata)
    mean = float(values.mean()) if len(values) else 0.0
    if math.isnan(error):
        return 1.0, 1.0
    if error == 0:
        return (0.0 if mean > 0 else 1.0), (0.0 if mean < 0 else 1.0)
    return float(stats.t.sf(mean / error, freedom)), float(stats.t.cdf(mean / error, freedom))


def skewed(values: Sample, strata: Strata) -> tuple[float, float]:
    """One-sided p-values of Student's t test of the mean, its statistic transformed so that skewness does not move it.

    t + γt²/3 + γ²t³/27 + γ/6, where γ estimates the skewness of the mean, without bias of its third moment.

    Args:
        values: One number per block.
        strata: Stratum of each block.

    Returns:
        p-value of a mean above 0 and of one below. Those of :func:`student` where nothing is known of
        skewness.

    Source:
        Hall 1992, "On the removal of skewness by transformation".
    """
    from scipy import stats

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
    return float(stats.t.sf(t, freedom)), float(stats.t.cdf(t, freedom))


def rank_correlation(x: Float[np.ndarray, "blocks k"], y: Float[np.ndarray, "blocks k"]) -> Sample:
    """Compute Spearman's ρ of each row, equal values sharing their mean rank, 0 where one of both is constant.

    For x in rising order and no ties, ρ is Page's L of one block (Page 1963), centred and scaled to [-1, 1].
    """
    from scipy import stats

    ranks = [stats.rankdata(values, axis=1) - (values.shape[1] + 1) / 2 for values in (x, y)]
    product, first, second = (
        (a * b).sum(axis=1) for a, b in ((ranks[0], ranks[1]), (ranks[0],) * 2, (ranks[1],) * 2)
    )
    scale = np.sqrt(first * second)
    return np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's step-down rule: declaring those below α errs anywhere with probability at most α.

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
    """Values of each stratum, all as one where a stratum has a single block."""
    labels = list(strata)
    groups = [values[[label == stratum for label in labels]] for stratum in dict.fromkeys(labels)]
    return groups if groups and min(len(group) for group in groups) > 1 else [values]
