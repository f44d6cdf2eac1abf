"""What Tan et al. 2024 print about personalized noise, against what it should say."""

import numpy as np
import pytest

from formulas import printed_capacity
from leakbound.accounting.gaussian import gaussian_capacity, log_determinant
from leakbound.channels import Moments, Personalized
from leakbound.channels.shapes import innovations


def small_case() -> tuple[np.ndarray, np.ndarray]:
    factor = np.random.default_rng(0).normal(size=(6, 9))
    return factor @ factor.T, np.array([1.0, 1.0, 5.0, 5.0, 2.0, 0.5])


def test_difference_of_log_determinants_is_the_capacity_that_equation_20_means():
    covariance, weights = small_case()
    eigenvalues = Personalized.decompose(Moments(np.zeros(6), covariance, 9), weights=weights).eigenvalues
    for scale in np.geomspace(1e-3, 1e3, 13):
        difference = log_determinant(covariance + scale * np.diag(weights)) - np.log(scale * weights).sum()
        assert 0.5 * difference == pytest.approx(gaussian_capacity(eigenvalues, scale), rel=1e-9)


@pytest.mark.parametrize("share", [1.0, 1e-4], ids=["large", "small"])
def test_quotient_that_equation_20_prints_has_a_pole_is_not_monotone_and_tends_to_one_half(share):
    """With ln det Σ_D above and, as for pictures, below 0."""
    covariance, weights = small_case()

    def quotient(scale: float) -> float:
        return log_determinant(share * covariance + scale * np.diag(weights)) / (2 * np.log(scale * weights).sum())

    pole = np.exp(-np.log(weights).mean())
    around = [quotient(pole * (1 + side * 1e-6)) for side in (-1, 1)]
    assert around[0] < -100
    assert around[1] > 100
    tail = [quotient(pole * factor) for factor in (1e1, 1e2, 1e12)]
    assert tail[0] > tail[1] > 0.5
    assert tail[2] == pytest.approx(0.5, abs=1e-9)
    smallest = quotient(pole * 1e-12)
    assert np.sign(smallest) == -np.sign(log_determinant(share * covariance))  # the capacity is far above 0 there


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
