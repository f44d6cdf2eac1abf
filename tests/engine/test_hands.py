"""Whatever people do with an engine, its count stays true: records are their values, and copies do not count apart."""

import contextlib
import copy
import pickle
import sys
import threading
import time

import numpy as np
import pytest
import torch
from gaussians import batches, by_record, engine_of, forked, gaussian, private
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from leakbound import (
    BudgetError,
    Capacity,
    ChannelEngine,
    GuaranteeError,
    Leakage,
    LeakageAccountant,
    RandomizedResponse,
)
from leakbound.channels import Natural, population_moments

PUBLIC = gaussian(400)
ROWS = torch.from_numpy(gaussian(20, 1))


# -- what is released in addition to the input -------------------------------------------------------------------------
CLEAN = {
    "autoencoder": (TensorDataset(ROWS, ROWS), {}, 1),
    "two views": (TensorDataset(ROWS, torch.arange(20), ROWS.flip(1)), {}, 2),
    "next characters": (TensorDataset(ROWS, torch.arange(80).reshape(20, 4)), {}, 1),
    "next characters in a list": ([(row, [3, 1, 4, 1]) for row in ROWS], {}, 1),
    "thumbnail": ([{"x": row, "label": 3, "small": row[:2]} for row in ROWS], {"key": "x"}, "small"),
    "name": ([{"x": row, "name": "Ada"} for row in ROWS], {"key": "x"}, "name"),
    "nested": ([(row, {"label": 3, "more": (1, row)}) for row in ROWS], {}, 1),
    "a number with a fraction": ([(row, 0.25) for row in ROWS], {}, 1),
    "whole numbers as floats": (TensorDataset(ROWS, torch.arange(20.0)), {}, 1),
}


@pytest.mark.parametrize("name", CLEAN)
def test_values_in_addition_to_the_input_are_refused_unless_they_are_allowed_by_name(name):
    data, given, place = CLEAN[name]
    with pytest.raises(GuaranteeError, match=r"would be released without noise: .* uncounted=\["):
        engine_of().protect(data, **given)
    engine = engine_of()
    loader = engine.protect(DataLoader(data, batch_size=20), **given, uncounted=[place])
    assert len(list(loader)) == 1
    assert f"not counted, as allowed: {place!r}" in str(engine)


def test_values_that_come_later_refuse_their_batch():
    data = engine_of().protect([(row, 1 if place < 9 else row) for place, row in enumerate(ROWS)])
    data.__getitems__([0, 8])
    with pytest.raises(GuaranteeError, match="would be released without noise"):
        data.__getitems__([3, 9])


@pytest.mark.parametrize("label", [10, -1])
def test_labels_beyond_the_classes_are_refused_and_several_are_counted(label):
    with pytest.raises(GuaranteeError, match=f"the label {label}: classes = 10"):
        engine_of(classes=10).protect([(row, label) for row in ROWS])
    engine = engine_of(classes=10)
    by_record(engine.protect(DataLoader([(row, 3) for row in ROWS], batch_size=20)))
    assert engine.leakage().labels == pytest.approx(np.log(10))
    next(iter(engine.protect(DataLoader([(row, 3, 4) for row in ROWS], batch_size=20), name="two")))
    assert engine.leakage().labels == pytest.approx(2 * np.log(10))


@pytest.mark.parametrize("label", [3, True, np.int64(3), torch.tensor(3), torch.tensor([3]), np.array([3]), [3], None])
def test_single_whole_numbers_of_any_type_are_labels(label):
    _ = engine_of(classes=10).protect([(row, label) for row in ROWS])[0]


def test_without_classes_labels_are_said_not_to_be_counted():
    engine = engine_of()
    by_record(engine.protect(batches(private())))
    assert engine.leakage().labels is None
    assert "labels                not counted" in str(engine.leakage())
    assert "labels are not counted: give classes" in str(engine)


# -- public records that are private ones ------------------------------------------------------------------------------
class Wrapped(Dataset):
    """Records in an object of somebody's own, as float64 and in another order."""

    def __init__(self, rows):
        self.rows = rows.double().flip(0)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index].numpy(), 0


