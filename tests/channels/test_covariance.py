import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.datasets import load_digits

from leakbound.channels import Moments, channel_capacity, estimate_moments, population_moments
from leakbound.channels.covariance import exact_moments
from leakbound.channels.shapes import shape_named


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(-1e6, 1e6))
def test_moments_do_not_depend_on_how_records_are_chunked(count, dimension, seed, offset):
    rng = np.random.default_rng(seed)
    records = rng.normal(size=(count, dimension)) + offset
    cuts = np.sort(rng.integers(0, count + 1, size=3))
    moments = estimate_moments(iter(np.split(records, cuts)))
    centred = records - records.mean(axis=0)
    assert moments.count == count
    np.testing.assert_allclose(moments.mean, records.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        moments.covariance, centred.T @ centred / count, rtol=1e-7, atol=1e-12 + 1e-15 * abs(offset)
    )
    assert np.array_equal(moments.covariance, moments.covariance.T)


STORED = {"mean": np.zeros(2), "covariance": np.eye(2), "count": np.array([1]), "shrinkage": np.array([0.25])}


def test_moments_of_one_record_are_stored_and_their_shrinkage_too():
    again = Moments.from_arrays(STORED)
    assert (again.count, again.shrinkage) == (1, 0.25)
    assert {name: array.dtype for name, array in again.arrays().items()} == {
        name: array.dtype for name, array in STORED.items()
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": np.array([0])}, "count: must be one whole number of at least 1"),
        ({"count": np.array([2.0])}, "count: must be one whole number"),
        ({"mean": np.zeros(2, np.float32)}, "mean: is float32"),
        ({"covariance": np.eye(3)}, r"covariance: is float64 of shape \(3, 3\)"),
        ({"shrinkage": np.array([np.nan])}, "shrinkage: holds NaN"),
    ],
)
def test_stored_moments_of_other_types_and_shapes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Moments.from_arrays({**STORED, **changes})


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "no images"),
        ([np.ones((3, 4)), np.ones((2, 5))], "record 3: 5 values where earlier records have 4"),
        ([np.ones((3, 4)), np.array([[1.0, 1, 1, 1], [1, np.nan, 1, 1]])], "record 4: a value is NaN"),
    ],
)
def test_unusable_records_are_refused_by_number(chunks, message):
    with pytest.raises(ValueError, match=message):
        estimate_moments(chunks)


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (np.zeros(2), np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (np.zeros(2), np.array([[1.0, 0.0], [0.0, np.inf]]), "NaN or infinite"),
        (np.array([0.0, np.nan]), np.eye(2), "mean"),
    ],
)
def test_moments_refuse_what_is_no_covariance(mean, covariance, message):
    with pytest.raises(ValueError, match=message):
        Moments(mean, covariance, 3)


# -- moments for other records of their law --------------------------------------------------------------------------


SHAPES = ("natural", "white", "least_power", "rate_distortion")
VARIANCES = {"equal": np.ones(8), "falling": np.arange(1.0, 9) ** -3}


@pytest.mark.no_shapes
@pytest.mark.parametrize("records", [10, 80, 400])
@pytest.mark.parametrize("law", VARIANCES)
def test_noise_by_records_of_a_law_tells_no_more_of_it_than_stated_whatever_their_number(law, records):
    """Mean of true over told nats in 60 draws of 8 values; once 1.14 from 10 records for each value on, 1.2 of few.

    False alarms: one of 30,000 for each of 24 means at most, where the true mean is 1.
    """
    true, rng = Moments(np.zeros(8), np.diag(VARIANCES[law]), 1), np.random.default_rng(records)
    reached = {name: [] for name in SHAPES}
    for _ in range(60):
        moments = population_moments(rng.normal(size=(records, 8)) * np.sqrt(VARIANCES[law]))
        for name, nats in reached.items():
            shape = shape_named(name)
            nats.append(channel_capacity(shape.calibrate(shape.decompose(moments), 0.5), true))
    for name, nats in reached.items():
        assert np.mean(nats) <= 0.5 + 4 * np.std(nats) / 60**0.5, name


@pytest.mark.parametrize("records", [60, 120])
@pytest.mark.parametrize("capacity", [1.0, 3.0, 10.0])
def test_gain_for_few_pictures_lets_no_more_through_than_stated(records, capacity):
    """The strongest directions of a shrunk covariance are too weak: it once stated 3 nats and let 3.5 through."""
    digits = load_digits().data / 8.0 - 1.0
    true, generator = estimate_moments([digits]), np.random.default_rng(0)
    shape, reached = shape_named("rate_distortion"), []
    for _ in range(8):
        moments = population_moments(digits[generator.permutation(len(digits))[:records]])
        spectrum = shape.decompose(moments)
        channel = shape.calibrate(spectrum, capacity)
        assert channel_capacity(channel, moments) == pytest.approx(channel_capacity(channel, spectrum), rel=1e-9)
        reached.append(channel_capacity(channel, true) / capacity)
    assert 0.85 < np.mean(reached) < 1.0
    assert max(reached) < 1.05


