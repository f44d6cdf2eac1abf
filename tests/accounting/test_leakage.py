import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants.analysis.rdp import compute_rdp

from leakbound.accounting import dp, leakage
from leakbound.accounting.gaussian import gaussian_capacity, mutual_information
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import stated_bounds
from leakbound.channels import Moments, signal_to_noise
from leakbound.channels.calibration import noise_scale
from leakbound.registry import SHAPES

SIZES = {"population": 50_000, "batch_size": 64, "steps": 10_000, "uses": 13}
EVENT = PrivacyEvent("channel", "shuffled", **SIZES, shape="natural", capacity=300.0, noise="fresh")
EIGENVALUES = 222.21 * np.arange(1.0, 3073) ** -1.297
RATIOS = EIGENVALUES / noise_scale(EIGENVALUES, 300.0)


def test_joint_leakage_of_the_published_setting_is_a_thousandth_of_the_printed_one():
    found = leakage.composed_leakage([EVENT], RATIOS)
    assert (found.printed, found.linear) == (3.0e6, 3900.0)
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
    found = leakage.composed_leakage([event], ratios)
    assert capacity * (1 - 1e-9) <= found.record <= found.linear * (1 + 1e-12)


def test_frozen_noise_leaks_one_capacity_however_often_it_is_used():
    event = dataclasses.replace(EVENT, noise="frozen", uses=1000)
    found = leakage.composed_leakage([event], RATIOS)
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
    found = leakage.composed_leakage([event], signal_to_noise(channel, spectrum)).record
    assert found == pytest.approx(expected, rel=1e-9)


def test_direction_without_noise_leaks_without_bound():
    event, ratios = dataclasses.replace(EVENT, capacity=math.inf), np.array([math.inf, 1.0, 0.0])
    found = leakage.composed_leakage([event], ratios)
    assert (found.record, found.dataset, found.linear, found.printed) == (math.inf,) * 4
    unused = dataclasses.replace(event, uses=0, steps=0)
    assert leakage.composed_leakage([unused], ratios) == leakage.ChannelLeakage(0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="capacity of inf nats"):
        leakage.composed_leakage([EVENT], ratios)


@pytest.mark.parametrize("mechanism", ["none", "dpsgd", "dppsac", "parameter_noise", "compression", "something else"])
def test_events_of_other_mechanisms_are_refused(mechanism):
    with pytest.raises(ValueError, match=f"mechanism '{mechanism}'"):
        leakage.composed_leakage([dataclasses.replace(EVENT, mechanism=mechanism)], RATIOS)


@pytest.mark.parametrize(
    "changes",
    [{"capacity": None}, {"capacity": math.nan}, {"noise": None}, {"uses": -1}, {"steps": -1}, {"population": -1}],
)
def test_incomplete_events_are_refused(changes):
    with pytest.raises(ValueError, match="the file is incomplete"):
        leakage.composed_leakage([dataclasses.replace(EVENT, **changes)], RATIOS)


def test_ratios_of_a_noisier_event_are_refused():
    with pytest.raises(ValueError, match="belong to another channel"):
        leakage.composed_leakage([dataclasses.replace(EVENT, capacity=200.0)], RATIOS)


# -- several trainings on the same records ---------------------------------------------------------------------------

CHANNEL = PrivacyEvent("channel", "shuffled", 400, 32, 300, 24, shape="natural", capacity=4.0, noise="fresh")
PRIVATE = PrivacyEvent("dpsgd", "poisson", 400, 32, 300, 0, noise_multiplier=2.0, max_grad_norm=1.0)
FORTY = np.geomspace(3.0, 1e-4, 40)
BOTH = dataclasses.replace(
    PRIVATE, mechanism="channel_dpsgd", uses=300, shape="natural", capacity=gaussian_capacity(FORTY, 1.0), noise="fresh"
)
ANY = dataclasses.replace(CHANNEL, capacity=gaussian_capacity(FORTY, 1.0))
COUNTS = st.lists(st.integers(1, 500), min_size=1, max_size=5)


def test_three_replicas_of_dpsgd_have_the_epsilon_of_three_times_the_steps():
    bounds = stated_bounds([PRIVATE] * 3, delta=1e-5, labels=math.log(10))
    assert bounds["replica"]["epsilon"] == pytest.approx(3.56, abs=0.005)
    assert bounds["replicas"]["epsilon"] == pytest.approx(6.49, abs=0.005)
    longer = dp.epsilon(dataclasses.replace(PRIVATE, steps=900), 1e-5)
    assert bounds["replicas"]["epsilon"] == pytest.approx(longer, rel=1e-12)
    assert bounds["labels"] == 0.0


