import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulas import printed_capacity, white_scale
from leakbound.accounting.gaussian import gaussian_capacity, log_determinant
from leakbound.channels import (
    GaussianChannel,
    Moments,
    Natural,
    Personalized,
    PersonalizedPrinted,
    Spectrum,
    White,
    box_weights,
    channel_capacity,
    estimate_moments,
    signal_to_noise,
)
from leakbound.channels.shapes import innovations
from leakbound.registry import SHAPES
from leakbound_lab.config.data import BoxWeights

NAMES = SHAPES.names()
EXACT = [name for name in NAMES if name != "personalized_printed"]
capacities = st.floats(math.log(1e-8), math.log(1e3)).map(math.exp)
seeds = st.integers(0, 2**32 - 1)


def moments_of(seed: int, dimension: int = 12, records: int = 60) -> Moments:
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0] * np.arange(1.0, dimension + 1) ** -1.0
    return estimate_moments([rng.normal(size=(records, dimension)) @ mixing.T + rng.normal(size=dimension)])


def weights_of(seed: int, dimension: int = 12) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(size=dimension))


def decompose(name: str, moments: Moments, seed: int = 0) -> Spectrum:
    weights = weights_of(seed, moments.dimension) if name.startswith("personalized") else None
    return SHAPES.get(name).decompose(moments, weights=weights)


@pytest.mark.parametrize("name", EXACT)
@given(seeds, capacities, st.booleans())
@settings(max_examples=60)
def test_capacity_recomputed_from_the_channel_is_met_from_below(name, seed, capacity, deficient):
    """Also of records of rank 6, for which the spectrum alone says where nothing varies."""
    moments = moments_of(seed, dimension=15, records=7) if deficient else moments_of(seed)
    spectrum = decompose(name, moments, seed)
    channel = SHAPES.get(name).calibrate(spectrum, min(capacity, 100.0) if deficient else capacity)
    capacity = channel.capacity
    for source in (spectrum,) if deficient else (spectrum, moments):
        reached = channel_capacity(channel, source)
        assert reached <= capacity
        assert reached == pytest.approx(capacity, rel=1e-9, abs=0)


@pytest.mark.parametrize("name", EXACT)
@given(seeds, st.floats(0.1, 100.0))
@settings(max_examples=10)
def test_capacity_is_the_log_determinant_of_signal_and_noise(name, seed, capacity):
    moments = moments_of(seed)
    channel = SHAPES.get(name).calibrate(decompose(name, moments, seed), capacity)
    basis = np.eye(12) if channel.basis is None else channel.basis
    gain = np.ones(12) if channel.gain is None else channel.gain
    passing = gain > 0
    mixing = (gain * basis).T[passing]
    noise = np.diag(channel.variances[passing])
    signal = mixing @ moments.covariance @ mixing.T
    expected = 0.5 * (np.linalg.slogdet(signal + noise)[1] - np.linalg.slogdet(noise)[1])
    assert channel_capacity(channel, moments) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("name", ["white", "least_power"])
@pytest.mark.parametrize("capacity", [0.1, 5.0, 20.0])
def test_no_direction_is_left_without_noise_at_deficient_rank(name, capacity):
    moments = moments_of(5, dimension=15, records=7)
    channel = SHAPES.get(name).calibrate(decompose(name, moments), capacity)
    assert channel.variances.min() > 0
    # A variance lost in rounding, 1e-17 of the largest, still passes next to nothing.
    lost = 1e-17 * np.linalg.eigvalsh(moments.covariance)[-1]
    assert gaussian_capacity(np.full(9, lost), channel.variances[6:]) < 0.01 * capacity


def test_rate_distortion_passes_nothing_where_the_data_has_no_variance():
    moments = moments_of(5, dimension=15, records=7)
    channel = SHAPES.get("rate_distortion").calibrate(decompose("rate_distortion", moments), 5.0)
    assert channel.gain is not None
    assert not channel.gain[6:].any()
    assert not channel.variances[6:].any()


