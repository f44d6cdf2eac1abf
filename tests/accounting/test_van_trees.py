import math

import numpy as np
import pytest
from scipy import stats

from leakbound.accounting.gaussian import linear_mmse
from leakbound.accounting.van_trees import unknown_share, van_trees_error

VARIANCES = np.array([4.0, 1.0, 0.3, 0.0])


def positive(seed: int, size: int = 4) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T


def least_error(mean_of, noise: float, prior: stats.rv_continuous) -> float:
    """E (X - E[X | Y])² of Y = g(X) + N(0, noise) in one dimension, by quadrature over both."""
    x = np.linspace(*prior.support_of_interest, 2001)
    weights = prior.pdf(x) / prior.pdf(x).sum()
    centers = mean_of(x)
    reach = 8 * math.sqrt(noise)
    y = np.linspace(centers.min() - reach, centers.max() + reach, 1501)[:, None]
    joint = weights * np.exp(-0.5 * (y - centers) ** 2 / noise)
    seen = joint.sum(axis=1)
    estimates = joint @ x / seen
    spread = joint @ (x**2) / seen - estimates**2
    return float((spread * seen).sum() / seen.sum())


class Blend:
    """Two public records at ±1 in one dimension, blended with the share s of noise of variance 1."""

    support_of_interest = (-7.0, 7.0)

    def __init__(self, share: float) -> None:
        self.share, self.centre = share, math.sqrt(1 - share)

    def pdf(self, x: np.ndarray) -> np.ndarray:
        std = math.sqrt(self.share)
        return 0.5 * (stats.norm.pdf(x, self.centre, std) + stats.norm.pdf(x, -self.centre, std))


def test_for_gaussian_records_behind_gaussian_noise_the_bound_is_the_error_of_the_best_linear_estimate():
    noise = np.array([0.5, 2.0, 0.1, 1.0])
    assert van_trees_error(VARIANCES, np.diag(1 / noise)) == pytest.approx(linear_mmse(VARIANCES, noise), rel=1e-12)
    # Axes that noise and records do not share: Σ - Σ (Σ + N)⁻¹ Σ.
    information, covariance = positive(0), np.diag(VARIANCES)
    closed = np.trace(covariance - covariance @ np.linalg.solve(covariance + np.linalg.inv(information), covariance))
    assert van_trees_error(VARIANCES, information) == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("noise", [0.05, 0.5, 5.0])
def test_no_estimate_of_blended_records_beats_the_bound_and_some_beat_that_of_gaussian_ones(share, noise):
    least = least_error(lambda x: x, noise, Blend(share))
    bound = van_trees_error(np.array([share]), np.array([[1 / noise]]))
    assert bound <= least * (1 + 1e-6)
    # The control: with records taken as Gaussian of the same variance the number is too high, and this would show.
    assert van_trees_error(np.ones(1), np.array([[1 / noise]])) > least


@pytest.mark.parametrize("noise", [0.02, 0.3, 3.0])
def test_no_estimate_from_a_nonlinear_upload_beats_the_bound_of_its_jacobian(noise):
    prior = Blend(1.0)
    x = np.linspace(-7, 7, 2001)
    slopes = 1 + 0.9 * np.cos(2 * x)
    squares = slopes**2 @ (prior.pdf(x) / prior.pdf(x).sum())
    least = least_error(lambda x: x + 0.45 * np.sin(2 * x), noise, prior)
    assert van_trees_error(np.ones(1), np.array([[squares / noise]])) <= least
    # The control: a Jacobian taken where the upload says least gives no bound.
    assert van_trees_error(np.ones(1), np.array([[slopes.min() ** 2 / noise]])) > least


def test_an_upload_that_jumps_has_no_jacobian_that_bounds_the_error():
    """Why networks with kinks are refused: the Jacobian of a sign is 0, and the sign says half of the variance."""
    least = least_error(np.sign, 0.01, Blend(1.0))
    assert van_trees_error(np.ones(1), np.zeros((1, 1))) == pytest.approx(1.0)
    assert least == pytest.approx(1 - 2 / math.pi, rel=1e-2)


def test_more_noise_raises_the_bound_up_to_what_the_prior_leaves_open():
    information = positive(1)
    errors = [van_trees_error(VARIANCES, information / noise) for noise in (0.01, 0.1, 1.0, 10.0, 1e9)]
    assert errors == sorted(errors)
    assert errors[0] < errors[1] < errors[2] < errors[3]
    assert errors[-1] == pytest.approx(VARIANCES.sum(), rel=1e-6)


def test_draws_that_choose_the_free_matrix_keep_estimates_of_the_information_from_raising_the_bound():
    """The plain bound is convex in J, so that by Jensen's inequality estimates of J raise it on average."""
    generator, variances = np.random.default_rng(2), np.ones(3)
    plain, crossed = [], []
    for _ in range(400):
        first, second = (np.cov(generator.normal(size=(3, 5)), bias=True) * 3 for _ in range(2))
        plain.append(van_trees_error(variances, first))
        crossed.append(van_trees_error(variances, first, second))
    truth = van_trees_error(variances, 3 * np.eye(3) * 4 / 5)
    error = np.std(crossed) / 20
    assert np.mean(plain) > truth + 0.05
    assert np.mean(crossed) < truth + 3 * error
    assert van_trees_error(VARIANCES, positive(3), positive(3)) == pytest.approx(
        van_trees_error(VARIANCES, positive(3)), rel=1e-9
    )
    assert van_trees_error(VARIANCES, positive(3), positive(4)) < van_trees_error(VARIANCES, positive(3))


def test_what_is_no_variance_and_no_information_is_refused():
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="variances: each must be finite and >= 0"):
            van_trees_error(np.array([1.0, wrong]), np.eye(2))
    with pytest.raises(ValueError, match="noise of variance 0 shows the record exactly"):
        van_trees_error(np.ones(1), np.array([[math.inf]]))
    with pytest.raises(ValueError, match="1 public records: give at least 2"):
        unknown_share(np.ones((1, 3)))


def test_the_share_that_other_records_leave_is_that_of_the_best_multiple_of_one():
    generator = np.random.default_rng(3)
    records = generator.normal(size=(1300, 4)) * [3.0, 1.0, 1.0, 0.5] + 7.0  # more than are compared at once
    centred = records - records.mean(axis=0)
    left = 0.0
    for place, record in enumerate(centred):
        others = np.delete(centred, place, axis=0)
        factors = (others @ record) / (others**2).sum(axis=1)
        left += ((record - factors[:, None] * others) ** 2).sum(axis=1).min()
    assert unknown_share(records) == pytest.approx(left / (centred**2).sum(), rel=1e-9)
    assert unknown_share(5 * records - 1) == pytest.approx(unknown_share(records), rel=1e-9)


def test_records_that_are_there_twice_leave_nothing_open():
    records = np.random.default_rng(4).normal(size=(20, 8))
    assert unknown_share(np.concatenate([records, records])) == pytest.approx(0.0, abs=1e-12)
    assert unknown_share(np.ones((3, 2))) == 0.0
