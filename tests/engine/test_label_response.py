"""Labels behind an engine pass randomized response once for each record, and their nats are in the account."""

from collections import namedtuple
from itertools import product

import numpy as np
import pytest
import torch
from gaussians import batches, engine_of, gaussian
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from leakbound import ChannelEngine, GuaranteeError, Leakage, RandomizedResponse
from leakbound.engine.identity import Identity, LabelCount

RESPONSE = RandomizedResponse(classes=10, keep=0.4)
COUNT = 60
Named = namedtuple("Named", ["label", "pixels"])


def labelled(count: int = COUNT, seed: int = 1) -> TensorDataset:
    """Records with labels and their index."""
    return TensorDataset(torch.from_numpy(gaussian(count, seed)), torch.arange(count) % 10, torch.arange(count))


def answering(target=None, **options) -> ChannelEngine:
    return engine_of(target, **{"labels": RESPONSE, **options})


def released(engine: ChannelEngine, data=None, **options) -> dict[int, int]:
    """Label of each index in one epoch; each record has one."""
    loader = engine.protect(batches(labelled() if data is None else data, **options), uncounted=[2])
    return {int(at): int(label) for _, labels, at in loader for label, at in zip(labels, at, strict=True)}


def test_a_label_is_drawn_once_whichever_loader_batch_or_epoch_shows_it():
    engine, data = answering(), labelled()
    first = released(engine, data)
    assert first == released(engine, data)
    assert first == released(engine, ConcatDataset([Subset(data, range(40, 60)), Subset(data, range(40))]))
    kept = sum(label == at % 10 for at, label in first.items())
    assert 0 < kept < COUNT


def test_flips_of_an_engine_are_as_frequent_as_stated():
    """A false alarm in less than one of a million runs."""
    count = 2000
    drawn = released(answering(), labelled(count), batch_size=500)
    kept = np.mean([label == at % 10 for at, label in drawn.items()])
    assert abs(kept - RESPONSE.keep) < 5.5 * np.sqrt(0.24 / count)
    shifts = np.bincount([(label - at) % 10 for at, label in drawn.items()], minlength=10)[1:]
    assert np.all(abs(shifts / count - RESPONSE.flip) < 5.5 * np.sqrt(RESPONSE.flip / count))


def test_its_nats_are_added_to_those_of_the_records():
    engine = answering()
    released(engine)
    account = engine.leakage()
    assert account.labels == RESPONSE.capacity < np.log(10)
    assert account.record == account.joint + account.labels
    assert account.dataset == pytest.approx(COUNT * account.record)
    assert "keeps it with a probability of 0.4 (ε = 1.792): 0.3113 nats on top for a label" in str(engine)


def test_several_labels_of_a_record_have_draws_of_their_own():
    data = [(row, {"first": 3, "more": {"second": 3, "third": [3]}}) for row in gaussian(200, 1)]
    engine = answering()
    released = engine.protect(data).__getitems__(list(range(200)))
    labels = [(one["first"], one["more"]["second"], one["more"]["third"][0]) for _, one in released]
    assert engine.leakage().labels == pytest.approx(3 * RESPONSE.capacity)
    assert {tuple(label == 3 for label in one) for one in labels} == {*product((True, False), repeat=3)}


@pytest.mark.parametrize("place", ["state", "ledger"])
def test_another_run_draws_the_same_under_the_same_key(place, tmp_path):
    options = {"ledger": tmp_path / "uses.db"} if place == "ledger" else {}
    engine = answering(**options)
    first = released(engine)
    again = answering(**options)
    if place == "state":
        again.load_state_dict(engine.state_dict())
    assert released(again) == first
    if place == "ledger":
        other = answering(ledger=tmp_path / "uses.db", labels=RandomizedResponse(10, 0.41))
        assert sum(one == two for one, two in zip(first.values(), released(other).values(), strict=True)) < 50


def test_without_a_common_key_another_run_draws_again_and_a_seed_repeats():
    assert released(answering()) != released(answering())
    assert released(answering(seed=5)) == released(answering(seed=5))


