import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf_shrinkage

from asking import attack_of, calibrated
from leakbound.accounting.risk import demonstrated_information, gained_information
from leakbound_lab.attacks.lower_bounds.identification import _Outcome, gaussian_scores, identify_records
from leakbound_lab.config.attacks import NamingConfig
from leakbound_lab.config.defenses import DPSGD, ChannelDefense, Defense, GradientCompression, LargeBatch, Undefended

CONFIG = NamingConfig(candidates=(2, 50), uses=(1, 4), trials=60, gradients=60)


def named(
    dataset, moments, *, channel=None, defense=None, level=None, config=CONFIG, model=None, replicas=1, **options
):
    """Values and arrays of the attack; behind a channel on a network whose gradients are solved at once."""
    if defense is None:
        defense = Undefended() if channel is None else ChannelDefense(shape=channel.shape)
    if channel is not None:
        level = channel.capacity
    model = model or ("lenet_sigmoid" if channel is None else "mlp")
    known = {"channel": channel, "moments": moments, "defense": defense, "level": level}
    rows, arrays = identify_records(attack_of(dataset, config, model, **known, replicas=range(replicas), **options))
    values = {(row.variant, row.metric, row.unit): row.value for row in rows.itertuples() if row.replica == 0}
    return values, arrays


@pytest.mark.parametrize("defense", [Undefended(), GradientCompression()])
def test_clean_gradients_name_their_record_always(digits, moments, defense: Defense):
    level = 0.1 if defense.has_level else None
    values, arrays = named(digits, moments, defense=defense, level=level, replicas=2)
    assert (arrays["gradients"] == 60).all()
    assert arrays["gradients"].shape == (2, 2, 2)
    confident = 0.025 ** (1 / 60)  # Clopper-Pearson limit of 60 hits of 60, for two numbers of candidates
    expected = confident * math.log(50 * confident) + (1 - confident) * math.log((1 - confident) / (1 - 1 / 50))
    assert values["gradients", "nats_1", -1] == pytest.approx(expected)
    assert not any(variant == "bound" for variant, _, _ in values)


@pytest.mark.parametrize("shape", ["natural", "white", "rate_distortion"])
def test_a_channel_lets_name_as_often_as_its_law_says_and_no_more_than_allowed(digits, moments, shape):
    """The exact rate is a mean over the same trials: the hits differ from it by four standard errors at most."""
    values, _ = named(digits, moments, channel=calibrated(moments, 2.0, shape))
    for uses in (1, 4):
        assert 0 < values["images", f"nats_{uses}", -1] < values["bound", f"nats_{uses}", -1]
        for count in (2, 50):
            exact = values["exact_images", f"rate_{uses}", count]
            assert values["images", f"rate_{uses}", count] == pytest.approx(exact, abs=4 * 0.5 / math.sqrt(60))
            assert values["gradients", f"rate_{uses}", count] <= values["bound", f"rate_{uses}", count] + 0.25
    assert values["bound", "nats_1", -1] == pytest.approx(2.0, rel=1e-3)
    assert values["exact_images", "rate_4", 50] > values["exact_images", "rate_1", 50] + 0.1


def test_replicas_of_classes_of_unequal_size_identify_among_equally_many(digits, moments):
    rare = np.flatnonzero(digits.pool.labels % 2)[40:]  # 40 records of odd digits are left, fewer than 50 of any
    pool = digits.pool.take(np.setdiff1d(np.arange(len(digits.pool)), rare))
    assert np.bincount(pool.labels)[[1, 3, 5, 7, 9]].max() < 50 < np.bincount(pool.labels)[[0, 2, 4, 6, 8]].min()
    channel = calibrated(moments, 2.0)
    _, arrays = named(dataclasses.replace(digits, pool=pool), moments, channel=channel, replicas=8)
    assert arrays["gradients"].shape == (8, 2, 2)


def test_frozen_noise_tells_no_more_with_every_use(digits, moments):
    values, arrays = named(digits, moments, channel=calibrated(moments, 2.0), defense=ChannelDefense(noise="frozen"))
    for hits in arrays.values():
        assert (hits[..., 0] == hits[..., 1]).all()
    assert values["bound", "nats_4", -1] == values["bound", "nats_1", -1]


def test_a_channel_that_passes_next_to_nothing_leaves_naming_to_chance(digits, moments):
    """Binomial(60, 1/2) is above 43 with a probability of 2e-4."""
    values, arrays = named(digits, moments, channel=calibrated(moments, 1e-4, "white"))
    assert arrays["images"][0, 0, 0] <= 43
    assert arrays["gradients"][0, 0, 0] <= 43
    assert values["images", "nats_1", -1] < 0.05