OWN = torch.from_numpy(gaussian(60, 2))
SHARED = {
    "the tensor": lambda: TensorDataset(OWN),
    "a second dataset over it": lambda: TensorDataset(OWN.clone(), torch.zeros(60, dtype=torch.int64)),
    "a wrapper in another order": lambda: Wrapped(OWN),
    "an overlapping selection": lambda: Subset(TensorDataset(torch.cat([ROWS, OWN])), [*range(20), 30]),
    "one of many": lambda: ConcatDataset([TensorDataset(ROWS), TensorDataset(OWN[7:8])]),
}


@pytest.mark.parametrize("name", SHARED)
def test_private_records_that_were_taken_for_public_ones_are_refused_whatever_holds_them(name):
    for public in (OWN, TensorDataset(OWN), OWN.double().numpy(), OWN[torch.randperm(60)]):
        engine = engine_of(public=public)
        with pytest.raises(GuaranteeError, match="calibrated on records that it shall protect"):
            list(engine.protect(DataLoader(SHARED[name](), batch_size=3)))
    allowed = engine_of(public=OWN, calibrate_to_own=True)
    list(allowed.protect(DataLoader(SHARED[name](), batch_size=3)))
    assert "a statistic of the records that it protects" in str(allowed)


# -- equal records are one ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_a_record_that_stands_twice_is_one_record(noise):
    rows = torch.cat([ROWS, ROWS])
    engine = engine_of(Leakage(3.0, uses=4 if noise == "fresh" else None), noise=noise, classes=40)
    loader = engine.protect(DataLoader(TensorDataset(rows, torch.arange(40)), batch_size=8))
    by_record(loader)
    assert engine.uses["train"].tolist() == [2] * 40
    seen = by_record(loader)
    account = engine.leakage()
    if noise == "frozen":
        assert all(torch.equal(seen[index], seen[index + 20]) for index in range(20))
        assert account.fresh_uses == 1
    else:
        assert account.joint == pytest.approx(engine.calibration.information(4))
        with pytest.raises(BudgetError, match="equal records at other indices"):
            next(iter(loader))
    assert account.average == pytest.approx(account.record)
    assert account.dataset == pytest.approx(20 * account.record)


def test_records_are_equal_in_whatever_type_and_collection_they_come():
    engine = engine_of()
    kinds = [ROWS, ROWS.double(), [row.numpy() for row in ROWS]]
    for number, rows in enumerate(kinds):
        engine.protect(list(rows), name=str(number)).__getitems__(list(range(20)))
    assert {name: uses.tolist() for name, uses in engine.uses.items()} == {name: [3] * 20 for name in "012"}
    whole = np.random.default_rng(0).integers(0, 9, size=(60, 4))
    engine = ChannelEngine.for_data(np.float32(whole), Capacity(1.0))
    contents = [engine._counter.identity.contents(torch.from_numpy(whole.astype(kind))) for kind in ("u1", "i8", "f8")]
    assert contents[0] == contents[1] == contents[2]


def test_records_that_float32_cannot_tell_apart_are_told_apart():
    times = 1.7e9 + 20.0 * np.random.default_rng(0).normal(size=(300, 4))
    engine = ChannelEngine.for_data(times[:200], Leakage(1.0, uses=1), seed=1)
    data = engine.protect(list(times[200:]))
    data.__getitems__(list(range(100)))
    assert engine.uses["train"].tolist() == [1] * 100


def test_the_average_is_over_the_records_that_the_loader_shows():
    base = TensorDataset(torch.from_numpy(gaussian(500, 3)), torch.arange(500))
    engine = engine_of()
    by_record(engine.protect(batches(Subset(base, range(40, 60)))))
    account = engine.leakage()
    assert account.average == pytest.approx(account.record)
    assert account.dataset == pytest.approx(20 * account.record)


# -- copies, forks, threads --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), copy.copy])
def test_copies_of_an_engine_hold_no_count_of_their_own(copied):
    """Whoever releases, before or after the copy was made, one ledger counts."""
    engine = engine_of(Leakage(3.0, uses=3))
    fresh = copied(engine)
    data = engine.protect(private())
    _ = data[0]
    later, loader = copied(engine), copied(data)
    assert later.uses["train"][0] == 1
    _ = loader[0], fresh.protect(private(), name="more")[0]
    assert engine.uses["train"][0] == later.uses["train"][0] == 3
    for one in (data, loader, later.protect(private(), name="again")):
        with pytest.raises(BudgetError):
            _ = one[0]
    assert engine.leakage().record == pytest.approx(3.0)


