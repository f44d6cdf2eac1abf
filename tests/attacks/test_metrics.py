import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from skimage.metrics import structural_similarity
from sklearn.metrics import mean_squared_error

from leakbound_lab.attacks import metrics
from leakbound_lab.claims import fronts

boxed_images = hnp.arrays(np.float32, (2, 3, 12, 12), elements=st.floats(-1, 1, width=32))
coordinates = st.floats(0, 1, allow_subnormal=False)


@given(boxed_images, boxed_images)
@settings(max_examples=25, deadline=None)
def test_mse_equals_sklearn_on_pixels_and_psnr_follows_from_it(truth, candidate):
    expected = [
        mean_squared_error((a.ravel().astype(np.float64) + 1) / 2, (b.ravel().astype(np.float64) + 1) / 2)
        for a, b in zip(truth, candidate, strict=True)
    ]
    np.testing.assert_allclose(metrics.mse(truth, candidate), expected, rtol=1e-12, atol=0)
    ratios = metrics.psnr(truth, candidate)
    np.testing.assert_allclose(10 ** (-ratios / 10), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("shape", "sigma"), [((4, 3, 32, 24), 1.5), ((5, 1, 8, 10), 0.9)])
def test_similarities_of_a_stack_have_the_bytes_of_scikit_image_and_ssim_is_their_mean(shape, sigma):
    first, second = np.random.default_rng(2).uniform(-1, 1, (2, *shape))
    expected = [
        structural_similarity(
            (a + 1) / 2, (b + 1) / 2, channel_axis=0, data_range=1.0, gaussian_weights=True, sigma=sigma,
            use_sample_covariance=False, full=True,
        )
        for a, b in zip(first, second, strict=True)
    ]  # fmt: skip
    np.testing.assert_array_equal(metrics.similarity_map(first, second), [map_ for _, map_ in expected])
    np.testing.assert_allclose(metrics.ssim(first, second), [mean for mean, _ in expected], rtol=1e-12)


def test_cosine_tells_opposite_orthogonal_and_empty_images_apart_and_psnr_of_equal_ones_is_infinite():
    image = np.zeros((1, 12, 12))
    image[0, 0, 0] = 0.7
    assert metrics.psnr(image, image) == math.inf
    other = np.zeros((1, 12, 12))
    other[0, 1, 1] = 0.3
    assert float(metrics.cosine(image, -image)) == pytest.approx(-1.0)
    assert float(metrics.cosine(image, other)) == 0.0
    assert float(metrics.cosine(image, np.zeros((1, 12, 12)))) == 0.0


def test_ssim_refuses_images_smaller_than_its_window():
    with pytest.raises(ValueError, match="7×7"):
        metrics.ssim(np.zeros((1, 6, 16)), np.zeros((1, 6, 16)))


@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(2, 40))
@settings(max_examples=30, deadline=None)
def test_auc_equals_the_share_of_ordered_pairs(seed, m, n):
    generator = np.random.default_rng(seed)
    members = generator.integers(0, 8, m).astype(np.float64)
    nonmembers = generator.integers(0, 8, n).astype(np.float64)
    difference = members[:, None] - nonmembers[None, :]
    pairs = np.mean((difference > 0) + 0.5 * (difference == 0))
    interval = metrics.auc_interval(members, nonmembers)
    assert interval.value == pytest.approx(pairs)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1


def test_auc_interval_has_the_variance_of_delongs_placements_with_ties():
    generator = np.random.default_rng(3)
    members = generator.integers(1, 12, 70).astype(np.float64)
    nonmembers = generator.integers(0, 10, 90).astype(np.float64)
    difference = members[:, None] - nonmembers[None, :]
    kernel = (difference > 0) + 0.5 * (difference == 0)
    variance = kernel.mean(axis=1).var(ddof=1) / 70 + kernel.mean(axis=0).var(ddof=1) / 90
    interval = metrics.auc_interval(members, nonmembers)
    half = stats.norm.ppf(0.975) * math.sqrt(variance)
    assert interval.high - interval.value == pytest.approx(half, rel=1e-9)
    assert interval.value - interval.low == pytest.approx(half, rel=1e-9)


