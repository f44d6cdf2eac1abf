"""The record of uses: what each record went through, channels by their ratios and labels by their response.

It lies in memory, for all clones of a transformer in one process, or in one SQLite file, to which all runs and
processes add before each release. A process that is killed between the two has counted a use that nobody saw,
never the reverse. SQLite's rollback journal leaves all counts in the file itself after each release, and its
locks order the processes of one machine. A network's file system often has no such locks.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Num

from leakbound.accounting.leakage import joint_information
from leakbound.engine.identity import Identity
from leakbound.engine.refusals import GuaranteeError

_APPLICATION = 0x6C65616B  # "leak", in the header of the file
_FORMAT = 1
_WAIT = 60.0  # seconds for other processes
_AT_ONCE = 512  # records asked for in one query
_ALIKE = 1e-6  # relative difference of the variance ratios of equal channels, calibrated again
_TABLES = (
    "CREATE TABLE key (key BLOB NOT NULL, double INTEGER NOT NULL) STRICT",
    "CREATE TABLE channels (id INTEGER PRIMARY KEY, law TEXT NOT NULL, ratios BLOB NOT NULL) STRICT",
    "CREATE TABLE looks (digest BLOB NOT NULL, channel INTEGER NOT NULL, looks INTEGER NOT NULL CHECK (looks > 0), "
    "PRIMARY KEY (digest, channel)) STRICT, WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION}",
)
_SINCE_1 = (
    "ALTER TABLE looks RENAME TO uses",
    "ALTER TABLE uses RENAME COLUMN looks TO count",
    "ALTER TABLE channels ADD COLUMN planned INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE channels ADD COLUMN accepted REAL",
    "CREATE TABLE labels (digest BLOB NOT NULL, label BLOB NOT NULL, nats REAL NOT NULL, "
    "PRIMARY KEY (digest, label)) STRICT, WITHOUT ROWID",
    "CREATE TABLE total (uses INTEGER NOT NULL, labels INTEGER NOT NULL) STRICT",
    "INSERT INTO total SELECT ifnull(sum(count), 0), 0 FROM uses",
    f"PRAGMA user_version = {_FORMAT}",
)
_WHOLE = (
    "SELECT (SELECT ifnull(sum(count), 0) FROM uses) = uses "
    "AND (SELECT count(*) FROM labels) = labels FROM total"
)
Label = tuple[bytes, bytes, float]
"""A released label: the record's digest, a keyed digest of the label and its response, and its nats."""
_processes: dict[int, bytes] = {}  # names by process id; a fork adds its own


def process() -> bytes:
    """Name this process, which neither a fork nor another machine has."""
    return _processes.setdefault(os.getpid(), os.urandom(16))


