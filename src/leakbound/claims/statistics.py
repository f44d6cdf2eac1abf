"""Tests for few replicas: exact or by permutation wherever that is possible."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations

import numpy as np
from jaxtyping import Float

Sample = Float[np.ndarray, " _"]
Batch = Float[np.ndarray, "draws _"]
Stratum = Sequence[Sample]

PERMUTATIONS = 9_999
_LARGEST_EXACT = 100
_LARGEST_ENUMERATION = 200_000
_MOST_ORDERED = 7


@dataclass(frozen=True)
class Tested:
    """Result of a two-sided test; p-value in (0, 1], direction 1, 0 or −1 as the deviation from the null's mean."""

    statistic: float
    p_value: float
    direction: int


def jonckheere(strata: Sequence[Stratum], generator: np.random.Generator) -> Tested:
    """Jonckheere–Terpstra test of a trend over ordered groups, stratified.

    J = Σ_{i<j} #{x in group i < y in group j} + ½ #{x = y}, summed over strata. Without ties J is a sum of independent
    Mann–Whitney statistics (each group against all before it), so its null distribution is an exact convolution. With
    ties it is sampled by permuting values within strata; above 100 values a tie-corrected normal takes its place.

    Args:
        strata: Each a sequence of groups in the claimed order; a group holds one value per replica.
            Values within a stratum are exchangeable under the null.
        generator: Draws the permutations.

    Returns:
        J, its two-sided p-value, and +1 if the values rise along the groups.

    Raises:
        ValueError: If there is nothing to compare.

    Source:
        Jonckheere 1954; ties: Hollander, Wolfe and Chicken 2014, Sec. 6.2.
    """
    from scipy import stats

    strata = [stratum for stratum in strata if len(stratum) > 1]
    if not strata:
        raise ValueError("a trend needs at least two groups with values")
    statistic = sum(_ascents([group[None, :] for group in stratum]).item() for stratum in strata)
    moments = [_jonckheere_moments(stratum) for stratum in strata]
    mean, variance = (sum(own) for own in zip(*moments, strict=True))
    direction = int(np.sign(round(2 * (statistic - mean))))
    if variance == 0:
        return Tested(statistic, 1.0, 0)
    pooled = [np.concatenate(stratum) for stratum in strata]
    if sum(len(values) for values in pooled) > _LARGEST_EXACT:
        deviation = max(0.0, abs(statistic - mean) - 0.5)
        return Tested(statistic, float(2 * stats.norm.sf(deviation / math.sqrt(variance))), direction)
    if all(len(np.unique(values)) == len(values) for values in pooled):
        chances = np.ones(1)
        for stratum in strata:
            chances = np.convolve(chances, _jonckheere_chances(tuple(len(group) for group in stratum)))
        return Tested(statistic, _exact_p(chances, round(statistic)), direction)
    drawn = np.zeros(PERMUTATIONS)
    for stratum in strata:
        values = np.tile(np.concatenate(stratum), (PERMUTATIONS, 1))
        ends = np.cumsum([len(group) for group in stratum])[:-1]
        drawn += _ascents(np.split(generator.permuted(values, axis=1), ends, axis=1))
    return Tested(statistic, _two_sided(statistic, drawn, 1).p_value, direction)


def page(values: Float[np.ndarray, "replicas levels"], generator: np.random.Generator) -> Tested:
    """Page's test of a trend within replicas that are the same problem at every level.

    L = Σ_r Σ_j j · rank of replica r's value at level j among its own, equal values sharing their mean rank. Under the
    null each replica's values are exchangeable, so its share of L is one of k! equally likely numbers, and the null
    distribution of L is their convolution over replicas. Above 7 levels it is sampled by permuting within replicas.

    Args:
        values: One row per replica, columns in the claimed order, at least two.
        generator: Draws the permutations.

    Returns:
        L, its two-sided p-value, and +1 if the values rise along the columns.

    Source:
        Page 1963.
    """
    from scipy import stats

    replicas, count = values.shape
    ranks = stats.rankdata(values, axis=1)
    weights = np.arange(1.0, count + 1)
    reached = round(2 * (ranks @ weights).sum())  # twice L is whole, whatever the ties
    direction = int(np.sign(reached - round(replicas * count * (count + 1) ** 2 / 2)))
    if count <= _MOST_ORDERED:
        orders = np.array(list(permutations(range(count))))
        chances = np.ones(1)
        for row in ranks:
            sums = np.round(2 * (row[orders] @ weights)).astype(int)
            chances = np.convolve(chances, np.bincount(sums) / len(sums))
        return Tested(reached / 2, _exact_p(chances, reached), direction)
    drawn = np.zeros(PERMUTATIONS)
    for row in ranks:
        drawn += np.round(2 * (generator.permuted(np.tile(row, (PERMUTATIONS, 1)), axis=1) @ weights))
    return Tested(reached / 2, _two_sided(float(reached), drawn, 1).p_value, direction)


