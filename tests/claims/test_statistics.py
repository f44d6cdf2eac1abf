import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from leakbound_lab.claims import statistics
from leakbound_lab.claims.judging import Design, _power
from leakbound_lab.claims.statistics import mean_interval


@pytest.mark.parametrize("n", [2, 5, 8, 13])
def test_sign_flips_equal_scipys_exact_test(n):
    values = np.random.default_rng(n).normal(0.4, 1, n)
    expected = [
        stats.permutation_test(
            (values,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=False, alternative=side
        ).pvalue
        for side in ("greater", "less")
    ]
    assert statistics.sign_flips(values, np.random.default_rng(0)) == pytest.approx(expected)


def test_sign_flips_of_equal_sums_count_all_of_them():
    up, down = statistics.sign_flips(np.array([0.1, 0.2, 0.3, -0.3]), np.random.default_rng(0))
    assert up == 6 / 16  # 0.3 or more: six of sixteen sums, three of them equal but for rounding
    assert down == 13 / 16


def test_exact_sign_flips_of_twenty_blocks_are_binomial_if_all_are_as_large():
    up, down = statistics.sign_flips(0.1 * np.repeat([1.0, -1.0], [12, 8]), np.random.default_rng(0))
    assert (up, down) == pytest.approx((stats.binom.sf(11, 20, 0.5), stats.binom.cdf(12, 20, 0.5)), rel=1e-12)


def test_random_sign_flips_count_sums_that_equal_the_observed_one():
    values = np.repeat([1.0, -1.0], [16, 8])
    up, down = statistics.sign_flips(values, np.random.default_rng(2))
    # Of 24 fair signs 16 or more: .0758; more than 16: .0320. Ten standard errors are .026.
    assert up == pytest.approx(stats.binom.sf(15, 24, 0.5), abs=0.02)
    assert down == pytest.approx(stats.binom.cdf(16, 24, 0.5), abs=0.02)


def test_a_skewed_mean_is_tested_by_halls_transformation():
    values = np.exp(np.random.default_rng(5).normal(size=12))
    values -= values.mean() - 0.1
    t = np.sqrt(12) * values.mean() / values.std(ddof=1)
    unbiased = stats.skew(values, bias=False) / np.sqrt(12)
    expected = t + unbiased * t**2 / 3 + unbiased**2 * t**3 / 27 + unbiased / 6
    assert statistics.skewed(values, ["a"] * 12) == pytest.approx((stats.t.sf(expected, 11), stats.t.cdf(expected, 11)))
    even = np.array([-1.0, 0.5, 2.0])
    assert statistics.skewed(even, ["a"] * 3) == pytest.approx(statistics.student(even, ["a"] * 3))
    for same in (np.ones(3), np.ones(1)):
        assert statistics.skewed(same, [0] * len(same)) == statistics.student(same, [0] * len(same))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_least_p_value_is_that_of_blocks_that_all_agree(n):
    up, _ = statistics.sign_flips(np.full(n, 2.0), np.random.default_rng(0))
    assert min(1.0, 2 * up) == statistics.smallest_p(n)


def test_the_interval_of_one_stratum_is_students():
    values = np.random.default_rng(2).normal(1, 2, 7)
    expected = stats.ttest_1samp(values, 0.0)
    assert statistics.interval(values, ["data"] * 7, 0.95) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    up, down = statistics.student(values, ["data"] * 7)
    assert 2 * min(up, down) == pytest.approx(expected.pvalue)


def test_the_error_of_a_mean_over_strata_adds_the_variances_of_their_parts():
    generator = np.random.default_rng(3)
    strata = ["a"] * 5 + ["b"] * 8
    values = np.concatenate([generator.normal(0, 1, 5), generator.normal(40, 3, 8)])
    parts = [own.var(ddof=1) * len(own) / 13**2 for own in (values[:5], values[5:])]
    error, freedom = statistics.mean_error(values, strata)
    assert error == pytest.approx(math.sqrt(sum(parts)))
    assert 4 < freedom < 12


def test_strata_of_one_block_count_together_and_others_apart():
    values = np.array([1.0, 2.0, 4.0])
    assert statistics.mean_error(values, ["a", "a", "b"]) == statistics.mean_error(values, ["a"] * 3)
    assert np.isnan(statistics.mean_error(values[:1], ["a"])).all()
    assert np.isnan(statistics.interval(values[:1], ["a"], 0.9)).all()
    assert statistics.spread(values, ["a", "b", "c"]) == values.std(ddof=1)
    apart = np.array([1.0, 3.0, 101.0, 103.0, 105.0])
    assert statistics.spread(apart, list("aabbb")) == pytest.approx(math.sqrt((2 + 8) / 3))


def test_rank_correlations_are_spearmans_and_pages():
    generator = np.random.default_rng(4)
    values = generator.integers(0, 4, (6, 5)).astype(float)
    places = np.broadcast_to(np.arange(5.0), values.shape)
    found = statistics.rank_correlation(places, values)
    assert found == pytest.approx([stats.spearmanr(np.arange(5), row).statistic for row in values])
    assert statistics.rank_correlation(places[:1], np.ones((1, 5))) == 0
    values = generator.normal(size=(6, 5))
    page = stats.page_trend_test(values).statistic
    # L of n blocks of k values has mean n k (k + 1)²/4, and each ρ counts k (k² − 1)/12.
    correlations = statistics.rank_correlation(places, values)
    assert page == pytest.approx(6 * 5 * 36 / 4 + 5 * 24 / 12 * correlations.sum())


def test_holm_gives_the_textbook_values():
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == []


def design(**changes) -> Design:
    return Design(
        **{"rule": "beyond", "delta": 0.25, "spreads": (1.0,), "steps": (), "levels": 0, "level": 0.05, **changes}
    )


def test_power_has_the_textbook_values():
    # Cohen 1988: an effect of half a standard deviation, two-sided at 5 %, is seen with power .8 by 34 observations.
    assert design().power(34) == pytest.approx(0.808, abs=1e-3)
    assert design().needed() == 34
    # 2 delta is delta too large: half a standard deviation, one-sided, by 27.
    assert design(rule="within", delta=0.5).needed() == 27
    assert design(rule="at most", delta=0.5).power(27, times=1.0) == 0.0


def test_blocks_that_cannot_reach_the_level_have_no_power():
    sure = design(spreads=(1e-6,))
    assert (sure.power(5), sure.power(6)) == (0.0, 1.0)
    assert design(spreads=(1e-6,), level=0.05 / 8).needed() == 9
    assert design(spreads=(math.nan,)).needed() is None
    assert design(spreads=(1e6,)).needed() is None


def test_ranks_and_steps_cost_blocks():
    assert design(levels=3).needed() > design(levels=8).needed() > design().needed()
    assert design(steps=((3.0, 1.0), (3.0, 0.5))).needed() > design().needed()
    assert design(spreads=(1.0, 1.0)).needed() > design().needed()


def test_mean_interval_is_students_and_one_value_has_none():
    values = np.array([0.61, 0.64, 0.58, 0.66])
    interval = mean_interval(values)
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=values.std(ddof=1) / 2)
    assert (interval.low, interval.value, interval.high) == pytest.approx((low, values.mean(), high))
    single = mean_interval(values[:1])
    assert [single.low, single.value, single.high] == pytest.approx([math.nan, 0.61, math.nan], nan_ok=True)


