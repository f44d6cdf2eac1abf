"""Noise from a seed stays noted by the records that had it, and no later noise gives them a bound again."""

import contextlib
import json
import sqlite3

import numpy as np
import pytest
from gaussians import batches, by_record, engine_of, forked, gaussian, made, private
from torch.utils.data import Subset

from calling import succeeded
from leakbound import BudgetError, Capacity, Leakage, Ledger
from leakbound.accounting.statement import EARLIER_SEEDS, NO_BOUND, SEEDED, Statement
from leakbound.engine.transformer import Channel

DATA = private()
FIRST, LAST = Subset(DATA, range(10)), Subset(DATA, range(10, 20))
SUBTRACTED = f"{NO_BOUND}: {SEEDED}, which whoever knows or tries it subtracts."
PLAN = Capacity(1.0)  # of any number of uses


@pytest.fixture
def path(tmp_path):
    return made(tmp_path / "uses.db")


def released(ledger, seed=None, *, data=DATA, noise="fresh", owner=None, **options):
    """An engine that has released some records once."""
    engine = engine_of(options.pop("target", PLAN), ledger=ledger, seed=seed, noise=noise, **options)
    by_record(engine.protect(batches(data, shuffle=False), owner=owner))
    return engine


def channel_of(ledger, seed=None) -> Channel:
    """A channel that has released the rows once."""
    options = {"auxiliary": gaussian(400), "value_range": (-50.0, 50.0), "random_state": seed, "ledger": ledger}
    made_channel = Channel(PLAN, **options).fit(DATA.tensors[0].numpy())
    made_channel.transform(DATA.tensors[0].numpy())
    return made_channel


@pytest.mark.parametrize("shared", ["file", "memory"])
@pytest.mark.parametrize("noise", ["fresh", "frozen"])
def test_secure_noise_after_or_before_noise_from_a_seed_has_no_bound(noise, shared, path):
    """A rehearsal with a seed, and then a copy with secure noise: 3.19 nats *with secure noise* were stated of both."""
    ledger = Ledger() if shared == "memory" else path
    before = released(ledger)
    assert before.leakage().secure
    released(ledger, 5, noise=noise)
    after = released(ledger)
    for engine in (before, after):
        account = engine.leakage()
        assert engine.secure
        assert not account.secure
        assert account.statement().sentence.endswith(SUBTRACTED)
        assert not account.statement(secure=True).bounded
        assert account.metric("leakage_nats").endswith("_if_noise_were_secret")
        assert f"{NO_BOUND}: {SEEDED}; the numbers below would hold if it were secret" in str(account)
        assert "also counts uses of these records with NOISE FROM A SEED" in str(engine)
        assert "at most" not in "".join(line for line in str(engine).splitlines() if "secure noise" in line)


def test_the_page_to_sign_has_no_bound_where_a_seed_has_drawn_other_copies(path, tmp_path):
    released(path, 5)
    released(path).write_statement(tmp_path / "page.html", data="mine")
    facts = json.loads((tmp_path / "page.json").read_text())
    assert not facts["bounds"][0]["bounded"]
    assert (facts["noise"], facts["risks"]) == ("from a seed, which whoever knows or tries it subtracts", [])
    assert any("NOISE FROM A SEED" in line for line in facts["assumptions"])


def test_other_records_of_the_ledger_keep_their_bound(path):
    released(path, 5, data=FIRST)
    account = released(path, data=LAST).leakage()
    assert account.secure
    assert account.statement().bounded
    assert not released(path).leakage().secure  # the first ten are among them


def test_other_records_of_an_owner_do_not(path):
    owners = [f"{index % 5}" for index in range(10)]
    released(path, 5, data=FIRST, owner=owners)
    assert not released(path, data=LAST, owner=owners).leakage().secure
    others = private(10, seed=9)
    assert released(path, data=others, owner=[f"other {index}" for index in range(10)]).leakage().secure


def test_a_use_that_was_refused_is_not_noted(path):
    released(path)
    with pytest.raises(BudgetError):
        released(path, 5, target=Leakage(1.0, uses=1))
    assert Ledger.open(path).seeded() == (0, 0)


@pytest.mark.parametrize("seeded_first", [True, False])
def test_channels_and_engines_of_a_ledger_know_of_each_others_seeds(seeded_first, path):
    if seeded_first:
        channel_of(path, 5)
        assert not released(path).leakage().secure
    else:
        released(path, 5)
    assert str(channel_of(path).leakage()).endswith(SUBTRACTED)


