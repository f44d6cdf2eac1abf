"""The ledger of uses: what each record went through, channels by their ratios and labels by their response.

It lies in memory, for all clones of a transformer in one process, or in one SQLite file, to which all runs and
processes add before each release. A process that is killed between the two has counted a use that nobody saw,
never the reverse. SQLite's rollback journal leaves all counts in the file itself after each release, and its
locks order the processes of one machine. A network's file system often has no such locks.

In the file 64 bits of a digest stand for a record. Two of a million records agree in them with a probability
of 3·10⁻⁸. They then count as one record, whose stated nats are those of both.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from leakbound.accounting.leakage import Held, Mechanism, seen_by
from leakbound.engine.identity import WORD, Identity, Label
from leakbound.engine.refusals import GuaranteeError

_APPLICATION = 0x6C65616B  # "leak", in the header of the file
_WAIT = 60.0  # seconds for other processes
_AT_ONCE = 512  # records asked for in one query
_FORMAT = 2
_TABLES = (
    "CREATE TABLE key (key BLOB NOT NULL, double INTEGER NOT NULL) STRICT",
    "CREATE TABLE channels (id INTEGER PRIMARY KEY, law TEXT NOT NULL, ratios BLOB NOT NULL, "
    "planned INTEGER NOT NULL DEFAULT 1, accepted REAL) STRICT",
    "CREATE TABLE uses (record INTEGER NOT NULL, channel INTEGER NOT NULL, count INTEGER NOT NULL "
    "CHECK (count > 0), PRIMARY KEY (record, channel)) STRICT, WITHOUT ROWID",
    "CREATE TABLE labels (record INTEGER NOT NULL, label INTEGER NOT NULL, nats REAL NOT NULL, "
    "PRIMARY KEY (record, label)) STRICT, WITHOUT ROWID",
    "CREATE TABLE total (uses INTEGER NOT NULL, labels INTEGER NOT NULL) STRICT",
    "INSERT INTO total VALUES (0, 0)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
)
_ADDED = "INSERT INTO uses VALUES {} ON CONFLICT DO UPDATE SET count = count + excluded.count"
_WHOLE = (
    "SELECT (SELECT ifnull(sum(count), 0) FROM uses) = uses "
    "AND (SELECT count(*) FROM labels) = labels FROM total"
)
_processes: dict[int, bytes] = {}  # names by process id; a fork adds its own


def _words(digests: Sequence[bytes]) -> list[int]:
    """Return the number of each digest by which the file knows its record or label."""
    return np.frombuffer(b"".join(digests), "<i8")[:: WORD // 8].tolist()


def process() -> bytes:
    """Name this process, which neither a fork nor another machine has."""
    return _processes.setdefault(os.getpid(), os.urandom(16))


class Ledger:
    """Count what records go through, by the records' digests.

    A copy in memory, or a pickle that is loaded in the process that made it, is the same object. In another
    process it refuses to count.

    Args:
        identity: Key of digests, for memory and for a new file.
        path: File, which is made with mode 0600 if it is not there. None for memory.

    Attributes:
        identity: Key of digests: that of the file.

    Raises:
        GuaranteeError: If the file cannot be made, is of something else, damaged, open to other accounts, or
            has two names.
    """

    # Connections of the process that this one was forked from, to be neither used nor closed.
    _left: ClassVar[list[sqlite3.Connection]] = []
    _alive: ClassVar[weakref.WeakValueDictionary[bytes, Ledger]] = weakref.WeakValueDictionary()

    def __init__(self, identity: Identity, path: str | os.PathLike[str] | None = None) -> None:
        self.identity = identity
        self.path = None if path is None else Path(path).expanduser().absolute()
        self._connection: sqlite3.Connection | None = None
        self._process = process()
        self._place = 0
        self._lock = RLock()
        self._mechanisms: dict[int, Mechanism] = {}
        self.name = os.urandom(16)
        self._alive[self.name] = self
        if self.path is not None:
            self._make_file(self.path)
        with self._opened() as connection:
            self._make_tables(connection)

    def __reduce__(self) -> Any:
        if self.path is None:
            return _of_name, (self.name, process())
        # A copy opens the file for itself, and refuses it if it is another one.
        kept = {name: getattr(self, name) for name in ("identity", "path", "_place")}
        return object.__new__, (Ledger,), kept | {"_connection": None, "_process": b"", "_mechanisms": {}}

    def __deepcopy__(self, memo: Any) -> Ledger:
        return self

    def number_of(self, mechanism: Mechanism) -> int:
        """Return the number of a mechanism, under which uses are counted."""
        with self._opened() as connection:
            self._read_mechanisms(connection)
            for number, counted in self._mechanisms.items():
                if counted.same(mechanism):
                    return number
            ratios = np.asarray(mechanism.ratios, "<f8").tobytes()
            values = (mechanism.name, ratios, mechanism.planned, mechanism.accepted)
            added = connection.execute("INSERT INTO channels VALUES (NULL, ?, ?, ?, ?)", values)
            number = int(added.lastrowid or 0)
            self._mechanisms[number] = mechanism
            return number

    def held(self, number: int, digests: Sequence[bytes] | None = None) -> Held:
        """Return what the channel of a number sees of some records, by default of all."""
        with self._opened() as connection:
            records = _words(digests or ())
            if digests is None:
                records = [record for (record,) in connection.execute("SELECT DISTINCT record FROM uses")]
            return self._held(connection, number, records, labelled=True)

    def charge(
        self,
        number: int,
        digests: Sequence[bytes],
        counts: Int[np.ndarray, " records"],
        check: Callable[[Held], None],
        *,
        once: bool = False,
        labels: Sequence[Label] = (),
        labelled: bool = False,
    ) -> Held:
        """Count uses of records with independent noise, all of them or none.

        Args:
            number: Number of the channel.
            digests: Digests of records, each once.
            counts: Uses of each that are to be added.
            check: Called with what is held after this charge. Raises where that is too much.
            once: Whether all runs show the same noisy copy of a record, so that they use it once together.
            labels: Labels that are released with them. One that was released before is not counted again.
            labelled: Whether the nats of labels are asked for.

        Returns:
            What was held before.

        Raises:
            GuaranteeError: If the file was taken away or cannot be written.
        """
        with self._opened() as connection:
            # What all runs have counted so far, and whether these uses fit into the plan.
            records = _words(digests)
            before = self._held(connection, number, records, labelled=labelled)
            counts = np.where(before.fresh_uses > 0, 0, np.minimum(counts, 1)) if once else counts
            check(before.after(counts))
            # The uses, many in one statement, as each has a price of its own.
            used = [pair for pair in zip(records, counts.tolist(), strict=True) if pair[1]]
            for begin in range(0, len(used), _AT_ONCE):
                chunk = used[begin : begin + _AT_ONCE]
                values = ",".join([f"(?, {number}, ?)"] * len(chunk))
                connection.execute(_ADDED.format(values), [*chain(*chunk)])
            # The labels that are new, and the totals by which a damaged file is recognised.
            released = [(*_words(keys), nats) for *keys, nats in labels]
            new = connection.executemany("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", released).rowcount
            total = "UPDATE total SET uses = uses + ?, labels = labels + ?"
            connection.execute(total, (int(counts.sum()), new))
        return before

    @property
    def counted(self) -> int:
        """Number of uses of all records, 0 of a copy in memory that another process has made."""
        if self.path is None and self._process != process():
            return 0
        with self._opened() as connection:
            return int(connection.execute("SELECT uses FROM total").fetchone()[0])

    def check_process(self) -> None:
        """Refuse to count in memory in another process than that of the original.

        Raises:
            GuaranteeError: If this is a copy in one.
        """
        if self.path is None and self._process != process():
            raise GuaranteeError(
                "this channel comes from another process, and uses are counted in one: make and fit it here "
                "(n_jobs=1), give it a ledger=PATH, or transform the records once and give the noisy ones to the search"
            )

    def _held(
        self, connection: sqlite3.Connection, number: int, records: Sequence[int], *, labelled: bool = False
    ) -> Held:
        """Read what is held about some records, with labels if they are asked for."""
        held = Held.nothing(len(records))
        places = {record: place for place, record in enumerate(records)}
        for begin in range(0, len(records), _AT_ONCE):
            chunk = records[begin : begin + _AT_ONCE]
            of_chunk = f"WHERE record IN ({','.join('?' * len(chunk))})"
            query = f"SELECT * FROM uses {of_chunk} ORDER BY record, channel"
            uses = connection.execute(query, chunk).fetchall()
            channels = {channel for _, channel, _ in uses}
            if channels <= {number}:  # what other mechanisms see of it is not asked
                held.fresh_uses[[places[record] for record, _, _ in uses]] = [count for *_, count in uses]
                uses = []
            elif not {number, *channels} <= self._mechanisms.keys():
                self._read_mechanisms(connection)
            for record, of_record in groupby(uses, key=itemgetter(0)):
                schedule = tuple((self._mechanisms[channel], count) for _, channel, count in of_record)
                place = places[record]
                seen = seen_by(self._mechanisms[number], schedule)
                held.fresh_uses[place], held.parallel[place], held.others[place] = seen
            released = f"SELECT record, sum(nats) FROM labels {of_chunk} GROUP BY record"
            for record, nats in connection.execute(released, chunk) if labelled else ():
                held.labels[places[record]] = nats
        return held

    def _read_mechanisms(self, connection: sqlite3.Connection) -> None:
        """Read the channels that are counted."""
        for number, name, ratios, *accepted in connection.execute("SELECT * FROM channels"):
            self._mechanisms[number] = Mechanism(name, np.frombuffer(ratios, "<f8"), *accepted)

    def _make_file(self, path: Path) -> None:
        """Make the file if it is not there, and refuse what is no ledger of the owner's."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise GuaranteeError(
                f"ledger = {path}: {error.strerror}, so give a file in a folder of yours"
            ) from error
        if not path.is_file():
            raise GuaranteeError(f"ledger = {path}: it is no file, so give the path of one")
        status = path.stat()
        if (mode := status.st_mode & 0o777) & 0o077:
            raise GuaranteeError(
                f"ledger = {path}: its mode is {mode:o}, so others can read it: chmod 600 it first"
            )
        if status.st_nlink > 1:
            raise GuaranteeError(
                f"ledger = {path}: the file has {status.st_nlink} names, and its journal lies next to one of them: "
                "remove the other hard links"
            )

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new file, or read the key of one that is whole."""
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for table in _TABLES:
                connection.execute(table)
            key = (self.identity.key, int(self.identity.double))
            connection.execute("INSERT INTO key VALUES (?, ?)", key)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION or version != _FORMAT:
            advice = "a database of something else: give another one"
            if application == _APPLICATION:
                advice = "of another version of leakbound: go on with that, as this one cannot add its uses"
            raise GuaranteeError(f"ledger = {self.path}: the file is {advice}")
        if not connection.execute(_WHOLE).fetchone()[0]:
            raise GuaranteeError(
                f"ledger = {self.path}: its counts do not add up, so it was copied while it was written, or its "
                f"{self.path and self.path.name}-journal is missing: bring back both files together"
            )
        key, double = connection.execute("SELECT key, double FROM key").fetchone()
        self.identity = Identity(key, bool(double))

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that nobody else writes during. An error undoes it."""
        self.check_process()
        if self._process != process():
            self._lock = RLock()  # another thread may have held the other one when this process was forked
        try:
            with self._lock:
                connection = self._connected()
                self._check_place()  # a journal at the path may be that of another file
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._check_place()  # others may have written for a while
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise GuaranteeError(f"ledger = {self.path}: {error}, so no use can be counted in it") from error

    def _connected(self) -> sqlite3.Connection:
        """Return the connection of this process."""
        if self._connection is not None and self._process == process():
            return self._connection
        if self._connection is not None:
            self._left.append(self._connection)
        place = ":memory:" if self.path is None else f"{self.path.as_uri()}?mode=rw"  # is never made here
        self._connection = sqlite3.connect(
            place, timeout=_WAIT, isolation_level=None, check_same_thread=False, uri=self.path is not None
        )
        # All counts lie in the file after each transaction, whoever is killed. Only a machine that fails may lose
        # the last ones, or damage the file, which is then refused. The journal that stays is void by its header.
        self._connection.execute("PRAGMA journal_mode = PERSIST")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._process = process()
        self._place = self._place or self._inode()
        return self._connection

    def _check_place(self) -> None:
        """Refuse another file at the path than the one that was opened."""
        if self._place != self._inode():
            raise GuaranteeError(f"ledger = {self.path}: it was removed or replaced, so begin the run again")

    def _inode(self) -> int:
        """Return the number of the file at the path, 0 without one."""
        try:
            return 0 if self.path is None else self.path.stat().st_ino
        except OSError:
            return 0


def _of_name(name: bytes, made_in: bytes) -> Ledger:
    """Return the uses of this process under a name, or, in another process, ones that refuse to count."""
    if made_in == process() and name in Ledger._alive:
        return Ledger._alive[name]
    foreign = object.__new__(Ledger)
    foreign.path, foreign._process, foreign.name = None, made_in, name
    foreign.identity = Identity.made(double=False)
    return foreign