@pytest.mark.parametrize("values", [np.array([]), np.array([0.5, np.nan])])
def test_mean_of_nothing_or_of_a_diverged_replica_is_refused(values):
    with pytest.raises(ValueError, match="diverged"):
        mean_interval(values)


def test_power_is_that_of_scipys_noncentral_t_to_the_bit():
    generator = np.random.default_rng(0)
    for _ in range(200):
        blocks, tail = int(generator.integers(2, 500)), float(generator.choice([0.05, 0.025, 0.001]))
        shift, spread = generator.uniform(0.01, 1.0, 2)
        distance = min(shift * math.sqrt(blocks) / spread, 37.0)
        expected = stats.nct.sf(stats.t.isf(tail, blocks - 1), blocks - 1, distance)
        assert _power(shift, spread, blocks, tail) == float(expected)


@pytest.mark.parametrize("n", [2, 5, 6, 9, 40, 300])
def test_the_interval_of_a_median_has_scipys_ends_and_is_the_range_where_scipy_has_none(n):
    values = np.random.default_rng(n).normal(size=n)
    ends = stats.quantile_test(values, q=float(np.median(values)), p=0.5).confidence_interval(0.95)
    low = ends.low if math.isfinite(ends.low) else values.min()
    high = ends.high if math.isfinite(ends.high) else values.max()
    assert statistics.median_interval(values)[1:] == (low, high)


def test_rank_correlation_is_spearmans_of_rows_with_ties():
    x, y = np.random.default_rng(0).integers(0, 4, (2, 50, 7)).astype(float)
    assert statistics.rank_correlation(x, y) == pytest.approx(
        [stats.spearmanr(first, second).statistic for first, second in zip(x, y, strict=True)]
    )


def test_tables_and_verdicts_are_made_without_the_slow_import_of_scipys_statistics():
    rooms = ("leakbound.accounting.lower_limits", "leakbound_lab.claims.tabulation", "leakbound_lab.claims.evaluation")
    code = f"import sys, {', '.join(rooms)}; print('scipy.stats' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