def test_numerical_accountant_composes_replicas_too():
    longer = dp.epsilon(dataclasses.replace(PRIVATE, steps=900), 1e-5, "prv")
    found = dp.composed_epsilon([PRIVATE] * 3, 1e-5, "prv")
    assert found == pytest.approx(longer, rel=1e-2)
    assert found < dp.composed_epsilon([PRIVATE] * 3, 1e-5)


@given(COUNTS)
def test_replicas_tell_what_one_training_with_all_their_uses_tells(counts):
    events = [dataclasses.replace(ANY, uses=count, steps=count) for count in counts]
    whole = dataclasses.replace(ANY, uses=sum(counts), steps=sum(counts))
    together = leakage.composed_leakage(events, FORTY)
    assert together == leakage.composed_leakage([whole], FORTY)
    each = [leakage.composed_leakage([event], FORTY).record for event in events]
    assert max(each) <= together.record <= sum(each) * (1 + 1e-12)


def test_trainings_through_other_channels_are_refused():
    with pytest.raises(ValueError, match="of other channels or records"):
        leakage.composed_leakage([ANY, dataclasses.replace(ANY, population=401)], FORTY)
    with pytest.raises(ValueError, match="there are no events"):
        leakage.composed_leakage([], FORTY)


@given(st.floats(0.3, 20.0), st.floats(0.001, 1.0), st.integers(1, 2000))
def test_nats_of_dp_are_the_limit_of_its_renyi_divergences(multiplier, rate, steps):
    event = dataclasses.replace(
        PRIVATE, population=10**6, batch_size=round(rate * 10**6), steps=steps, noise_multiplier=multiplier
    )
    found = dp.record_information(event)
    low, high = compute_rdp(q=event.sample_rate, noise_multiplier=multiplier, steps=steps, orders=[1.01, 1.02])
    assert found <= low * (1 + 1e-6) + steps * 1e-12
    assert found == pytest.approx(2 * low - high, rel=2e-2, abs=steps * 1e-11)
    assert found <= steps / (2 * multiplier**2) * (1 + 1e-8) + steps * 1e-14


def test_nats_of_dp_without_sampling_are_those_of_its_gaussian():
    event = dataclasses.replace(PRIVATE, batch_size=400, steps=10)
    found = dp.record_information(event)
    assert 10 / (2 * 2.0**2) <= found <= 10 / (2 * 2.0**2) * (1 + 3e-9)  # rounded up
    assert dp.record_information(dataclasses.replace(event, noise_multiplier=0.0)) == math.inf


def test_dp_behind_a_channel_has_the_epsilon_of_dp_and_the_tighter_of_two_bounds_in_nats():
    """Records are expected in 300 * 32 / 400 = 24 of the samples."""
    for multiplier, tighter in ((2.0, "gradients"), (0.05, "images")):
        events = [dataclasses.replace(event, noise_multiplier=multiplier) for event in (BOTH, PRIVATE)]
        pairs = zip(events, (FORTY, None), strict=True)
        found, private = (stated_bounds([event] * 3, ratios, 1e-5, labels=2.0) for event, ratios in pairs)
        for of, count in (("replica", 1), ("replicas", 3)):
            assert found[of]["epsilon"] == private[of]["epsilon"]
            assert found[of]["gradients"] == private[of]["record"]
            assert found[of]["images"] == pytest.approx(0.5 * np.log1p(count * 24 * FORTY).sum())
            least = {"gradients": found[of]["gradients"], "images": found[of]["images"] + 2.0}
            assert found[of]["record"] == min(least.values()) == least[tighter]


def test_frozen_copies_of_secret_samples_are_one_at_most_and_an_open_axis_leaves_the_bound_of_dp():
    frozen = dataclasses.replace(BOTH, noise="frozen")
    uses = [leakage.composed_leakage([dataclasses.replace(frozen, steps=n)] * 2, FORTY).uses for n in (5, 300)]
    assert uses == [0.8, 2]
    silent = dataclasses.replace(BOTH, capacity=math.inf)  # lets an axis through
    assert stated_bounds([silent], np.array([np.inf]), 1e-5, labels=1.0) == stated_bounds(
        [PRIVATE], delta=1e-5, labels=1.0
    )


def test_records_have_the_nats_of_their_uses_and_of_what_is_worth_uses_of_the_same_mechanism():
    mechanism = leakage.Mechanism("natural", RATIOS)
    unused = leakage.Exposure.nothing(3)
    assert unused.nats(mechanism).tolist() == [0.0] * 3
    used = unused.after(np.array([0, 1, 13]))
    assert used.nats(mechanism) == pytest.approx([0.0, *(gaussian_capacity(RATIOS, 1.0, uses) for uses in (1.0, 13.0))])
    worth = dataclasses.replace(used, parallel=np.array([13.0, 12.0, 0.0]), others=np.array([0.0, 1.0, 2.0]))
    assert worth.nats(mechanism) - used.nats(mechanism)[2] == pytest.approx([0.0, 1.0, 2.0])
