"""Few large records: the covariance that is never formed gives the noise and the capacity of the one that is."""

import numpy as np
import pytest
import torch
from scipy import stats

from leakbound.channels import covariance, estimate_moments, shapes, signal_to_noise
from leakbound.channels.channel import channel_capacity
from leakbound.channels.covariance import LowRankMoments, population_moments
from leakbound.channels.observed import own_capacity
from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.sources import SecureNoise, SeededNoise

WIDTH = 192
SHAPES = ["natural", "white", "least_power", "rate_distortion"]


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Random walks as bytes, whose variances fall as those of photographs do."""
    steps = np.random.default_rng(seed).normal(size=(count, WIDTH)) * 6
    return (128 + np.cumsum(steps, axis=1)).clip(0, 255).astype(np.uint8)


def never_formed(monkeypatch) -> None:
    """Count records of more than 100 values as large."""
    for limit in ("LARGE", "_SMALL"):
        monkeypatch.setattr(covariance, limit, 100)


@pytest.fixture
def both(monkeypatch):
    """Moments of the same 40 records of 192 values, dense and of low rank."""
    records = pictures(40)
    dense = population_moments(records)
    never_formed(monkeypatch)
    low = population_moments(records)
    assert isinstance(low, LowRankMoments)
    assert not isinstance(dense, LowRankMoments)
    return dense, low


def test_moments_of_low_rank_are_those_of_the_dense_covariance(both):
    dense, low = both
    assert 0.001 < dense.shrinkage < 0.9
    assert low.shrinkage == pytest.approx(dense.shrinkage, rel=1e-6)
    np.testing.assert_allclose(low.mean, dense.mean, rtol=1e-12)
    np.testing.assert_allclose(low.covariance, dense.covariance, rtol=0, atol=1e-6 * dense.covariance.max())
    assert low.total_variance == pytest.approx(dense.total_variance, rel=1e-9)
    assert low.eigenvalues().min() > 0  # no direction is left without noise


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_and_capacity_are_those_of_the_dense_computation(both, shape):
    dense, low = both
    form = shapes.shape_named(shape)
    made = [form.calibrate(form.decompose(moments), 7.0) for moments in both]
    assert channel_capacity(made[1], form.decompose(low)) == pytest.approx(7.0, rel=1e-9)
    np.testing.assert_allclose(made[1].variances, made[0].variances, rtol=1e-5, atol=1e-6 * made[0].variances.max())
    full, thin = (channel.noise_covariance() for channel in made)
    np.testing.assert_allclose(thin, full, rtol=0, atol=1e-6 * full.max())
    np.testing.assert_allclose(made[1].pixel_variances(), np.diag(full), rtol=1e-5, atol=1e-6 * full.max())
    # What is released under the thin channel is counted again with the dense covariance, by determinants.
    if shape != "rate_distortion":
        ratio = np.linalg.slogdet(np.eye(WIDTH) + dense.covariance @ np.linalg.inv(thin))[1] / 2
        assert ratio == pytest.approx(7.0, rel=1e-6)


@pytest.mark.parametrize("shape", ["white", "rate_distortion"])
def test_what_is_released_has_the_law_that_is_counted(both, shape):
    """20,000 draws in the metric of the law: false alarm about 1e-6 for lengths, 1e-6 for all correlations."""
    low = both[1]
    form = shapes.shape_named(shape)
    channel = form.calibrate(form.decompose(low), 12.0)
    count, record = 20_000, pictures(1, seed=9).astype(np.float32)
    sampler = ChannelSampler(channel, (1, 1, WIDTH))
    source = SeededNoise(torch.Generator().manual_seed(3))
    released = sampler.apply(torch.from_numpy(record).reshape(1, 1, 1, WIDTH).expand(count, 1, 1, WIDTH), source)
    seen = released.reshape(count, WIDTH).double().numpy()
    mean, law = record[0].astype(float), channel.noise_covariance()
    if channel.gain is not None:
        gain = channel.basis.scaled(np.eye(WIDTH), channel.gain)
        mean = low.mean + gain @ (mean - low.mean)
        law = law + np.eye(WIDTH) * 1e-6 * channel.variances.max()  # the dither
    plain = (seen - mean) @ np.linalg.inv(np.linalg.cholesky(law)).T
    low_end, high_end = stats.chi2.ppf([5e-7, 1 - 5e-7], count * WIDTH)
    assert low_end < np.square(plain).sum() < high_end
    others = np.corrcoef(plain.T)[np.triu_indices(WIDTH, 1)]
    assert np.abs(others).max() < stats.norm.isf(1e-6 / 2 / len(others)) / np.sqrt(count)


def test_secure_noise_of_low_rank_lies_on_the_grid_of_its_pixels(both):
    form = shapes.shape_named("white")
    channel = form.calibrate(form.decompose(both[1]), 12.0)
    sampler = ChannelSampler(channel, (1, 1, WIDTH), on_grid=True)
    released = sampler.apply(torch.zeros(500, 1, 1, WIDTH), SecureNoise()).double().reshape(500, WIDTH)
    spacing = sampler.spacing.double()
    assert torch.equal(torch.round(released / spacing) * spacing, released)
    deviations = np.sqrt(channel.pixel_variances())
    assert np.all((spacing.numpy() <= deviations / 16) & (spacing.numpy() > deviations / 33))
    np.testing.assert_allclose(released.std(dim=0).numpy(), deviations, rtol=6 / np.sqrt(2 * 500))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_capacity_by_own_moments_is_that_of_the_dense_channel(both, shape, scale):
    """But for axes that are left open: variance spread evenly over them is a bound for all choices, and looser."""
    form = shapes.shape_named(shape)
    own = (128 + scale * (pictures(30, seed=5) - 128.0)).astype(np.uint8)
    found = []
    for moments in both:
        spectrum = form.decompose(moments)
        channel = form.calibrate(spectrum, 12.0)
        found.append(own_capacity(own, channel, signal_to_noise(channel, spectrum), calibrated=moments.count))
    for thin, dense in ((found[1].nats, found[0].nats), (found[1].certain, found[0].certain)):
        assert dense * (1 - 1e-6) <= thin <= dense * (1.0 if shape == "natural" else 1.02) * (1 + 1e-6)


def test_repeated_records_have_a_floor_everywhere(monkeypatch):
    """A record that is there several times, in all parts, is predicted by the others without any shrinking."""
    never_formed(monkeypatch)
    found = population_moments(np.repeat(pictures(3), 8, axis=0))
    assert found.eigenvalues().min() > 0
    natural = shapes.shape_named("natural")
    assert channel_capacity(natural.calibrate(natural.decompose(found), 3.0), natural.decompose(found)) <= 3.0


def test_a_full_covariance_of_large_records_is_refused_in_words(monkeypatch):
    wide = np.random.default_rng(0).integers(0, 256, (3, 20_001), dtype=np.uint8)
    moments = population_moments(wide)
    with pytest.raises(ValueError, match=r"records of 20001 values: .* takes 3 GB; allowed are 20000 values"):
        shapes.Personalized.decompose(moments, weights=np.ones(20_001))
    monkeypatch.setattr(covariance, "FEW", 2)
    with pytest.raises(ValueError, match="with more than 20000 values, allowed are 2 records"):
        population_moments(wide)


def test_the_mean_of_bytes_is_exact():
    wide = pictures(5)
    np.testing.assert_allclose(population_moments(wide).mean, estimate_moments([wide]).mean, rtol=1e-12)


@pytest.mark.parametrize("count", [2, 5, 40, 150])
def test_covariances_of_fewer_records_than_values_are_formed_only_for_directions(monkeypatch, count):
    """Up to 4,096 values every shape has the numbers of the covariance; natural noise never forms one."""
    records = pictures(count)
    dense = population_moments(records)
    monkeypatch.setattr(covariance, "_SMALL", 100)
    low = population_moments(records)
    assert (type(dense).__name__, type(low).__name__) == ("Moments", "LowRankMoments")
    assert low.shrinkage == pytest.approx(dense.shrinkage, rel=1e-9)
    natural = shapes.shape_named("natural")
    spectrum = natural.decompose(low)
    np.testing.assert_allclose(spectrum.eigenvalues, dense.eigenvalues(), rtol=1e-9)
    for capacity in (0.01, 4.0, 300.0):
        channel = natural.calibrate(spectrum, capacity)
        assert channel_capacity(channel, natural.decompose(dense)) <= capacity
    assert not {"covariance", "directions"} & set(vars(low))
    np.testing.assert_allclose(low.covariance, dense.covariance, rtol=0, atol=1e-12 * dense.covariance.max())
    assert np.array_equal(low.covariance, low.covariance.T)
    for shape in SHAPES[1:]:
        form = shapes.shape_named(shape)
        (thin, full) = (form.calibrate(form.decompose(moments), 7.0) for moments in (low, dense))
        assert isinstance(thin.basis, np.ndarray)
        np.testing.assert_allclose(
            thin.noise_covariance(), full.noise_covariance(), rtol=0, atol=1e-8 * full.noise_power
        )


@pytest.mark.parametrize("count", [2, 3, 9, 60])
def test_held_out_records_vary_by_their_gram_matrix_as_by_covariances(count):
    records = pictures(count).astype(float)
    centred = records - records.mean(axis=0)
    by_gram = covariance._folds_of_gram(centred @ centred.T, WIDTH, lambda *_: None)
    for own, expected in zip(by_gram, covariance._folds(records, WIDTH, lambda *_: None, "cpu"), strict=True):
        assert own[1] == pytest.approx(expected[1], rel=1e-12)
        for weight in (1e-4, 0.1, 1.0):
            means = [
                covariance.ratios_of(fresh, (1 - weight) * variances + weight * mean + 1e-9).sum()
                for variances, mean, fresh in (own, expected)
            ]
            assert means[0] == pytest.approx(means[1], rel=1e-6)


def test_combinations_of_values_are_whitened_alike_by_directions_and_by_the_covariance(both):
    dense, low = both
    draws = np.random.default_rng(0).normal(size=(WIDTH, 5))
    for values in (slice(None), slice(None, None, 3)):
        for moments in (dense, low):
            part = draws[values]
            axes = moments.whitening(values, 2.0, part)
            law = axes.T @ (dense.part(values) + 2.0 * np.eye(len(part))) @ axes
            np.testing.assert_allclose(law, part.T @ part, rtol=1e-5, atol=1e-6 * WIDTH)
