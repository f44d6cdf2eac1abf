import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from leakbound.figures import statistics


def ascents(groups: list[np.ndarray]) -> float:
    return sum(
        1.0 if x < y else 0.5 if x == y else 0.0
        for i, earlier in enumerate(groups)
        for later in groups[i + 1 :]
        for x in earlier
        for y in later
    )


def brute_force(groups: list[np.ndarray]) -> float:
    """Two-sided p-value over every permutation of the pooled values."""
    ends = np.cumsum([len(group) for group in groups])[:-1]
    pooled = np.concatenate(groups)
    drawn = np.array([ascents(np.split(np.array(order), ends)) for order in permutations(pooled)])
    observed = ascents(groups)
    return min(1.0, 2 * min((drawn <= observed).mean(), (drawn >= observed).mean()))


@pytest.mark.parametrize("sizes", [(2, 3, 2), (1, 1, 1, 1, 1), (3, 4), (2, 2, 1, 2)])
def test_jonckheere_without_ties_equals_all_permutations(sizes):
    generator = np.random.default_rng(sum(sizes))
    groups = [generator.normal(0.4 * index, 1, size) for index, size in enumerate(sizes)]
    tested = statistics.jonckheere([groups], generator)
    assert tested.statistic == ascents(groups)
    assert tested.p_value == pytest.approx(brute_force(groups), abs=1e-12)


def test_jonckheere_with_ties_agrees_with_all_permutations_within_sampling_error():
    groups = [np.array([1.0, 2.0]), np.array([2.0, 2.0, 3.0]), np.array([3.0, 1.0, 4.0])]
    exact = brute_force(groups)
    tested = statistics.jonckheere([groups], np.random.default_rng(0))
    tail = exact / 2
    # Five standard errors of a sampled tail, doubled: a false alarm in 1.7 million runs.
    assert abs(tested.p_value - exact) < 2 * 5 * math.sqrt(tail * (1 - tail) / statistics.PERMUTATIONS) + 2e-4


def test_jonckheere_of_two_groups_equals_mann_whitney():
    generator = np.random.default_rng(3)
    first, second = generator.normal(0, 1, 6), generator.normal(1, 1, 7)
    expected = stats.mannwhitneyu(second, first, method="exact").pvalue
    assert statistics.jonckheere([[first, second]], generator).p_value == pytest.approx(expected)


def test_jonckheere_of_large_samples_agrees_with_the_exact_distribution(monkeypatch):
    generator = np.random.default_rng(4)
    groups = [generator.normal(0.12 * index, 1, 30) for index in range(3)]
    exact = statistics.jonckheere([groups], generator).p_value
    monkeypatch.setattr(statistics, "_LARGEST_EXACT", 10)
    assert statistics.jonckheere([groups], generator).p_value == pytest.approx(exact, rel=0.02)


def test_jonckheere_of_strata_equals_one_stratum_when_the_others_are_single_groups():
    generator = np.random.default_rng(5)
    groups = [generator.normal(index, 1, 3) for index in range(3)]
    alone = statistics.jonckheere([groups], generator)
    assert statistics.jonckheere([groups, [np.ones(3)]], generator) == alone


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1, 1, 1, 1), (2, 5)])
def test_smallest_trend_p_is_reached_by_a_perfect_trend(sizes):
    groups = np.split(np.arange(sum(sizes), dtype=float), np.cumsum(sizes)[:-1])
    tested = statistics.jonckheere([groups], np.random.default_rng(0))
    assert tested.direction == 1
    assert tested.p_value == pytest.approx(statistics.smallest_trend_p([sizes]))


def test_constant_values_have_no_trend():
    tested = statistics.jonckheere([[np.ones(3), np.ones(3)]], np.random.default_rng(0))
    assert (tested.p_value, tested.direction) == (1.0, 0)


def test_trend_false_alarms_stay_below_the_level():
    generator = np.random.default_rng(6)
    trials = 1000
    alarms = sum(
        statistics.jonckheere([[generator.normal(size=3) for _ in range(4)]], generator).p_value < 0.05
        for _ in range(trials)
    )
    # A test of level 0.05 has more than 82 alarms in 1,000 with probability 1e-5.
    assert alarms <= stats.binom.isf(1e-5, trials, 0.05)


def test_greater_equals_all_relabellings_of_scipy():
    generator = np.random.default_rng(7)
    first, second = generator.normal(0.8, 1, 4), generator.normal(0, 1, 5)
    expected = stats.permutation_test(
        (first, second), lambda a, b, axis: a.mean(axis) - b.mean(axis), vectorized=True, n_resamples=np.inf
    )
    tested = statistics.greater([(first, second)], generator)
    assert tested.p_value == pytest.approx(expected.pvalue)
    assert tested.statistic == pytest.approx(expected.statistic)


def test_greater_by_sampling_agrees_with_all_relabellings(monkeypatch):
    generator = np.random.default_rng(8)
    strata = [(generator.normal(0.5, 1, 3), generator.normal(0, 1, 3)) for _ in range(3)]
    exact = statistics.greater(strata, generator).p_value
    monkeypatch.setattr(statistics, "_LARGEST_ENUMERATION", 1)
    assert statistics.greater(strata, generator).p_value == pytest.approx(exact, abs=0.03)


def test_paired_greater_equals_scipy_sign_flips():
    differences = np.random.default_rng(9).normal(0.6, 1, 8)
    expected = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=False
    )
    tested = statistics.paired_greater(differences, np.random.default_rng(0))
    assert tested.p_value == pytest.approx(expected.pvalue)


def test_bootstrap_t_false_alarms_stay_near_the_level_for_three_replicas():
    generator = np.random.default_rng(10)
    trials = 600
    alarms = 0
    for _ in range(trials):
        values = generator.normal(size=3)
        draws = statistics.resampled(values, generator, 500).mean(axis=1)
        alarms += statistics.bootstrap_t(float(values.mean()), draws, 3)[0].p_value < 0.05
    # For a mean this is Student's test up to resampling error; more than 57 of 600 has probability 1e-5.
    assert alarms <= stats.binom.isf(1e-5, trials, 0.05)


def test_holm_gives_the_textbook_values():
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == []


def test_replicas_needed_have_the_promised_power():
    generator = np.random.default_rng(11)
    shift, replicas = 0.5, 4

    def p_value(count: int) -> float:
        first, second = generator.normal(shift, 1, count), generator.normal(0, 1, count)
        return float(stats.ttest_ind(first, second).pvalue)

    typical = float(2 * stats.norm.sf(shift / math.sqrt(2 / replicas)))
    needed = statistics.replicas_needed(typical, replicas, 0.05, lambda count: 0.0)
    assert needed is not None
    power = np.mean([p_value(needed) < 0.05 for _ in range(1500)])
    assert 0.75 < power < 0.85


def test_replicas_needed_cannot_be_told_without_any_effect():
    assert statistics.replicas_needed(1.0, 3, 0.05, lambda count: 0.0) is None
