import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from leakbound.claims import intervals, statistics


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


def all_orders(values: np.ndarray) -> float:
    """Two-sided p-value of Page's L over every order of each replica's values."""
    weights = np.arange(1, values.shape[1] + 1)
    ranks = stats.rankdata(values, axis=1)
    drawn = np.zeros(1)
    for row in ranks:
        drawn = np.add.outer(drawn, np.array(list(permutations(row))) @ weights).ravel()
    observed = (ranks @ weights).sum()
    return min(1.0, 2 * min((drawn <= observed).mean(), (drawn >= observed).mean()))


@pytest.mark.parametrize("shape", [(3, 4), (5, 3), (2, 6)])
def test_page_equals_scipys_exact_test(shape):
    generator = np.random.default_rng(sum(shape))
    values = generator.normal(size=shape) + 0.5 * np.arange(shape[1])
    expected = stats.page_trend_test(values, method="exact")
    tested = statistics.page(values, generator)
    assert tested.statistic == expected.statistic
    assert tested.direction == 1
    assert tested.p_value == pytest.approx(min(1.0, 2 * expected.pvalue))
    mirrored = statistics.page(values[:, ::-1].copy(), generator)
    assert (mirrored.p_value, mirrored.direction) == (pytest.approx(tested.p_value), -1)


@pytest.mark.parametrize("seed", range(3))
def test_page_with_ties_equals_all_permutations_within_replicas(seed):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 3, (3, 4)).astype(float)
    assert statistics.page(values, generator).p_value == pytest.approx(all_orders(values))


def test_page_of_many_levels_agrees_with_the_exact_distribution(monkeypatch):
    generator = np.random.default_rng(2)
    values = generator.normal(size=(3, 5)) + 0.3 * np.arange(5)
    exact = statistics.page(values, generator).p_value
    monkeypatch.setattr(statistics, "_MOST_ORDERED", 4)
    # Five standard errors of a sampled tail, doubled.
    error = 2 * 5 * math.sqrt(exact / 2 / statistics.PERMUTATIONS) + 2e-4
    assert statistics.page(values, generator).p_value == pytest.approx(exact, abs=error)


@pytest.mark.parametrize("shape", [(3, 4), (3, 2), (1, 5)])
def test_smallest_trend_p_is_reached_by_replicas_that_all_rise(shape):
    tested = statistics.page(np.tile(np.arange(shape[1], dtype=float), (shape[0], 1)), np.random.default_rng(0))
    assert tested.p_value == pytest.approx(statistics.smallest_trend_p([[1] * shape[1]] * shape[0]))


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
        draws = intervals.resampled(values, generator, 500).mean(axis=1)
        alarms += intervals.bootstrap_t(float(values.mean()), draws, 3)[0].p_value < 0.05
    # For a mean this is Student's test up to resampling error; more than 57 of 600 has probability 1e-5.
    assert alarms <= stats.binom.isf(1e-5, trials, 0.05)


def test_the_interval_of_a_combination_is_welchs_for_two_groups():
    generator = np.random.default_rng(12)
    first, second = generator.normal(1, 1, 4), generator.normal(0, 3, 7)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert intervals.combined_interval([(1.0, first), (-1.0, second)]) == pytest.approx((expected.low, expected.high))


def test_the_interval_of_a_combination_keeps_its_word_for_three_replicas():
    generator = np.random.default_rng(13)
    trials, held = 2000, 0
    for _ in range(trials):
        parts = [(weight / 3, generator.normal(0, 1, 3)) for weight in (1.0, -1.0) for _ in range(3)]
        low, high = intervals.combined_interval(parts)
        held += low <= 0 <= high
    # 95 % promised: fewer than 1,857 of 2,000 has probability 1e-5. Quantiles of resamples hold 84 %.
    assert held >= stats.binom.ppf(1e-5, trials, 0.95)


def test_the_interval_of_a_trend_keeps_its_word_for_three_replicas():
    generator = np.random.default_rng(14)
    truth = 2 * np.mean([stats.norm.cdf(0.7 * steps / math.sqrt(2)) for steps in (1, 1, 1, 2, 2, 3)]) - 1
    trials, held = 400, 0
    for _ in range(trials):
        groups = [generator.normal(0.7 * level, 1, 3) for level in range(4)]
        effect = statistics.trend_effect([[group[None, :] for group in groups]]).item()
        draws = statistics.trend_effect([[intervals.resampled(group, generator, 300) for group in groups]])
        low, high = intervals.rank_interval(effect, draws, 3)
        silent = np.isnan(low)  # three replicas that agree entirely, level by level
        assert silent or -1 <= low <= effect <= high <= 1
        held += not silent and low <= truth <= high
    # 95 % promised, of trials with and without an interval: fewer than 360 of 400 has probability 4e-5.
    assert held >= 360


def test_replicas_that_all_agree_have_no_interval():
    assert np.isnan(intervals.rank_interval(1.0, np.ones(10), 3)).all()
    assert np.isnan(intervals.combined_interval([(1.0, np.ones(3)), (-1.0, np.zeros(3))])).all()


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