def test_a_state_of_another_response_is_refused():
    engine = answering()
    released(engine)
    for labels in (None, RandomizedResponse(10, 0.5)):
        with pytest.raises(GuaranteeError, match="calibrate as that one was"):
            answering(labels=labels).load_state_dict(engine.state_dict())


def test_a_saved_engine_keeps_its_response(tmp_path):
    engine = answering(seed=5)
    engine.save(tmp_path / "engine.safetensors")
    assert released(ChannelEngine.load(tmp_path / "engine.safetensors")) == released(engine)


def test_equal_records_have_one_response_and_no_other_label():
    row = gaussian(1, 3)[0]
    engine = answering(Leakage(3.0, uses=10))
    data = engine.protect([(row, 4)] * 8)
    assert len({label for _, label in data.__getitems__(list(range(8)))}) == 1
    assert engine.leakage().labels == RESPONSE.capacity
    other = engine.protect([(row, 5)], name="other")
    with pytest.raises(GuaranteeError, match=r"has the labels \[5\] here and \[4\] elsewhere"):
        _ = other[0]
    assert engine.uses["other"].sum() == 0


@pytest.mark.parametrize("label", [3, 3.0, np.int64(3), torch.tensor([3]), np.array([3]), (3,), None, [[3]]])
def test_responses_have_the_type_of_the_label(label):
    data = answering().protect([(row, label) for row in gaussian(40, 1)])
    drawn = [released for _, released in data.__getitems__(list(range(40)))]
    assert all(type(one) is type(label) for one in drawn)
    assert (len({str(one) for one in drawn}) > 3) == (label is not None)


def test_mappings_named_tuples_and_truth_values():
    rows = gaussian(40, 1)
    mapped = answering(seed=5).protect([{"pixels": row, "label": 3} for row in rows], key="pixels")
    named = answering(seed=5).protect([Named(3, row) for row in rows], key="pixels")
    drawn = [mapped[index]["label"] for index in range(40)]
    assert len(set(drawn)) > 3
    assert drawn == [named[index].label for index in range(40)]
    assert isinstance(named[0], Named)
    truths = answering(labels=RandomizedResponse(2, 0.6)).protect([(row, True) for row in rows])
    assert {truths[index][1] for index in range(40)} == {True, False}


def test_labels_that_the_response_is_not_for_are_refused():
    with pytest.raises(GuaranteeError, match="classes = 5, and labels is a response over 10 classes: leave classes"):
        answering(classes=5)
    with pytest.raises(GuaranteeError, match="the label 10: classes = 10"):
        answering().protect([(row, 10) for row in gaussian(20, 1)])
    assert str(answering(classes=10)) == str(answering())


FORMS = {
    "numbers": [torch.tensor(label) for label in (0, 3, 9, 3)],
    "bytes": [torch.tensor(label, dtype=torch.uint8) for label in (0, 3, 9, 3)],
    "truth values": [torch.tensor(label) for label in (True, False, True, True)],
    "several types": [torch.tensor(1), torch.tensor(2, dtype=torch.uint8), torch.tensor(3), torch.tensor(4)],
    "whole floats": [torch.tensor(float(label)) for label in (0, 3, 9, 3)],
    "vectors": [torch.tensor([label]) for label in (0, 3, 9, 3)],
    "one missing": [torch.tensor(0), None, torch.tensor(9), torch.tensor(3)],
    "one too large": [torch.tensor(label) for label in (0, 3, 10, 3)],
    "one below 0": [torch.tensor(label) for label in (0, 3, -1, 3)],
}


@pytest.mark.parametrize("classes", [10, None])
@pytest.mark.parametrize("form", FORMS)
def test_labels_of_a_batch_are_those_of_its_records_read_alone(form, classes):
    """Labels in the usual form are read together. Those in a list are not."""

    def outcome(kind):
        count = LabelCount(classes)
        try:
            listed = count.check([kind([None, label, None]) for label in FORMS[form]], (), 10)
        except GuaranteeError as error:
            return str(error)
        digests = [bytes([number]) * 16 for number in range(4)]
        return listed, repr(count.rows(digests, listed, [False] * 4, Identity(bytes(32), False)))

    assert outcome(tuple) == outcome(list)