@pytest.mark.parametrize("used", [False, True])
def test_a_forked_process_is_refused_or_counts_in_the_ledger(used, tmp_path):
    engine = engine_of()
    counted = engine_of(ledger=tmp_path / "uses.db")
    data, other = engine.protect(private()), counted.protect(private())
    if used:
        _ = data[0], other[0]
    assert "was forked from" in forked(lambda: data[1])()
    assert forked(lambda: [other[1], counted.uses["train"][1]][1])() == 1
    _ = other[1]
    assert counted.uses["train"].tolist()[:2] == [int(used), 2]
    assert engine.uses["train"].sum() == int(used)


def test_threads_get_no_more_than_was_planned_and_one_frozen_copy():
    for noise in ("fresh", "frozen"):
        engine = engine_of(Leakage(3.0, uses=1 if noise == "fresh" else None), noise=noise)
        data, seen, start = engine.protect(private()), [], threading.Barrier(8)
        drawn = engine._batch_noise.apply
        engine._batch_noise.apply = lambda *given, own=drawn: (time.sleep(0.002), own(*given))[1]

        def read(data=data, seen=seen, start=start):
            start.wait()
            with contextlib.suppress(BudgetError):
                seen.append(tuple(data[5][0].tolist()))

        threads = [threading.Thread(target=read) for _ in range(8)]
        _ = [thread.start() for thread in threads], [thread.join() for thread in threads]
        assert len(set(seen)) == 1
        assert (len(seen), engine.leakage().fresh_uses) == (1 if noise == "fresh" else 8, 1)


# -- states ------------------------------------------------------------------------------------------------------------
def resumed(state, data, **options) -> ChannelEngine:
    engine = engine_of(**options)
    engine.load_state_dict(state)
    engine.protect(data)
    return engine


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("seed", [None, 5])
def test_records_in_another_order_keep_their_own_counts(seed, before):
    engine = engine_of(seed=seed)
    data = engine.protect(TensorDataset(ROWS))
    data.__getitems__(list(range(20))), data.__getitems__(list(range(7)))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    other, shuffled = engine_of(seed=seed), TensorDataset(ROWS[order])
    if before:
        other.load_state_dict(engine.state_dict())
    data = other.protect(shuffled)
    if not before:
        other.load_state_dict(engine.state_dict())
    assert other.uses["train"].tolist() == (1 + (order < 7).long()).tolist()
    data.__getitems__(list(range(20)))
    with pytest.raises(BudgetError):
        data[int((order < 7).nonzero()[0])]
    assert other.leakage().uses == 3


@pytest.mark.parametrize("changed", [lambda rows: rows.flip(1), lambda rows: rows + 0.01])
def test_a_state_is_of_its_own_records(changed):
    engine = engine_of()
    engine.protect(TensorDataset(ROWS)).__getitems__(list(range(15)))
    state, data = engine.state_dict(), TensorDataset(changed(ROWS))
    with pytest.raises(GuaranteeError, match=r"protect the (same data|records that it was saved with)"):
        resumed(state, data)
    other = engine_of()
    other.protect(data)
    with pytest.raises(GuaranteeError, match=r"protect the (same data|records that it was saved with)"):
        other.load_state_dict(state)
    assert other.leakage().uses == 0


MORE = torch.from_numpy(gaussian(6, 9))
OTHERS = {
    "fewer": (ROWS[:13], [1] * 13, 2),
    "more": (torch.cat([MORE, ROWS]), [0] * 6 + [1] * 15 + [0] * 5, 0),
    "others": (torch.cat([ROWS[5:], MORE]), [1] * 10 + [0] * 11, 5),
}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_a_client_may_have_more_fewer_or_other_records_in_the_next_round(name, before):
    """Sizes were once compared, although digests decide. What a record has revealed stays when it is gone."""
    rows, uses, gone = OTHERS[name]
    engine = engine_of()
    engine.protect(TensorDataset(ROWS)).__getitems__(list(range(15)))
    other = engine_of()
    if before:
        other.load_state_dict(engine.state_dict())
    data = other.protect(TensorDataset(rows))
    if not before:
        other.load_state_dict(engine.state_dict())
    assert other.uses["train"].tolist() == uses
    assert other.uses.get("train (earlier)", np.zeros(0)).tolist() == [1] * gone
    assert other.leakage().dataset == pytest.approx(15 * other.nats(1))
    data.__getitems__([uses.index(1)] * 2)
    with pytest.raises(BudgetError):
        _ = data[uses.index(1)]
    again = engine_of()
    again.load_state_dict(other.state_dict())
    assert again.leakage().dataset == pytest.approx(other.leakage().dataset)


