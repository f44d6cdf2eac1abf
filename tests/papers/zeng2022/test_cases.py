"""The three cases of Zeng et al. 2022: closed forms against determinants and a search, and what is printed instead."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from formulas import joint_bracket, threshold_bits
from leakbound.papers.zeng2022 import cases, general
from leakbound.papers.zeng2022.cases import printed_bracket
from leakbound.papers.zeng2022.releases import (
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


@given(covariances(), budgets)
def test_optimal_noise_meets_the_budget_with_equality(signal, budget):
    optimum = cases.optimal_exchangeable_noise(signal, budget)
    n = signal.n_clients
    precision = (optimum.joint_precision + (n - 1) * optimum.difference_precision) / n
    assert 0.5 * math.log2(1.0 + signal.conditional_variance * precision) == pytest.approx(budget, rel=1e-7)
    assert min(optimum.joint_precision, optimum.difference_precision) >= 0.0


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


@pytest.mark.parametrize(
    ("budget", "utility", "variance", "covariance"),
    [
        (1.0, 1.0087402545, 9.4214514, -2.1363835e-2),
        (3.0, 3.0087402545, 0.4483439, -6.1577247e-5),
        (6.0, 6.0087402545, 6.8975858e-3, -1.4772236e-8),
        (10.0, 10.0087402545, 2.6937142e-5, -2.2534442e-13),
    ],
)
def test_optimum_has_the_digits_that_near_equal_eigenvalues_hide(budget, utility, variance, covariance):
    optimum = cases.optimal_exchangeable_noise(PAPER, budget)
    assert optimum.utility_bits == pytest.approx(utility, rel=1e-10)
    assert optimum.noise is not None
    assert optimum.noise.variance == pytest.approx(variance, rel=1e-7)
    assert optimum.noise.covariance == pytest.approx(covariance, rel=1e-7)


@pytest.mark.parametrize(
    "signal", [PAPER, Exchangeable(2.0, 1.8, 101), Exchangeable(2.0, -0.9, 3), Exchangeable(3.0, -0.2, 5)], ids=str
)
@pytest.mark.parametrize("budget", [1.0, 4.0, 10.0])
def test_constrained_search_ends_at_the_closed_form(signal, budget):
    found = cases.search_exchangeable_noise(signal, budget)
    assert found.utility_bits == pytest.approx(cases.optimal_exchangeable_noise(signal, budget).utility_bits, rel=1e-8)
    assert found.privacy_bits == pytest.approx(budget, rel=1e-8)


def test_constrained_search_comes_near_an_optimum_with_infinite_noise():
    signal = Exchangeable(2.0, 1.8, 3)
    found = cases.search_exchangeable_noise(signal, 0.1)
    exact = cases.optimal_exchangeable_noise(signal, 0.1)
    assert exact.noise is None
    assert exact.utility_bits - 1e-4 < found.utility_bits <= exact.utility_bits + 1e-9


@settings(max_examples=20)
@given(st.floats(-0.0099, 0.9))
def test_unconditional_leak_exceeds_the_budget_exactly_where_parameters_depend_on_each_other(share):
    leaks = [
        Release(signal, cases.independent_noise(signal, 1.0)).unconditional_leak_bits
        for signal in (Exchangeable(2.0, 2.0 * share, 101), Exchangeable(2.0, 0.0, 101))
    ]
    assert leaks[1] == pytest.approx(1.0, rel=1e-12)
    assert leaks[0] >= 1.0 - 1e-12
    assert abs(share) < 1e-3 or leaks[0] > 1.0 + 1e-7


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
        (lambda: Exchangeable(1.0, 1.0, 3), r"above -0.5 and below 1 only"),
        (lambda: Exchangeable(1.0, -0.5, 3), r"above -0.5 and below 1 only"),
        (lambda: Exchangeable(math.nan, 0.0, 3), "variance is > 0"),
        (lambda: cases.independent_noise(PAPER, 0.0), "a budget is > 0"),
        (lambda: cases.optimal_exchangeable_noise(PAPER, math.inf), "a budget is > 0"),
        (lambda: cases.search_exchangeable_noise(PAPER, 1.0, least_variance=1e9), "least_variance"),
    ],
)
def test_settings_outside_the_domain_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def joint_determinant(release: Release, *, as_printed: bool = False) -> float:
    """|Cov(Yⁿ, X⁻ⁱ)|, of 2n − 1 rows, as Eq. (22) gives it; in plain numbers, so for few clients only.

    Args:
        release: Parameters and noise.
        as_printed: By the paper's Eq. (22), which its Eq. (24) simplifies with another sign for odd n.
    """
    bracket = printed_bracket(release, -1) if as_printed else joint_bracket(release)
    return bracket * (release.signal.difference * release.noise.difference) ** (release.signal.n_clients - 2)


def full_determinant(signal: Exchangeable, noise: Exchangeable) -> float:
    """|Cov(Yⁿ, X⁻¹)| of 2n − 1 rows."""
    x, z = signal.matrix(), noise.matrix()
    return float(np.linalg.det(np.block([[x + z, x[:, 1:]], [x[1:], x[1:, 1:]]])))


@pytest.mark.parametrize("n", range(2, 9))
@pytest.mark.parametrize(("covariance", "noise_covariance"), [(1.0, 0.5), (1.0, -0.2), (-0.3, 0.5), (0.0, 0.5)])
def test_corrected_determinant_is_that_of_the_covariance_for_odd_and_even_n(n, covariance, noise_covariance):
    signal, noise = Exchangeable(3.0, covariance, n), Exchangeable(2.0, noise_covariance, n)
    assert joint_determinant(Release(signal, noise)) == pytest.approx(full_determinant(signal, noise), rel=1e-9)
    privacy = privacy_bits(signal.matrix(), noise.matrix(), 0)
    assert Release(signal, noise).privacy_bits == pytest.approx(privacy, rel=1e-9)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_printed_determinant_is_right_for_independent_parameters(n):
    signal, noise = Exchangeable(3.0, 0.0, n), Exchangeable(2.0, 0.5, n)
    printed = joint_determinant(Release(signal, noise), as_printed=True)
    assert printed == pytest.approx(full_determinant(signal, noise), rel=1e-12)
    assert cases.printed_privacy_bits(Release(signal, noise)) == pytest.approx(
        Release(signal, noise).privacy_bits, rel=1e-12
    )


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


@pytest.mark.parametrize(
    ("box", "stop", "by_24"), [(1.0, 2.4453, 2.4439), (0.1, 4.0836, 4.0823), (0.01, 5.7423, 5.7409)]
)
def test_utility_saturates_in_a_search_box_and_nowhere_else(box, stop, by_24):
    """With the correct constraint the box stops the search at large budgets, with the printed one at every budget."""
    limits = {"least_variance": box, "reach": 0.5}
    boxed = [cases.search_exchangeable_noise(PAPER, budget, **limits).utility_bits for budget in (1.0, 8.0, 10.0)]
    printed = [
        cases.search_exchangeable_noise(PAPER, budget, as_printed=True, **limits).utility_bits for budget in (1.0, 10.0)
    ]
    exact = [cases.optimal_exchangeable_noise(PAPER, budget).utility_bits for budget in (1.0, 8.0, 10.0)]
    assert boxed[0] == pytest.approx(exact[0], rel=1e-8)
    assert boxed[1:] == pytest.approx([stop, stop], abs=5e-5)
    assert printed[0] == pytest.approx(by_24, abs=5e-5)
    assert printed[1] - printed[0] < 1e-3
    np.testing.assert_allclose(np.diff(exact), [7.0, 2.0], rtol=1e-12)
