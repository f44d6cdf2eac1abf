import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from formulas import conditional_covariance, kl_divergence
from leakbound.accounting import gaussian

positives = st.floats(1e-6, 1e6)


spectra = arrays.arrays(np.float64, st.integers(1, 12), elements=st.floats(1e-6, 1e4))


def random_covariance(seed: int) -> np.ndarray:
    factor = np.random.default_rng(seed).normal(size=(5, 8))
    return factor @ factor.T


@given(st.floats(1e-12, 700))
def test_log_expm1_inverts_log1p_of_exp(x):
    assert math.isclose(math.expm1(x), math.exp(gaussian.log_expm1(x)), rel_tol=1e-12)


def test_log_expm1_tends_to_x_beyond_the_range_of_exp():
    assert gaussian.log_expm1(1e6) == 1e6
    np.testing.assert_allclose(gaussian.log_expm1(np.array([1e-300, 1e4])), [math.log(1e-300), 1e4], rtol=1e-14)


@given(spectra, positives, st.floats(1.0, 1e5))
def test_capacity_is_half_the_log_determinant(eigenvalues, noise, uses):
    for count in (1.0, uses):
        expected = 0.5 * np.linalg.slogdet(np.eye(len(eigenvalues)) + count * np.diag(eigenvalues) / noise)[1]
        assert gaussian.gaussian_capacity(eigenvalues, noise, count) == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(
    ("eigenvalue", "noise", "nats", "error"),
    [(0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (2.0, 0.0, math.inf, 0.0), (2.0, math.inf, 0.0, 2.0)],
)
def test_capacity_and_error_are_exact_at_the_edges(eigenvalue, noise, nats, error):
    eigenvalues = np.array([eigenvalue])
    assert gaussian.gaussian_capacity(eigenvalues, noise) == nats
    assert gaussian.linear_mmse(eigenvalues, noise) == error


def test_capacity_survives_a_quotient_beyond_float64():
    found = gaussian.gaussian_capacity(np.array([1e200]), 1e-200, 10.0)
    assert found == pytest.approx(0.5 * (401 * math.log(10)), rel=1e-14)


def test_mutual_information_is_the_divergence_from_independence():
    covariance = random_covariance(2)
    independent = covariance.copy()
    independent[:2, 2:] = independent[2:, :2] = 0
    zero = np.zeros(5)
    expected = kl_divergence(zero, covariance, zero, independent)
    assert gaussian.mutual_information(covariance, [0, 1]) == pytest.approx(expected, rel=1e-10)


def test_linear_error_from_covariances_is_the_conditional_variance():
    covariance, noise = random_covariance(5), np.array([0.3, 1.0, 2.0, 0.5, 4.0])
    joint = np.block([[covariance, covariance], [covariance, covariance + np.diag(noise) / 3]])
    expected = np.trace(conditional_covariance(joint, range(5, 10)))
    assert gaussian.linear_mmse_from_covariances(covariance, noise, 3.0) == pytest.approx(expected, rel=1e-9)