def smallest_trend_p(sizes: Sequence[Sequence[int]]) -> float:
    """Least two-sided p-value of ``jonckheere`` or ``greater`` for groups of these sizes, when no values are equal."""
    arrangements = sum(math.lgamma(sum(groups) + 1) - sum(math.lgamma(size + 1) for size in groups) for groups in sizes)
    return min(1.0, 2 * math.exp(-arrangements))


def trend_effect(strata: Sequence[Sequence[Batch]]) -> Float[np.ndarray, " draws"]:
    """Share of ascending minus share of descending pairs of values from different groups, in [−1, 1].

    Args:
        strata: Strata of groups in order, each group with one row per draw (resample), one column per replica.

    Returns:
        One number per draw.
    """
    ascents = sum(_ascents(list(stratum)) for stratum in strata)
    pairs = sum(
        stratum[i].shape[1] * stratum[j].shape[1] for stratum in strata for i, j in combinations(range(len(stratum)), 2)
    )
    return np.asarray(2 * ascents / pairs - 1)


def greater(strata: Sequence[tuple[Sample, Sample]], generator: np.random.Generator) -> Tested:
    """Stratified permutation test of the mean difference between two groups.

    The statistic is the mean over strata of mean(first) − mean(second); labels are permuted within strata. All
    relabellings are visited when there are at most 200,000 of them, 9,999 random ones otherwise.

    Args:
        strata: Pairs of independent samples, one pair per matched level, none empty.
        generator: Draws relabellings.

    Returns:
        Mean difference, two-sided p-value, and +1 if the first group is larger.
    """
    observed = float(np.mean([first.mean() - second.mean() for first, second in strata]))
    count = math.prod(math.comb(len(first) + len(second), len(first)) for first, second in strata)
    if count > _LARGEST_ENUMERATION:
        return _two_sided(observed, np.mean([_randomly_relabelled(*pair, generator) for pair in strata], axis=0), 1)
    differences = np.zeros(1)
    for pair in strata:
        differences = np.add.outer(differences, _relabelled(*pair)).ravel()
    return _two_sided(observed, differences / len(strata), 0)


def paired_greater(differences: Sample, generator: np.random.Generator) -> Tested:
    """Sign-flip test of the mean of paired differences; its statistic is the mean, its direction the mean's sign.

    All ways to choose signs are visited where there are at most 200,000 of them, 9,999 random ones otherwise.
    """
    n = len(differences)
    if 2**n <= _LARGEST_ENUMERATION:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return _two_sided(float(differences.mean()), signs @ differences / n, 0)
    signs = generator.choice([-1.0, 1.0], size=(PERMUTATIONS, n))
    return _two_sided(float(differences.mean()), signs @ differences / n, 1)


