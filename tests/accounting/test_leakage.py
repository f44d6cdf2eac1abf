import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound import accounting
from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.gaussian import gaussian_capacity, mutual_information
from leakbound.channels import Moments, signal_to_noise
from leakbound.channels.calibration import noise_scale
from leakbound.registry import SHAPES

EVENT = PrivacyEvent(
    mechanism="channel",
    sampling="shuffled",
    population=50_000,
    batch_size=64,
    steps=10_000,
    uses=13,
    shape="natural",
    capacity=300.0,
    noise="fresh",
)
EIGENVALUES = 222.21 * np.arange(1.0, 3073) ** -1.297
RATIOS = EIGENVALUES / noise_scale(EIGENVALUES, 300.0)


def test_printed_total_adds_one_capacity_per_step():
    assert accounting.leakage(EVENT, RATIOS).printed == 3.0e6


def test_joint_leakage_of_the_published_setting_is_a_thousandth_of_the_printed_one():
    found = accounting.leakage(EVENT, RATIOS)
    assert found.linear == 3900.0
    # 1448.65 nats at the mean number of 12.8 uses; 13 is the most that one record has.
    assert gaussian_capacity(RATIOS, 1.0, 12.8) == pytest.approx(1448.65, abs=0.01)
    assert 1448.65 < found.record < 1470
    assert found.dataset == 50_000 * found.record
    assert found.uses == 13


@given(st.floats(0.1, 1e3), st.integers(1, 10**6))
def test_fresh_leakage_lies_between_one_use_and_the_sum_of_all(capacity, uses):
    eigenvalues = np.geomspace(10, 0.01, 20)
    ratios = eigenvalues / noise_scale(eigenvalues, capacity)
    event = dataclasses.replace(EVENT, capacity=capacity, uses=uses)
    found = accounting.leakage(event, ratios)
    assert capacity * (1 - 1e-9) <= found.record <= found.linear * (1 + 1e-12)


def test_frozen_noise_leaks_one_capacity_however_often_it_is_used():
    event = dataclasses.replace(EVENT, noise="frozen", uses=1000)
    found = accounting.leakage(event, RATIOS)
    assert found.uses == 1
    assert found.linear == 300.0
    assert found.record == pytest.approx(300.0, rel=1e-9)
    assert found.record <= 300.0


def test_joint_leakage_is_the_information_in_all_noisy_copies():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(3, 5))
    covariance, uses = factor @ factor.T, 4
    moments = Moments(np.zeros(3), covariance, 9)
    shape = SHAPES.get("personalized")
    spectrum = shape.decompose(moments, weights=np.array([1.0, 5.0, 2.0]))
    channel = shape.calibrate(spectrum, 1.3)
    # Joint covariance of (D, D + ξ_1, ..., D + ξ_k), written out.
    joint = np.tile(covariance, (uses + 1, uses + 1))
    joint[3:, 3:] += np.kron(np.eye(uses), np.diag(channel.variances))
    expected = mutual_information(joint, range(3))
    event = dataclasses.replace(EVENT, shape="personalized", capacity=1.3, uses=uses)
    found = accounting.leakage(event, signal_to_noise(channel, spectrum)).record
    assert found == pytest.approx(expected, rel=1e-9)


def test_record_that_was_never_used_leaks_nothing():
    for noise in ("fresh", "frozen"):
        event = dataclasses.replace(EVENT, uses=0, steps=0, noise=noise)
        assert accounting.leakage(event, RATIOS) == accounting.ChannelLeakage(0, 0.0, 0.0, 0.0, 0.0)


def test_direction_without_noise_leaks_without_bound():
    event, ratios = dataclasses.replace(EVENT, capacity=math.inf), np.array([math.inf, 1.0, 0.0])
    found = accounting.leakage(event, ratios)
    assert (found.record, found.dataset, found.linear, found.printed) == (math.inf,) * 4
    unused = dataclasses.replace(event, uses=0, steps=0)
    assert accounting.leakage(unused, ratios) == accounting.ChannelLeakage(0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="capacity of inf nats"):
        accounting.leakage(EVENT, ratios)


@pytest.mark.parametrize("mechanism", ["none", "dpsgd", "dppsac", "parameter_noise", "compression", "something else"])
def test_events_of_other_mechanisms_are_refused(mechanism):
    with pytest.raises(ValueError, match=f"mechanism '{mechanism}'"):
        accounting.leakage(dataclasses.replace(EVENT, mechanism=mechanism), RATIOS)


@pytest.mark.parametrize("changes", [{"capacity": None}, {"noise": None}, {"uses": -1}, {"capacity": math.nan}])
def test_incomplete_events_are_refused(changes):
    with pytest.raises(ValueError, match="the file is incomplete"):
        accounting.leakage(dataclasses.replace(EVENT, **changes), RATIOS)


def test_ratios_of_a_noisier_event_are_refused():
    with pytest.raises(ValueError, match="belong to another channel"):
        accounting.leakage(dataclasses.replace(EVENT, capacity=200.0), RATIOS)