def test_noisy_gradients_name_below_the_bound_of_dp_and_their_stated_probabilities_are_calibrated(digits, moments):
    """The mean gain is the exact information but for the hedge, within four standard errors."""
    values, _ = named(digits, moments, defense=DPSGD(), level=0.5)
    for uses in (1, 4):
        assert values["bound", f"nats_{uses}", -1] == pytest.approx(uses / (2 * 0.5**2), rel=1e-6)
        assert values["gradients", f"nats_{uses}", -1] < values["bound", f"nats_{uses}", -1]
        assert values["gradients", f"rate_{uses}", 50] <= values["bound", f"rate_{uses}", 50] + 2 * 0.5 / math.sqrt(60)
        error = math.sqrt(values["gradients", f"gain_variance_{uses}", 50] / 60)
        exact = values["exact_gradients", f"nats_{uses}", -1]
        assert values["gradients", f"gain_{uses}", 50] == pytest.approx(exact, abs=4 * error + 0.02)
    assert values["gradients", "rate_4", 50] > values["gradients", "rate_1", 50] > 2 / 50


@pytest.mark.slow
def test_gradients_of_a_deep_network_name_through_a_mild_channel(digits, moments):
    config = NamingConfig(candidates=(2, 10), uses=(1,), trials=20, gradients=20)
    channel = calibrated(moments, 30.0, "white")
    values, _ = named(digits, moments, channel=channel, config=config, model="lenet_sigmoid")
    assert values["gradients", "rate_1", 10] > 0.5


def test_other_levels_are_compared_on_the_same_trials(digits, moments):
    low, high = (calibrated(moments, capacity) for capacity in (2.0, 2.0 + 1e-9))
    first, second = (named(digits, moments, channel=one)[1]["images"] for one in (low, high))
    assert np.abs(first - second).max() <= 1


def test_what_cannot_be_named_is_refused(digits, moments):
    with pytest.raises(ValueError, match="batch_size = 8: identification takes uploads of single records"):
        named(digits, moments, defense=LargeBatch(), level=2.0, batch_size=4)
    with pytest.raises(ValueError, match=r"candidates = 5000: the pool of digits has only \d+ records"):
        named(digits, moments, config=NamingConfig(candidates=(2, 5000)))
    with pytest.raises(ValueError, match=r"candidates = 300: gradients of candidates of one class"):
        named(digits, moments, config=NamingConfig(candidates=(300,)))


@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize("draws", [2, 7])
def test_learned_scores_are_densities_of_the_covariance_within_candidates(draws, dimension):
    """One value has no shrinkage, so its variance is the sum of squares over n (draws - 1). Means lie far apart."""
    generator = np.random.default_rng(0)
    centers = generator.normal(scale=20.0, size=(5, dimension))
    drawn = centers + generator.normal(size=(draws, 5, dimension))
    within = sum(np.outer(row, row) for row in (drawn - drawn.mean(axis=0)).reshape(-1, dimension)) / (5 * (draws - 1))
    weight = ledoit_wolf_shrinkage((drawn - drawn.mean(axis=0)).reshape(-1, dimension), assume_centered=True)
    covariance = (1 - weight) * within + weight * np.trace(within) / dimension * np.eye(dimension)
    assert (weight == 0) == (dimension == 1)
    seen = generator.normal(scale=20.0, size=(4, dimension))
    found = gaussian_scores(drawn)(seen)
    expected = np.stack([multivariate_normal(mean, covariance).logpdf(seen) for mean in drawn.mean(axis=0)], axis=1)
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], rtol=1e-9)


def test_who_knows_nothing_of_equal_records_names_nobody(digits, moments):
    """All scores are equal, and ties are no hits: with them everybody would be named."""
    pool = digits.pool
    blank = dataclasses.replace(digits, pool=dataclasses.replace(pool, images=np.zeros_like(pool.images)))
    values, arrays = named(blank, moments, channel=calibrated(moments, 2.0))
    assert not arrays["images"].any()
    assert values["exact_images", "rate_1", 50] == pytest.approx(1 / 50, rel=1e-9)
    assert values["exact_images", "nats_1", -1] == pytest.approx(0.0, abs=1e-9)


def test_limits_in_nats_share_the_doubt_between_numbers_of_candidates_and_ways_to_answer():
    gains = np.array([[[0.5], [3.5]], [[0.01], [0.01]]])
    found = _Outcome((2, 50), np.array([[390], [390]]), gains=gains).limits(400, 0.9)
    each = [demonstrated_information(390, 400, candidates, 1 - 0.1 / 4) for candidates in (2, 50)]
    each += [gained_information(mean, 0.01, 400, candidates, 1 - 0.1 / 4) for mean, candidates in ((0.5, 2), (3.5, 50))]
    assert found == pytest.approx([max(each)], rel=1e-12)
    alone = _Outcome((2, 50), np.array([[390], [390]])).limits(400, 0.9)
    assert alone == pytest.approx([demonstrated_information(390, 400, 50, 1 - 0.1 / 2)], rel=1e-12)
