"""Uses of records on disk, in one SQLite file to which all runs and processes add before each release.

A process that is killed between the two has counted a use that nobody saw, never the reverse. SQLite's
write-ahead log and locks order the processes of one machine. A network's file system often has no such locks.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from leakbound.accounting.leakage import joint_information
from leakbound.engine.identity import Identity
from leakbound.engine.refusals import GuaranteeError

_APPLICATION = 0x6C65616B  # "leak", in the header of the file
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
Looks = tuple[Int[np.ndarray, " records"], Float[np.ndarray, " records"]]


class LedgerFile:
    """Count uses of records through channels on disk, by the records' digests.

    Args:
        path: Path of the file, which is made with mode 0600 if it is not there.
        identity: Key for a new file.

    Attributes:
        identity: Key of the file.

    Raises:
        GuaranteeError: If the file cannot be made, is of something else, damaged, or open to other accounts.
    """

    # Connections of the process that this one was forked from, to be neither used nor closed.
    _left: ClassVar[list[sqlite3.Connection]] = []

    def __init__(self, path: str | os.PathLike[str], identity: Identity) -> None:
        self.path = Path(path).expanduser().absolute()
        self._connection: sqlite3.Connection | None = None
        self._process = self._place = 0
        self._channel = 0
        self._ratios: dict[int, tuple[str, np.ndarray]] = {}  # by channel, with its name
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise GuaranteeError(
                f"ledger = {self.path}: {error.strerror}, so give a file in a folder of yours"
            ) from error
        if not self.path.is_file():
            raise GuaranteeError(f"ledger = {self.path}: it is no file, so give the path of one")
        if (mode := self.path.stat().st_mode & 0o777) & 0o077:
            raise GuaranteeError(
                f"ledger = {self.path}: its mode is {mode:o}, so others can read it: chmod 600 it first"
            )
        with self._opened(fresh=True) as connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for table in _TABLES:
                    connection.execute(table)
                connection.execute("INSERT INTO key VALUES (?, ?)", (identity.key, int(identity.double)))
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application != _APPLICATION:
                raise GuaranteeError(
                    f"ledger = {self.path}: the file is a database of something else: give another one"
                )
            key, double = connection.execute("SELECT key, double FROM key").fetchone()
            self.identity = Identity(key, bool(double))
        connection.execute("PRAGMA journal_mode = WAL")

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the connection, which a copy opens for itself."""
        return {**self.__dict__, "_connection": None, "_process": 0}

    def use(self, law: str, ratios: Float[np.ndarray, " d"]) -> None:
        """Count for the channel of this name and these variance ratios of one use from now on."""
        with self._opened() as connection:
            self._read_channels(connection)
            numbers = [
                number
                for number, (name, stored) in self._ratios.items()
                if name == law
                and stored.shape == ratios.shape
                and np.allclose(stored, ratios, rtol=_ALIKE, atol=0)
            ]
            if not numbers:
                added = connection.execute(
                    "INSERT INTO channels (law, ratios) VALUES (?, ?)",
                    (law, np.asarray(ratios, "<f8").tobytes()),
                )
                numbers = [int(added.lastrowid or 0)]
            self._channel = numbers[0]

    def looks(self, digests: Sequence[bytes]) -> Looks:
        """Return uses of records through the engine's channel, and the nats of all other channels."""
        with self._opened() as connection:
            return self._looks(connection, digests)

    def charge(
        self,
        digests: Sequence[bytes],
        counts: Int[np.ndarray, " records"],
        check: Callable[[Int[np.ndarray, " records"], Float[np.ndarray, " records"]], None],
        *,
        once: bool = False,
    ) -> Looks:
        """Count uses of records with independent noise, all of them or none.

        Args:
            digests: Digests of records, each once.
            counts: Uses of each that are to be added.
            check: Called with the uses after this charge and the nats of other channels. Raises where that is
                too much.
            once: Whether all runs show the same noisy copy of a record, so that they use it once together.

        Returns:
            Uses before, and the nats of other channels.

        Raises:
            GuaranteeError: If the file was taken away or cannot be written.
        """
        with self._opened() as connection:
            before, others = self._looks(connection, digests)
            counts = np.where(before > 0, 0, counts) if once else counts
            check(before + counts, others)
            connection.executemany(
                "INSERT INTO looks VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET looks = looks + excluded.looks",
                [
                    (digest, self._channel, count)
                    for digest, count in zip(digests, counts.tolist(), strict=True)
                    if count
                ],
            )
        return before, others

    def _looks(self, connection: sqlite3.Connection, digests: Sequence[bytes]) -> Looks:
        """Read the rows of the file for some records."""
        counts, others = np.zeros(len(digests), np.int64), np.zeros(len(digests))
        places = {digest: place for place, digest in enumerate(digests)}
        for begin in range(0, len(digests), _AT_ONCE):
            chunk = digests[begin : begin + _AT_ONCE]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT * FROM looks WHERE digest IN ({marks})"
            for digest, channel, looks in connection.execute(query, chunk):
                if channel == self._channel:
                    counts[places[digest]] = looks
                    continue
                if channel not in self._ratios:
                    self._read_channels(connection)
                others[places[digest]] += joint_information(self._ratios[channel][1], looks)
        return counts, others

    def _read_channels(self, connection: sqlite3.Connection) -> None:
        """Read the channels that the file holds."""
        for number, law, ratios in connection.execute("SELECT id, law, ratios FROM channels"):
            self._ratios[number] = law, np.frombuffer(ratios, "<f8")

    @contextmanager
    def _opened(self, fresh: bool = False) -> Iterator[sqlite3.Connection]:
        """Open a transaction that nobody else writes during. An error undoes it."""
        try:
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
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        if self._connection is not None:
            self._left.append(self._connection)
        self._connection = sqlite3.connect(
            self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._process = os.getpid()
        self._place = self._place or self._inode()
        return self._connection

    def _inode(self) -> int:
        """Return the number of the file at the path, 0 without one."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return 0
