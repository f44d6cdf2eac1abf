import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound.accounting import reconstruction as bounds
from leakbound.accounting.gaussian import gaussian_capacity, linear_mmse
from leakbound.channels import estimate_moments
from leakbound.channels.calibration import noise_scale
from leakbound.registry import SHAPES

POWER_LAW = np.arange(1.0, 65) ** -1.5


def records(count: int, eigenvalues: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, len(eigenvalues))) * np.sqrt(eigenvalues)


def test_empirical_prior_approaches_the_gaussian_one_when_candidates_are_dense():
    # In one dimension 4000 candidates are a Gaussian; the tolerance covers their own sampling error.
    candidates = records(4000, np.ones(1))
    found = bounds.empirical_bayes(candidates, np.array([0.5]), np.random.default_rng(2), draws=4000)
    variance = float(candidates.var())
    assert found.error == pytest.approx(linear_mmse(np.array([variance]), 0.5), abs=6 * found.error_standard_error)
    expected = gaussian_capacity(np.array([variance]), 0.5)
    assert found.information == pytest.approx(expected, abs=6 * found.information_standard_error + 0.01)


@pytest.mark.parametrize("name", ["natural", "white", "least_power", "rate_distortion"])
def test_knowing_the_candidates_beats_the_linear_attacker_and_respects_the_capacity(name):
    candidates = records(300, np.arange(1.0, 9) ** -1.5)
    moments = estimate_moments([candidates])
    spectrum = SHAPES.get(name).decompose(moments)
    channel = SHAPES.get(name).calibrate(spectrum, 3.0)
    found = bounds.empirical_bayes(
        candidates, channel.variances, np.random.default_rng(3), draws=3000, basis=channel.basis, gain=channel.gain
    )
    gain = np.ones(8) if channel.gain is None else channel.gain
    passing = gain > 0
    noise = np.full(8, math.inf)
    noise[passing] = channel.variances[passing] / gain[passing] ** 2
    linear = linear_mmse(spectrum.data_eigenvalues, noise)
    assert found.error <= linear + 5 * found.error_standard_error
    assert found.information <= 3.0 + 5 * found.information_standard_error
    assert 1 - found.identification_rate >= bounds.fano_error(found.information, 300) - 0.05


def test_identification_rises_from_chance_to_certainty_with_the_capacity():
    candidates = records(2000, POWER_LAW)
    eigenvalues = np.linalg.eigvalsh(np.cov(candidates.T, bias=True))
    rates = []
    for capacity in (1.0, 4.0, 8.0, 20.0):
        noise = np.full(64, noise_scale(eigenvalues, capacity))
        found = bounds.empirical_bayes(candidates, noise, np.random.default_rng(5), draws=1500)
        rates.append(found.identification_rate)
    # Theory 6.3; five standard errors of 1500 draws are at most 0.065.
    assert rates == pytest.approx([0.017, 0.24, 0.75, 0.999], abs=0.065)


def test_several_looks_are_one_look_at_less_noise():
    candidates = records(50, np.ones(3))
    noise = np.array([4.0, 8.0, 2.0])
    many = bounds.empirical_bayes(candidates, noise, np.random.default_rng(6), draws=200, uses=4.0)
    one = bounds.empirical_bayes(candidates, noise / 4, np.random.default_rng(6), draws=200)
    assert many == one


def test_silent_channel_leaves_the_prior_and_open_channel_names_the_record():
    candidates = records(40, np.ones(3))
    prior = float(candidates.var(axis=0).sum())
    rng = np.random.default_rng(9)
    silent = bounds.empirical_bayes(candidates, np.full(3, math.inf), rng, draws=4000)
    assert silent.information == pytest.approx(0, abs=1e-12)
    assert silent.error == pytest.approx(prior, abs=5 * silent.error_standard_error)
    opened = bounds.empirical_bayes(candidates, np.full(3, 1e-12), rng, draws=200)
    assert opened.identification_rate == 1.0
    assert opened.error == pytest.approx(0, abs=1e-20)
    assert opened.information == pytest.approx(math.log(40), abs=1e-9)


def test_standard_errors_of_the_simulation_are_those_of_its_spread():
    """Forty simulations of 60 draws: the spread of their results, to five standard errors of a standard deviation."""
    candidates, noise, rng = records(20, np.ones(3)), np.full(3, 0.5), np.random.default_rng(12)
    runs = [bounds.empirical_bayes(candidates, noise, rng, draws=60) for _ in range(40)]
    for name in ("error", "information"):
        spread = np.std([getattr(run, name) for run in runs], ddof=1)
        stated = np.mean([getattr(run, f"{name}_standard_error") for run in runs])
        assert stated == pytest.approx(spread, rel=5 / math.sqrt(2 * 39))


def test_an_axis_that_passes_nothing_tells_nothing_in_any_basis():
    candidates, generator = records(30, np.ones(3)), np.random.default_rng(14)
    basis = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    noise = np.array([0.3, math.inf, 0.7])
    turned = bounds.empirical_bayes(candidates @ basis.T, noise, np.random.default_rng(15), draws=50, basis=basis)
    plain = bounds.empirical_bayes(candidates, noise, np.random.default_rng(15), draws=50)
    assert turned.information == pytest.approx(plain.information, rel=1e-9)
    assert turned.error == pytest.approx(plain.error, rel=1e-9)


@given(st.floats(0.0, 400.0), st.floats(0.0, 400.0))
def test_surrogate_error_falls_with_the_information(first, second):
    low, high = sorted((first, second))
    assert bounds.gaussian_surrogate_error(POWER_LAW, high) <= bounds.gaussian_surrogate_error(POWER_LAW, low)


def test_surrogate_error_of_a_constant_pixel_is_zero():
    assert bounds.gaussian_surrogate_error(np.array([1.0, 0.0]), 1.0) == 0.0
