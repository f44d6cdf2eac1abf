"""Provenances are replayed from their events, and refused where their numbers do not add up."""

import math

import numpy as np
import pytest

from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import replay, stated_bounds

RATIOS = np.array([5.0, 1.0, 0.2])
CAPACITY = 0.5 * float(np.log1p(RATIOS).sum())
FACTS = {"sampling": "shuffled", "population": 40, "batch_size": 8, "steps": 15}
DRAWN = {**FACTS, "sampling": "poisson", "uses": 15, "max_grad_norm": 1.0}
PRIVATE = PrivacyEvent("dpsgd", **DRAWN, noise_multiplier=1.0)
BOUNDS = stated_bounds([PRIVATE], None, 1e-5, "rdp", labels=math.log(10))


def channel_record(noise: str = "fresh") -> dict:
    events = [
        PrivacyEvent("channel", **FACTS, uses=uses, shape="natural", capacity=CAPACITY, noise=noise) for uses in (2, 3)
    ]
    stated = stated_bounds(events, RATIOS, labels=math.log(10))
    return {"events": [event.to_dict() for event in events], "leakage": stated}


@pytest.mark.parametrize("ratios", [None, RATIOS], ids=["stated", "computed"])
def test_a_channel_is_replayed(ratios):
    one, both = replay(channel_record(), ratios)
    assert (one["uses"], one["fresh_uses"], both["fresh_uses"], both["networks"]) == (3, 3, 5, 2)
    assert one["printed"] == pytest.approx(15 * CAPACITY)
    assert both["linear"] == pytest.approx(5 * CAPACITY)
    assert both["joint"] == pytest.approx(0.5 * np.log1p(5 * RATIOS).sum())
    assert one["record"] == pytest.approx(0.5 * np.log1p(3 * RATIOS).sum() + math.log(10))
    assert one["verified"] == both["verified"] == (ratios is not None)


def test_frozen_noise_is_one_look_for_each_network():
    one, both = replay(channel_record("frozen"), RATIOS)
    assert (one["uses"], one["fresh_uses"], both["fresh_uses"]) == (3, 1, 2)
    assert one["joint"] == pytest.approx(CAPACITY)


def test_differential_privacy_is_computed_anew():
    record, replica = {"events": [PRIVATE.to_dict()], "leakage": BOUNDS}, BOUNDS["replica"]
    one, _ = replay(record)
    assert (one["epsilon"], one["record"]) == (replica["epsilon"], replica["record"])
    assert (one["labels"], one["verified"]) == (0.0, True)
    for name in ("record", "epsilon"):
        wrong = {**BOUNDS, "replica": {**replica, name: 0.1}}
        with pytest.raises(ValueError, match="other bounds than its events and its epsilon gives"):
            replay({**record, "leakage": wrong})


def test_differential_privacy_behind_a_channel_is_computed_anew_from_both():
    behind = {"shape": "natural", "capacity": CAPACITY, "noise": "fresh"}
    event = PrivacyEvent("channel_dpsgd", **DRAWN, noise_multiplier=0.1, **behind)
    stated = stated_bounds([event], RATIOS, 1e-5, "rdp", labels=math.log(10))
    record = {"events": [event.to_dict()], "leakage": stated}
    one, _ = replay(record, RATIOS)
    assert one["images"] == pytest.approx(0.5 * np.log1p(3 * RATIOS).sum())  # 15 samples of 8 from 40 records
    assert (one["record"], one["labels"]) == (one["images"] + math.log(10), 0.0)
    assert [replay(record, ratios)[0]["verified"] for ratios in (RATIOS, None)] == [True, False]
    with pytest.raises(ValueError, match="other bounds than its events and its channel give"):
        replay(record, 0.9 * RATIOS)


@pytest.mark.parametrize(
    ("changed", "ratios", "told"),
    [
        ({"events": []}, None, "it is of no training"),
        ({"events": [{"steps": 1}]}, None, "events or bounds of another form"),
        ({"leakage": {"replica": {}, "replicas": {}, "labels": "ten"}}, RATIOS, "events or bounds of another form"),
        ({"leakage": None}, None, "no bound was derived for 'channel'"),
        ({"leakage": {"replica": {}}}, None, "bounds of another form"),
        ({}, 0.9 * RATIOS, "other bounds than its events and its channel give"),
        ({}, 2.0 * RATIOS, "they belong to another channel"),
        ({"leakage": {**channel_record()["leakage"], "replica": {"record": 99.0}}}, None, "states 99 nats for 3 uses"),
    ],
)
def test_provenances_that_do_not_add_up_are_refused(changed, ratios, told):
    with pytest.raises(ValueError, match=told):
        replay({**channel_record(), **changed}, ratios)


@pytest.mark.parametrize("labels", [0.0, -1.0, 0.5, math.log(10) + 1e-3])
def test_labels_that_no_number_of_classes_gives_are_refused(labels):
    """A channel leaves labels clean, so they tell something whatever the file says."""
    record = channel_record()
    record["leakage"]["labels"] = labels
    with pytest.raises(ValueError, match="nats for labels; they are ln of the number of classes, of 2 or more"):
        replay(record, RATIOS)


def test_next_to_no_noise_is_refused_in_words():
    forged = {**PRIVATE.to_dict(), "noise_multiplier": 1e-300}
    with pytest.raises(ValueError, match="the provenance holds events or bounds of another form"):
        replay({"events": [forged], "leakage": BOUNDS})
