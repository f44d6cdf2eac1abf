import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from leakbound.accounting.gaussian import gaussian_capacity, mutual_information
from leakbound.channels import GaussianChannel, Moments, composed_capacity, signal_to_noise
from leakbound.registry import SHAPES


@st.composite
def mixtures(draw):
    """Looks through channels of several shapes, calibrated to one law of a few dimensions."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    size = draw(st.integers(2, 5))
    factor = rng.normal(size=(size, size + 2))
    moments = Moments(rng.normal(size=size), factor @ factor.T, 50)
    looks = []
    for name in draw(st.lists(st.sampled_from(SHAPES.builtin), min_size=1, max_size=4)):
        shape = SHAPES.get(name)
        weights = rng.uniform(0.1, 10.0, size) if shape.takes_weights else None
        spectrum = shape.decompose(moments, weights=weights)
        looks.append((shape.calibrate(spectrum, draw(st.floats(0.05, 8.0))), draw(st.integers(1, 4))))
    return moments, looks


@given(mixtures())
def test_channels_of_any_shapes_compose_to_the_information_in_all_noisy_copies(mixture):
    """Joint covariance of the record and of every copy, written out; a channel that passes nothing has no copy."""
    moments, looks = mixture
    size = moments.dimension
    gains, noises = [np.eye(size)], [np.zeros((size, size))]
    for channel, count in looks:
        basis = np.eye(size) if channel.basis is None else channel.basis
        gain = np.ones(size) if channel.gain is None else channel.gain
        passing = np.isfinite(channel.variances) & (gain > 0)
        turn = (gain[:, None] * basis.T)[passing]
        gains += [turn] * count
        noises += [np.diag(channel.variances[passing])] * count
    stacked = np.concatenate(gains)
    joint = stacked @ moments.covariance @ stacked.T + linalg.block_diag(*noises)
    found = composed_capacity(looks, moments)
    expected = mutual_information(joint, range(size)) if len(joint) > size else 0.0
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
    alone = [composed_capacity([look], moments) for look in looks]
    assert max(alone) * (1 - 1e-9) <= found <= sum(alone) * (1 + 1e-9)


@pytest.mark.parametrize("name", SHAPES.builtin)
def test_matrix_form_is_the_scalar_form_for_equal_shapes(name):
    factor = np.random.default_rng(0).normal(size=(12, 20)) * np.geomspace(1, 0.01, 20)
    moments, shape = Moments(np.zeros(12), factor @ factor.T, 99), SHAPES.get(name)
    spectrum = shape.decompose(moments, weights=np.linspace(1, 50, 12) if shape.takes_weights else None)
    low, high = (shape.calibrate(spectrum, capacity) for capacity in (4.0, 16.0))
    together = 10 * signal_to_noise(low, spectrum) + 3 * signal_to_noise(high, spectrum)
    assert composed_capacity([(low, 10), (high, 3)], moments) == pytest.approx(
        gaussian_capacity(together, 1.0), rel=1e-9
    )
    one = gaussian_capacity(signal_to_noise(low, spectrum), 1.0, 7.0)
    assert composed_capacity([(low, 7)], moments) == pytest.approx(one, rel=1e-9)


def test_look_without_noise_tells_everything_and_no_look_tells_nothing():
    moments = Moments(np.zeros(2), np.eye(2), 9)
    channel = SHAPES.get("natural").calibrate(SHAPES.get("natural").decompose(moments), 1.0)
    bare = dataclasses.replace(channel, variances=np.zeros(2))
    assert composed_capacity([(bare, 1), (channel, 2)], moments) == math.inf
    assert composed_capacity([(bare, 0)], moments) == 0.0
    assert composed_capacity([], moments) == 0.0
    with pytest.raises(ValueError, match="-1 uses"):
        composed_capacity([(channel, -1)], moments)


def test_direction_without_noise_tells_only_what_varies_along_it():
    """Records on a line: bare across it tells nothing, bare along it everything, though both pixels vary."""
    moments = Moments(np.zeros(2), np.ones((2, 2)), 9)
    across, along = np.array([0.5, 0.0]), np.array([0.0, 0.5])
    basis = np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)
    one = GaussianChannel("white", 1.0, across, basis=basis)
    assert composed_capacity([(one, 1)], moments) == pytest.approx(0.5 * math.log(1 + 2.0 / 0.5))
    assert composed_capacity([(dataclasses.replace(one, variances=along), 1)], moments) == math.inf
    silent = Moments(np.zeros(2), np.diag([1.0, 0.0]), 9)
    pixels = GaussianChannel("natural", 1.0, np.array([0.5, 0.0]))
    assert composed_capacity([(pixels, 2)], silent) == pytest.approx(0.5 * math.log(1 + 2 / 0.5))
