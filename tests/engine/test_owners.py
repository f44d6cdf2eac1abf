"""An owner's records count together, whatever they have in common: nats against determinants of NumPy's own."""

import numpy as np
import pandas as pd
import pytest
import torch
from gaussians import MIXING, RANGE, by_record, engine_of, gaussian, made
from torch.utils.data import DataLoader, Subset, TensorDataset

from leakbound import (
    BudgetError,
    Capacity,
    Channel,
    GuaranteeError,
    Identification,
    Leakage,
    Ledger,
    RandomizedResponse,
    Reconstruction,
)
from leakbound.engine.refusals import CapacityWarning

WIDTH, OWNERS, EACH = 4, 12, 5
COVARIANCE = MIXING.T @ MIXING


def correlated(share: float, seed: int = 3) -> np.ndarray:
    """Records (owners, each, 4) of which every two of an owner correlate."""
    draws = np.random.default_rng(seed)
    common = draws.normal(size=(OWNERS, 1, WIDTH))
    own = draws.normal(size=(OWNERS, EACH, WIDTH))
    return ((np.sqrt(share) * common + np.sqrt(1 - share) * own) @ MIXING + 1.0).astype(np.float32)


def truth(share: float, variance: float, uses: int) -> float:
    """Nats of all records of an owner about all noisy copies, from the joint covariance."""
    mixed = share * np.ones((EACH, EACH)) + (1 - share) * np.eye(EACH)
    joint = np.kron(mixed, COVARIANCE)
    return 0.5 * np.linalg.slogdet(np.eye(len(joint)) + uses * joint / variance)[1]


def flat(records):
    """A dataset of all records, and whom each is about."""
    owners = np.repeat([f"patient {owner}" for owner in range(len(records))], records.shape[1])
    return TensorDataset(torch.from_numpy(records.reshape(-1, WIDTH))), owners


@pytest.mark.parametrize("names", [np.arange(3), [0.0, 1.0, 2.0], ["000", "001", "002"], [" 0", "1 ", " 2 "]], ids=str)
def test_an_owner_is_the_same_in_each_form_that_tables_hold_its_number_in(names):
    """Told 3 of 6 nats where one table kept the zeros in front, and the other read numbers."""
    rows, ledger = torch.from_numpy(gaussian(3, 1)), Ledger()
    for owners, values in ((names, rows), (["0", "1", "2"], rows.flip(1))):
        engine = engine_of(Leakage(3.0, uses=1, records=2), ledger=ledger, value_range=RANGE)
        engine.protect(TensorDataset(values), owner=owners, name=str(values[0, 0])).__getitems__([0, 1, 2])
    assert engine.leakage().record == pytest.approx(2 * engine.nats(1)) == pytest.approx(3.0)


def test_owners_whose_names_differ_stay_apart_whatever_case_and_sign():
    names = [*("a1", "A1", "-1", "1", "0a", "a", "1.5", "15", "Ju\u0308rgen", "Jurgen")]
    engine = engine_of(Leakage(3.0, uses=1))
    engine.protect(TensorDataset(torch.from_numpy(gaussian(10, 1))), owner=names).__getitems__([*range(10)])
    assert engine.leakage().record == pytest.approx(engine.nats(1))
    again, others = torch.from_numpy(gaussian(10, 1)).flip(1), [*"bcdefghi", "Jürgen", "j"]
    with pytest.raises(BudgetError, match="owner of record 8 "):
        engine.protect(TensorDataset(again), owner=others, name="again").__getitems__([*range(10)])


