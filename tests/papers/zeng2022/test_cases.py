"""The three cases of Zeng et al. 2022: closed forms against determinants and a search, and what is printed instead."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from formulas import joint_bracket, threshold_bits
from leakbound_lab.papers.zeng2022 import cases, general
from leakbound_lab.papers.zeng2022.cases import printed_bracket
from leakbound_lab.papers.zeng2022.releases import (
    Exchangeable,
    Release,
    privacy_bits,
    unconditional_leak_bits,
    utility_bits,
)

budgets = st.floats(0.01, 10.0)
PAPER = Exchangeable(30.0, 2.0, 101)


@st.composite
def covariances(draw, most_clients: int = 12) -> Exchangeable:
    """Any exchangeable covariance, of either sign of dependence, well inside the definite ones."""
    n, variance = draw(st.integers(2, most_clients)), draw(st.floats(0.1, 50.0))
    share = draw(st.floats(-0.95, 0.95))
    return Exchangeable(variance, variance * (share if share > 0 else share / (n - 1)), n)


@st.composite
def releases(draw) -> tuple[Exchangeable, Exchangeable]:
    """Parameters and noise of as many clients."""
    signal, noise = draw(covariances()), draw(covariances())
    assume(noise.n_clients <= signal.n_clients)
    share = noise.covariance / noise.variance
    least = -0.95 / (signal.n_clients - 1)
    return signal, Exchangeable(noise.variance, max(share, least) * noise.variance, signal.n_clients)


@given(releases())
def test_closed_forms_are_those_of_the_determinants(release):
    signal, noise = release
    whole = signal.matrix(), noise.matrix()
    client = signal.n_clients - 1
    assert Release(signal, noise).utility_bits == pytest.approx(utility_bits(*whole), rel=1e-7)
    assert Release(signal, noise).privacy_bits == pytest.approx(privacy_bits(*whole, client), rel=1e-7, abs=1e-9)
    assert Release(signal, noise).unconditional_leak_bits == pytest.approx(
        unconditional_leak_bits(*whole, client), rel=1e-7, abs=1e-9
    )


@given(covariances())
def test_shared_information_and_conditional_variance_are_those_of_the_matrix(signal):
    found = general.dual_total_correlation_bits(signal.matrix())
    assert signal.dual_total_correlation_bits == pytest.approx(found, rel=1e-7, abs=1e-9)
    np.testing.assert_allclose(general.conditional_variances(signal.matrix()), signal.conditional_variance, rtol=1e-9)
    assert found >= -1e-12


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20).map(np.array), budgets)
def test_common_noise_spends_the_budget_of_the_largest_client_only(variances, budget):
    noise = cases.common_noise_variance(variances, budget)
    told = 0.5 * np.log2(1.0 + variances / noise)
    assert told.max() == pytest.approx(budget, rel=1e-9)
    assert cases.common_noise_utility_bits(variances, budget) == pytest.approx(told.mean(), rel=1e-7)


@given(covariances(), budgets)
def test_independent_noise_meets_the_budget_with_equality(signal, budget):
    noise = cases.independent_noise(signal, budget)
    assert Release(signal, noise).privacy_bits == pytest.approx(budget, rel=1e-9)


@given(covariances(), st.floats(1e-3, 5.0))
def test_utility_is_the_budget_and_the_shared_information_above_the_threshold(signal, above):
    budget = threshold_bits(signal) + above
    shared = signal.dual_total_correlation_bits / signal.n_clients
    optimum = cases.optimal_exchangeable_noise(signal, budget)
    assert optimum.utility_bits == pytest.approx(budget + shared, rel=1e-9)
    assert optimum.noise is not None
    assert math.copysign(1.0, optimum.noise.covariance) * signal.covariance <= 0.0


@given(covariances())
def test_only_the_larger_mode_is_released_below_the_threshold(signal):
    threshold = threshold_bits(signal)
    assume(threshold > 1e-3)
    optimum = cases.optimal_exchangeable_noise(signal, 0.5 * threshold)
    shared = signal.dual_total_correlation_bits / signal.n_clients
    assert optimum.noise is None
    assert (optimum.joint_precision > 0.0) == (signal.joint > signal.difference)
    assert optimum.utility_bits < 0.5 * threshold + shared


@pytest.mark.no_shapes
@pytest.mark.parametrize(
    "signal", [PAPER, Exchangeable(2.0, 1.8, 101), Exchangeable(2.0, -0.9, 3), Exchangeable(3.0, -0.2, 5)], ids=str
)
@pytest.mark.parametrize("budget", [1.0, 4.0, 10.0])
def test_constrained_search_ends_at_the_closed_form(signal, budget):
    found = cases.search_exchangeable_noise(signal, budget)
    assert found.utility_bits == pytest.approx(cases.optimal_exchangeable_noise(signal, budget).utility_bits, rel=1e-8)
    assert found.privacy_bits == pytest.approx(budget, rel=1e-8)


@given(releases())
def test_budget_and_shared_information_bound_an_attacker_without_side_information(release):
    """I(X_i; Yⁿ) ≤ I(X_i; Yⁿ | X⁻ⁱ) + I(X_i; X⁻ⁱ)."""
    signal, noise = release
    shared = 0.5 * math.log2(signal.variance / signal.conditional_variance)
    told = Release(signal, noise)
    assert told.unconditional_leak_bits <= told.privacy_bits + shared + 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Exchangeable(1.0, 0.5, 1), "at least 2 clients"),
        (lambda: Exchangeable(0.0, 0.0, 3), "variance is > 0"),
        (lambda: Exchangeable(1.0, -0.5, 3), r"above -0.5 and below 1 only"),
        (lambda: cases.independent_noise(PAPER, 0.0), "a budget is > 0"),
        (lambda: cases.optimal_exchangeable_noise(PAPER, math.inf), "a budget is > 0"),
        (lambda: cases.search_exchangeable_noise(PAPER, 1.0, least_variance=1e9), "least_variance"),
    ],
)
def test_settings_outside_the_domain_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("n", [2, 4, 8])
def test_printed_determinant_is_right_for_independent_parameters(n):
    release = Release(Exchangeable(3.0, 0.0, n), Exchangeable(2.0, 0.5, n))
    assert printed_bracket(release, -1) == pytest.approx(joint_bracket(release), rel=1e-12)
    assert cases.printed_privacy_bits(release) == pytest.approx(release.privacy_bits, rel=1e-12)


def test_noise_power_stands_in_one_denominator_of_the_utility_only():
    signal, noise = Exchangeable(2.0, 1.8, 4), Exchangeable(0.5, 0.0, 4)
    total = signal.matrix() + noise.matrix()
    correct = np.log2(np.linalg.det(total) / noise.variance**4) / 8
    twice = np.log2(np.linalg.det(total) / noise.variance**8) / 8
    assert Release(signal, noise).utility_bits == pytest.approx(correct, rel=1e-12)
    assert Release(signal, noise).utility_bits != pytest.approx(twice, rel=0.1)


def test_printed_privacy_has_no_logarithm_at_the_true_optimum():
    optimum = cases.optimal_exchangeable_noise(PAPER, 1.0)
    assert optimum.noise is not None
    assert np.isnan(cases.printed_privacy_bits(Release(PAPER, optimum.noise)))
    assert privacy_bits(PAPER.matrix(), optimum.noise.matrix(), 0) == pytest.approx(1.0, abs=1e-9)
