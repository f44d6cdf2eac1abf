import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from leakbound.accounting.gaussian import gaussian_capacity
from leakbound.channels import calibration

capacities = st.floats(math.log(1e-8), math.log(1e4)).map(math.exp)
log_eigenvalues = arrays.arrays(np.float64, st.integers(1, 40), elements=st.floats(-12.0, 8.0))
spectra = log_eigenvalues.map(np.exp)


def softplus_capacity(eigenvalues: np.ndarray, log_scale: float) -> float:
    """Capacity from logarithms, which works where the variance itself leaves float64."""
    return 0.5 * float(np.logaddexp(0.0, np.log(eigenvalues) - log_scale).sum())


def assert_met_from_below(reached: float, capacity: float) -> None:
    assert reached <= capacity
    assert reached == pytest.approx(capacity, rel=1e-9, abs=0)


@given(spectra, capacities)
def test_noise_scale_meets_the_capacity_from_below_over_twelve_decades(eigenvalues, capacity):
    log_scale = calibration.log_noise_scale(eigenvalues, capacity)
    assert_met_from_below(softplus_capacity(eigenvalues, log_scale), capacity)
    if abs(log_scale) < 600:
        scale = calibration.noise_scale(eigenvalues, capacity)
        assert_met_from_below(gaussian_capacity(eigenvalues, scale), capacity)


@given(spectra, st.floats(1e-6, 100.0), st.floats(1.0, 1e4))
def test_fresh_noise_for_a_joint_budget_meets_it_over_all_uses(eigenvalues, capacity, uses):
    scale = calibration.noise_scale(eigenvalues, capacity, uses)
    assert_met_from_below(gaussian_capacity(eigenvalues, scale, uses), capacity * (1 + 1e-14))
    assert scale == pytest.approx(uses * calibration.noise_scale(eigenvalues, capacity), rel=1e-12)


@given(spectra, st.floats(1e-8, 100.0))
def test_zero_and_rounding_sized_eigenvalues_cost_no_noise(eigenvalues, capacity):
    padded = np.concatenate([eigenvalues, np.zeros(5)])
    assert calibration.noise_scale(padded, capacity) == calibration.noise_scale(eigenvalues, capacity)


def test_noise_scale_copes_with_eigenvalues_of_rounding_size():
    eigenvalues = np.concatenate([np.geomspace(100, 1, 20), np.full(200, 1e-15), np.full(3, 1e-300)])
    for capacity in (1e-8, 1.0, 60.0, 1e4):
        log_scale = calibration.log_noise_scale(eigenvalues, capacity)
        assert_met_from_below(softplus_capacity(eigenvalues, log_scale), capacity)


@given(spectra, capacities)
def test_least_power_meets_the_capacity_from_below(eigenvalues, capacity):
    if 2 * capacity / len(eigenvalues) < 500:
        level = calibration.least_power_level(eigenvalues, capacity)
        variances = calibration.least_power_variances(eigenvalues, level)
        assert_met_from_below(gaussian_capacity(eigenvalues, variances), capacity)


@given(spectra, capacities)
def test_water_filling_meets_the_capacity_from_below(eigenvalues, capacity):
    if 2 * capacity / len(eigenvalues) < 500:
        filling = calibration.water_filling(eigenvalues, capacity)
        active = filling.gain > 0
        ratios = filling.gain[active] ** 2 * eigenvalues[active] / filling.variances[active]
        assert_met_from_below(gaussian_capacity(ratios, 1.0), capacity)


@pytest.mark.parametrize("capacity", [1e-160, 1e-300, 2000.0])
def test_least_power_level_that_float64_cannot_hold_is_refused_by_name(capacity):
    with pytest.raises(ValueError, match="which float64 cannot hold"):
        calibration.least_power_level(np.array([3.0, 1.0]), capacity)


@pytest.mark.parametrize("capacity", [1e-150, 690.0])
def test_least_power_level_is_found_up_to_the_ends_of_float64(capacity):
    eigenvalues = np.array([3.0, 1.0])
    variances = calibration.least_power_variances(eigenvalues, calibration.least_power_level(eigenvalues, capacity))
    assert_met_from_below(gaussian_capacity(eigenvalues, variances), capacity)


def test_edges_of_the_capacity_pass_nothing_or_everything():
    eigenvalues = np.array([2.0, 1.0, 0.0])
    assert calibration.noise_scale(eigenvalues, 0.0) == math.inf
    assert calibration.noise_scale(eigenvalues, math.inf) == 0.0
    assert calibration.noise_scale(np.zeros(3), 1.0) == 0.0
    assert calibration.least_power_level(eigenvalues, 0.0) == math.inf
    assert calibration.least_power_level(eigenvalues, math.inf) == 0.0
    assert calibration.least_power_level(np.zeros(3), 1.0) == 0.0
    nothing, everything = calibration.water_filling(eigenvalues, 0.0), calibration.water_filling(eigenvalues, math.inf)
    assert (np.count_nonzero(nothing.gain), nothing.distortion) == (0, 3.0)
    assert (np.count_nonzero(everything.gain), everything.distortion) == (2, 0.0)
    assert not calibration.water_filling(np.zeros(3), 1.0).gain.any()


@pytest.mark.parametrize(
    "solve",
    [calibration.noise_scale, calibration.least_power_level, calibration.water_filling],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(
    ("eigenvalues", "capacity", "message"),
    [
        ([1.0], -1.0, "capacity = -1"),
        ([1.0], math.nan, "capacity = nan"),
        ([1.0, -0.5], 1.0, "negative"),
        ([math.inf], 1.0, "not finite"),
        ([1.0], 1e4, "float64 cannot hold"),
    ],
)
def test_calibration_refuses_what_it_cannot_guarantee(solve, eigenvalues, capacity, message):
    with pytest.raises(ValueError, match=message):
        solve(np.array(eigenvalues), capacity)
