import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from formulas import budget_per_round
from leakbound.accounting.gaussian import gaussian_capacity
from leakbound.federated import aggregate_leak, client_noise, personalized_noise, server_leak, server_noise, static_leak


def two_point_information(half_distance: float) -> float:
    """I(X; X + Z) in nats of X = ± half_distance with equal odds and Z of variance 1, by integration."""

    def integrand(y):
        both = 0.5 * (stats.norm.pdf(y - half_distance) + stats.norm.pdf(y + half_distance))
        return 0.0 if both == 0 else -both * math.log(both)

    entropy, _ = integrate.quad(integrand, -half_distance - 12, half_distance + 12, limit=400, epsabs=1e-11)
    return entropy - 0.5 * math.log(2 * math.pi * math.e)


@given(st.floats(1e-3, 100), st.integers(1, 10**8), st.integers(1, 1000))
def test_what_rounds_tell_together_is_between_one_round_and_their_sum(budget, dimension, rounds):
    together = static_leak(budget, dimension, rounds)
    assert budget * (1 - 1e-9) <= together <= rounds * budget * (1 + 1e-9)


def test_one_secret_in_every_round_agrees_with_the_joint_leak_of_gaussian_channels():
    """(d/2) ln(1 + T·s) is the joint capacity of T looks at equal variances."""
    budget, dimension = 3.0, 40
    noise = 1 / math.expm1(2 * budget / dimension)
    for rounds in (1, 10, 100):
        joint = gaussian_capacity(np.ones(dimension), noise, float(rounds))
        assert static_leak(budget, dimension, rounds) == pytest.approx(joint, rel=1e-12)


@given(st.floats(1e-2, 1e4), st.integers(1, 10**8), st.integers(1, 1000))
def test_budget_per_round_composes_to_the_total(total, dimension, rounds):
    assert rounds * budget_per_round(total, rounds) == pytest.approx(total)
    static = budget_per_round(total, rounds, dimension)
    assert static_leak(static, dimension, rounds) == pytest.approx(total, rel=1e-8)
    assert static >= budget_per_round(total, rounds) * (1 - 1e-9)


def test_hundred_rounds_tell_far_more_than_the_printed_level():
    """C-3: the paper bounds one round by ε; T = 100 rounds of ε = 10 may tell 1,000 nats."""
    assert static_leak(10.0, 10**5, 100) == pytest.approx(990.2294, rel=1e-7)
    assert static_leak(10.0, 10**3, 100) == pytest.approx(552.6506, rel=1e-7)
    assert static_leak(5.0, 50, 100) == pytest.approx(78.539, rel=1e-5)


def test_an_upload_tells_the_server_about_as_many_times_more_as_there_are_clients():
    """C-4: noise at the clients gives ε towards the average, not towards the server."""
    norms, budgets = np.full(100, 10.0), np.full(100, 10.0)
    for dimension, expected in ((10**5, 990.2294), (10**3, 552.6506), (10**8, 999.9901)):
        leak = server_leak(client_noise(norms, budgets, dimension), norms, dimension)
        np.testing.assert_allclose(leak, expected, rtol=1e-7)


def test_budgets_towards_the_server_take_root_n_times_the_noise_and_leave_the_average_a_share():
    """C-4: with σ_k = α_k the server learns ε_k and those who see the average about ε_k/N."""
    count, dimension = 50, 10**6
    norms, budgets = np.full(count, 10.0), np.full(count, 8.0)
    mild = personalized_noise(norms, budgets, dimension)
    strong = type(mild)(mild.weights, math.sqrt(count) * mild.client_std, 0.0)
    np.testing.assert_allclose(server_leak(strong, norms, dimension), budgets, rtol=1e-9)
    np.testing.assert_allclose(aggregate_leak(strong, norms, dimension), budgets / count, rtol=1e-4)


def test_noise_at_the_server_leaves_the_server_everything():
    norms, budgets = np.ones(3), np.ones(3)
    assert np.isinf(server_leak(server_noise(norms, budgets, 10), norms, 10)).all()


def test_gaussian_mechanism_bounds_information_but_not_the_likelihood_ratio():
    """C-1: MI-DP does not imply ε-DP. ± 0.5 in unit noise: 0.1114 nats, total variation 0.3829 ≤ √(2I)."""
    information = two_point_information(0.5)
    assert information == pytest.approx(0.1114, abs=5e-5)
    ratios = stats.norm.logpdf([10.0, 100.0, 1000.0], 0.5) - stats.norm.logpdf([10.0, 100.0, 1000.0], -0.5)
    np.testing.assert_allclose(ratios, [10.0, 100.0, 1000.0])
    variation = stats.norm.cdf(0.5) - stats.norm.cdf(-0.5)
    assert variation == pytest.approx(0.3829, abs=5e-5)
    assert variation <= math.sqrt(2 * information)


def test_pure_privacy_bounds_the_information():
    """C-1: ε-DP implies MI-DP. Randomised response with ε = 1 has a capacity of 0.1109 nats."""
    truth = math.e / (1 + math.e)
    capacity = math.log(2) + truth * math.log(truth) + (1 - truth) * math.log(1 - truth)
    assert capacity == pytest.approx(0.1109, abs=5e-5)
    assert capacity <= 1
