import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound.channels import Moments, estimate_moments


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


def test_images_are_flattened_by_color_row_column():
    images = np.random.default_rng(0).normal(size=(30, 3, 2, 4)).astype(np.float32)
    moments = estimate_moments([images[:11], images[11:]])
    expected = np.cov(images.astype(np.float64).reshape(30, -1).T, bias=True)
    np.testing.assert_allclose(moments.covariance, expected, rtol=1e-12, atol=1e-14)
    assert moments.total_variance == pytest.approx(images.astype(np.float64).var(axis=0).sum(), rel=1e-12)


def test_covariance_survives_a_mean_of_a_million_standard_deviations():
    records = np.random.default_rng(1).normal(size=(1000, 4))
    shifted = estimate_moments(np.array_split(records + 1e6, 7))
    np.testing.assert_allclose(shifted.covariance, estimate_moments([records]).covariance, rtol=0, atol=1e-9)


def test_moments_survive_storage():
    moments = estimate_moments([np.random.default_rng(2).normal(size=(9, 5))])
    again = Moments.from_arrays(moments.arrays())
    assert np.array_equal(again.covariance, moments.covariance)
    assert np.array_equal(again.mean, moments.mean)
    assert again.count == 9


STORED = {
    "mean": np.zeros(2),
    "covariance": np.eye(2),
    "count": np.array([1], dtype=np.int64),
    "shrinkage": np.array([0.25]),
}


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
        ({"count": np.array([2, 2])}, "count: must be one whole number"),
        ({"count": np.array(2)}, "count: must be one whole number"),
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
        ([np.empty((0, 4))], "no images"),
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
