import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from leakbound.accounting.reconstruction import fano_error
from leakbound.accounting.risk import (
    demonstrated_information,
    dp_naming_bound,
    gained_information,
    identification_information,
    lower_rate,
    naming_bound,
    stated_gains,
)

CANDIDATES = st.integers(2, 10**6)


def test_naming_demonstrates_the_known_divergences():
    assert identification_information(1.0, 1000) == pytest.approx(math.log(1000))
    assert identification_information(0.9, 2) == pytest.approx(math.log(2) + 0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert identification_information(0.3, 10) == pytest.approx(0.3 * math.log(3) + 0.7 * math.log(0.7 / 0.9))
    assert identification_information(0.1, 10) == identification_information(0.01, 10) == 0.0


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("trials", [7, 60])
def test_lower_limits_are_above_the_truth_in_at_most_five_percent(rate, trials):
    """Exactly, by summing over all numbers of hits."""
    chances = stats.binom.pmf(range(trials + 1), trials, rate)
    true = identification_information(rate, 10)
    limits = [demonstrated_information(hits, trials, 10) for hits in range(trials + 1)]
    assert sum(chance for chance, limit in zip(chances, limits, strict=True) if limit > true) <= 0.05
    assert sorted(limits) == limits


def test_no_trial_and_no_hit_demonstrate_nothing():
    assert lower_rate(0, 0) == lower_rate(0, 9) == demonstrated_information(0, 9, 2) == 0.0


def test_limits_cover_the_mean_of_trials_with_unequal_chances():
    """Networks differ: hits are then less spread than binomial ones. 4,000 draws, so 0.006 is 1.7 standard errors."""
    generator = np.random.default_rng(0)
    rates = np.repeat([0.1, 0.9], 20)
    hits = (generator.random((4000, 40)) < rates).sum(axis=1)
    assert np.mean([lower_rate(int(one), 40) > rates.mean() for one in hits]) <= 0.05 + 0.006


@given(CANDIDATES, st.floats(0, 1))
def test_the_naming_bound_undoes_what_naming_demonstrates_and_is_tighter_than_fano(candidates, part):
    nats = part * math.log(candidates)
    bound = naming_bound(nats, candidates)
    assert identification_information(bound, candidates) == pytest.approx(nats, abs=1e-6)
    assert 1 / candidates <= bound <= 1 - fano_error(nats, candidates) + 1e-9


def test_full_sums_bound_naming_in_closed_form_and_the_grid_agrees_from_above():
    for candidates in (2, 10, 1000):
        exact = stats.norm.cdf(stats.norm.ppf(1 / candidates) + math.sqrt(30) / 4)
        assert dp_naming_bound(4.0, 1.0, 30, candidates) == pytest.approx(exact, rel=1e-12)
        assert exact <= dp_naming_bound(4.0, 1 - 1e-9, 30, candidates) <= exact * 1.005
    assert dp_naming_bound(4.0, 0.5, 0, 10) == 0.1
    assert dp_naming_bound(0.0, 0.5, 1, 10) == 1.0


@pytest.mark.parametrize(("multiplier", "rate", "steps", "candidates"), [(1.0, 0.1, 50, 10), (0.7, 0.3, 8, 100)])
def test_subsampled_sums_bound_naming_by_the_best_event(multiplier, rate, steps, candidates):
    """The best event has probability 1/M without the record; simulated, its probability with it is the bound."""
    generator, draws = np.random.default_rng(2), 100_000
    ratios = []
    for member in (False, True):
        total = np.zeros(draws)
        for _ in range(steps):
            taken = member & (generator.random(draws) < rate)
            seen = taken + multiplier * generator.standard_normal(draws)
            total += np.log1p(rate * np.expm1((2 * seen - 1) / (2 * multiplier**2)))
        ratios.append(total)
    simulated = np.mean(ratios[1] > np.quantile(ratios[0], 1 - 1 / candidates))
    assert dp_naming_bound(multiplier, rate, steps, candidates) == pytest.approx(simulated, abs=0.012)


def trials_of(posteriors: np.ndarray, candidates: int) -> tuple[float, float, int]:
    gains = stated_gains(posteriors, candidates)
    return float(gains.mean()), float(gains.var(ddof=1)), len(gains)


def test_true_posteriors_gain_nearly_all_that_is_told_and_false_ones_less():
    """Two Gaussians at distance 2: I = .3367 nats by quadrature; 20,000 trials."""
    grid = np.linspace(-12, 14, 20_001)
    laws = stats.norm.pdf(grid), stats.norm.pdf(grid, 2)
    middle = (laws[0] + laws[1]) / 2
    told = np.trapezoid(laws[0] * np.log(laws[0] / middle), grid)
    seen = np.random.default_rng(6).standard_normal(20_000)
    true = 1 / (1 + np.exp(2 * seen - 2))
    mean, variance, trials = trials_of(true, 2)
    assert gained_information(mean, variance, trials, 2) == pytest.approx(told, abs=0.04)
    assert gained_information(mean, variance, trials, 2) < told
    assert trials_of(true**3 / (true**3 + (1 - true) ** 3), 2)[0] < mean
    assert gained_information(*trials_of(np.full(50, 0.5), 2), 2) == 0.0


def test_limits_from_gains_are_above_what_is_told_in_at_most_five_percent():
    """Bernoulli(.9) tells of a fair coin .3681 nats; 400 trials, 2,000 repetitions."""
    generator = np.random.default_rng(7)
    told = identification_information(0.9, 2)
    right = generator.random((2000, 400)) < 0.9
    limits = [gained_information(*trials_of(np.where(one, 0.9, 0.1), 2), 2) for one in right]
    assert np.mean(np.array(limits) > told) <= 0.05
    assert max(limits) > 0


def test_limit_from_gains_is_the_empirical_bernstein_bound_written_out():
    """Gains lie between ln .01, by the hedge, and ln M: a range of ln 50 + ln 100."""
    doubt, spread = math.log(2 / 0.05), math.log(50) + math.log(100)
    expected = 3.0 - math.sqrt(2 * 0.5 * doubt / 400) - 7 * spread * doubt / (3 * 399)
    assert gained_information(3.0, 0.5, 400, 50) == pytest.approx(expected, rel=1e-12)
    lowest, highest = stated_gains(np.array([0.0, 1.0]), 50)
    assert lowest == pytest.approx(math.log(0.01), rel=1e-12)
    assert math.log(49.5) < highest <= math.log(50)