def test_a_channel_whose_seed_was_taken_away_has_no_bound():
    channel = channel_of(None, 5)
    channel.set_params(random_state=None).fit_transform(DATA.tensors[0].numpy())
    assert str(channel.leakage()).endswith(SUBTRACTED)


def test_another_process_notes_it_too(path):
    assert forked(lambda: released(path, 5).leakage().secure)() is False
    assert not released(path).leakage().secure


def test_a_state_takes_the_note_along(path):
    ledger = Ledger()
    released(ledger, 5, data=FIRST)
    state = released(ledger).state_dict()
    for data, secure in ((FIRST, False), (LAST, False)):  # what is gone stays in the account
        resumed = engine_of(PLAN)
        resumed.protect(batches(data))
        resumed.load_state_dict(state)
        assert resumed.leakage().secure == secure
    client = engine_of(PLAN)
    client.take_up(state)
    client.protect(batches(DATA))
    assert not client.leakage().secure
    _, unknown = resumed._counter.seeded()
    assert unknown == 0


def test_uses_that_a_state_takes_back_stay_noted():
    ledger = Ledger()
    engine = engine_of(PLAN, ledger=ledger, seed=5)
    empty = engine.state_dict()
    by_record(engine.protect(batches(DATA)))
    engine.load_state_dict(empty)
    assert engine.leakage().uses == 0
    assert not released(ledger).leakage().secure


def test_a_state_of_an_earlier_version_says_that_it_did_not_note_seeds(path):
    for ledger, said in ((None, True), (path, False)):  # a file has noted itself what it counts
        first = released(ledger)
        state = first.state_dict()
        for part in state["ledgers"].values():
            del part["seeded"]
        resumed = engine_of(PLAN, ledger=ledger)
        resumed.protect(batches(DATA))
        resumed.load_state_dict(state)
        account = resumed.leakage()
        assert account.secure
        assert (EARLIER_SEEDS in account.uncovered) == said
        again = engine_of(PLAN, ledger=ledger)
        again.protect(batches(DATA))
        again.load_state_dict(resumed.state_dict())  # and a state of this version takes that along
        assert (EARLIER_SEEDS in again.leakage().uncovered) == said


def to_fourth_version(path) -> None:
    """Bring a ledger to the form that it had before seeds were noted."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE seeded")
        connection.execute("PRAGMA user_version = 4")


@pytest.mark.parametrize("seed", [None, 5])
def test_uses_that_an_earlier_version_counted_are_of_unknown_origin(seed, path):
    """Fresh noise had one name with and without a seed."""
    released(path, seed, data=FIRST)
    to_fourth_version(path)
    counting = released(path)
    account = counting.leakage()
    assert account.secure
    assert f"not covered: {EARLIER_SEEDS}" in account.statement().sentence
    assert EARLIER_SEEDS in str(channel_of(path).leakage())
    assert EARLIER_SEEDS not in released(path, data=private(10, seed=9)).leakage().uncovered
    assert Ledger.open(path).seeded() == (0, 10)
    released(path, 5)
    assert Ledger.open(path).seeded() == (20, 0)
    assert not counting.leakage().secure


def test_frozen_noise_that_an_earlier_version_drew_from_a_seed_is_recognised(path):
    released(path, 5, data=FIRST, noise="frozen")
    to_fourth_version(path)
    assert Ledger.open(path).seeded() == (10, 0)
    assert not released(path).leakage().secure


def test_copies_with_and_without_a_seed_in_one_ledger_are_stated_without_a_bound(path, tmp_path):
    for name, seed in (("mine", 0), ("others", 1)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).normal(size=(80, 6)).astype(np.float32))
    words = ("protect", tmp_path / "mine.npy", "--public", tmp_path / "others.npy", "--kappa", 2, "--uses", 4)
    words = (*words, "--ledger", path, "--out")
    told = succeeded(*words, tmp_path / "trial", "--seed", 0)
    assert "uses.db notes this for good" in told.err
    told = succeeded(*words, tmp_path / "copies", "--statement", tmp_path / "page.html")
    written = json.loads((tmp_path / "copies/protection.json").read_text())
    said = Statement.from_numbers(written["statement"])
    assert not said.bounded
    assert f"leakage          The noisy copies: {SUBTRACTED}" in told.out
    assert "the numbers below would hold if the noise were secret" in told.out
    assert "uses.db also counts uses of these records with NOISE FROM A SEED" in told.err
    assert any("NOISE FROM A SEED" in line for line in written["assumed"])
    assert json.loads((tmp_path / "page.json").read_text())["risks"] == []
    assert (
        "noise is from a seed, which whoever knows or tries it subtracts, in uses of 80 records"
        in succeeded("ledger", "show", path).out
    )