def test_white_at_full_rank_is_the_published_closed_form():
    moments = moments_of(1)
    channel = White.calibrate(White.decompose(moments), 7.0)
    expected = moments.covariance * white_scale(12, 7.0)
    np.testing.assert_allclose(channel.noise_covariance(), expected, rtol=1e-8, atol=1e-12)


def test_white_at_rank_r_leaks_what_the_dimension_in_the_exponent_would_hide():
    moments = moments_of(1, dimension=64, records=7)
    spectrum = White.decompose(moments)
    channel = White.calibrate(spectrum, 6.0)
    assert channel.variances[0] / spectrum.data_eigenvalues[0] == pytest.approx(white_scale(6, 6.0), rel=1e-2)
    with_dimension = gaussian_capacity(np.ones(6), white_scale(64, 6.0))
    assert with_dimension == pytest.approx(6.0 * 6 / 64, rel=1e-6)


@given(seeds, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
@settings(max_examples=40)
def test_printed_bound_is_never_below_the_capacity(seed, scale, ratio):
    moments, weights = moments_of(seed), weights_of(seed) ** ratio**0.1
    exact = gaussian_capacity(Personalized.decompose(moments, weights=weights).eigenvalues, scale)
    bound = innovations(moments.covariance, weights)
    sharper = printed_capacity(bound, scale, per_index=True)
    assert exact <= sharper * (1 + 1e-10)
    assert sharper <= printed_capacity(bound, scale) * (1 + 1e-12)


def test_order_of_the_pixels_changes_the_printed_bound_and_not_the_capacity():
    moments, weights = moments_of(3), np.repeat([1.0, 50.0], 6)
    order = np.arange(12)[::-1]
    turned = Moments(moments.mean[order], moments.covariance[np.ix_(order, order)], moments.count)
    exact = [Personalized.decompose(m, weights=w) for m, w in ((moments, weights), (turned, weights[order]))]
    np.testing.assert_allclose(exact[0].eigenvalues, exact[1].eigenvalues, rtol=1e-9)
    bounds = [
        printed_capacity(innovations(m.covariance, w), 0.01) for m, w in ((moments, weights), (turned, weights[order]))
    ]
    assert abs(bounds[0] - bounds[1]) > 0.01 * bounds[0]


def test_printed_shape_refuses_a_singular_covariance_and_names_the_exact_one():
    with pytest.raises(ValueError, match="use shape 'personalized'"):
        PersonalizedPrinted.decompose(moments_of(1, records=5), weights=np.ones(12))


@pytest.mark.parametrize("name", NAMES)
def test_spectrum_and_channel_survive_storage(name):
    spectrum = decompose(name, moments_of(2))
    channel = SHAPES.get(name).calibrate(spectrum, 3.7)
    stored = Spectrum.from_arrays(spectrum.arrays(), spectrum.metadata())
    again = GaussianChannel.from_arrays(channel.arrays(), channel.metadata(), stored.basis)
    assert channel_capacity(again, stored) == channel_capacity(channel, spectrum)
    assert again.capacity == 3.7
    np.testing.assert_array_equal(SHAPES.get(name).calibrate(stored, 3.7).variances, channel.variances)


@pytest.mark.parametrize("name", EXACT)
def test_constant_images_need_no_noise(name):
    moments = Moments(np.ones(4), np.zeros((4, 4)), 3)
    weights = np.ones(4) if name == "personalized" else None
    spectrum = SHAPES.get(name).decompose(moments, weights=weights)
    channel = SHAPES.get(name).calibrate(spectrum, 2.0)
    assert channel.noise_power == 0
    assert channel_capacity(channel, spectrum) == 0


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("personalized")])
def test_weights_are_refused_where_they_would_have_no_effect(name):
    with pytest.raises(ValueError, match="takes no weights"):
        SHAPES.get(name).decompose(moments_of(1), weights=np.ones(12))


@pytest.mark.parametrize(
    ("weights", "message"),
    [(None, "needs weights"), (np.ones(5), "5 given"), (np.zeros(12), "positive"), (np.full(12, np.inf), "finite")],
)
def test_personalized_refuses_weights_that_hide_nothing(weights, message):
    with pytest.raises(ValueError, match=message):
        Personalized.decompose(moments_of(1), weights=weights)


