import numpy as np
import pytest

from leakbound.channels import Moments, estimate_moments, principal_direction


@pytest.fixture(scope="module", params=[4, 10], ids=["by_all_of_them", "by_iteration"])
def images(request):
    size = request.param
    generator = np.random.default_rng(3)
    smooth = generator.standard_normal((900, 3, size, size)).cumsum(axis=2).cumsum(axis=3) / size
    return (smooth + 0.5).astype(np.float32)


@pytest.fixture(scope="module")
def moments(images) -> Moments:
    return estimate_moments([images])


@pytest.mark.parametrize("index", [0, 1, 10])
def test_direction_is_that_of_the_whole_decomposition(moments, index):
    variances, axes = np.linalg.eigh(moments.covariance)
    found = principal_direction(moments, index)
    assert found.variance == pytest.approx(variances[-1 - index], rel=1e-9)
    assert abs(found.axis @ axes[:, -1 - index]) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("index", [0, 1, 10])
def test_removed_direction_varies_no_more_and_the_others_as_before(images, moments, index):
    found = principal_direction(moments, index)
    after = estimate_moments([found.removed_from(images)])
    np.testing.assert_allclose(after.mean, moments.mean, atol=1e-6)
    assert found.axis @ after.covariance @ found.axis < 1e-10 * found.variance
    expected = moments.covariance - found.variance * np.outer(found.axis, found.axis)
    np.testing.assert_allclose(after.covariance, expected, atol=1e-6 * moments.total_variance)
    assert after.total_variance == pytest.approx(moments.total_variance - found.variance, rel=1e-6)


def test_images_beyond_the_first_part_lose_the_direction_too(monkeypatch, images, moments):
    found = principal_direction(moments, 1)
    whole = found.removed_from(images.astype(np.float64))
    assert whole.dtype == np.float32
    monkeypatch.setattr("leakbound.channels.compression._CHUNK", 7)
    # In parts of 7 float64 sums are taken in another order.
    np.testing.assert_allclose(found.removed_from(images[:50]), whole[:50], atol=1e-6)


def test_direction_that_is_none_is_refused(images, moments):
    size = moments.dimension
    with pytest.raises(ValueError, match=rf"index = {size}: images of {size} values .* directions 0 to {size - 1}"):
        principal_direction(moments, size)
    with pytest.raises(ValueError, match="images have 12 values"):
        principal_direction(moments, 0).removed_from(np.zeros((1, 3, 2, 2), np.float32))