def test_an_equal_dataset_that_is_made_again_is_the_same_records():
    """As a cell of a notebook does, or a framework that reloads its data."""
    engine = engine_of()
    for _ in range(2):
        by_record(engine.protect(batches(private())))
    assert engine.uses["train"].tolist() == [2] * 20
    by_record(engine.protect(batches(private(23))))
    assert engine.uses["train"].tolist()[:18] == [3] * 18
    with pytest.raises(GuaranteeError, match="give other records another name"):
        engine.protect(batches(private(20, seed=4)))


def test_another_client_s_state_is_refused_and_nobody_s_forgets_nothing():
    engine = engine_of()
    first = private(seed=1)
    loader = engine.protect(batches(first))
    by_record(loader)
    state = engine.state_dict()
    engine.take_up(state)
    with pytest.raises(GuaranteeError, match="protect it again"):
        next(iter(loader))
    with pytest.raises(GuaranteeError, match="that the state has counted are not in the data"):
        engine.protect(batches(private(seed=2)))
    for planned in (2, 3):
        engine.take_up(None)
        assert engine.leakage().uses == 0
        by_record(engine.protect(batches(first)))
        assert engine.leakage().uses == planned
    engine.take_up(state)  # an old one
    with pytest.raises(BudgetError):
        by_record(engine.protect(batches(first)))


def test_a_state_holds_every_collection_and_those_that_wait_for_their_data():
    engine = engine_of()
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        engine.protect(private(seed=seed), name=name).__getitems__(list(range(seed)))
    middle = engine_of()
    middle.load_state_dict(engine.state_dict())
    middle.protect(private(seed=2), name="b")
    last = engine_of()
    last.load_state_dict(middle.state_dict())
    assert {name: int(uses.sum()) for name, uses in last.uses.items()} == {"a": 1, "b": 2, "c": 3}
    data = last.protect(private(seed=3), name="c")
    assert last.uses["c"].tolist() == [1] * 3 + [0] * 17
    data.__getitems__([0, 0])
    with pytest.raises(BudgetError):
        _ = data[0]


@pytest.mark.parametrize(
    "broken",
    [
        lambda kept: {"uses": kept["uses"].to(torch.float16)},
        lambda kept: {"uses": kept["uses"].bool()},
        lambda kept: {"uses": -kept["uses"]},
        lambda kept: {"uses": kept["uses"][:-1]},
        lambda kept: {"digests": kept["digests"][:, :8]},
        lambda kept: {"digests": torch.zeros_like(kept["digests"])},
        lambda kept: {"size": torch.tensor([3])},
        lambda kept: {"copied": kept["copied"][:-1], "copies": kept["copies"][:-1]},
        lambda kept: {"copied": kept["copied"] * 0},
        lambda kept: {"copies": kept["copies"] * float("nan")},
        lambda kept: {"copies": torch.zeros(0), "copied": torch.zeros(0, dtype=torch.int64)},
    ],
)
def test_states_hold_whole_counts_and_the_copy_of_each_used_record(broken):
    engine = engine_of(Leakage(3.0), noise="frozen")
    by_record(engine.protect(batches(private())))
    state = engine.state_dict()
    engine_of(Leakage(3.0), noise="frozen").load_state_dict(state)
    kept = state["ledgers"]["train"]
    without = {part: kept[part] for part in ("size", "digests", "uses")}
    forms = [{"ledgers": {"train": part}} for part in ({**kept, **broken(kept)}, without, {"uses": [1] * 20}, {}, None)]
    for form in (*forms, {"ledgers": None}, {"steps": None}):
        with pytest.raises(GuaranteeError, match="whole checkpoint"):
            engine.load_state_dict({**state, **form})
    assert engine.uses["train"].tolist() == [1] * 20
    assert engine.steps == state["steps"]