@dataclass(frozen=True)
class Mechanism:
    """One way in which records are released.

    Attributes:
        name: Shape of the channel, followed by what repeats its noise, if anything does.
        ratios: (d,) variance ratios of one use, in [0, ∞].
        planned: Planned uses with independent noise.
        accepted: Nats of all planned uses that the owner accepted in place of the calibrated ones. None: those.
    """

    name: str
    ratios: Float[np.ndarray, " d"]
    planned: int = 1
    accepted: float | None = None

    def same(self, other: Mechanism) -> bool:
        """Return whether another mechanism is this one, up to the rounding of calibrations."""
        planned = self.accepted is None or self.planned == other.planned
        return (
            (self.name, self.accepted) == (other.name, other.accepted)
            and planned
            and self.ratios.shape == other.ratios.shape
            and np.allclose(self.ratios, other.ratios, rtol=_ALIKE, atol=0)
        )

    def nats(self, looks: float | int) -> float:
        """Bound the nats of a number of uses with independent noise, on average over records.

        Nats are concave in the uses, so that fewer uses than planned give at most what was accepted, and more
        at most that many times as much.
        """
        joint = joint_information(self.ratios, looks)
        if self.accepted is None or not looks:
            return joint
        return max(joint, self.accepted * max(1.0, looks / self.planned))

    def all_nats(self, looks: Num[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Compute :meth:`nats` of each number of uses."""
        kinds, kind_of = np.unique(looks, return_inverse=True)
        return np.array([self.nats(float(kind)) for kind in kinds])[kind_of.ravel()]

    def worth(self, other: Mechanism) -> float | None:
        """Return how many uses of this mechanism one use of another is, None if their axes may differ.

        Precisions of noise add along common axes, which channels of one shape with proportional ratios have.
        """
        alike = (
            self.name.split(",")[0] == other.name.split(",")[0] and self.accepted == other.accepted is None
        )
        if not alike or self.ratios.shape != other.ratios.shape:
            return None
        seen = (self.ratios > 0) | (other.ratios > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = other.ratios[seen] / self.ratios[seen]
        if not len(shares) or not np.isfinite(shares).all() or np.ptp(shares) > _ALIKE * shares.max():
            return None
        return float(shares.max())


@dataclass(frozen=True)
class Held:
    """Uses and nats of some records, as one channel sees them.

    Attributes:
        fresh_uses: (records,) uses through this channel with independent noise.
        parallel: (records,) uses of this channel that those of others along the same axes are worth.
        others: (records,) nats that uses along other axes have revealed.
        labels: (records,) nats that labels have revealed.
    """

    fresh_uses: Int[np.ndarray, " records"]
    parallel: Float[np.ndarray, " records"]
    others: Float[np.ndarray, " records"]
    labels: Float[np.ndarray, " records"]

    @classmethod
    def nothing(cls, count: int) -> Held:
        """Make that of records without uses."""
        return cls(np.zeros(count, np.int64), np.zeros(count), np.zeros(count), np.zeros(count))


class Uses:
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
    _alive: ClassVar[weakref.WeakValueDictionary[bytes, Uses]] = weakref.WeakValueDictionary()

    def __init__(self, identity: Identity, path: str | os.PathLike[str] | None = None) -> None:
        self.identity = identity
        self.path = None if path is None else Path(path).expanduser().absolute()
        self._connection: sqlite3.Connection | None = None
        self._process = b""
        self._place = 0
        self._lock = RLock()
        self._mechanisms: dict[int, Mechanism] = {}
        self._worths: dict[tuple[int, int], float | None] = {}
        self.name = os.urandom(16)
        self._alive[self.name] = self
        if self.path is not None:
            self._make_file(self.path)
        with self._opened(fresh=True) as connection:
            self._make_tables(connection)

    def __reduce__(self) -> Any:
        if self.path is None:
            return _of_name, (self.name, process())
        kept = {name: getattr(self, name) for name in ("identity", "path", "name", "_place")}
        return _of_file, (kept | {"_connection": None, "_process": b"", "_mechanisms": {}, "_worths": {}},)

    def __deepcopy__(self, memo: Any) -> Uses:
        return self

    def number_of(self, mechanism: Mechanism) -> int:
        """Return the number of a mechanism, under which uses are counted."""
        with self._opened() as connection:
            self._read_mechanisms(connection)
            for number, counted in self._mechanisms.items():
                if counted.same(mechanism):
                    return number
            added = connection.execute(
                "INSERT INTO channels (law, ratios, planned, accepted) VALUES (?, ?, ?, ?)",
                (
                    mechanism.name,
                    np.asarray(mechanism.ratios, "<f8").tobytes(),
                    mechanism.planned,
                    mechanism.accepted,
                ),
            )
            number = int(added.lastrowid or 0)
            self._mechanisms[number] = mechanism
            return number

    def held(self, number: int, digests: Sequence[bytes] | None = None) -> Held:
        """Return what the channel of a number sees of some records, by default of all."""
        with self._opened() as connection:
            if digests is None:
                query = "SELECT digest FROM uses UNION SELECT digest FROM labels"
                digests = [digest for (digest,) in connection.execute(query)]
            return self._held(connection, number, digests, labelled=True)

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
            before = self._held(connection, number, digests, labelled=labelled)
            counts = np.where(before.fresh_uses > 0, 0, np.minimum(counts, 1)) if once else counts
            check(Held(before.fresh_uses + counts, before.parallel, before.others, before.labels))
            added = zip(digests, counts.tolist(), strict=True)
            connection.executemany(
                "INSERT INTO uses VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
                [(digest, number, count) for digest, count in added if count],
            )
            new = 0
            if labels:
                new = connection.executemany("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", labels).rowcount
            total = "UPDATE total SET uses = uses + ?, labels = labels + ?"
            connection.execute(total, (int(counts.sum()), new))
        return before

    def refine(self, identity: Identity) -> None:
        """Distinguish records in float64 if an identity does and nothing is counted yet."""
        with self._opened() as connection:
            if identity.double and not connection.execute("SELECT uses FROM total").fetchone()[0]:
                self.identity = Identity(self.identity.key, True)

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
        self, connection: sqlite3.Connection, number: int, digests: Sequence[bytes], *, labelled: bool = False
    ) -> Held:
        """Read what is held about some records, with labels if they are asked for."""
        held = Held.nothing(len(digests))
        places = {digest: place for place, digest in enumerate(digests)}
        for begin in range(0, len(digests), _AT_ONCE):
            chunk = digests[begin : begin + _AT_ONCE]
            of_chunk = f"WHERE digest IN ({','.join('?' * len(chunk))})"
            for digest, channel, looks in connection.execute(f"SELECT * FROM uses {of_chunk}", chunk):
                place = places[digest]
                if channel == number:
                    held.fresh_uses[place] = looks
                elif (worth := self._worth(connection, number, channel)) is not None:
                    held.parallel[place] += worth * looks
                else:
                    held.others[place] += self._mechanisms[channel].nats(looks)
            released = f"SELECT digest, sum(nats) FROM labels {of_chunk} GROUP BY digest"
            for digest, nats in connection.execute(released, chunk) if labelled else ():
                held.labels[places[digest]] = nats
        return held

    def _worth(self, connection: sqlite3.Connection, number: int, other: int) -> float | None:
        """Return how many uses of one channel a use of another is, if they have common axes."""
        if other not in self._mechanisms:
            self._read_mechanisms(connection)
        if (number, other) not in self._worths:
            self._worths[number, other] = self._mechanisms[number].worth(self._mechanisms[other])
        return self._worths[number, other]

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
                f"ledger = {path}: the file has {status.st_nlink} names, and its journal lies parallel one of them: "
                "remove the other hard links"
            )

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new file, or read the key of one that is whole."""
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for table in _TABLES:
                connection.execute(table)
            connection.execute(
                "INSERT INTO key VALUES (?, ?)", (self.identity.key, int(self.identity.double))
            )
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION or version > _FORMAT:
            what = "a database of something else" if application != _APPLICATION else "of a later version"
            raise GuaranteeError(f"ledger = {self.path}: the file is {what}: give another one")
        if version < _FORMAT:
            for statement in _SINCE_1:
                connection.execute(statement)
        if not connection.execute(_WHOLE).fetchone()[0]:
            raise GuaranteeError(
                f"ledger = {self.path}: its counts do not add up, so it was copied while it was written, or its "
                f"{self.path and self.path.name}-journal is missing: bring back both files together"
            )
        key, double = connection.execute("SELECT key, double FROM key").fetchone()
        self.identity = Identity(key, bool(double))

    @contextmanager
    def _opened(self, fresh: bool = False) -> Iterator[sqlite3.Connection]:
        """Open a transaction that nobody else writes during. An error undoes it."""
        if not fresh:
            self.check_process()
        if self._process != process():
            self._lock = RLock()  # another thread may have held the other one when this process was forked
        try:
            with self._lock:
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    if not fresh and self._place != self._inode():
                        raise GuaranteeError(
                            f"ledger = {self.path}: it was removed or replaced, so begin the run again"
                        )
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
        # the last ones, or damage the file, which is then refused.
        self._connection.execute("PRAGMA journal_mode = TRUNCATE")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._process = process()
        self._place = self._place or self._inode()
        return self._connection

    def _inode(self) -> int:
        """Return the number of the file at the path, 0 without one."""
        try:
            return 0 if self.path is None else self.path.stat().st_ino
        except OSError:
            return 0


def _of_name(name: bytes, made_in: bytes) -> Uses:
    """Return the uses of this process under a name, or, in another process, ones that refuse to count."""
    if made_in == process() and name in Uses._alive:
        return Uses._alive[name]
    foreign = object.__new__(Uses)
    foreign.path, foreign._process, foreign.name = None, made_in, name
    return foreign


def _of_file(kept: dict[str, Any]) -> Uses:
    """Return the uses of a file, which a copy opens for itself and refuses if it is another one."""
    copied = object.__new__(Uses)
    copied.__dict__.update(kept, _lock=RLock())
    return copied
