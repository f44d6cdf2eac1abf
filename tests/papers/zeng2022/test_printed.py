"""Where Zeng et al. 2022 print something else than follows from their own definitions."""

import numpy as np
import pytest

from formulas import joint_bracket
from leakbound.papers.zeng2022 import cases, releases
from leakbound.papers.zeng2022.cases import printed_bracket
from leakbound.papers.zeng2022.releases import Exchangeable, Release

PAPER = Exchangeable(30.0, 2.0, 101)


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
    privacy = releases.privacy_bits(signal.matrix(), noise.matrix(), 0)
    assert Release(signal, noise).privacy_bits == pytest.approx(privacy, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "correct", "printed_22", "printed_24"),
    [
        (2, 27.25, 19.75, 19.75),
        (3, 129, 84, 30),
        (4, 560.25, 357.75, 357.75),
        (5, 2295, 1485, 513),
        (7, 34263, 23328, 10206),
    ],
)
def test_printed_determinants_differ_from_the_covariance_and_from_each_other_for_odd_n(
    n, correct, printed_22, printed_24
):
    signal, noise = Exchangeable(3.0, 1.0, n), Exchangeable(2.0, 0.5, n)
    factor = (signal.difference * noise.difference) ** (n - 2)
    assert full_determinant(signal, noise) == pytest.approx(correct, rel=1e-12)
    assert joint_determinant(Release(signal, noise), as_printed=True) == pytest.approx(printed_22, rel=1e-12)
    assert printed_bracket(Release(signal, noise), (-1) ** (n + 1)) * factor == pytest.approx(printed_24, rel=1e-12)


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
    assert releases.privacy_bits(PAPER.matrix(), optimum.noise.matrix(), 0) == pytest.approx(1.0, abs=1e-9)


def test_printed_constraint_lets_a_search_break_the_budget_by_bits():
    found = cases.search_exchangeable_noise(PAPER, 1.0, as_printed=True, least_variance=0.01, reach=0.5)
    assert cases.printed_privacy_bits(Release(PAPER, found.noise)) <= 1.0 + 1e-6
    assert releases.privacy_bits(PAPER.matrix(), found.noise.matrix(), 0) > 5.0


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
