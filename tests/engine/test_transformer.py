"""The transformer as scikit-learn's own checks see it, and its guarantee."""

import numpy as np
import pytest
from gaussians import gaussian
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from leakbound import Channel, Leakage
from leakbound.channels import channel_capacity, population_moments
from leakbound.registry import SHAPES

PUBLIC = gaussian(2000).astype(np.float64)


# The checks seed random_state, and seeded noise belongs to the record, so that every check holds.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([Channel(), Channel(Leakage(2.0, uses=3), shape="rate_distortion")])
def test_channel_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("shape", SHAPES.names())
def test_noise_has_the_capacity_under_the_moments_of_the_records(shape):
    weights = np.linspace(1, 4, 4) if shape.startswith("personalized") else None
    channel = Channel(3.0, shape=shape, weights=weights, random_state=0).fit(PUBLIC)
    expected = channel_capacity(channel.calibration_.channel, population_moments(PUBLIC))
    assert channel.leakage() == pytest.approx(expected, rel=1e-7)
    assert channel.leakage() <= 3.0
    assert channel.leakage(5) < 5 * channel.leakage()
    # The mean square of 8,000 numbers that are normal after whitening: false alarm below 1e-6.
    if channel.calibration_.channel.gain is None:
        noise = channel.transform(PUBLIC) - PUBLIC
        assert np.square(noise).sum(axis=1).mean() == pytest.approx(channel.calibration_.channel.noise_power, rel=0.25)


def test_seeded_noise_belongs_to_the_record_and_secure_noise_is_new_each_time():
    seeded, secure = Channel(random_state=1).fit(PUBLIC), Channel().fit(PUBLIC)
    noisy = seeded.transform(PUBLIC)
    np.testing.assert_array_equal(seeded.transform(PUBLIC[::-1])[::-1], noisy)
    np.testing.assert_array_equal(clone(seeded).fit_transform(PUBLIC), noisy)
    assert len(np.unique(noisy - PUBLIC, axis=0)) == len(PUBLIC)
    assert not np.any(np.all(secure.transform(PUBLIC) == secure.transform(PUBLIC), axis=1))
    assert not np.any(np.all(Channel(random_state=2).fit_transform(PUBLIC) == noisy, axis=1))


def test_columns_in_very_different_units_are_warned_of_where_noise_is_the_same_for_all():
    units = np.array([1.0, 1.0, 70.0, 1e4])
    with pytest.warns(UserWarning, match=r"columns are .* to .*e\+04, and natural noise .* standardize columns"):
        Channel(3.0).fit(PUBLIC * units)
    Channel(3.0, shape="white").fit(PUBLIC * units)  # follows the data: a warning would be an error
    rare = np.where(np.arange(2000)[:, None] % 50 == 0, PUBLIC, 0.0)
    Channel(3.0).fit(np.hstack([PUBLIC, rare[:, :1] / 20]))  # one value that hardly varies is no other unit
