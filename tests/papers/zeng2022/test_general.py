"""Any covariance, a budget for each client: the cap, the closed form that attains it, and the convex optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulas import release_privacy_bits
from leakbound_lab.papers.zeng2022 import cases, general
from leakbound_lab.papers.zeng2022.general import Problem
from leakbound_lab.papers.zeng2022.releases import Exchangeable, privacy_bits, utility_bits

EXAMPLE = np.array([[2.0, 1.8, 0.3], [1.8, 2.0, 0.2], [0.3, 0.2, 1.0]])


@st.composite
def problems(draw, most_clients: int = 12) -> Problem:
    """Covariances with a few strong directions, budgets over three orders of magnitude."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(2, most_clients))
    loadings = generator.normal(size=(n, draw(st.integers(1, 3)))) * draw(st.floats(0.1, 30.0))
    budgets = draw(st.floats(0.01, 5.0)) * generator.uniform(0.1, 1.0, n)
    return Problem(loadings @ loadings.T + np.diag(generator.uniform(0.1, 2.0, n)), budgets)


def exchangeable(variance: float, covariance: float, n: int, budget: float) -> tuple[Exchangeable, Problem]:
    signal = Exchangeable(variance, covariance, n)
    return signal, Problem(signal.matrix(), np.full(n, budget))


@given(problems())
def test_convex_optimum_is_certified_and_within_every_budget(problem):
    optimum = general.optimal_release(problem)
    told = release_privacy_bits(problem.signal, optimum.precision)
    assert optimum.gap_bits <= 1e-6
    assert optimum.utility_bits <= optimum.bound_bits + 1e-9
    np.testing.assert_allclose(told, problem.mi_budgets_bits, rtol=1e-7)
    found = general.release_utility_bits(problem.signal, optimum.precision)
    assert optimum.utility_bits == pytest.approx(found, rel=1e-6)


@pytest.mark.no_shapes
@given(problems())
def test_no_release_exceeds_the_cap_and_no_simpler_noise_the_optimum(problem):
    optimum = general.optimal_release(problem).utility_bits
    shared = general.best_exchangeable_precision(problem)
    assert optimum <= general.utility_cap_bits(problem) + 1e-9
    for simpler in (np.diag(1.0 / general.independent_noise_variances(problem)), shared):
        told = release_privacy_bits(problem.signal, simpler)
        assert (told <= problem.mi_budgets_bits * (1.0 + 1e-9)).all()
        assert general.release_utility_bits(problem.signal, simpler) <= optimum + 1e-8


@given(problems())
def test_closed_form_attains_the_cap_and_leaves_clients_independent(problem):
    problem = Problem(problem.signal, problem.mi_budgets_bits + 8.0)
    precision = general.closed_form_precision(problem)
    assert precision is not None
    posterior = np.linalg.inv(problem.signal) + precision
    assert np.abs(posterior - np.diag(np.diag(posterior))).max() <= 1e-9 * posterior.max()
    noise = np.linalg.inv(precision)
    cap = general.utility_cap_bits(problem)
    assert utility_bits(problem.signal, noise) == pytest.approx(cap, rel=1e-9)
    assert general.optimal_release(problem).utility_bits == pytest.approx(cap, rel=1e-9)
    rounding = 1000 * np.finfo(float).eps * np.linalg.cond(problem.signal)  # of determinants of what is nearly singular
    for client, budget in enumerate(problem.mi_budgets_bits):
        told = privacy_bits(problem.signal, noise, client)
        assert told == pytest.approx(budget, rel=1e-5, abs=rounding)


@given(problems())
def test_sufficient_budgets_make_the_closed_form_feasible(problem):
    root = np.sqrt(general.conditional_variances(problem.signal))
    largest = np.linalg.eigvalsh(np.linalg.inv(problem.signal) * root[:, None] * root)[-1]
    enough = np.full(len(root), 0.5 * np.log2(largest) + 1e-6)
    assert general.closed_form_precision(Problem(problem.signal, enough)) is not None


@settings(max_examples=30)
@given(st.integers(2, 10), st.floats(-0.9, 0.95), st.floats(0.01, 3.0))
def test_convex_optimum_of_clients_alike_is_the_closed_form_of_case_3(n, share, budget):
    signal, problem = exchangeable(2.0, 2.0 * (share if share > 0 else share / (n - 1)), n, budget)
    exact = cases.optimal_exchangeable_noise(signal, budget).utility_bits
    assert general.optimal_release(problem).utility_bits == pytest.approx(exact, rel=1e-7)


def test_release_of_fewer_directions_tells_what_its_precision_says():
    problem = Problem(EXAMPLE, np.full(3, 0.2))
    precision = general.optimal_release(problem).precision
    matrix = general.release_matrix(precision)
    assert matrix.shape == (2, 3)
    np.testing.assert_allclose(matrix.T @ matrix, precision, atol=1e-9)
    released = matrix @ EXAMPLE @ matrix.T
    told = 0.5 * np.linalg.slogdet(np.eye(2) + released)[1] / 3 / np.log(2)
    assert told == pytest.approx(general.optimal_release(problem).utility_bits, rel=1e-9)


@pytest.mark.parametrize(
    ("covariance", "budgets", "message"),
    [
        (EXAMPLE, [1.0, 1.0], "2 for 3 clients"),
        (EXAMPLE, [1.0, 0.0, 1.0], r"mi_budgets_bits\[1\] = 0.0: a budget is > 0"),
        (np.ones((2, 2)), [1.0, 1.0], "merge such clients"),
        (np.array([[1.0, 0.5], [0.2, 1.0]]), [1.0, 1.0], "not symmetric"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), [1.0, 1.0], "NaN or infinite"),
    ],
)
def test_problems_outside_the_domain_are_refused(covariance, budgets, message):
    with pytest.raises(ValueError, match=message):
        Problem(covariance, np.array(budgets))
