"""Noise, weights and leaks of PMIDP-FL."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from formulas import printed_weights, utility
from leakbound.accounting.gaussian import gaussian_capacity
from leakbound_lab.papers.pmidp.noise_calibration import (
    AggregateNoise,
    aggregate_leak,
    client_noise,
    draw_budgets,
    log_noise_unit,
    next_max_param_norms,
    personalized_noise,
    sampled_noise,
    server_leak,
    server_noise,
    static_leak,
)

HUNDRED = np.linspace(1.0, 40.0, 100)


@st.composite
def federations(draw):
    """Thresholds, budgets and dimension of 1 to 30 clients."""
    count = draw(st.integers(1, 30))
    norms = draw(st.lists(st.floats(1e-3, 1e3), min_size=count, max_size=count))
    budgets = draw(st.lists(st.floats(1e-3, 300), min_size=count, max_size=count))
    return np.array(norms), np.array(budgets), draw(st.integers(1, 10**9))


@given(federations())
def test_personalized_noise_spends_every_budget_exactly(federation):
    norms, budgets, dimension = federation
    noise = personalized_noise(norms, budgets, dimension)
    np.testing.assert_allclose(aggregate_leak(noise, norms, dimension), budgets, rtol=1e-8)
    assert noise.weights.sum() == pytest.approx(1, rel=1e-12)


@given(federations(), st.sampled_from([server_noise, client_noise]))
def test_common_noise_keeps_every_budget_and_spends_one_exactly(federation, rule):
    norms, budgets, dimension = federation
    leaks = aggregate_leak(rule(norms, budgets, dimension), norms, dimension)
    assert np.all(leaks <= budgets * (1 + 1e-8))
    assert np.max(leaks / budgets) == pytest.approx(1, rel=1e-8)


@given(federations())
def test_noise_at_clients_and_at_the_server_give_the_average_equal_variance(federation):
    """Theorem 2, also for unequal budgets."""
    norms, budgets, dimension = federation
    weights = budgets / budgets.sum()
    at_server = server_noise(norms, budgets, dimension, weights)
    at_clients = client_noise(norms, budgets, dimension, weights)
    assert at_clients.aggregate_std == pytest.approx(at_server.aggregate_std, rel=1e-10)
    assert utility(at_clients, dimension) == pytest.approx(utility(at_server, dimension), rel=1e-10)


def test_no_other_weights_and_noises_that_keep_the_budgets_have_more_utility():
    """Corollary 2 against a constrained search over weights and noises, N = 3 and 5."""
    for norms, budgets in (((1.0, 2.0, 5.0), (1.0, 4.0, 9.0)), ((3.0, 1.0, 2.0, 2.0, 7.0), (2.0, 3.0, 1.0, 8.0, 20.0))):
        count = len(norms)
        unit = np.exp(log_noise_unit(np.array(norms), np.array(budgets), 50))
        closed = personalized_noise(np.array(norms), np.array(budgets), 50).aggregate_std ** 2

        def spread(x, count=count):
            return float(np.sum((x[:count] * x[count:]) ** 2))

        constraints = [
            {"type": "eq", "fun": lambda x, count=count: x[:count].sum() - 1},
            {"type": "ineq", "fun": lambda x, c=count, unit=unit: np.sum((x[:c] * x[c:]) ** 2) - (unit * x[:c]) ** 2},
        ]
        start = np.concatenate([np.full(count, 1 / count), np.full(count, unit.max() / math.sqrt(count))])
        bounds = [(0, 1)] * count + [(0, None)] * count
        found = optimize.minimize(
            spread, start, bounds=bounds, constraints=constraints, options={"ftol": 1e-14, "maxiter": 2000}
        )
        assert found.success
        assert found.fun == pytest.approx(closed, rel=1e-5)


def of_expected_average(noise):
    """Noise of an average over as many clients as are expected to take part."""
    return noise.sum_std / noise.rates.sum()


def test_clients_of_small_budgets_take_part_less_often():
    """By hand, d → ∞ and C = 1: α = 1/√(2ε). With ε = 1 and 4, noise 1/√8 for all leaks 4 nats, for which q = 1/4."""
    norms, budgets, dimension = np.ones(2), np.array([1.0, 4.0]), 10**9
    noise = sampled_noise(norms, budgets, dimension)
    np.testing.assert_allclose(noise.rates, [0.25, 1.0], rtol=1e-6)
    assert noise.sum_std == pytest.approx(1 / math.sqrt(8), rel=1e-6)
    assert of_expected_average(noise) == pytest.approx(0.28284, rel=1e-4)
    assert personalized_noise(norms, budgets, dimension).aggregate_std == pytest.approx(0.23570, rel=1e-4)
    assert client_noise(norms, budgets, dimension).aggregate_std == pytest.approx(0.35355, rel=1e-4)


@given(federations())
def test_sampled_clients_reveal_their_budgets_on_average_and_somebody_is_always_there(federation):
    norms, budgets, dimension = federation
    noise = sampled_noise(norms, budgets, dimension)
    drawn = noise.draw(np.random.default_rng(0))
    assert drawn.weights.sum() == pytest.approx(1)
    assert drawn.present[noise.rates == 1].all()
    assert noise.rates.max() == 1
    leaks = aggregate_leak(drawn, norms, dimension)
    assert (leaks[~drawn.present] == 0).all()
    assert (server_leak(drawn, norms, dimension)[~drawn.present] == 0).all()
    assert (noise.rates * leaks <= budgets * (1 + 1e-8)).all()
    rare = drawn.present & (noise.rates < 1)
    np.testing.assert_allclose((noise.rates * leaks)[rare], budgets[rare], rtol=1e-8)
    assert drawn.aggregate_std * drawn.present.sum() == pytest.approx(noise.sum_std, rel=1e-9)


@given(federations())
def test_noise_of_sampling_is_between_that_of_equal_and_of_personal_noise(federation):
    norms, budgets, dimension = federation
    dimension += 10**6
    sampled = sampled_noise(norms, budgets, dimension)
    noise = of_expected_average(sampled)
    assert noise <= client_noise(norms, budgets, dimension).aggregate_std * (1 + 1e-9)
    if (0.5 * dimension * np.log1p((norms / sampled.sum_std) ** 2 / dimension) <= 0.79 * dimension).all():
        assert noise >= personalized_noise(norms, budgets, dimension).aggregate_std * (1 - 1e-9)


@pytest.mark.parametrize("dimension", [10**4, 10**8])
def test_no_other_noise_leaves_an_average_of_sampled_clients_less(dimension):
    norms, budgets = np.linspace(3.0, 1.0, 30), np.geomspace(0.2, 30.0, 30)
    unit = np.exp(log_noise_unit(norms, budgets, dimension))
    others = []
    for std in np.geomspace(unit.min() / 10, unit.max() * 2, 3000):
        leak = 0.5 * dimension * np.log1p(norms**2 / (dimension * std**2))
        others.append(std / np.minimum(1, budgets / leak).sum())
    assert of_expected_average(sampled_noise(norms, budgets, dimension)) <= min(others) * (1 + 1e-9)


def test_clients_take_part_as_often_as_their_rates_say():
    noise = sampled_noise(np.ones(100), HUNDRED, 10**5)
    generator, rounds = np.random.default_rng(3), 2000
    drawn = [noise.draw(generator) for _ in range(rounds)]
    seen = np.mean([each.present for each in drawn], axis=0)
    errors = np.sqrt(noise.rates * (1 - noise.rates) / rounds)
    assert (noise.rates < 1).sum() > 5
    assert (np.abs(seen - noise.rates) <= 6 * errors).all()
    told = np.mean([aggregate_leak(each, np.ones(100), 10**5) for each in drawn], axis=0)
    assert (told <= HUNDRED * (1 + 1e-9) + 6 * errors * told.max()).all()
    assert (told >= np.minimum(HUNDRED, told.max()) * (1 - 1e-9) - 6 * errors * told.max()).all()


def test_equal_budgets_let_everybody_take_part_with_the_noise_of_equal_weights():
    norms, budgets = np.full(7, 5.0), np.full(7, 3.0)
    noise, equal = sampled_noise(norms, budgets, 1000), client_noise(norms, budgets, 1000)
    drawn = noise.draw(np.random.default_rng(0))
    np.testing.assert_allclose(drawn.weights, equal.weights)
    np.testing.assert_allclose(drawn.client_std, equal.client_std, rtol=1e-12)


def test_large_budgets_of_few_parameters_do_not_overflow():
    unit = log_noise_unit(np.array([10.0]), np.array([1e6]), 1)
    assert unit[0] == pytest.approx(math.log(10.0) - 1e6, rel=1e-12)


def test_printed_weights_are_the_same_until_their_products_leave_the_range():
    norms, dimension = np.full(100, 10.0), 10**5
    unit = np.exp(log_noise_unit(norms, HUNDRED, dimension))
    np.testing.assert_allclose(printed_weights(unit), personalized_noise(norms, HUNDRED, dimension).weights, rtol=1e-9)


def test_thresholds_follow_norms_before_clipping_and_never_vanish():
    assert next_max_param_norms(np.array([1.0]), np.array([30.0]), 0.3)[0] == pytest.approx(9.7)
    threshold = np.array([10.0])
    for _ in range(500):
        threshold = next_max_param_norms(threshold, np.array([0.0]), 0.3)
    assert threshold[0] > 0


def test_noise_levels_tell_every_norm_that_moved_a_threshold():
    """From σ_k of each round, the first threshold and the rate; the budgets are not used, and follow as well."""
    generator, rate, dimension = np.random.default_rng(2), 0.3, 1000
    budgets, thresholds = np.array([1.0, 5.0, 20.0]), np.full(3, 10.0)
    norms, sent = generator.uniform(1.0, 30.0, (6, 3)), []
    for trained in norms:
        sent.append(personalized_noise(thresholds, budgets, dimension).client_std)
        thresholds = next_max_param_norms(thresholds, trained, rate)
    seen = 10.0 * np.array(sent) / sent[0]  # σ_k is in proportion to C_k
    told = (seen[1:] - (1 - rate) * seen[:-1]) / rate
    np.testing.assert_allclose(told, norms[:-1], rtol=1e-9)
    ratio = 100.0 / (dimension * 3 * sent[0] ** 2)
    np.testing.assert_allclose(0.5 * dimension * np.log1p(ratio), budgets, rtol=1e-9)


def test_budgets_have_the_asked_mean_and_spread_and_a_floor():
    """False-alarm rate of each bound below 1e-6: the mean of 10⁵ draws is within 5 standard errors."""
    budgets = draw_budgets(100_000, 100.0, 10.0, 1.0, np.random.default_rng(3))
    assert abs(budgets.mean() - 100) < 5 * 10 / math.sqrt(100_000)
    assert abs(budgets.std() - 10) < 5 * 10 / math.sqrt(200_000)
    assert draw_budgets(1000, 5.0, 10.0, 1.0, np.random.default_rng(3)).min() == 1.0
    assert (draw_budgets(10, 5.0, 0.0, 1.0, np.random.default_rng(3)) == 5.0).all()


@pytest.mark.parametrize(
    ("norms", "budgets", "dimension", "message"),
    [
        ([0.0, 1.0], [1.0, 1.0], 10, "max_param_norm = 0.0: must be positive"),
        ([1.0, 1.0], [1.0, -1.0], 10, "mi_budget = -1.0: must be positive"),
        ([1.0], [1.0], 0, "dimension = 0"),
    ],
)
def test_impossible_settings_are_named(norms, budgets, dimension, message):
    with pytest.raises(ValueError, match=message):
        personalized_noise(np.array(norms), np.array(budgets), dimension)


@pytest.mark.parametrize(
    ("clients", "weights", "message"),
    [(2, [0.5, 0.6], "that sum to 1"), (2, [1.5, -0.5], "that sum to 1"), (0, [], "no clients")],
)
def test_weights_that_are_no_shares_are_refused(clients, weights, message):
    with pytest.raises(ValueError, match=message):
        client_noise(np.ones(clients), np.ones(clients), 10, np.array(weights))


def test_aggregate_std_adds_the_noise_of_clients_and_server():
    noise = AggregateNoise(np.array([0.5, 0.5]), np.array([6.0, 8.0]), 12.0)
    assert noise.aggregate_std == pytest.approx(13.0)


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
