import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from leakbound.accounting.dp import poisson_epsilon
from leakbound.accounting.one_run import gaussian_epsilon, one_run_epsilon, one_run_gaussian, one_run_p_value


def printed_p_value(m, r, v, eps, delta):
    """Steinke et al. 2023, Appendix D, line by line."""
    q = 1 / (1 + math.exp(-eps))
    beta = stats.binom.sf(v - 1, r, q)
    alpha, total = 0.0, 0.0
    for i in range(1, v + 1):
        total += stats.binom.pmf(v - i, r, q)
        alpha = max(alpha, total / i)
    return min(beta + alpha * delta * 2 * m, 1)


@pytest.mark.parametrize(("m", "r", "v"), [(100, 100, 60), (1000, 200, 190), (5000, 50, 50), (10, 5, 0)])
@pytest.mark.parametrize("eps", [0.0, 0.3, 2.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-2])
def test_p_values_are_those_of_the_published_algorithm(m, r, v, eps, delta):
    assert one_run_p_value(m, r, v, eps, delta) == pytest.approx(printed_p_value(m, r, v, eps, delta), abs=1e-12)


@pytest.mark.parametrize("guesses", [20, 100, 1000])
def test_without_an_error_the_limit_has_a_closed_form(guesses):
    """(e^ε / (1 + e^ε))^r = 0.05."""
    success = 0.05 ** (1 / guesses)
    assert one_run_epsilon(guesses, guesses, guesses, 0.0) == pytest.approx(math.log(success / (1 - success)))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("canaries", [30, 300])
def test_limits_of_randomized_response_are_above_its_epsilon_in_at_most_five_percent(epsilon, canaries):
    """Each coin is told right with probability e^ε/(1 + e^ε), independently: exactly ε-DP, all coins guessed."""
    chances = stats.binom.pmf(range(canaries + 1), canaries, 1 / (1 + math.exp(-epsilon)))
    likely = [right for right in range(canaries + 1) if chances[right] > 1e-6]
    wrong = [right for right in likely if one_run_epsilon(canaries, canaries, right, 0.0) > epsilon + 1e-9]
    assert sum(chances[wrong]) <= 0.05


def test_a_coin_between_two_records_counts_as_a_removal_and_an_addition():
    """A pair that tells of a coin as (2ε, (1 + e^ε) δ)-DP may demonstrates ε for one record."""
    whole = one_run_epsilon(200, 200, 180, 0.0)
    assert one_run_epsilon(200, 200, 180, 0.0, adjacency="pairs") == pytest.approx(whole / 2)
    assert one_run_epsilon(200, 200, 180, 1e-3) < whole  # a delta takes from the limit
    told = one_run_p_value(200, 100, 80, 1.4, (1 + math.exp(0.7)) * 1e-4)
    assert one_run_p_value(200, 100, 80, 0.7, 1e-4, "pairs") == pytest.approx(told)


@pytest.mark.parametrize("mu", [0.25, 1.0, 2.5])
def test_limits_of_gaussian_scores_are_above_the_true_shift_in_at_most_five_percent(mu):
    """400 runs of 1,000 canaries: 0.02 is 1.8 standard errors. The limit is tighter than that for any mechanism."""
    generator, over, seen = np.random.default_rng(4), 0, []
    limit_of = cache(lambda correct: one_run_gaussian(1000, 100, correct))
    for _ in range(400):
        included = generator.random(1000) < 0.5
        scores = mu * (included - 0.5) + generator.standard_normal(1000)
        clearest = np.argsort(-np.abs(scores))[:100]
        correct = int(((scores[clearest] > 0) == included[clearest]).sum())
        over += limit_of(correct) > mu
        seen.append(correct)
    assert over / 400 <= 0.05 + 0.02
    typical = int(np.median(seen))
    assert gaussian_epsilon(limit_of(typical), 1e-5) >= one_run_epsilon(1000, 100, typical, 1e-5)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 4.0, 20.0])
def test_epsilon_of_the_gaussian_mechanism_meets_its_delta(mu):
    epsilon = gaussian_epsilon(mu, 1e-5)
    log_second = stats.norm.logcdf(-mu / 2 - epsilon / mu) + epsilon
    assert stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(log_second) == pytest.approx(1e-5, rel=1e-5)
    assert gaussian_epsilon(0.0, 1e-5) == 0.0


def test_the_accountant_is_not_below_the_exact_epsilon_of_full_sums():
    exact = gaussian_epsilon(math.sqrt(10) / 3, 1e-5)
    assert exact <= poisson_epsilon(3.0, 1.0, 10, 1e-5) <= 1.2 * exact