@pytest.mark.parametrize("share", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_what_an_owner_s_records_reveal_together_is_told_whatever_they_have_in_common(share, noise):
    engine = engine_of(Capacity(1.0), public=gaussian(4000), noise=noise)
    data, owners = flat(correlated(share))
    released = engine.protect(data, owner=owners)
    for _ in range(2):
        released.__getitems__(list(range(len(data))))
    uses = 2 if noise == "fresh" else 1
    account = engine.leakage()
    true = truth(share, engine.calibration.channel.variances[0], uses)
    assert account.record == pytest.approx(EACH * engine.nats(uses))
    assert account.record >= 0.97 * true  # the covariance of 4,000 public records
    if share == 0.0:
        assert account.record == pytest.approx(true, rel=0.03)  # and no smaller bound holds
    assert account.dataset == pytest.approx(OWNERS * account.record)
    assert account.average == pytest.approx(account.record)
    assert (account.group, account.uses) == (EACH, 2 * EACH)
    assert "records of one owner may depend on each other" in str(account)
    said = account.statement(secure=engine.secure).sentence
    assert said in str(engine)
    assert f"about all records of one owner together (at most {EACH}) at most" in said


@pytest.mark.parametrize("alone", [False, True])
def test_uses_that_are_added_to_an_account_are_those_of_each_record_of_an_owner(alone):
    """They were once composed with those of all its records as if these were one: 3.32 nats for 4.7."""
    engine = engine_of(Capacity(1.0), classes=2)
    rows, owners = torch.from_numpy(gaussian(13, 2)), [*"aaabbbcccddd", "e"]
    data = TensorDataset(rows, torch.arange(13) % 2)
    engine.protect(data, owner=None if alone else owners).__getitems__([*range(13)])
    accountant = engine.accountant().add(engine.calibration.channel, 1).add_labels(classes=2)
    accountant.add_nats(np.full(13, 0.25))
    each = engine.nats(2) + 2 * np.log(2) + 0.25  # what a record's two uses and two labels reveal
    sums = 2 * engine.nats(1) + 2 * np.log(2) + 0.25
    assert engine.nats(2) < 2 * engine.nats(1)
    # Of several records of an owner uses before and after are not known to be of the same ones, so their nats add.
    expected = np.array([each] * 13 if alone else [3 * sums] * 12 + [each])
    np.testing.assert_allclose(accountant.per_record(), expected)
    account = accountant.account()
    assert account.record == pytest.approx(expected.max())
    assert account.dataset == pytest.approx(13 * each if alone else 4 * 3 * sums + each)
    assert (account.group, account.uses, account.fresh_uses) == ((None, 2, 2) if alone else (3, 6, 6))


def test_a_bound_names_as_many_records_of_an_owner_as_it_is_about():
    """Two records of an owner in two runs were once stated as those of an owner with at most one."""
    ledger, rows = Ledger(), torch.from_numpy(gaussian(6, 2))
    for run in (1, 2, 3):
        engine = engine_of(Capacity(1.0), ledger=ledger)
        data = TensorDataset(rows[2 * run - 2 : 2 * run])
        engine.protect(data, owner=["a", "b"]).__getitems__([0, 1])
        account = engine.leakage()
        assert account.group == run
        assert account.record == pytest.approx(run * engine.nats(1))
    assert (
        "about all records of one owner together (at most 3) at most 3 nats" in account.statement(secure=True).sentence
    )


def test_without_owners_the_line_that_states_a_bound_says_what_is_assumed():
    engine = engine_of(Leakage(3.0, uses=2), classes=3)
    released = engine.protect(flat(correlated(0.9))[0])
    released.__getitems__([0, 1])
    assert not engine.leakage().owned
    lines = [line for line in (str(engine) + "\n" + str(engine.leakage())).splitlines() if "nats" in line]
    told = [line for line in lines if ("reveal" in line and "at most" in line) or "smallest valid bound" in line]
    assert len(told) == 4  # of one use, of two, so far, and of the account
    assert all("records are taken as independent of each other, and views of one" in line for line in told)


def test_a_level_of_an_index_names_owners_and_several_levels_leave_them_open():
    """Pairs of a patient and an eye were once told as owners of one row each: 1 nat for 1.9."""
    index = pd.MultiIndex.from_product([range(20), ["left", "right"]], names=["patient", "eye"])
    frame = pd.DataFrame(gaussian(40, 1), index=index)
    options = {"auxiliary": gaussian(400), "value_range": RANGE}
    with pytest.raises(GuaranteeError, match=r"levels 'patient', 'eye'.*owner=, the name of the level"):
        Channel(Capacity(1.0), **options).fit(frame)
    for owner, nats in (("patient", 2.0), ("eye", 20.0), (False, 1.0)):
        channel = Channel(Capacity(1.0), owner=owner, **options).fit(frame)
        assert channel.transform(frame).shape == (40, 4)
        assert float(channel.leakage()) == pytest.approx(nats)


def test_a_plan_is_one_for_all_records_of_an_owner():
    data, owners = flat(correlated(0.5))
    engine = engine_of(Leakage(3.0, uses=4))
    with pytest.warns(CapacityWarning, match="no use of each fit"):
        released = engine.protect(data, owner=owners)
    left, taken = engine.nats(4), 0
    while (taken + 1) * engine.nats(1) <= left:
        _ = released[taken]
        taken += 1
    assert 1 <= taken < EACH
    with pytest.raises(BudgetError, match=r"all records of the owner of record .* nats together"):
        _ = released[taken]
    with pytest.raises(BudgetError):  # several of them in one batch
        released.__getitems__(list(range(EACH, 2 * EACH)))
    assert engine.uses["train"].sum() == taken
    strict = engine_of(Reconstruction(0.1, uses=4)).protect(data, owner=owners)
    _ = strict[0]
    with pytest.raises(BudgetError, match="other records of the owner of record 1 of 'train' were released"):
        _ = strict[1]


def test_a_refusal_names_what_was_released_whoever_named_the_owner(tmp_path):
    """Other records of an owner were called other channels in a run without owners, and other channels records."""
    rows = torch.from_numpy(gaussian(6, 5))
    path, pairs = made(tmp_path / "uses.db"), [0, 0, 1, 1, 2, 2]
    plan = Leakage(6.0, uses=40)
    first = engine_of(plan, ledger=path)
    with pytest.warns(CapacityWarning, match="of each fit"):
        named = first.protect(list(rows), owner=pairs)
    fit = 0
    while 2 * first.nats(fit + 1) <= 6.0:
        named.__getitems__(list(range(6)))
        fit += 1
    with pytest.raises(BudgetError, match="all records of the owner of record 0 of 'train' would reveal"):
        _ = engine_of(plan, ledger=path).protect(list(rows))[0]
    with pytest.raises(BudgetError, match="other records of the owner of record 0 of 'train' were released"):
        _ = engine_of(Reconstruction(0.1, uses=4), ledger=path).protect(list(rows))[0]
    channel = Channel(plan, auxiliary=gaussian(400), value_range=RANGE, ledger=path).fit(rows.numpy())
    with pytest.raises(BudgetError, match=r"all rows of the owner, named before, of row 0 .* all else in its ledger"):
        channel.transform(rows.numpy())

    path, plan = made(tmp_path / "alone.db"), Leakage(3.0, uses=1)
    engine_of(plan, ledger=path, shape="white").protect(list(rows), owner=range(6)).__getitems__(list(range(6)))
    with pytest.raises(BudgetError, match="record 0 of 'train' went through other channels, too"):
        _ = engine_of(plan, ledger=path).protect(list(rows), owner=range(6))[0]
    with pytest.raises(BudgetError, match="record 0 of 'train' went through another channel, and an error"):
        _ = engine_of(Reconstruction(0.1, uses=1), ledger=path).protect(list(rows), owner=range(6))[0]
    channel = Channel(plan, auxiliary=gaussian(400), value_range=RANGE, ledger=path).fit(rows.numpy())
    with pytest.raises(BudgetError, match=r"row 0 would be used .* or through another channel"):
        channel.transform(rows.numpy(), owner=range(6))


@pytest.mark.parametrize("view", ["another column order", "another scale", "windows", "another precision"])
def test_views_of_one_record_in_one_ledger_add_up(view, tmp_path):
    rows = gaussian(8, 5).astype(np.float64)
    views = {
        "another column order": rows[:, ::-1].copy(),
        "another scale": rows * 1.001,
        "windows": np.roll(rows, 1, axis=1),
        "another precision": rows.astype(np.float16).astype(np.float64),
    }
    path, owners = made(tmp_path / "uses.db"), list(range(8))
    for place, one in enumerate((rows, views[view])):
        engine = engine_of(Capacity(1.0), ledger=path)
        engine.protect(list(torch.from_numpy(one)), owner=owners).__getitems__(list(range(8)))
        assert engine.leakage().record == pytest.approx((1 + place) * engine.nats(1))


def test_uses_before_an_owner_was_named_and_after_count_for_it(tmp_path):
    path = made(tmp_path / "uses.db")
    data, owners = flat(correlated(0.5))
    engine_of(Capacity(1.0), ledger=path).protect(data).__getitems__([0, 1])
    named = engine_of(Capacity(1.0), ledger=path)
    named.protect(data, owner=owners).__getitems__([0, 1, 2])
    assert named.leakage().record == pytest.approx(2 * named.nats(2) + named.nats(1))
    later = engine_of(Capacity(1.0), ledger=path)
    later.protect(data).__getitems__([3 * EACH, 2])
    assert later.leakage().record == pytest.approx(2 * later.nats(2) + later.nats(2))


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_a_plan_for_several_records_of_an_owner_is_sized_for_all_of_them(noise, share):
    """Five records of an owner once stopped in the first of the planned epochs, without a word before."""
    uses = 3 if noise == "fresh" else None
    data, owners = flat(correlated(share))
    engine = engine_of(Leakage(6.0, uses=uses, records=EACH), public=gaussian(4000), noise=noise)
    released = engine.protect(data, owner=owners)  # a warning would be an error
    for _ in range(3):
        released.__getitems__(list(range(len(data))))
    variance, count = engine.calibration.channel.variances[0], uses or 1
    assert engine.leakage().record == pytest.approx(6.0) == pytest.approx(EACH * engine.nats(count))
    assert truth(share, variance, count) <= 6.0 / 0.97
    planned = "The noisy values of these uses of each record of an owner reveal about all records of one owner together"
    assert f"{planned} (at most 5) at most 6 nats on average over owners" in str(engine)
    if noise == "fresh":
        with pytest.raises(BudgetError):
            _ = released[0]
    single = engine_of(Identification(0.2, among=10, uses=2, records=EACH))
    assert EACH * single.nats(2) == pytest.approx(single.target.nats)


def test_a_plan_that_ends_early_for_the_records_of_an_owner_is_told_before_the_first_release():
    data, owners = flat(correlated(0.5))
    engine = engine_of(Leakage(6.0, uses=9))
    fits = max(uses for uses in range(9) if EACH * engine.nats(uses) <= 6.0)
    told = (
        rf"up to {EACH} records are of one owner.*{fits or 'no'} uses? of each fit into the 6 nats of a plan for 9 of 1"
    )
    with pytest.warns(CapacityWarning, match=told):
        released = engine.protect(data, owner=owners)
    for _ in range(fits):
        released.__getitems__(list(range(len(data))))
    with pytest.raises(BudgetError):
        released.__getitems__(list(range(len(data))))
    rows, whose = correlated(0.5).reshape(-1, WIDTH), np.asarray(owners)
    with pytest.warns(CapacityWarning, match=f"records={EACH}"):
        Channel(Leakage(6.0, uses=9), auxiliary=gaussian(400)).fit(rows, owner=whose)
    Channel(Leakage(6.0, uses=9, records=EACH), auxiliary=gaussian(400)).fit(rows, owner=whose)
    with pytest.raises(GuaranteeError, match=r"Leakage\(records=0\): give a whole number"):
        Leakage(6.0, uses=9, records=0)
    assert repr(Leakage(6.0, uses=9, records=5)) == "Leakage(nats=6.0, uses=9, records=5)"


def test_a_record_of_two_owners_counts_for_both():
    row, other, third = torch.from_numpy(gaussian(3, 1))
    engine = engine_of(Capacity(1.0))
    engine.protect([row, row, other, third], owner=["a", "b", "a", "b"]).__getitems__([0, 2, 3])
    assert engine.leakage().record == pytest.approx(2 * engine.nats(1))
    engine.protect([row, other], owner=["b", "a"], name="more").__getitems__([0])
    assert engine.leakage().record == pytest.approx(engine.nats(2) + engine.nats(1))


def test_states_take_owners_along_and_numbers_are_their_digits():
    data, _ = flat(correlated(0.5))
    engine, again = engine_of(Capacity(1.0)), engine_of(Capacity(1.0))
    numbers = np.repeat(np.arange(OWNERS), EACH)
    engine.protect(data, owner=numbers).__getitems__([0, 1])
    again.load_state_dict(engine.state_dict())
    again.protect(data).__getitems__([EACH])
    assert again.leakage().record == pytest.approx(2 * again.nats(1))
    again.protect(Subset(data, [2]), owner=[0.0]).__getitems__([0])  # a column with missing values is one of floats
    assert again.leakage().record == pytest.approx(3 * again.nats(1))


def test_labels_of_an_owner_s_records_add_up():
    response = RandomizedResponse(3, keep=0.6)
    engine = engine_of(Capacity(1.0), labels=response)
    rows = torch.from_numpy(gaussian(6, 2))
    loader = DataLoader([(row, place % 3) for place, row in enumerate(rows)], batch_size=4)
    by_record(engine.protect(loader, owner=["a"] * 4 + ["b"] * 2))
    assert engine.leakage().labels == pytest.approx(4 * response.capacity)


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        (["a"] * 3, "owner of 3 entries: give one for each of the 20 records"),
        ("a" * 20, "give one for each of the 20 records"),
        ([None, *"b" * 19], "that of record 0 is None"),
        ([*"b" * 19, float("nan")], "that of record 19 is 'nan'"),
    ],
)
def test_owners_that_are_missing_are_refused(owner, told):
    with pytest.raises(GuaranteeError, match=told):
        engine_of().protect(list(torch.from_numpy(gaussian(20, 1))), owner=owner)


def test_ranks_and_memory_share_one_ledger_that_is_given():
    ledger = Ledger()
    rows = list(torch.from_numpy(gaussian(5, 1)))
    for uses in (1, 2):
        engine = engine_of(Capacity(1.0), ledger=ledger)
        engine.protect(rows).__getitems__([0])
        assert engine.leakage().record == pytest.approx(engine.nats(uses))