@pytest.mark.parametrize("shape", ["white", "least_power"])
def test_noise_by_pictures_with_rare_pixels_tells_no_more_of_all_pictures_than_stated(shape):
    """Ten pictures for each pixel that varies in them: white noise once told 3.8 nats of 1, as some vary in few."""
    digits = np.random.default_rng(0).permutation(load_digits().data / 16.0)
    digits = digits[:, digits[:640].std(axis=0) > 0]
    form = shape_named(shape)
    channel = form.calibrate(form.decompose(population_moments(digits[:640])), 1.0)
    assert 0.7 < channel_capacity(channel, estimate_moments([digits])) < 1.05


def test_total_variance_is_unbiased_and_raised_by_its_error_and_the_weight_is_that_of_ledoit_and_wolf_at_least():
    drawn = np.random.default_rng(1).normal(size=(30, 5)) * [5, 4, 3, 2, 1] + 7.0
    found = population_moments(drawn)
    lengths = np.square(drawn - drawn.mean(axis=0)).sum(axis=1)
    error = lengths.var() / lengths.mean() ** 2 / 30
    assert found.total_variance == pytest.approx(drawn.var(axis=0, ddof=1).sum() / (1 - error), rel=1e-12)
    shape = found.covariance / found.total_variance
    exact, weight = np.cov(drawn.T) / drawn.var(axis=0, ddof=1).sum(), found.shrinkage
    np.testing.assert_allclose(shape, (1 - weight) * exact + weight * np.eye(5) / 5, rtol=1e-9)
    flat = np.random.default_rng(1).normal(size=(49, 5)) * [1.2, 1.1, 1, 0.9, 0.8]
    assert population_moments(flat).shrinkage >= ledoit_wolf_shrinkage(flat) * (1 - 1e-9)
    again = Moments.from_arrays(found.arrays())
    assert (again.shrinkage, again.count) == (weight, 30)


@pytest.mark.parametrize(("records", "width"), [(120, 100), (60, 100)])
def test_records_left_out_are_as_long_as_they_have_values_under_the_rest(records, width):
    """The rule written out: of every fourth record, under the others' shrunk covariance, xᵀ Σ⁻¹ x is d on average."""
    drawn = np.random.default_rng(3).normal(size=(records, width)) / np.sqrt(np.arange(1.0, width + 1))
    found = population_moments(drawn).shrinkage
    assert found > ledoit_wolf_shrinkage(drawn) + 1e-3
    assert population_moments(drawn + 50.0).shrinkage == pytest.approx(found, abs=5e-6)
    # With fewer records than values it is asked in the directions that these take.
    flat = (drawn - drawn.mean(axis=0)) @ np.linalg.svd(drawn - drawn.mean(axis=0), full_matrices=False)[2].T
    lengths = []
    for fold in range(4):
        rest, left = flat[np.arange(records) % 4 != fold], flat[np.arange(records) % 4 == fold]
        covariance = np.cov(rest.T, bias=True)
        shrunk = (1 - found) * covariance + found * np.trace(covariance) / width * np.eye(len(covariance))
        away = left - rest.mean(axis=0)
        lengths.append(np.einsum("ij,jk,ik->i", away, np.linalg.inv(shrunk), away).mean() / width)
    assert np.mean(lengths) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("records", "width"), [(2, 3), (60, 100), (300, 40), (700, 40)])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_moments_by_tensors_are_those_by_arrays(records, width, offset):
    """A device that is named otherwise than the CPU takes the way of a GPU."""
    rng = np.random.default_rng(records)
    drawn = (offset + rng.normal(size=(records, width)) * rng.gamma(1.0, size=width)).astype(np.float32)
    drawn[:, 1] = drawn[0, 1]  # a pixel that never changes
    drawn.flags.writeable = False  # as arrays of a file are
    for estimate in (population_moments, exact_moments):
        expected, found = estimate(drawn), estimate(drawn, device="cpu:0")
        scale = np.abs(expected.covariance).max()
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9, atol=1e-12 * scale)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-12)
        assert found.shrinkage == pytest.approx(expected.shrinkage, rel=1e-9, abs=2e-6)
        assert found.count == expected.count
        assert np.array_equal(found.covariance, found.covariance.T)


def test_moments_by_tensors_refuse_what_is_no_number():
    drawn = np.ones((5, 3))
    drawn[2, 1] = np.nan
    for estimate in (population_moments, exact_moments):
        with pytest.raises(ValueError, match="NaN or infinite"):
            estimate(drawn, device="cpu:0")


@pytest.mark.parametrize("records", [2, 3, 9])
def test_records_without_variance_are_shrunk_to_nothing(records):
    assert population_moments(np.ones((records, 1, 4, 4))).total_variance == 0


def test_fewest_records_are_shrunk_to_equal_noise_and_a_single_one_is_refused():
    drawn = np.random.default_rng(0).normal(size=(3, 5))
    assert population_moments(drawn[:2]).shrinkage == 1
    assert 0 < population_moments(drawn).shrinkage <= 1
    for count in (0, 1):
        with pytest.raises(ValueError, match=f"records = {count}: an estimate of their distribution needs at least 2"):
            population_moments(drawn[:count])