def test_an_engine_that_has_released_takes_no_state_of_another_run():
    first, second = engine_of(), engine_of()
    for engine in (first, second):
        by_record(engine.protect(batches(private())))
    with pytest.raises(GuaranteeError, match="of another run"):
        second.load_state_dict(first.state_dict())


def test_a_state_alone_recognises_no_record(monkeypatch, tmp_path):
    engine = engine_of()
    by_record(engine.protect(batches(private())))
    state = engine.state_dict()
    held = pickle.dumps(state)
    assert engine._counter.identity.key not in held
    assert not any(one in held for one in engine._counter.identity.contents(ROWS))
    contents = engine._counter.identity.contents(ROWS)
    assert not set(engine._counter.identity.digests(contents)) & set(engine_of()._counter.identity.digests(contents))
    monkeypatch.setenv("LEAKBOUND_KEY", str(tmp_path / "folder" / "other.key"))
    with pytest.raises(GuaranteeError, match="set LEAKBOUND_KEY"):
        engine_of().load_state_dict(state)
    assert (tmp_path / "folder" / "other.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "empty.key").touch(0o600)
    (tmp_path / "open.key").touch()
    (tmp_path / "open.key").chmod(0o644)
    wrong = {"empty.key": "is no key", "empty.key/below": "so no state can be saved", "open.key": "chmod 600"}
    for path, told in wrong.items():
        monkeypatch.setenv("LEAKBOUND_KEY", str(tmp_path / path))
        with pytest.raises(GuaranteeError, match=told):
            engine.state_dict()


# -- what else people do -----------------------------------------------------------------------------------------------
def test_counts_and_plans_that_are_written_over_change_nothing():
    engine = engine_of(Leakage(3.0, uses=1))
    data = engine.protect(private())
    _ = data[0]
    engine.uses["train"][:] = 0
    engine.target = Leakage(3.0, uses=9)
    assert engine.uses["train"][0] == 1
    with pytest.raises(BudgetError, match="its 1 planned uses"):
        _ = data[0]


def test_a_new_name_or_object_for_the_same_records_is_no_new_plan():
    engine = engine_of(Leakage(3.0, uses=2))
    for number, rows in enumerate((ROWS, ROWS.clone())):
        engine.protect(TensorDataset(rows), name=str(number)).__getitems__(list(range(20)))
    with pytest.raises(BudgetError):
        engine.protect(TensorDataset(ROWS.flip(0)), name="again").__getitems__([3])
    fresh = engine_of(Leakage(3.0, uses=2))
    fresh.load_state_dict(engine.state_dict())  # also where a state's records come back under another name
    with pytest.raises(BudgetError):
        fresh.protect(TensorDataset(ROWS), name="other").__getitems__([3])


def test_records_that_are_appended_are_counted_beside_the_others():
    engine = engine_of()
    data = [(row, 0) for row in ROWS[:9]]
    epoch_of = DataLoader(data, batch_size=3)
    list(engine.protect(epoch_of))
    data += [(row, 1) for row in ROWS[9:]]
    list(engine.protect(DataLoader(data, batch_size=3)))
    assert engine.uses["train"].tolist() == [2] * 9 + [1] * 11


@pytest.mark.parametrize("workers", [0, 1])
def test_records_appended_after_a_loader_was_protected_are_refused_with_the_reason(workers):
    """The first record was said to be another one, since something random acts before the channel."""
    engine = engine_of()
    data = [(row, 0) for row in ROWS[:9]]
    loader = DataLoader(data, batch_size=3, num_workers=workers)
    protected = engine.protect(loader)
    data += [(row, 1) for row in ROWS[9:]]
    with pytest.raises(GuaranteeError, match="record 11 of data that had 9 records when they were protected"):
        list(protected)
    list(engine.protect(loader))
    assert engine.uses["train"].tolist() == [2] * 9 + [1] * 11


def test_whole_floats_without_classes_are_refused_with_the_way_to_count_them():
    for labels, counted in ((torch.ones(20), True), (torch.eye(20), True), (torch.full((20,), 0.5), False)):
        with pytest.raises(GuaranteeError, match="would be released without noise") as caught:
            engine_of().protect(TensorDataset(ROWS, labels))
        assert ("or count it by classes=K" in str(caught.value)) == counted


def test_whole_floats_are_labels_where_classes_are_named():
    engine = engine_of(classes=2)
    data = [
        (row, kind(place % 2)) for place, (row, kind) in enumerate(zip(ROWS, [float, np.float32] * 10, strict=True))
    ]
    released = engine.protect(data).__getitems__(list(range(20)))
    assert [label for _, label in released] == [place % 2 for place in range(20)]
    assert engine.leakage().labels == pytest.approx(np.log(2))
    for wrong in (0.5, float("nan"), float("inf"), 2.0):
        with pytest.raises(GuaranteeError, match="place 1 of a record is"):
            engine.protect([(ROWS[0], wrong)], name=str(wrong))


@pytest.mark.parametrize("kind", [torch.tensor, np.array, list, lambda bits: torch.tensor(bits).float()])
def test_a_vector_of_binary_labels_is_counted_where_classes_are_named(kind):
    bits = [[int(bit) for bit in f"{place:05b}"] for place in range(20)]
    data = [(row, kind(bits[place])) for place, row in enumerate(ROWS)]
    with pytest.raises(GuaranteeError, match="would be released without noise"):
        engine_of().protect(data)
    engine = engine_of(classes=2)
    released = engine.protect(data).__getitems__(list(range(20)))
    assert [[int(bit) for bit in labels] for _, labels in released] == bits
    assert engine.leakage().labels == pytest.approx(5 * np.log(2))
    answered = engine_of(labels=RandomizedResponse(2, keep=0.6)).protect(data).__getitems__(list(range(20)))
    assert all(type(labels) is type(data[0][1]) for _, labels in answered)
    assert {len({int(labels[place]) for _, labels in answered}) for place in range(5)} == {2}


def test_a_record_that_is_none_is_named_and_what_drops_it_later_is_no_remedy():
    with pytest.raises(GuaranteeError, match="leave such records out of the dataset"):
        engine_of().protect(DataLoader([None, *ROWS], collate_fn=lambda rows: rows))


def test_the_noise_of_an_engine_is_not_written_over():
    engine = engine_of()
    with pytest.raises(AttributeError):
        engine.noise = "frozen"
    assert "by natural noise, fresh, secure" in str(engine)


# -- the accountant ----------------------------------------------------------------------------------------------------
def test_counts_that_would_wrap_and_steps_below_none_are_refused():
    moments = population_moments(PUBLIC)
    channel = Natural.calibrate(Natural.decompose(moments), 2.0)
    accountant = LeakageAccountant(moments)
    for wrong in (2**62, 2**63, float("inf"), True):
        with pytest.raises(GuaranteeError):
            accountant.add(channel, wrong)
    for steps in (-5, 2**60):
        with pytest.raises(GuaranteeError, match="steps"):
            accountant.add(channel, 1, steps=steps)
    assert accountant.add(channel, 2**52, steps=0).account().uses == 2**52
    with pytest.raises(GuaranteeError, match="in all"):
        accountant.add(channel, 2**52)


def test_a_terminal_reads_that_the_calibration_takes_its_time(monkeypatch, capsys):
    wide = np.random.default_rng(0).normal(size=(40, 600)).astype(np.float32)
    ChannelEngine.for_data(wide, Capacity(1.0), progress=False)
    ChannelEngine.for_data(PUBLIC, Capacity(1.0))
    assert capsys.readouterr().err == ""
    ChannelEngine.for_data(wide, Capacity(1.0))
    text = capsys.readouterr().err
    assert text.count("calibrating to 40 records of 600 values: covariance") == 1  # a line now and then, no bar
    assert "\r" not in text
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    ChannelEngine.for_data(wide, Capacity(1.0))
    text = capsys.readouterr().err
    assert "calibrating to 40 records of 600 values [" in text
    assert "shrinkage, part 4 of 4" in text
    assert "[########################] done" in text
    assert text.endswith(" s\n")
