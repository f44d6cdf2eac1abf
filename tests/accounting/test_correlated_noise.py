"""Factors and sensitivity of correlated noise, against the values that other packages compute, and by brute force."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from opacus.accountants import RDPAccountant

from leakbound.accounting.correlated import inverse_coefficients, participations, sensitivity, square_root_bands
from leakbound.accounting.dp import composed_epsilon, epsilon, poisson_epsilon, record_information
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import replay, run_statements, stated_bounds

EVENT = PrivacyEvent(
    "dpmf", "cyclic", population=320, batch_size=40, steps=40, uses=5, noise_multiplier=4.0, max_grad_norm=1.0, bands=8
)


def strategy(bands, steps):
    """The matrix C."""
    rows, columns = np.indices((steps, steps))
    inside = (rows >= columns) & (rows - columns < bands)
    return np.where(inside, square_root_bands(bands)[np.clip(rows - columns, 0, bands - 1)], 0.0)


def test_factors_are_those_of_jax_privacy():
    """jax_privacy 2.0.0, toeplitz: optimal_max_error_strategy_coefs(6), and inverse_coef of the first 4."""
    assert square_root_bands(6) == pytest.approx([1.0, 0.5, 0.375, 0.3125, 0.2734375, 0.24609375], rel=1e-15)
    inverse = [1.0, -0.5, -0.125, -0.0625, 0.234375, -0.0546875, -0.041015625, -0.0322265625, 0.048583984375]
    assert inverse_coefficients(square_root_bands(4), 9) == pytest.approx(inverse, rel=1e-12)
    # optimal_max_error_noising_coefs(6), of (1 − x)^½.
    full = [1.0, -0.5, -0.125, -0.0625, -0.0390625, -0.02734375]
    assert inverse_coefficients(square_root_bands(6), 6) == pytest.approx(full, rel=1e-14)


def test_the_square_of_the_whole_square_root_adds_up_all_uploads():
    root = strategy(7, 7)
    assert root @ root == pytest.approx(np.tril(np.ones((7, 7))), abs=1e-14)


@pytest.mark.parametrize(
    ("bands", "separation", "steps", "squared"),
    [
        (1, 8, 40, 5.0),
        (4, 8, 40, 7.44140625),
        (8, 8, 40, 8.591896295547485),
        (8, 8, 42, 9.841896295547485),
        (4, 4, 10, 4.2265625),
        (16, 32, 320, 19.438788471567708),
    ],
)
def test_sensitivity_is_that_of_jax_privacy(bands, separation, steps, squared):
    """jax_privacy 2.0.0, toeplitz.minsep_sensitivity_squared(coefficients, separation, n=steps), in float64."""
    assert sensitivity(square_root_bands(bands), separation, steps) ** 2 == pytest.approx(squared, rel=1e-12)


@pytest.mark.parametrize(("bands", "separation", "steps"), [(1, 1, 5), (2, 3, 9), (3, 3, 8), (3, 4, 11)])
def test_no_pattern_of_participation_changes_more(bands, separation, steps):
    """Over all participations at least so far apart, with unit gradients of any signs, and in other directions."""
    columns = strategy(bands, steps)
    bound = sensitivity(square_root_bands(bands), separation, steps)
    patterns = [
        chosen
        for count in range(1, steps + 1)
        for chosen in itertools.combinations(range(steps), count)
        if all(later - earlier >= separation for earlier, later in itertools.pairwise(chosen))
    ]
    norms = [
        np.linalg.norm(columns[:, chosen] @ np.array(signs))
        for chosen in patterns
        for signs in itertools.product((-1.0, 1.0), repeat=len(chosen))
    ]
    assert max(norms) == pytest.approx(bound, rel=1e-12)
    generator = np.random.default_rng(0)
    for chosen in patterns:
        gradients = generator.normal(size=(len(chosen), 3))
        gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
        assert np.linalg.norm(columns[:, chosen] @ gradients) <= bound * (1 + 1e-12)


def test_more_bands_than_steps_between_participations_are_refused():
    # There minsep_sensitivity_squared of 12 bands every 8 of 40 steps is 12.38, and that of orthogonal columns less.
    with pytest.raises(ValueError, match="bands = 12: a record takes part again after 8 steps"):
        sensitivity(square_root_bands(12), 8, 40)
    with pytest.raises(ValueError, match="bands = 0"):
        square_root_bands(0)


def test_one_band_is_dp_sgd_without_credit_for_sampling():
    """C = I: as many Gaussian mechanisms as a record takes part in steps."""
    alone = dataclasses.replace(EVENT, bands=1)
    uses = participations(alone.steps, 8)
    assert epsilon(alone, 1e-5) == pytest.approx(poisson_epsilon(4.0, 1.0, uses, 1e-5), rel=1e-12)
    assert record_information(alone) == pytest.approx(uses / (2 * 4.0**2), rel=1e-6)
    # Where all records are in each step, sampling has none to give, and DP-SGD's own event states the same.
    everybody = dataclasses.replace(alone, batch_size=320, uses=40)
    dpsgd = dataclasses.replace(everybody, mechanism="dpsgd", sampling="poisson", bands=None)
    assert epsilon(everybody, 1e-5) == pytest.approx(epsilon(dpsgd, 1e-5), rel=1e-12)


def test_epsilon_is_that_of_one_gaussian_mechanism():
    """dp_accounting 0.6.0 at δ = 1e-5: GaussianDpEvent(2) has ε = 2.165715659 by RDP, and 1.993091408 by its PLD.

    The exact one, of Balle and Wang 2018, solves Φ(½μ − ε/μ) − e^ε Φ(−½μ − ε/μ) = δ for μ = ½.
    """
    of_record = sensitivity(square_root_bands(8), 8, 40)
    event = dataclasses.replace(EVENT, noise_multiplier=2.0 * of_record)
    assert epsilon(event, 1e-5, "rdp") == pytest.approx(2.165715659, rel=2e-3)  # other orders
    assert epsilon(event, 1e-5, "rdp") >= 1.993091408
    assert epsilon(event, 1e-5, "prv") == pytest.approx(1.993091408, rel=6e-3)
    accountant = RDPAccountant()
    accountant.step(noise_multiplier=2.0, sample_rate=1.0)
    assert epsilon(event, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-12)


def test_copies_and_trainings_are_composed():
    twice = composed_epsilon([EVENT, EVENT], 1e-5)
    assert twice == pytest.approx(
        epsilon(dataclasses.replace(EVENT, noise_multiplier=4.0 / math.sqrt(2)), 1e-5), rel=1e-9
    )
    # Two copies of a record move twice as far.
    copies = dataclasses.replace(EVENT, rows=2, uses=10)
    assert epsilon(copies, 1e-5) == pytest.approx(
        epsilon(dataclasses.replace(EVENT, noise_multiplier=2.0), 1e-5), rel=1e-3
    )


def test_events_that_the_sensitivity_does_not_hold_for_are_refused():
    for change, message in (
        ({"sampling": "shuffled"}, "sampling 'shuffled': the noise of dpmf was derived for cyclic batches"),
        ({"sampling": "poisson"}, "sampling 'poisson': the noise of dpmf"),
        ({"bands": None}, "states no bands"),
        ({"bands": 9}, "bands = 9: a record takes part again after 8 steps"),
        ({"mechanism": "dpsgd"}, "sampling 'cyclic'"),
    ):
        with pytest.raises(ValueError, match=message):
            epsilon(dataclasses.replace(EVENT, **change), 1e-5)
    assert dataclasses.replace(EVENT, sampling="poisson").bound is None
    assert dataclasses.replace(EVENT, mechanism="dpsgd").bound is None


def test_statement_says_whose_gradients_are_left_out():
    statement = run_statements([EVENT], None, 1e-5, labels=1.0, secure=True)["replica"]
    assert statement.adjacency == "zero out one"
    assert "(zero out one record)" in statement.sentence
    assert statement.epsilon == epsilon(EVENT, 1e-5)
    bounds = stated_bounds([EVENT], None, 1e-5, labels=0.0)
    again = replay({"leakage": bounds, "events": [EVENT.to_dict()]})
    assert again[0]["epsilon"] == statement.epsilon
    assert again[0]["verified"]