def test_ratios_refuse_another_shape_or_size():
    moments = moments_of(1)
    natural = Natural.calibrate(Natural.decompose(moments), 1.0)
    with pytest.raises(ValueError, match="the channel of shape"):
        signal_to_noise(natural, White.decompose(moments))
    with pytest.raises(ValueError, match="12 axes, the data 5"):
        signal_to_noise(natural, moments_of(1, dimension=5))


def test_stored_channel_refuses_to_forget_its_axes():
    channel = White.calibrate(White.decompose(moments_of(1)), 1.0)
    with pytest.raises(ValueError, match="pass the basis"):
        GaussianChannel.from_arrays(channel.arrays(), channel.metadata())


def test_default_box_is_the_published_one_in_every_color():
    box = BoxWeights()
    mask = box_weights(3, 32, 32, box.weight, box.rows, box.columns).reshape(3, 32, 32)
    assert (mask[:, 12:20, 8:24] == 50).all()
    assert mask.sum() == 3 * (50 * 8 * 16 + (1024 - 8 * 16))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"rows": (2, 2)}, "rows"), ({"weight": 0.0}, "weight = 0"), ({"weight": float("inf")}, "finite")],
)
def test_box_weights_refuse_a_box_outside_the_image(changes, message):
    setting = {"colors": 1, "height": 4, "width": 6, "weight": 2.0, "rows": (0, 4), "columns": (1, 3)}
    with pytest.raises(ValueError, match=message):
        box_weights(**(setting | changes))


def small_case() -> tuple[np.ndarray, np.ndarray]:
    factor = np.random.default_rng(0).normal(size=(6, 9))
    return factor @ factor.T, np.array([1.0, 1.0, 5.0, 5.0, 2.0, 0.5])


def test_difference_of_log_determinants_is_the_capacity_that_equation_20_means():
    covariance, weights = small_case()
    eigenvalues = Personalized.decompose(Moments(np.zeros(6), covariance, 9), weights=weights).eigenvalues
    for scale in np.geomspace(1e-3, 1e3, 13):
        difference = log_determinant(covariance + scale * np.diag(weights)) - np.log(scale * weights).sum()
        assert 0.5 * difference == pytest.approx(gaussian_capacity(eigenvalues, scale), rel=1e-9)


@pytest.mark.parametrize("share", [1.0, 1e-4], ids=["large", "small"])
def test_quotient_that_equation_20_prints_has_a_pole_is_not_monotone_and_tends_to_one_half(share):
    """With ln det Σ_D above and, as for pictures, below 0."""
    covariance, weights = small_case()

    def quotient(scale: float) -> float:
        return log_determinant(share * covariance + scale * np.diag(weights)) / (2 * np.log(scale * weights).sum())

    pole = np.exp(-np.log(weights).mean())
    around = [quotient(pole * (1 + side * 1e-6)) for side in (-1, 1)]
    assert around[0] < -100
    assert around[1] > 100
    tail = [quotient(pole * factor) for factor in (1e1, 1e2, 1e12)]
    assert tail[0] > tail[1] > 0.5
    assert tail[2] == pytest.approx(0.5, abs=1e-9)
    smallest = quotient(pole * 1e-12)
    assert np.sign(smallest) == -np.sign(log_determinant(share * covariance))  # the capacity is far above 0 there


def test_second_part_of_the_published_bound_has_a_floor_that_no_noise_lowers():
    covariance, weights = small_case()
    bound = innovations(covariance, weights)
    floor = 0.5 * np.log(bound["predictors"] / bound["weights"]).sum()
    second = [
        0.5 * np.log((bound["innovations"] / scale + bound["predictors"]) / weights).sum() for scale in (1e6, 1e9)
    ]
    assert floor > 0
    assert second == pytest.approx([floor, floor], rel=1e-4)
    assert printed_capacity(bound, 1e9) < floor  # Hadamard's part has none
