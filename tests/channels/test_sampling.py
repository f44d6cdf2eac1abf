import numpy as np
import pytest
import torch
from scipy import stats

from asking import calibrated
from leakbound.channels import GaussianChannel, Spectrum, estimate_moments
from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.sources import SecureNoise
from leakbound.registry import SHAPES

SHAPE = (2, 2, 3)
NAMES = SHAPES.names()


def channel_of(name: str, capacity: float = 6.0) -> GaussianChannel:
    rng = np.random.default_rng(0)
    moments = estimate_moments([rng.normal(size=(80, 12)) @ rng.normal(size=(12, 12)) + 0.3])
    return calibrated(moments, capacity, name, np.linspace(1, 9, 12) if name.startswith("personalized") else None)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("many_draws", [False, True], ids=["few", "many"])
@pytest.mark.parametrize("on_grid", [False, True], ids=["float32", "grid"])
@pytest.mark.parametrize("name", NAMES)
def test_noise_has_the_covariance_of_its_channel(name, on_grid, many_draws):
    # Whitened by the true covariance, n·tr((S − I)²)/2 + n·mean² is χ² up to O(1/n): a fixed seed, false alarm 1e-6.
    channel = channel_of(name)
    draws = 200_000
    sampler = ChannelSampler(channel, SHAPE, on_grid=on_grid, many_draws=many_draws)
    noise = sampler.noise(draws, generator()).double().numpy()
    basis = np.eye(12) if channel.basis is None else channel.basis
    noisy = channel.variances > 0
    white = noise @ basis[:, noisy] / np.sqrt(channel.variances[noisy])
    rank = int(noisy.sum())
    sample = white.T @ white / draws
    statistic = draws * ((sample - np.eye(rank)) ** 2).sum() / 2
    assert 1e-6 / 2 < stats.chi2.cdf(statistic, rank * (rank + 1) // 2) < 1 - 1e-6 / 2
    assert stats.chi2.sf(draws * (white.mean(axis=0) ** 2).sum(), rank) > 1e-6
    # Nothing lies outside the directions that have noise, but the dither of a channel with a gain.
    dither = 0.0 if channel.gain is None else 1e-3 * np.sqrt(channel.variances.max())
    assert np.abs(noise @ basis[:, ~noisy]).max(initial=0.0) < 1e-5 + 7 * dither


@pytest.mark.parametrize("floor", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("on_grid", [False, True], ids=["float32", "grid"])
def test_triangular_factor_gives_the_noise_of_the_channel_also_where_there_is_little(floor, on_grid):
    """The release has the law N(0, RᵀR): along each axis the variance is the channel's, and the capacity is κ."""
    values = np.geomspace(1.0, floor, 48)
    basis = np.linalg.qr(np.random.default_rng(3).normal(size=(48, 48)))[0]
    spectrum = Spectrum("white", np.ones(48), values.sum(), np.zeros(48), values, basis)
    channel = SHAPES.get("white").calibrate(spectrum, 20.0)
    sampler = ChannelSampler(channel, (3, 4, 4), on_grid=on_grid, many_draws=True)
    factor = sampler._triangle.astype(np.float64)
    assert (factor == np.triu(factor)).all()
    whole = (basis / np.sqrt(channel.variances)).T @ factor.T @ factor @ (basis / np.sqrt(channel.variances))
    assert np.abs(np.diag(whole) - 1).max() < 2e-4
    signal = np.sqrt(values / channel.variances)
    capacity = 0.5 * np.linalg.slogdet(np.eye(48) + signal[:, None] * np.linalg.inv(whole) * signal)[1]
    assert capacity == pytest.approx(20.0, rel=1e-6)
    normal = torch.randn(7, 48, generator=generator(2), dtype=sampler._dtype)
    np.testing.assert_allclose(
        sampler.noise(7, generator(2)).numpy(), normal.double().numpy() @ factor, rtol=0, atol=1e-5 * factor.max()
    )


def test_channels_with_directions_without_noise_have_no_triangular_factor():
    channel = channel_of("rate_distortion", 4.0)
    assert (channel.variances == 0).any()
    few, many = (ChannelSampler(channel, SHAPE, many_draws=flag).noise(9, generator(1)) for flag in (False, True))
    assert torch.equal(few, many)


def test_a_result_may_take_the_memory_of_the_signal():
    for on_grid in (False, True):
        sampler = ChannelSampler(channel_of("white"), SHAPE, on_grid=on_grid)
        signal = torch.randn(3, 4, *SHAPE, generator=generator(2))
        noise = sampler.noise(12, generator(3))
        expected = sampler.release(signal, noise)
        assert sampler.release(signal, noise, out=signal) is signal or on_grid
        assert torch.equal(signal, expected)


@pytest.mark.parametrize("name", ["natural", "white"])
def test_noise_is_gaussian_and_independent_from_draw_to_draw(name):
    channel = channel_of(name)
    noise = ChannelSampler(channel, SHAPE, many_draws=True).noise(50_000, generator(1)).double().numpy()
    white = np.linalg.solve(np.linalg.cholesky(channel.noise_covariance()), noise.T)
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-6  # false alarm 1e-6
    lagged = (white[:, 1:] * white[:, :-1]).sum() / np.sqrt(white[:, 1:].size)
    assert abs(lagged) < stats.norm.isf(0.5e-6)  # false alarm 1e-6


@pytest.mark.parametrize("on_grid", [False, True], ids=["float32", "grid"])
@pytest.mark.parametrize("name", NAMES)
def test_release_is_the_image_plus_noise_or_its_shrinkage_and_on_a_grid_a_multiple_of_the_spacing(name, on_grid):
    channel = channel_of(name)
    sampler = ChannelSampler(channel, SHAPE, on_grid=on_grid)
    images = torch.randn(4, 5, *SHAPE, generator=generator(2))
    noise = sampler.noise(20, generator(3))
    released = sampler.apply(images, generator(3))
    assert (released.dtype, released.shape) == (torch.float32, images.shape)
    assert noise.dtype == (torch.float64 if on_grid else torch.float32)
    flat = images.reshape(20, 12).double().numpy()
    if channel.gain is not None:
        flat = channel.mean + ((flat - channel.mean) @ channel.basis * channel.gain) @ channel.basis.T
    rows = released.reshape(20, 12).double()
    away = sampler.spacing / 2 * (1 + 1e-9) if on_grid else 1e-5
    assert ((rows - torch.from_numpy(flat) - noise).abs() <= away).all()
    assert not on_grid or (rows / sampler.spacing % 1 == 0).all()


def test_directions_without_noise_tell_no_record_from_another():
    """The mean over many looks at a record would converge to its rounding residue where there is no noise."""
    channel = channel_of("rate_distortion", 4.0)
    sampler = ChannelSampler(channel, SHAPE)
    dead = channel.basis[:, channel.variances == 0]
    assert dead.shape[1] >= 2
    images = torch.randn(40, *SHAPE, generator=generator(2))
    source = generator(3)
    seen = np.stack([sampler.apply(images, source).reshape(40, 12).double().numpy() @ dead for _ in range(500)])
    within, between = seen.var(axis=0, ddof=1).mean(), seen.mean(axis=0).var(axis=0, ddof=1).mean()
    # Without a trace of the record the means vary by a 500th of the noise; F on over 78 and thousands of degrees of
    # freedom, so that 1.9 is a false alarm of 1e-5 at most.
    assert within > (3e-4 * np.sqrt(channel.variances.max())) ** 2
    assert between < 1.9 * within / 500


def test_frozen_copies_are_drawn_once_for_every_record():
    sampler = ChannelSampler(channel_of("white"), SHAPE)
    images = torch.zeros(50, *SHAPE)
    frozen = sampler.freeze(images, generator(5), chunk=16)
    assert frozen.shape == images.shape
    assert len(torch.unique(frozen.reshape(50, -1), dim=0)) == 50
    assert torch.equal(frozen, sampler.freeze(images, generator(5), chunk=16))
    assert torch.equal(images, torch.zeros(50, *SHAPE))


def test_noise_along_pixels_is_rounded_up_in_float32():
    channel = channel_of("personalized")
    held, exact = ChannelSampler(channel, SHAPE)._deviations.double().numpy(), np.sqrt(channel.variances)
    assert ((exact <= held) & (held < exact * (1 + 3e-7))).all()


def test_channel_that_passes_everything_changes_nothing():
    channel = channel_of("natural", float("inf"))
    images = torch.randn(3, *SHAPE, generator=generator(9))
    assert torch.equal(ChannelSampler(channel, SHAPE).apply(images, generator()), images)


def test_rate_distortion_without_capacity_releases_the_mean():
    channel = channel_of("rate_distortion", 0.0)
    images = torch.randn(3, *SHAPE, generator=generator(9))
    released = ChannelSampler(channel, SHAPE).apply(images, generator()).reshape(3, 12)
    np.testing.assert_allclose(released.numpy(), np.tile(channel.mean, (3, 1)), rtol=1e-6)


def test_sampler_refuses_other_images_and_infinite_noise():
    channel = channel_of("natural")
    with pytest.raises(ValueError, match="have 16 values"):
        ChannelSampler(channel, (1, 4, 4))
    with pytest.raises(ValueError, match="images end in"):
        ChannelSampler(channel, SHAPE).apply(torch.zeros(2, 3, 2, 2), generator())
    with pytest.raises(ValueError, match="infinite noise"):
        ChannelSampler(GaussianChannel("natural", 0.0, np.full(12, np.inf)), SHAPE)


@pytest.mark.parametrize("name", NAMES)
def test_spacing_follows_the_noise_of_each_pixel(name):
    channel = channel_of(name)
    covariance = channel.noise_covariance()
    dither = 0.0 if channel.gain is None else 1e-6 * channel.variances.max()
    deviations = np.sqrt(np.diag(covariance) + dither)
    spacing = ChannelSampler(channel, SHAPE, on_grid=True).spacing.numpy()
    assert (spacing <= deviations / 16 * (1 + 1e-12)).all()
    assert (spacing > deviations / 32 * (1 - 1e-12)).all()


def test_pixels_without_noise_are_not_rounded():
    variances = np.ones(12)
    variances[[0, 5]] = 0.0
    sampler = ChannelSampler(GaussianChannel("natural", 6.0, variances), SHAPE, on_grid=True)
    images = torch.randn(9, *SHAPE, generator=generator(2))
    released = sampler.apply(images, SecureNoise()).reshape(9, 12)
    assert torch.equal(released[:, [0, 5]], images.reshape(9, 12)[:, [0, 5]])
    assert (released[:, 1] * 16 % 1 == 0).all()


def test_secure_noise_without_a_grid_is_refused():
    sampler = ChannelSampler(channel_of("natural"), SHAPE)
    with pytest.raises(ValueError, match="on_grid=True"):
        sampler.apply(torch.zeros(2, *SHAPE), SecureNoise())
