"""One ledger on disk: uses of all runs, processes and engines add up, whoever is killed at whatever moment."""

import contextlib
import os
import shutil
import signal
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from gaussians import RANGE, batches, by_record, engine_of, gaussian, precision, private
from torch.utils.data import Subset

from leakbound import (
    BudgetError,
    Capacity,
    ChannelEngine,
    GuaranteeError,
    Leakage,
    Ledger,
    RandomizedResponse,
    Reconstruction,
)
from leakbound.accounting.leakage import Exposure, Mechanism
from leakbound.accounting.risk import naming_bound
from leakbound.accounting.statement import upper_bound
from leakbound.engine.refusals import CapacityWarning
from leakbound.engine.targets import Plan

DATA = private()


def engine_in(path, target=None, **options) -> ChannelEngine:
    return engine_of(target, ledger=path, **options)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "uses.db"


def executed(path, statement: str) -> list[tuple]:
    """Rows that a statement of SQL gives."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def looks(path) -> list[int]:
    return [count for (count,) in executed(path, "SELECT count FROM uses")]


def test_uses_add_up_over_runs_and_without_a_ledger_the_engine_says_that_they_do(path):
    for run in (1, 2, 3):
        engine = engine_in(path)
        loader = engine.protect(batches(DATA))
        by_record(loader)
        assert engine.leakage().record == pytest.approx(engine.calibration.information(run))
        assert engine.remaining == 3 - run
    with pytest.raises(BudgetError, match="counted over all runs and channels of the ledger"):
        by_record(engine_in(path).protect(batches(DATA, shuffle=False)))
    with pytest.raises(BudgetError):
        by_record(loader)
    assert sorted(looks(path)) == [3] * 20
    assert "uses in other runs, processes and engines are not known here and add up" in str(engine_in(None))
    assert str(path) in str(engine)


def test_a_run_states_what_earlier_ones_released_before_its_first_batch(path):
    """It once said 0 nats and all planned uses left, and counted records when it came to them."""
    first = engine_in(path)
    by_record(first.protect(batches(DATA)))
    for _ in range(2):
        by_record(first.protect(batches(Subset(DATA, range(10, 20)))))
    second, other = engine_in(path), engine_in(path, Leakage(3.2, uses=3), shape="white")
    for engine in (second, other):
        loader = engine.protect(batches(DATA, shuffle=False))
        assert engine.leakage().record == pytest.approx(second.nats(3))
        assert "so far: Values computed from the noisy records" in str(engine)
        assert engine.remaining == 0
    assert second.uses["train"].tolist() == [1] * 10 + [3] * 10
    next(iter(second.protect(batches(DATA, shuffle=False))))  # of records 0 to 5
    assert second.leakage().record == pytest.approx(second.nats(3))
    with pytest.raises(BudgetError, match="went through other channels"):
        by_record(loader)
    elsewhere = engine_in(path)
    elsewhere.protect(batches(private(seed=9)))
    assert (elsewhere.leakage().record, elsewhere.remaining) == (0.0, 3)


@pytest.mark.parametrize("seed", [None, 5])
def test_another_frozen_copy_is_another_look_and_that_of_the_same_seed_is_not(path, seed):
    options = {"noise": "frozen", "seed": seed}
    first = engine_in(path, Leakage(3.0), **options)
    seen = by_record(first.protect(batches(DATA)))
    second = engine_in(path, Leakage(3.0), **options)
    if seed is None:
        with pytest.raises(BudgetError, match="another one would reveal more"):
            by_record(second.protect(batches(DATA)))
        second.load_state_dict(first.state_dict())
    again = by_record(second.protect(batches(DATA)))
    assert all(torch.equal(again[record], row) for record, row in seen.items())
    assert second.leakage().fresh_uses == 1
    for count in (2, 3):
        free = engine_in(path, Capacity(second.calibration.information(1)), noise="frozen")
        by_record(free.protect(batches(DATA)))
        assert free.leakage().fresh_uses == (count if seed is None else count - 1)
        assert free.leakage().record == pytest.approx(free.calibration.information(count))


def test_a_frozen_copy_after_fresh_noise_or_another_channel_is_refused_for_what_it_is(path):
    """It was sent to the state of a run that held a copy, whatever that run was."""
    by_record(engine_in(path, Leakage(3.0, uses=1)).protect(batches(DATA)))
    with pytest.raises(BudgetError, match=r"has had a noisy copy.* run that holds it, if that froze its noise"):
        by_record(engine_in(path, Leakage(3.0), noise="frozen").protect(batches(DATA)))
    with pytest.raises(BudgetError, match="went through other channels, too"):
        by_record(engine_in(path, Leakage(3.0), noise="frozen", shape="white").protect(batches(DATA)))


def test_nats_of_other_channels_count_toward_the_plan(path):
    one, other = engine_in(path, Leakage(1.0, uses=1)), engine_in(path, Leakage(3.0, uses=9), shape="white")
    row = one.protect(DATA)
    _ = row[0]
    data = other.protect(DATA)
    _ = data[0]
    seen, covariance = (
        [precision(each.calibration.channel) for each in (one, other)],
        one.calibration.moments.covariance,
    )

    def joint(uses: int) -> float:
        return 0.5 * np.linalg.slogdet(np.eye(4) + covariance @ (seen[0] + uses * seen[1]))[1]

    account = other.leakage()
    assert account.record == pytest.approx(joint(1))
    assert joint(1) < other.nats(1) + one.nats(1) - 0.1
    left = other.remaining
    assert left > 0
    for _ in range(left):
        _ = data[0]
    with pytest.raises(BudgetError):
        _ = data[0]
    assert other.leakage().record == pytest.approx(joint(1 + left))
    assert other.leakage().record <= 3.0 < joint(2 + left)
    _ = data[1]
    strict = engine_in(path, Reconstruction(0.5, uses=9))
    with pytest.raises(BudgetError, match="an error of reconstruction after several channels is not computed"):
        _ = strict.protect(DATA)[0]


def test_a_state_goes_on_beside_its_ledger_alone(path, tmp_path):
    engine = engine_in(path)
    by_record(engine.protect(batches(DATA)))
    state = engine.state_dict()
    assert state["key"]["sealed"] is None
    again = engine_in(path)
    again.load_state_dict(state)
    by_record(again.protect(batches(DATA)))
    assert again.uses["train"].tolist() == [2] * 20
    engine.load_state_dict(state)  # an old state takes nothing from the ledger
    by_record(engine.protect(batches(DATA)))
    assert engine.leakage().uses == 3
    for other in (None, tmp_path / "other.db"):
        with pytest.raises(GuaranteeError, match="the ledger that the state was saved with"):
            engine_in(other).load_state_dict(state)


def test_the_file_is_the_owner_s_and_holds_no_record_in_clear(path):
    engine = engine_in(path)
    by_record(engine.protect(batches(DATA)))
    files = [path, *path.parent.glob("uses.db-*")]
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in files)
    held = b"".join(one.read_bytes() for one in files)
    assert not any(one in held for one in engine._counter.identity.contents(private().tensors[0]))
    path.chmod(0o644)
    with pytest.raises(GuaranteeError, match="chmod 600"):
        engine_in(path)


def test_a_ledger_is_made_by_an_act_and_says_what_it_counts(path):
    """One that a run had made in a folder of its own once said that it counts all uses."""
    with pytest.raises(GuaranteeError, match=f"make it once, before the first release: leakbound ledger new {path}"):
        ChannelEngine.for_data(gaussian(400), Leakage(3.0, uses=3), value_range=RANGE, ledger=path)
    assert not path.exists()
    Ledger.create(path)
    with pytest.raises(GuaranteeError, match="it is there already"):
        Ledger.create(path)
    today = datetime.now(UTC).date().isoformat()
    assert f"since {today}, 0 runs, 0 records" in str(engine_in(path))
    for runs in (1, 2):
        engine = engine_in(path)
        by_record(engine.protect(batches(DATA)))
        assert f"{path} counts uses of these records since {today}, {runs} run{'s' * (runs - 1)}, 20 records" in str(
            engine
        )


def test_labels_that_were_released_uncounted_leave_no_later_run_a_bound_on_labels(path):
    plan = Leakage(3.0, uses=9)
    clear, counted, again = (engine_in(path, plan, classes=classes) for classes in (None, 20, 20))
    by_record(counted.protect(batches(DATA)))
    assert counted.leakage().labels == pytest.approx(np.log(20))
    _ = clear.protect(DATA)[3]
    by_record(again.protect(batches(DATA)))
    for engine in (counted, clear, again):
        account = engine.leakage()
        assert account.labels is None
        assert account.record == account.joint
        assert "plus labels, not counted" in str(account)


@pytest.mark.parametrize("classes", [20, None])
def test_labels_of_earlier_runs_are_part_of_an_identification(classes, path):
    """A response of 0.2 nats once stood for labels that an earlier run had released as they are."""
    response = RandomizedResponse.calibrate(classes=20, nats=0.2)
    by_record(engine_in(path, classes=classes).protect(batches(DATA)))
    later = engine_in(path, labels=response)
    by_record(later.protect(batches(DATA)))
    lines = [line for line in str(later).splitlines() if "records of all labels" in line]
    among = upper_bound(naming_bound(later.nats(3) + np.log(20) + response.capacity, 1000))
    assert lines == ([] if classes is None else [f"{lines[0][: lines[0].index('at most')]}at most {among}"])


def test_a_copy_that_is_used_next_to_its_original_is_noticed(path):
    engine_in(path)
    copied = path.parent / "job 2" / "uses.db"
    copied.parent.mkdir()
    shutil.copy2(path, copied)
    with pytest.warns(CapacityWarning, match=f"{copied}: it is a copy of {path}, .* the two count apart"):
        engine_in(copied)
    engine_in(path)  # a warning would be an error
    path.unlink()
    engine_in(copied)  # it was moved


OLD = (  # tables of the second version
    "CREATE TABLE key (key BLOB NOT NULL, double INTEGER NOT NULL) STRICT",
    "CREATE TABLE channels (id INTEGER PRIMARY KEY, law TEXT NOT NULL, ratios BLOB NOT NULL, "
    "planned INTEGER NOT NULL DEFAULT 1, accepted REAL) STRICT",
    "CREATE TABLE uses (record INTEGER NOT NULL, channel INTEGER NOT NULL, count INTEGER NOT NULL "
    "CHECK (count > 0), PRIMARY KEY (record, channel)) STRICT, WITHOUT ROWID",
    "CREATE TABLE labels (record INTEGER NOT NULL, label INTEGER NOT NULL, nats REAL NOT NULL, "
    "PRIMARY KEY (record, label)) STRICT, WITHOUT ROWID",
    "CREATE TABLE total (uses INTEGER NOT NULL, labels INTEGER NOT NULL) STRICT",
    "PRAGMA application_id = 1818583403",
    "PRAGMA user_version = 2",
)


def test_a_ledger_of_an_earlier_version_goes_on_with_its_counts(path, tmp_path):
    new = tmp_path / "new.db"
    engine = engine_in(new, classes=20)
    by_record(engine.protect(batches(DATA)))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in OLD:
            connection.execute(statement)
        connection.execute("ATTACH ? AS new", (str(new),))
        connection.execute("INSERT INTO key SELECT key, 0 FROM new.about")
        connection.execute("INSERT INTO uses SELECT record, channel, count FROM new.uses")
        connection.execute("INSERT INTO channels SELECT id, law, ratios, planned, accepted FROM new.channels")
        for table in ("labels", "total"):
            connection.execute(f"INSERT INTO {table} SELECT * FROM new.{table}")
    path.chmod(0o600)
    again = engine_in(path, classes=20)
    assert "since before" in str(again)
    by_record(again.protect(batches(DATA)))
    assert again.leakage().uses == 2
    assert again.leakage().labels == pytest.approx(np.log(20))
    assert sorted(looks(path)) == [2] * 20
    again.load_state_dict(engine.state_dict())  # its key is the same


def test_a_ledger_of_a_newer_version_and_one_that_others_write_to_are_refused_by_name(path, monkeypatch):
    engine = engine_in(path)
    data = engine.protect(DATA)
    _ = data[0]
    monkeypatch.setattr("leakbound.engine.ledger._WAIT", 0.05)
    late = engine_in(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(GuaranteeError, match=f"ledger = {path}: database is locked, so no use can be counted"):
            _ = late.protect(DATA)[0]
    assert looks(path) == [1]
    executed(path, "PRAGMA user_version = 6")
    before = path.read_bytes()
    with pytest.raises(GuaranteeError, match=f"ledger = {path}: the file is of another version"):
        engine_in(path)
    assert path.read_bytes() == before


def test_a_ledger_of_images_counts_a_table_that_needs_float64(path):
    _ = engine_in(path).protect(DATA)[0]
    times = 1.7e9 + 20.0 * np.random.default_rng(0).normal(size=(300, 6))
    engine = ChannelEngine.for_data(times[:200], Leakage(1.0, uses=1), ledger=path)
    engine.protect(list(times[200:])).__getitems__(list(range(100)))
    assert engine.uses["train"].tolist() == [1] * 100
    again = engine_in(path)
    _ = again.protect(DATA)[0]
    assert again.leakage().uses == 2


def foreign(path):
    executed(path, "CREATE TABLE other (a)")
    path.chmod(0o600)


def text(path):
    path.write_text("no database at all, but long enough to be read as one\n" * 100)
    path.chmod(0o600)


def of_another_version(path):
    engine_in(path)
    executed(path, "PRAGMA user_version = 1")


def torn(path):
    """As if a page had not been written."""
    engine_in(path, Capacity(1.0)).protect(DATA).__getitems__([0, 1, 2])
    executed(path, "DELETE FROM uses WHERE record = (SELECT min(record) FROM uses)")


def of_two_names(path):
    engine_in(path)
    (path.parent / "other.db").hardlink_to(path)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (foreign, "of something else"),
        (text, "file is not a database"),
        (of_another_version, "of another version"),
        (torn, "its counts do not add up"),
        (of_two_names, "the file has 2 names, and its journal lies next to one"),
    ],
)
def test_what_is_no_ledger_is_refused_and_stays_as_it_is(path, made, told):
    made(path)
    before = path.read_bytes()
    with pytest.raises(GuaranteeError, match=f"ledger = .*{told}"):
        engine_in(path)
    assert path.read_bytes() == before
    with pytest.raises(GuaranteeError, match="No such file or directory"):
        engine_in(path.parent / "no folder" / "uses.db")
    with pytest.raises(GuaranteeError, match="it is no file"):
        engine_in(path.parent)


def test_a_ledger_that_cannot_be_written_releases_nothing(path):
    engine = engine_in(path)
    data = engine.protect(DATA)
    _ = data[0]
    executed(path, "CREATE TRIGGER full BEFORE UPDATE ON uses BEGIN SELECT RAISE(FAIL, 'disk is full'); END")
    with pytest.raises(GuaranteeError, match="disk is full, so no use can be counted"):
        data.__getitems__([1, 0])
    assert engine.uses["train"].tolist()[:2] == [1, 0]
    assert looks(path) == [1]


def test_a_ledger_that_is_taken_away_during_a_run_is_missed(path):
    engine = engine_in(path)
    data = engine.protect(DATA)
    _ = data[0]
    path.unlink()
    with pytest.raises(GuaranteeError, match="removed or replaced"):
        _ = data[1]
    engine_in(path)
    with pytest.raises(GuaranteeError, match="removed or replaced"):
        _ = data[1]


def released(data, write: int) -> None:
    """Two records in each batch until none is left, and a byte for each batch that was given out."""
    with contextlib.suppress(BudgetError):
        while True:
            data.__getitems__([0, 1])
            os.write(write, b".")


def test_processes_at_once_and_killed_ones_release_what_was_planned_and_no_more(path):
    uses = 60
    data = engine_in(path, Leakage(3.0, uses=uses)).protect(DATA)
    pipes, children = [], []
    for _ in range(3):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            released(data, write)
            os._exit(0)
        os.close(write)
        pipes.append(read), children.append(child)
    os.read(pipes[0], 1)
    os.kill(children[0], signal.SIGKILL)
    seen = [1, 0, 0]
    for place, read in enumerate(pipes):
        with open(read, "rb") as stream:
            seen[place] += len(stream.read())
        os.waitpid(children[place], 0)
    assert looks(path) == [uses] * 2
    assert uses - 1 <= sum(seen) <= uses  # the killed one had counted one batch at most that it did not give out


@pytest.mark.parametrize("accepted", [None, 9.0])
@pytest.mark.parametrize("adds", [True, False])
def test_records_over_the_plan_are_those_whose_nats_exceed_it(adds, accepted):
    draws = np.random.default_rng(1)
    mechanism = Mechanism("natural", draws.uniform(0, 3, 8), planned=5, accepted=accepted)
    plan = Plan(5, mechanism, adds, frozen=False, seeded=False)
    fresh = draws.integers(0, 8, 400)
    parallel = draws.choice([0.0, 0.5, 1.0, 2.5], 400)
    others = draws.choice([0.0, 0.0, 0.3, 20.0], 400)
    nats = np.array([mechanism.nats(float(uses)) for uses in fresh + parallel]) + others
    over = (nats > mechanism.nats(5) * (1 + 1e-9)) | (fresh > 5) | ((others > 0) & (not adds))
    found = plan.over_limit(Exposure(fresh, parallel, others, np.zeros(400), np.zeros(400)))
    assert found.tolist() == np.flatnonzero(over & (fresh > 0)).tolist()