def test_auc_interval_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    trials = [(generator.normal(0.8, 1.2, 60), generator.normal(0.0, 1.0, 80)) for _ in range(400)]
    intervals = [metrics.auc_interval(*scores) for scores in trials]
    truth = stats.norm.cdf(0.8 / math.sqrt(1.2**2 + 1))
    # At a coverage of 0.95 the share of 400 lies in this range with probability 0.999 and more.
    assert 0.91 <= np.mean([interval.low <= truth <= interval.high for interval in intervals]) <= 0.985


@pytest.mark.parametrize(("m", "n"), [(20, 30), (7, 9)])
def test_auc_interval_of_scores_that_all_tie_is_not_a_point(m, n):
    interval = metrics.auc_interval(np.zeros(m), np.zeros(n))
    assert interval.value == 0.5
    pairs = min(m, n)
    low = metrics.proportion_interval(pairs // 2, pairs).low
    high = metrics.proportion_interval(-(-pairs // 2), pairs).high
    assert (interval.low, interval.high) == (low, high)
    assert low < 0.35
    assert high > 0.65


def test_auc_interval_of_perfect_separation_is_not_a_point():
    interval = metrics.auc_interval(np.arange(10.0, 20.0), np.arange(8.0))
    assert (interval.value, interval.high) == (1.0, 1.0)
    assert interval.low == pytest.approx(0.025 ** (1 / 8))
    below = metrics.auc_interval(np.arange(8.0), np.arange(10.0, 20.0))
    assert (below.value, below.low) == (0.0, 0.0)
    assert below.high == pytest.approx(1 - 0.025 ** (1 / 8))


@pytest.mark.parametrize("fpr", [0.0, 0.001, 0.01, 0.1, 0.5])
def test_tpr_at_fpr_is_the_highest_point_of_the_roc_curve_left_of_fpr(fpr):
    generator = np.random.default_rng(6)
    members, nonmembers = generator.normal(0.8, 1.2, 400).round(1), generator.normal(0.0, 1.0, 300).round(1)
    rates = [(np.mean(nonmembers >= t), np.mean(members >= t)) for t in [*np.unique(members), np.inf]]
    expected = max(true for false, true in rates if false <= fpr)
    interval = metrics.tpr_at_fpr(members, nonmembers, fpr)
    assert interval.value == pytest.approx(expected)
    assert interval.low <= interval.value <= interval.high


def test_tpr_interval_is_exact_binomial():
    members = np.concatenate([np.ones(12), np.zeros(88)])
    interval = metrics.tpr_at_fpr(members, np.full(50, 0.5), 0.0)
    assert interval.value == 0.12
    assert interval.low == pytest.approx(stats.beta.ppf(0.025, 12, 89))
    assert interval.high == pytest.approx(stats.beta.ppf(0.975, 13, 88))


@pytest.mark.parametrize("scores", [np.array([1.0]), np.array([0.0, np.nan, 1.0])])
def test_scores_too_few_or_not_finite_are_refused(scores):
    with pytest.raises(ValueError, match="at least 2 of each, all finite"):
        metrics.auc_interval(scores, np.array([0.0, 1.0]))
    with pytest.raises(ValueError, match="at least 2 of each, all finite"):
        metrics.tpr_at_fpr(scores, np.array([0.0, 1.0]), 0.01)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(2)), elements=coordinates))
@settings(max_examples=50, deadline=None)
def test_hypervolume_is_the_area_of_the_union_of_rectangles(points):
    xs, ys = np.unique([0.0, *points[:, 0]]), np.unique([0.0, *points[:, 1]])
    area = sum(
        (xs[i + 1] - xs[i]) * (ys[j + 1] - ys[j])
        for i in range(len(xs) - 1)
        for j in range(len(ys) - 1)
        if np.any((points[:, 0] >= xs[i + 1]) & (points[:, 1] >= ys[j + 1]))
    )
    assert fronts.hypervolume(points, np.zeros(2)) == pytest.approx(area, abs=1e-12)


def test_hypervolume_ignores_points_below_the_reference_and_refuses_nan():
    front = np.array([[0.4, 0.9], [0.1, 0.99], [0.9, 0.2]])
    assert fronts.hypervolume(front, np.array([0.2, 0.5])) == pytest.approx(0.2 * 0.4)
    with pytest.raises(ValueError, match="not finite"):
        fronts.hypervolume(np.array([[np.nan, 0.5]]), np.zeros(2))
