import numpy as np
import pytest
import torch

from leakbound.channels import GaussianChannel, Moments, estimate_moments
from leakbound.channels.channel import linear_estimate
from leakbound.channels.sampling import ChannelSampler
from leakbound.registry import SHAPES


@pytest.mark.parametrize("shape", ["natural", "white", "personalized", "least_power", "rate_distortion"])
def test_linear_estimate_reaches_its_predicted_error_for_every_shape(digits, shape):
    """Over the records that gave the moments, the mean error is the trace of the conditional covariance."""
    colors, size = 1, 8
    images = digits.pool.images[:, :, 2::4, 2::4].copy()
    moments = estimate_moments([images])
    maker = SHAPES.get(shape)()
    weights = np.linspace(1.0, 3.0, size * size) if shape == "personalized" else None
    channel = maker.calibrate(maker.decompose(moments, weights=weights), 15.0)
    sampler = ChannelSampler(channel, (colors, size, size))
    generator = torch.Generator().manual_seed(0)
    seen = sampler.apply(torch.from_numpy(images).repeat(25, 1, 1, 1), generator).numpy()
    estimate = linear_estimate(seen, channel, moments)
    error = float(((estimate - np.tile(images, (25, 1, 1, 1))) ** 2).sum(axis=(1, 2, 3)).mean())

    gain = np.eye(size * size) if channel.gain is None else channel.basis * channel.gain @ channel.basis.T
    cross = moments.covariance @ gain.T
    released = gain @ cross + channel.noise_covariance()
    residual = moments.covariance - cross @ np.linalg.pinv(released, rcond=1e-11, hermitian=True) @ cross.T
    # 10,000 draws; the error's own relative spread is below 1 %, so 4 % is a false alarm of less than 1e-4.
    assert error == pytest.approx(float(np.trace(residual)), rel=0.04)
    assert error < moments.total_variance


def test_linear_estimate_refuses_a_channel_of_other_images(digits, moments):
    shape = SHAPES.get("natural")()
    channel = shape.calibrate(shape.decompose(moments), 20.0)
    with pytest.raises(ValueError, match="take all three from one dataset"):
        linear_estimate(np.zeros((1, 1, 8, 8), np.float32), channel, moments)


def test_estimate_of_one_value_is_its_conditional_mean_where_the_channel_has_another_mean():
    """Record 5 ± 2, released as 1 + .5 (D − 1) + noise of variance 3, seen at 2."""
    channel = GaussianChannel("rate_distortion", 1.0, np.array([3.0]), np.array([0.5]), np.array([1.0]), np.eye(1))
    moments = Moments(np.array([5.0]), np.array([[4.0]]), 9)
    seen = np.full((1, 1, 1, 1), 2.0)
    expected = 5.0 + 4.0 * 0.5 / (0.5**2 * 4.0 + 3.0) * (2.0 - (1.0 + 0.5 * (5.0 - 1.0)))
    assert linear_estimate(seen, channel, moments).item() == pytest.approx(expected, rel=1e-6)
