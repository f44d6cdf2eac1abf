"""What Tan et al. 2024 print about personalized noise, against what it should say."""

import numpy as np
import pytest

from formulas import printed_capacity
from leakbound.accounting.gaussian import gaussian_capacity, log_determinant
from leakbound.channels import Moments, Personalized, PersonalizedPrinted, box_weights
from leakbound.channels.printed_bound import innovations

SIZE = 32


def natural_images(exponent: float, period: int = 2 * SIZE) -> Moments:
    """Moments of grey 32×32 pictures with a power spectrum 1/fᵖ and the variance 0.25, cut out of periodic ones."""
    frequency = np.fft.fftfreq(period) * period
    radius = np.hypot(frequency[:, None], frequency)
    radius[0, 0] = 1.0
    correlation = np.fft.ifft2(radius**-exponent).real
    row, column = np.divmod(np.arange(SIZE**2), SIZE)
    covariance = correlation[(row[:, None] - row) % period, (column[:, None] - column) % period]
    return Moments(np.zeros(SIZE**2), 0.25 * covariance / correlation[0, 0], 9)


def small_case() -> tuple[np.ndarray, np.ndarray]:
    factor = np.random.default_rng(0).normal(size=(6, 9))
    return factor @ factor.T, np.array([1.0, 1.0, 5.0, 5.0, 2.0, 0.5])


def test_difference_of_log_determinants_is_the_capacity_that_equation_20_means():
    covariance, weights = small_case()
    eigenvalues = Personalized.decompose(Moments(np.zeros(6), covariance, 9), weights=weights).eigenvalues
    for scale in np.geomspace(1e-3, 1e3, 13):
        difference = log_determinant(covariance + scale * np.diag(weights)) - np.log(scale * weights).sum()
        assert 0.5 * difference == pytest.approx(gaussian_capacity(eigenvalues, scale), rel=1e-9)


def test_quotient_that_equation_20_prints_is_negative_falls_to_a_pole_and_leaps():
    covariance, weights = small_case()

    def quotient(scale: float) -> float:
        return log_determinant(covariance + scale * np.diag(weights)) / (2 * np.log(scale * weights).sum())

    pole = np.exp(-np.log(weights).mean())
    below = [quotient(scale) for scale in pole * np.geomspace(1e-4, 1 - 1e-6, 20)]
    assert max(below) < 0  # no capacity is negative
    assert (np.diff(below) < 0).all()
    assert below[-1] < -1e4
    assert quotient(pole * (1 + 1e-6)) > 1e4


@pytest.mark.parametrize(
    ("exponent", "capacity", "factor"),
    [(2.0, 100.0, 1.83), (2.0, 1000.0, 1.06), (2.5, 100.0, 3.41), (2.5, 300.0, 5.10), (2.5, 1000.0, 1.10)],
)
def test_published_bound_costs_several_times_the_noise_on_natural_images(exponent, capacity, factor):
    moments, weights = natural_images(exponent), box_weights(1, SIZE, SIZE, 50.0, (12, 20), (8, 24))
    exact = Personalized.decompose(moments, weights=weights)
    printed = PersonalizedPrinted.decompose(moments, weights=weights)
    noise = [
        shape.calibrate(spectrum, capacity).variances[0]
        for shape, spectrum in ((PersonalizedPrinted, printed), (Personalized, exact))
    ]
    assert noise[0] / noise[1] == pytest.approx(factor, abs=0.01)


def test_second_part_of_the_published_bound_has_a_floor_that_no_noise_lowers():
    covariance, weights = small_case()
    bound = innovations(covariance, weights)
    floor = 0.5 * np.log(bound["predictors"] / bound["weights"]).sum()
    second = [
        0.5 * np.log((bound["innovations"] / scale + bound["predictors"]) / weights).sum() for scale in (1e6, 1e9)
    ]
    assert floor > 0
    assert second == pytest.approx([floor, floor], rel=1e-4)
    assert printed_capacity(bound, 1e9) < floor  # Hadamard's part has none
