import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound.accounting.gaussian import gaussian_capacity
from leakbound.papers.pmidp.noise_calibration import (
    aggregate_leak,
    personalized_noise,
    server_leak,
    server_noise,
    static_leak,
)


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
