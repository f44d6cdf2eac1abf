"""Randomized response: its capacity is that of any input distribution, its ε and flips are those it states."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound import RandomizedResponse
from leakbound.randomness.sources import SecureDraws

CLASSES = st.integers(2, 30)


@st.composite
def responses(draw):
    classes = draw(CLASSES)
    return RandomizedResponse(classes, draw(st.floats(1 / classes, 1)))


def transitions(response: RandomizedResponse) -> np.ndarray:
    """Probability of each response (column) to each label (row)."""
    others = np.full((response.classes, response.classes), response.flip)
    np.fill_diagonal(others, response.keep)
    return others


def mutual_information(labels: np.ndarray, channel: np.ndarray) -> float:
    """Nats, from the joint distribution."""
    joint, responded = labels[:, None] * channel, labels @ channel
    ratio = np.divide(channel, responded, out=np.ones_like(channel), where=joint > 0)
    return float(np.sum(joint * np.log(ratio, out=np.zeros_like(ratio), where=joint > 0)))


@given(responses(), st.integers(0, 2**32 - 1))
def test_no_distribution_of_labels_reveals_more(response, seed):
    labels = np.random.default_rng(seed).dirichlet(np.full(response.classes, 0.5))
    channel = transitions(response)
    assert mutual_information(labels, channel) <= response.capacity + 1e-12
    uniform = np.full(response.classes, 1 / response.classes)
    assert mutual_information(uniform, channel) == pytest.approx(response.capacity, rel=1e-9, abs=1e-12)


@given(responses())
def test_epsilon_is_the_largest_log_ratio_and_bounds_the_capacity(response):
    channel = transitions(response)
    if response.keep < 1:
        ratios = np.log(channel[:, None] / channel[None])
        assert response.epsilon == pytest.approx(max(float(ratios.max()), 0.0), abs=1e-12)
    assert response.capacity <= min(response.epsilon, math.log(response.classes)) + 1e-12


@given(CLASSES, st.floats(1e-6, 0.999))
def test_a_calibration_meets_its_nats_from_below(classes, share):
    nats = share * math.log(classes)
    response = RandomizedResponse.calibrate(classes, nats)
    assert response.capacity <= nats
    assert response.capacity == pytest.approx(nats, rel=1e-6)


@given(CLASSES, st.floats(1e-3, 12.0))
def test_a_calibration_meets_its_epsilon_from_below(classes, epsilon):
    response = RandomizedResponse.from_epsilon(classes, epsilon)
    assert response.epsilon <= epsilon
    assert response.epsilon == pytest.approx(epsilon, rel=1e-5)
    assert response.keep == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + classes - 1), rel=1e-9)


def test_ends_and_published_values():
    assert RandomizedResponse(10, 1.0).capacity == pytest.approx(math.log(10), rel=1e-15)
    assert RandomizedResponse(10, 1.0).epsilon == math.inf
    assert RandomizedResponse(10, 0.1).capacity == RandomizedResponse(2, 0.5).epsilon == 0
    assert RandomizedResponse.from_epsilon(2, 1.0).capacity == pytest.approx(0.1109, abs=5e-5)  # theory, ε = 1
    assert RandomizedResponse.from_epsilon(10, 900.0).keep < 1


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_several_draws_reveal_at_most_what_is_added_up(draws):
    """Responses to one label together are one channel, of all tuples of responses."""
    response = RandomizedResponse(3, 0.6)
    channel = single = transitions(response)
    for _ in range(draws - 1):
        channel = np.einsum("ij,ik->ijk", channel, single).reshape(3, -1)
    together = mutual_information(np.full(3, 1 / 3), channel)
    assert together <= response.information(draws) + 1e-12
    assert response.information(draws) <= math.log(3)
    assert response.information(0) == 0


@pytest.mark.parametrize("draws", [np.random.default_rng(3), SecureDraws()])
def test_flips_are_as_frequent_as_stated(draws):
    """A false alarm in about one of a million runs: five standard deviations, of 20 frequencies."""
    response = RandomizedResponse(4, 0.55)
    count = 20_000
    for label in range(4):
        drawn = response.randomize(np.full(count, label), draws.random((2, count)))
        shares = np.bincount(drawn, minlength=4) / count
        for other, share in enumerate(shares):
            probability = response.keep if other == label else response.flip
            assert abs(share - probability) < 5.5 * math.sqrt(probability * (1 - probability) / count)


@given(responses(), st.integers(0, 2**32 - 1))
def test_responses_are_labels(response, seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, response.classes, 50)
    extreme = np.array([0.0, 1 - 2.0**-53])
    for uniform in (generator.random((2, 50)), np.tile(extreme[:, None], 50), np.tile(extreme[::-1, None], 50)):
        drawn = response.randomize(labels, uniform)
        assert drawn.min() >= 0
        assert drawn.max() < response.classes
        assert np.array_equal(drawn == labels, uniform[0] < response.keep)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: RandomizedResponse(1, 1.0), "classes = 1: give at least 2"),
        (lambda: RandomizedResponse(10, 0.05), "keep = 0.05: with 10 classes a label is kept with a prob.* from 1/10"),
        (lambda: RandomizedResponse(10, math.nan), "keep = nan"),
        (lambda: RandomizedResponse.calibrate(10, 2.4), "a label of 10 classes holds at most ln 10 = 2.303"),
        (lambda: RandomizedResponse.calibrate(10, 0), "nats = 0"),
        (lambda: RandomizedResponse.from_epsilon(10, math.inf), "epsilon = inf: give a positive and finite number"),
        (lambda: RandomizedResponse(3, 0.5).randomize(np.array([0, 3]), np.zeros((2, 2))), "labels from 0 to 3"),
    ],
)
def test_wrong_arguments_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        wrong()