def smallest_sign_p(replicas: int, strata: int) -> float:
    """Least two-sided p-value that ``paired_greater`` can give for ``strata`` times so many pairs."""
    return min(1.0, 2.0 * 0.5 ** (replicas * strata))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values: declaring those below α errs anywhere with probability at most α."""
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def replicas_needed(p_value: float, replicas: int, level: float, smallest_p: Callable[[int], float]) -> int | None:
    """Replicas that would decide with 80 % power if the effect is what it seems now.

    The standardised effect grows with √n: n' = n ((z_{1−level/2} + z_{0.8}) / z_observed)², and n' replicas must be
    able to reach the level at all. Where the p-value is the least that n replicas can give, it tells how many they are
    and not how large the effect is: then the least number that can reach the level, if the others agree as well.

    Args:
        p_value: Two-sided p-value seen.
        replicas: Replicas it was seen with, at least 1.
        level: Level that a single test must meet.
        smallest_p: Number of replicas to the least p-value that the test can give.

    Returns:
        A number above ``replicas``, or None if even 1,000 would not do.
    """
    from scipy import stats

    needed = replicas + 1
    if p_value > smallest_p(replicas) * (1 + 1e-9):
        seen = float(stats.norm.isf(max(p_value, 1e-12) / 2))
        if seen <= 0:
            return None
        needed = max(needed, math.ceil(replicas * ((stats.norm.isf(level / 2) + stats.norm.ppf(0.8)) / seen) ** 2))
    while needed <= 1000 and smallest_p(needed) > level:
        needed += 1
    return needed if needed <= 1000 else None


def _ascents(groups: Sequence[Batch]) -> Float[np.ndarray, " draws"]:
    """J of each draw: pairs that ascend from an earlier to a later group, equal ones counted half."""
    total = np.zeros(groups[0].shape[0])
    for earlier, later in combinations(groups, 2):
        steps = later[:, None, :] - earlier[:, :, None]
        total += (0.5 * (1 + np.sign(steps))).sum(axis=(1, 2))
    return total


def _jonckheere_moments(stratum: Stratum) -> tuple[float, float]:
    """Mean and variance of J under the null, with ties."""
    sizes = np.array([len(group) for group in stratum], dtype=float)
    ties = np.unique(np.concatenate(stratum), return_counts=True)[1].astype(float)
    n = sizes.sum()
    mean = (n**2 - (sizes**2).sum()) / 4
    variance = (n * (n - 1) * (2 * n + 5) - sum((k * (k - 1) * (2 * k + 5)).sum() for k in (sizes, ties))) / 72
    if n > 2:
        thirds = [(k * (k - 1) * (k - 2)).sum() for k in (sizes, ties)]
        variance += thirds[0] * thirds[1] / (36 * n * (n - 1) * (n - 2))
    halves = [(k * (k - 1)).sum() for k in (sizes, ties)]
    variance += halves[0] * halves[1] / (8 * n * (n - 1))
    return float(mean), float(max(0.0, variance))


@cache
def _jonckheere_chances(sizes: tuple[int, ...]) -> np.ndarray:
    """Null probabilities of J = 0, 1, ... without ties."""
    chances = np.ones(1)
    for index in range(1, len(sizes)):
        chances = np.convolve(chances, _mann_whitney_chances(sum(sizes[:index]), sizes[index]))
    return chances


@cache
def _mann_whitney_chances(m: int, n: int) -> np.ndarray:
    """Null probabilities of the Mann–Whitney statistic, by the sample to which the largest value belongs."""
    if m == 0 or n == 0:
        return np.ones(1)
    chances = np.zeros(m * n + 1)
    chances[n:] += m / (m + n) * _mann_whitney_chances(m - 1, n)
    chances[: m * (n - 1) + 1] += n / (m + n) * _mann_whitney_chances(m, n - 1)
    return chances


def _relabelled(first: Sample, second: Sample) -> Float[np.ndarray, " ways"]:
    """Mean differences of all ways to split the pooled values into groups of the same sizes."""
    pooled = np.concatenate([first, second])
    sums = np.array([pooled[list(chosen)].sum() for chosen in combinations(range(len(pooled)), len(first))])
    return sums / len(first) - (pooled.sum() - sums) / len(second)


def _randomly_relabelled(first: Sample, second: Sample, generator: np.random.Generator) -> Float[np.ndarray, " draws"]:
    """Mean differences of random splits of the pooled values."""
    shuffled = generator.permuted(np.tile(np.concatenate([first, second]), (PERMUTATIONS, 1)), axis=1)
    return shuffled[:, : len(first)].mean(axis=1) - shuffled[:, len(first) :].mean(axis=1)


def _exact_p(chances: Float[np.ndarray, " values"], reached: int) -> float:
    """Two-sided p-value of a statistic whose values 0, 1, ... have these chances."""
    return float(min(1.0, 2 * min(chances[: reached + 1].sum(), chances[reached:].sum())))


def _two_sided(observed: float, drawn: Float[np.ndarray, " draws"], extra: int) -> Tested:
    """Two-sided p-value of a statistic among its permuted values; rounding must not part equal ones."""
    slack = 1e-9 * max(1e-300, float(np.abs(drawn).max()))
    tails = [
        (extra + np.sum(tail)) / (extra + len(drawn)) for tail in (drawn <= observed + slack, drawn >= observed - slack)
    ]
    return Tested(observed, float(min(1.0, 2 * min(tails))), 0 if abs(observed) <= slack else int(np.sign(observed)))
