"""The ledger of uses: what each record went through, channels by their ratios and labels by their response.

A ledger always counts: one in memory, or one SQLite file to which all runs and processes that name it add. What
a release takes is charged in one transaction before it, and is granted or refused there. A process that is
killed between the two has counted a use that nobody saw, never the reverse. SQLite's rollback journal leaves
all counts in the file itself after each release, and its locks order the processes of one machine. A network's
file system often has no such locks.

Uses and labels lie under the record, and an owner is a list of records. Whatever these have gone through counts
for the owner, also what they went through before anybody named one. How records of an owner depend on each other
is not known, so their nats are added, which bounds what they reveal together whatever they have in common.

Records with noise from a seed stay noted, whatever noise they have later: whoever knows or tries the seed
subtracts it. Versions before the fifth did not note it. What they counted is of unknown origin, unless the name
of a channel says that a seed repeats its copies.

64 bits of a digest stand for a record. Two of a million records agree in them with a probability of 3·10⁻⁸.
They then count as one record, whose stated nats are those of both.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from leakbound import storage
from leakbound.accounting.leakage import Exposure, Mechanism, Schedule, seen_by
from leakbound.accounting.statement import EQUAL_LABELS, OTHER_VALUES
from leakbound.channels.composition import determinant_nats
from leakbound.channels.covariance import Moments
from leakbound.engine.calibrations import NearCopies
from leakbound.engine.identity import KEY, VALUES, Label, owner_file
from leakbound.engine.refusals import CapacityWarning, GuaranteeError

_APPLICATION = 0x6C65616B  # "leak", in the header of the file
_WAIT = 60.0  # seconds for other processes
_AT_ONCE = 512  # records in one statement
_SCHEDULES = 4096  # whose nats are kept
_FORMAT = 5
_USES = (
    "CREATE TABLE uses (record INTEGER NOT NULL, channel INTEGER NOT NULL, count INTEGER NOT NULL, "
    "releases INTEGER NOT NULL CHECK (count BETWEEN 0 AND releases), PRIMARY KEY (record, channel)) "
    "STRICT, WITHOUT ROWID"
)
_ABOUT = (
    "CREATE TABLE about (number BLOB NOT NULL, since TEXT NOT NULL, key BLOB NOT NULL) STRICT",
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, began TEXT NOT NULL) STRICT",
    "CREATE TABLE precisions (width INTEGER PRIMARY KEY, double INTEGER NOT NULL) STRICT",
    "CREATE TABLE owners (record INTEGER NOT NULL, owner INTEGER NOT NULL, PRIMARY KEY (record, owner)) "
    "STRICT, WITHOUT ROWID",
    "CREATE INDEX records ON owners (owner)",
)
_CELLS = (  # by which near copies are found
    "CREATE TABLE cells (cell INTEGER PRIMARY KEY, record INTEGER NOT NULL) STRICT",
    "CREATE INDEX cells_of ON cells (record)",
    "CREATE TABLE grids (width INTEGER PRIMARY KEY, mean BLOB NOT NULL, axes BLOB NOT NULL) STRICT",
    f"PRAGMA application_id = {_APPLICATION}",
)
_SEEDED = (  # records with noise from a seed, or, if that is not sure, with uses of versions that did not note it
    "CREATE TABLE seeded (record INTEGER PRIMARY KEY, sure INTEGER NOT NULL) STRICT",
    f"PRAGMA user_version = {_FORMAT}",
)
_CHANNELS = (
    "CREATE TABLE channels (id INTEGER PRIMARY KEY, law TEXT NOT NULL, ratios BLOB NOT NULL, "
    "planned INTEGER NOT NULL DEFAULT 1, accepted REAL, axes TEXT NOT NULL DEFAULT '', precisions BLOB) STRICT"
)
_TABLES = (
    _CHANNELS,
    _USES,
    "CREATE TABLE labels (record INTEGER NOT NULL, label INTEGER NOT NULL, nats REAL NOT NULL, "
    "PRIMARY KEY (record, label)) STRICT, WITHOUT ROWID",
    "CREATE TABLE total (uses INTEGER NOT NULL, labels INTEGER NOT NULL) STRICT",
    "INSERT INTO total VALUES (0, 0)",
    *_ABOUT,
    *_CELLS,
    *_SEEDED,
)
_AXES = (
    "ALTER TABLE channels ADD COLUMN axes TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE channels ADD COLUMN precisions BLOB",
    *_CELLS,
)
_UNKNOWN_SEEDS = (
    *_SEEDED,
    "INSERT INTO seeded SELECT record, max(law GLOB '*, frozen, *') FROM uses JOIN channels ON channel = id "
    "GROUP BY record",
)
_FROM_SECOND = (
    *_ABOUT,
    "INSERT INTO precisions SELECT 0, double FROM key",  # of records of any other width
    "DROP TABLE key",
    "ALTER TABLE uses RENAME TO earlier",
    _USES,
    "INSERT INTO uses SELECT record, channel, count, count FROM earlier",
    "DROP TABLE earlier",
)
_CHARGE_USES = (
    "INSERT INTO uses VALUES {values} ON CONFLICT DO UPDATE SET count = {count}, "
    "releases = releases + excluded.releases RETURNING record, count"
)
_RAISE_USES = (
    "INSERT INTO uses VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = max(count, excluded.count), "
    "releases = max(releases, excluded.releases)"
)
_NOTE_SEEDED = "INSERT INTO seeded VALUES (?, ?) ON CONFLICT DO UPDATE SET sure = max(sure, excluded.sure)"
_RECORDS = "SELECT record FROM uses UNION SELECT record FROM labels"
_TOTALS_AGREE = (
    "SELECT (SELECT ifnull(sum(count), 0) FROM uses) = uses "
    "AND (SELECT count(*) FROM labels) = labels FROM total"
)
_processes: dict[int, bytes] = {}  # names by process id; a fork adds its own


def process() -> bytes:
    """Name this process, which neither a fork nor another machine has."""
    return _processes.setdefault(os.getpid(), os.urandom(16))


@dataclass(frozen=True)
class Rows:
    """Rows about some records, as states and ranks pass them on.

    Attributes:
        mechanisms: Channels.
        uses: Record, place among the channels, uses with independent noise, and all uses of each row.
        labels: Released labels.
        owners: Record and owner of each row.
        cells: Record and word of each cell that it lies in.
        seeded: Records with noise from a seed, each with 1, or with 0 if nobody has noted whether it is.
    """

    mechanisms: tuple[Mechanism, ...]
    uses: Sequence[tuple[int, int, int, int]]
    labels: Sequence[Label] = ()
    owners: Sequence[tuple[int, int]] = ()
    cells: Sequence[tuple[int, int]] = ()
    seeded: Sequence[tuple[int, int]] = ()


class Ledger:
    """Count what records go through.

    ``Ledger()`` counts in memory, :meth:`create` makes a file, and :meth:`open` opens one. A copy in memory, or
    a pickle that is loaded in the process that made it, is the same object. In another process it refuses to
    count. Copies of one in a file open the file for themselves.

    Args:
        key: Key of digests. Default: a random one.

    Attributes:
        path: File, None in memory.
        key: Key of digests: that of the file.
        number: Name of the ledger, which copies of its file have, too.
        since: Day on which it was made.

    Example:
        >>> from leakbound.accounting.leakage import Mechanism
        >>> ledger = Ledger()
        >>> channel = ledger.number_of(Mechanism("natural", np.ones(4)))
        >>> ledger.charge(channel, np.array([7, 8]), np.array([1, 2]), lambda exposure: None).fresh_uses.tolist()
        [1, 2]
    """

    # Connections of the process that this one was forked from, to be neither used nor closed.
    _inherited: ClassVar[list[sqlite3.Connection]] = []
    # Where a pickle finds the ledger in memory that it is of, and where copies from elsewhere find their heir.
    _in_memory: ClassVar[weakref.WeakValueDictionary[tuple[bytes, bytes], Ledger]] = (
        weakref.WeakValueDictionary()
    )
    _heirs: ClassVar[dict[tuple[bytes, bytes], Ledger]] = {}

    def __init__(self, key: bytes | None = None) -> None:
        self._initialise(None, os.urandom(KEY) if key is None else key)

    def _initialise(self, path: Path | None, key: bytes) -> None:
        """Set what distinguishes this ledger. One in memory is made now, and a file is opened at its first use."""
        self.path = path
        self.key = key
        self.number = os.urandom(16)
        self.since = datetime.now(UTC).date().isoformat()
        self._process = process()
        self._place = 0
        self._reset()
        if path is None:
            self._in_memory[process(), self.number] = self
            with self._transaction() as connection:
                self._make_tables(connection)

    def _reset(self) -> None:
        """Drop the connection and all that was read and computed elsewhere."""
        self._connection: sqlite3.Connection | None = None
        self._lock = RLock()
        self._run = False
        self._warned = False
        self._mechanisms: dict[int, Mechanism] = {}
        self._splits: dict[Any, tuple[float | int, float, float]] = {}  # nats by schedule
        self._moments: dict[str, Moments] = {}
        self._near: dict[tuple[int, str], NearCopies] = {}

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Ledger:
        """Make a ledger in a new file of mode 0600.

        Raises:
            GuaranteeError: If there is a file already, or none can be made.
        """
        place = Path(path).expanduser().absolute()
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise GuaranteeError(
                f"ledger = {place}: it is there already, so name it where records are released, or give another path"
            ) from None
        except OSError as error:
            raise GuaranteeError(
                f"ledger = {place}: {error.strerror}, so give a file in a folder of yours"
            ) from error
        ledger = object.__new__(cls)
        ledger._initialise(place, os.urandom(KEY))
        with ledger._transaction() as connection:
            ledger._make_tables(connection)
        ledger._note_place()
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open the ledger in a file. That of an earlier version, from the second on, is brought to this one.

        Raises:
            GuaranteeError: If there is none, or the file is of something else, damaged, open to other
                accounts, or has two names.
        """
        place = Path(path).expanduser().absolute()
        if not place.exists():
            raise GuaranteeError(
                f"ledger = {place}: it is not there, and a new one would forget the uses of earlier runs, so make "
                f"it once, before the first release: leakbound ledger new {place}"
            )
        if not place.is_file():
            raise GuaranteeError(f"ledger = {place}: it is no file, so give the path of one")
        status = place.stat()
        if (mode := status.st_mode & 0o777) & 0o077:
            raise GuaranteeError(
                f"ledger = {place}: its mode is {mode:o}, so others can read it: chmod 600 it first"
            )
        if status.st_nlink > 1:
            raise GuaranteeError(
                f"ledger = {place}: the file has {status.st_nlink} names, and its journal lies next to one of them: "
                "remove the other hard links"
            )
        ledger = object.__new__(cls)
        ledger._initialise(place, b"")
        with ledger._transaction() as connection:
            ledger._read_about(connection)
        ledger._note_place()
        return ledger

    @classmethod
    def at(cls, place: Ledger | str | os.PathLike[str] | None, key: bytes) -> Ledger:
        """Return a ledger as it is, that of a file, or a new one in memory under a key."""
        if isinstance(place, Ledger):
            return place
        return cls(key) if place is None else cls.open(place)

    def __reduce__(self) -> Any:
        if self.path is None:
            return Ledger.in_memory, (self.number, self.key, process())
        # A copy opens the file for itself, and refuses it if it is another one.
        kept = {name: getattr(self, name) for name in ("path", "key", "number", "since", "_place")}
        return object.__new__, (Ledger,), kept | {"_process": b""}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __deepcopy__(self, memo: Any) -> Ledger:
        return self

    def in_this_process(self, key: bytes) -> Ledger:
        """Return the ledger that counts in this process: this one, or, of one in memory elsewhere, its heir here.

        An heir knows the states alone that are loaded into it. All copies of a ledger have one in a process.

        Args:
            key: Key of a new heir.
        """
        if self.path is not None or self._process == process():
            return self
        place = process(), self.number
        if place not in self._heirs:
            self._heirs[place] = Ledger(key)
        return self._heirs[place]

    @classmethod
    def in_memory(cls, number: bytes, key: bytes, made_in: bytes) -> Ledger:
        """Return the ledger in memory of a number, or one that refuses to count where that is gone or elsewhere.

        Args:
            number: Number of the ledger.
            key: Key of its digests.
            made_in: Name of the process that made it.
        """
        if (here := cls._in_memory.get((process(), number))) is not None:
            return here
        foreign = object.__new__(cls)
        made_in = b"" if made_in == process() else made_in  # it is gone
        foreign.path = None
        foreign.key = key
        foreign.number = number
        foreign._process = made_in
        foreign._reset()
        return foreign

    @property
    def foreign(self) -> bool:
        """True if it lies in the memory of another process, and so cannot count here."""
        return self.path is None and self._process != process()

    def records(self) -> Int[np.ndarray, " records"]:
        """Return the words of all records that it knows."""
        with self._transaction() as connection:
            rows = connection.execute(_RECORDS).fetchall()
        return np.array(rows, np.int64).reshape(-1)

    def check_process(self) -> None:
        """Refuse to count in memory in another process than that of the original.

        Raises:
            GuaranteeError: If this is a copy in one.
        """
        if self.path is None and self._process != process():
            raise GuaranteeError(
                f"process {os.getpid()} was forked from the one that counts these uses, or was given a copy by it, and "
                "that one would not know of uses here: make the engine or channel in the process that uses it "
                "(n_jobs=1), or count in a file: give for_data a ledger, or where it is a Channel give it a ledger=PATH"
            )

    @property
    def counted(self) -> int:
        """Number of uses of all records, 0 of a copy in memory that another process has made."""
        if self.path is None and self._process != process():
            return 0
        with self._transaction() as connection:
            return int(connection.execute("SELECT uses FROM total").fetchone()[0])

    def about(self) -> str:
        """Say since when it counts, in how many runs, and how many records."""
        with self._transaction() as connection:
            runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
            records = len(connection.execute(_RECORDS).fetchall())
        return f"since {self.since}, {runs} run{'s' * (runs != 1)}, {records} record{'s' * (records != 1)}"

    def channels(self) -> list[tuple[Mechanism, int, int]]:
        """List the channels with the number of records that went through each, and the most uses of one."""
        with self._transaction() as connection:
            self._read_mechanisms(connection)
            query = "SELECT channel, count(*), max(count) FROM uses WHERE count > 0 GROUP BY channel"
            rows = connection.execute(query).fetchall()
        return [(self._mechanisms[channel], records, most) for channel, records, most in rows]

    def about_labels(self) -> str:
        """Say how many records have released labels, and whether all of these are counted."""
        with self._transaction() as connection:
            query = "SELECT count(DISTINCT record) FROM labels WHERE "
            counted = connection.execute(f"{query} nats > 0 AND nats < 9e999").fetchone()[0]
            uncounted = connection.execute(f"{query} nats = 9e999").fetchone()[0]
            values = connection.execute(f"{query} label = {VALUES} AND nats = 0").fetchone()[0]
        return (
            f"labels are counted of {counted} records, and were released without a count of {uncounted}; other values "
            f"were released of {values}"
        )

    def uncovered(self) -> tuple[str, ...]:
        """Say what was released besides inputs and is in no number.

        Equal labels of a record are counted once. Two columns differ in those of some records, which then have more.
        Other values, which their owner allowed, have no bound.
        """
        query = "SELECT count(*) AS labels FROM labels WHERE nats > 0 AND nats < 9e999 GROUP BY record"
        others = f"SELECT EXISTS (SELECT 1 FROM labels WHERE label = {VALUES} AND nats = 0)"
        with self._transaction() as connection:
            numbers = connection.execute(f"SELECT count(DISTINCT labels) FROM ({query})").fetchone()[0]
            released = {EQUAL_LABELS: numbers > 1, OTHER_VALUES: connection.execute(others).fetchone()[0]}
        return tuple(what for what, there in released.items() if there)

    def double(self, width: int, needed: bool) -> bool:
        """Return whether records of ``width`` values are equal as float64, and not as float32.

        The first that counts records of this width decides, as a record has one name in a ledger.

        Args:
            width: Values of a record.
            needed: Whether float32 resolves too little of the calibration records.
        """
        with self._transaction() as connection:
            chosen = "SELECT double FROM precisions WHERE width IN (?, 0) ORDER BY width DESC"
            if (row := connection.execute(chosen, (width,)).fetchone()) is None:
                connection.execute("INSERT INTO precisions VALUES (?, ?)", (width, int(needed)))
            return needed if row is None else bool(row[0])

    def near_copies(self, moments: Moments, *, private: bool = False) -> NearCopies:
        """Return the comparison of records with nearly equal ones, by the grid that the ledger has for their width.

        The moments stay at hand, too, for determinants of channels that were calibrated to them.

        Args:
            moments: Of the calibration records.
            private: Whether these are the private records themselves. A file keeps no grid of theirs, so that near
                copies are found across runs of equal calibrations, or where public records have given a grid.
        """
        if moments.name not in self._moments:
            self._moments[moments.name] = moments
            self._splits.clear()
        width = moments.dimension
        hidden = private and self.path is not None
        place = (width, moments.name if hidden else "")
        if place not in self._near:
            near = NearCopies(moments)
            if near.axes is not None and not self.foreign:
                with self._transaction() as connection:
                    grid = connection.execute(
                        "SELECT mean, axes FROM grids WHERE width = ?", (width,)
                    ).fetchone()
                    if grid is not None:
                        near.mean = np.frombuffer(grid[0], "<f8")
                        near.axes = np.frombuffer(grid[1], "<f8").reshape(len(near.mean), -1)
                    elif hidden:
                        near.name_cells()
                    else:
                        values = (width, near.mean.astype("<f8").tobytes(), near.axes.astype("<f8").tobytes())
                        connection.execute("INSERT INTO grids VALUES (?, ?, ?)", values)
            self._near[place] = near
        return self._near[place]

    def number_of(self, mechanism: Mechanism) -> int:
        """Return the number of a mechanism, under which uses are counted."""
        with self._transaction() as connection:
            return self._number_of(connection, mechanism)

    def exposure(self, number: int, records: Int[np.ndarray, " records"], *, more: int = 0) -> Exposure:
        """Return what the channel of a number sees of some records.

        Of records with an owner, the nats of its other records are among the others.

        Args:
            number: Number of the channel.
            records: The records.
            more: Uses of the channel that each record is taken to have beyond those that are counted.
        """
        different, which = np.unique(records, return_inverse=True)
        with self._transaction() as connection:
            seen = self._read_exposure(connection, number, different.tolist(), labelled=True, more=more)
        return Exposure(**{part.name: getattr(seen, part.name)[which] for part in fields(seen)})

    def releases(self, number: int, records: Int[np.ndarray, " records"]) -> Int[np.ndarray, " records"]:
        """Return all uses of records through a channel, those of frozen copies included."""
        different, which = np.unique(records, return_inverse=True)
        query = f"SELECT record, max(count, releases) FROM uses WHERE channel = {number} AND record"
        with self._transaction() as connection:
            counts = dict(self._select(connection, query, different.tolist()))
        return np.array([counts.get(record, 0) for record in different.tolist()], np.int64)[which]

    def owners(self, records: Int[np.ndarray, " records"]) -> Int[np.ndarray, " records"]:
        """Return the owner of each record, 0 without one."""
        with self._transaction() as connection:
            query = "SELECT record, min(owner) FROM owners WHERE record"
            of_record = dict(self._select(connection, query, np.unique(records).tolist(), "GROUP BY record"))
        return np.array([of_record.get(record, 0) for record in records.tolist()], np.int64)

    def group_sizes(self, records: Int[np.ndarray, " records"]) -> Int[np.ndarray, " records"]:
        """Return how many records the owner of each record has, also in other runs, 0 without one.

        Of two owners it is the one with more.
        """
        with self._transaction() as connection:
            siblings = self._siblings(connection, np.unique(records).tolist())
        numbers = {record: max(map(len, of_owners)) for record, of_owners in siblings.items()}
        return np.array([numbers.get(record, 0) for record in records.tolist()], np.int64)

    def seeded(self, records: Int[np.ndarray, " records"] | None = None) -> tuple[int, int]:
        """Count the records with noise from a seed, and those with uses of which nobody has noted whether it is.

        Args:
            records: The records, with which all others of their owners are counted. Default: all.
        """
        with self._transaction() as connection:
            query = "SELECT count(*), ifnull(sum(sure), 0) FROM seeded"
            noted, sure = connection.execute(query).fetchone()
            if noted and records is not None:
                keys = np.unique(records).tolist()
                every = {*keys, *chain(*chain(*self._siblings(connection, keys).values()))}
                counts = self._select(connection, f"{query} WHERE record", [*every])
                noted, sure = map(sum, zip((0, 0), *counts, strict=True))
        return sure, noted - sure

    def about_noise(self) -> str:
        """Say how many records have noise from a seed, and of how many nobody has noted it."""
        seeded, unknown = self.seeded()
        return (
            f"noise is from a seed, which whoever knows or tries it subtracts, in uses of {seeded} records; uses of "
            f"{unknown} others were counted by a version that did not note it"
        )

    def charge(
        self,
        number: int,
        records: Int[np.ndarray, " records"],
        counts: Int[np.ndarray, " records"],
        check: Callable[[Exposure], None],
        *,
        releases: Int[np.ndarray, " records"] | None = None,
        once: bool = False,
        seeded: bool = False,
        labels: Sequence[Label] = (),
        owners: Sequence[tuple[int, int]] = (),
        cells: Sequence[tuple[int, int]] = (),
    ) -> Exposure:
        """Count uses of records with independent noise, all of them or none.

        Args:
            number: Number of the channel.
            records: Words of records, each once.
            counts: Uses of each that are to be added.
            check: Called with the exposure of the records after this charge. Raises where that is too much.
            releases: All uses of each, those of a frozen copy included. Default: ``counts``.
            once: Whether all runs show the same noisy copy of a record, so that they use it once together.
            seeded: Whether a seed repeats the noise, which is noted for good.
            labels: Labels that are released with them. One that was released before is not counted again.
            owners: Records with their owners. A record of two owners counts for both.
            cells: Records with the cells that they lie in. Another record in one of these is warned of.

        Returns:
            The exposure of the records after it.

        Raises:
            GuaranteeError: If the file was taken away or cannot be written.
        """
        with self._transaction() as connection:
            if not self._run:
                connection.execute("INSERT INTO runs VALUES (NULL, ?)", (datetime.now(UTC).isoformat(),))
            if owners:
                connection.executemany("INSERT OR IGNORE INTO owners VALUES (?, ?)", owners)
            # The uses, many in one statement, as each has a price of its own.
            keys = records.tolist()
            added = int(counts.sum()) if not once else self._count_unused(connection, number, keys)
            rows = list(
                zip(keys, counts.tolist(), (counts if releases is None else releases).tolist(), strict=True)
            )
            count = "max(count, excluded.count)" if once else "count + excluded.count"
            after: dict[int, int] = {}
            for chunk in _chunks(rows):
                values = ",".join([f"(?, {number}, ?, ?)"] * len(chunk))
                statement = _CHARGE_USES.format(values=values, count=count)
                after.update(connection.execute(statement, [*chain(*chunk)]).fetchall())
            if seeded:
                connection.executemany(_NOTE_SEEDED, [(record, 1) for record in keys])
            # Whether they fit into the plan. If not, all of this is undone.
            exposure = self._read_exposure(connection, number, keys, after)
            check(exposure)
            # The labels that are new, and the totals by which a damaged file is recognised.
            new = 0
            for chunk in _chunks(labels):
                values = ",".join(["(?, ?, ?)"] * len(chunk))
                new += connection.execute(
                    f"INSERT OR IGNORE INTO labels VALUES {values}", [*chain(*chunk)]
                ).rowcount
            connection.execute("UPDATE total SET uses = uses + ?, labels = labels + ?", (added, new))
            near = self._note_cells(connection, cells)
        self._run = True
        if near and not self._warned:
            self._warned = True
            NearCopies.warn("another private")
        return exposure

    def rows(self, records: Int[np.ndarray, " records"]) -> Rows:
        """Return all rows about some records."""
        keys = np.unique(records).tolist()
        with self._transaction() as connection:
            uses = self._select(connection, "SELECT * FROM uses WHERE record", keys)
            labels = self._select(connection, "SELECT * FROM labels WHERE record", keys)
            owners = self._select(connection, "SELECT * FROM owners WHERE record", keys)
            cells = self._select(connection, "SELECT record, cell FROM cells WHERE record", keys)
            seeded = self._select(connection, "SELECT * FROM seeded WHERE record", keys)
            self._read_mechanisms(connection)
        numbers = sorted({channel for _, channel, _, _ in uses})
        mechanisms = tuple(self._mechanisms[number] for number in numbers)
        uses = [(record, numbers.index(channel), *counts) for record, channel, *counts in uses]
        return Rows(mechanisms, uses, labels, owners, cells, seeded)

    def merge(self, rows: Rows, repeated: Int[np.ndarray, " records"] | None = None) -> None:
        """Raise the counts of records to those of some rows.

        Args:
            rows: The rows.
            repeated: Records whose noise repeats, so that their uses of these channels are forgotten before. That it
                is from a seed stays noted.
        """
        keys = sorted({row[0] for row in rows.uses} | {*(() if repeated is None else repeated.tolist())})
        query = "SELECT record, sum(count) FROM uses WHERE record"
        with self._transaction() as connection:
            before = sum(count for _, count in self._select(connection, query, keys, "GROUP BY record"))
            numbers = [self._number_of(connection, mechanism) for mechanism in rows.mechanisms]
            if repeated is not None:
                forgotten = [(int(record), number) for record in repeated for number in numbers]
                connection.executemany("DELETE FROM uses WHERE record = ? AND channel = ?", forgotten)
            uses = [(record, numbers[place], *counts) for record, place, *counts in rows.uses]
            connection.executemany(_RAISE_USES, uses)
            connection.executemany("INSERT OR IGNORE INTO owners VALUES (?, ?)", rows.owners)
            connection.executemany(_NOTE_SEEDED, rows.seeded)
            self._note_cells(connection, rows.cells)
            new = connection.executemany(
                "INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", rows.labels
            ).rowcount
            added = (
                sum(count for _, count in self._select(connection, query, keys, "GROUP BY record")) - before
            )
            total = "UPDATE total SET uses = uses + ?, labels = labels + ?"
            connection.execute(total, (added, max(0, new)))

    # -- inside a transaction --------------------------------------------------------------------------------

    def _read_exposure(
        self,
        connection: sqlite3.Connection,
        number: int,
        records: Sequence[int],
        after: dict[int, int] | None = None,
        *,
        labelled: bool = False,
        more: int = 0,
    ) -> Exposure:
        """Read the exposure of different records, with labels if they are asked for.

        Args:
            connection: Inside a transaction.
            number: Number of the channel that sees them.
            records: The records.
            after: Uses of this channel, if they are known.
            labelled: Whether the nats of labels are asked for.
            more: As in :meth:`exposure`, of the records alone and not of others of their owners.
        """
        exposure = Exposure.nothing(len(records))
        channels, owned = connection.execute(
            "SELECT (SELECT count(*) FROM channels), EXISTS (SELECT 1 FROM owners)"
        ).fetchone()
        if channels != len(self._mechanisms):
            self._read_mechanisms(connection)
        if channels == 1 and not owned and after is not None and not labelled:
            exposure.fresh_uses[:] = [after[record] for record in records]
            return exposure
        # Records that have an owner count with its other records.
        siblings = self._siblings(connection, records) if owned else {}
        different = {*records}
        every = list({*different, *chain(*chain(*siblings.values()))})
        mechanism = self._mechanisms[number]
        seen = self._read_splits(connection, number, every, dict.fromkeys(different, more))
        labels: dict[int, float] = {}
        if labelled:
            query = "SELECT record, sum(nats) FROM labels WHERE record"
            labels = dict(self._select(connection, query, every, "GROUP BY record"))
        nats = {
            record: mechanism.nats(fresh + more) + others for record, (fresh, more, others) in seen.items()
        }
        for place, record in enumerate(records):
            own_uses = seen.get(record, (0, 0.0, 0.0))
            exposure.fresh_uses[place], exposure.parallel[place], exposure.others[place] = own_uses
            exposure.labels[place] = labels.get(record, 0.0)
            if record in siblings:
                totals = [sum(nats.get(sibling, 0.0) for sibling in others) for others in siblings[record]]
                exposure.siblings[place] = max(0.0, max(totals) - nats.get(record, 0.0))
                exposure.others[place] += exposure.siblings[place]
                exposure.labels[place] = max(
                    sum(labels.get(sibling, 0.0) for sibling in others) for others in siblings[record]
                )
        return exposure

    def _read_splits(
        self, connection: sqlite3.Connection, number: int, records: Sequence[int], more: dict[int, int]
    ) -> dict[int, tuple[float | int, float, float]]:
        """Read the uses of records, with more of some, and split them as the channel of a number sees them."""
        query = "SELECT record, channel, count FROM uses WHERE record"
        rows = self._select(connection, query, records, "ORDER BY record, channel")
        splits = {}
        for record, of_record in groupby(rows, key=itemgetter(0)):
            counts = {channel: count for _, channel, count in of_record}
            if more.get(record):
                counts[number] = counts.get(number, 0) + more[record]
            schedule = tuple((channel, count) for channel, count in counts.items() if count)
            splits[record] = self._split_uses(number, schedule)
        return splits

    def _split_uses(
        self, number: int, schedule: tuple[tuple[int, int], ...]
    ) -> tuple[float | int, float, float]:
        """Split the uses of a record as the channel of a number sees them, computed once for each schedule."""
        key = number, schedule
        if key not in self._splits:
            if len(self._splits) >= _SCHEDULES:
                self._splits.clear()
            uses = [(self._mechanisms[channel], count) for channel, count in schedule]
            self._splits[key] = seen_by(self._mechanisms[number], uses, self._determinant)
        return self._splits[key]

    def _determinant(self, uses: Schedule) -> float | None:
        """Compute nats of channels of one covariance, None if it is not at hand."""
        moments = self._moments.get(uses[0][0].axes)
        return None if moments is None else determinant_nats(uses, moments)

    def _note_cells(self, connection: sqlite3.Connection, cells: Sequence[tuple[int, int]]) -> bool:
        """Note the cells that records lie in, and return whether another record lies in one of them."""
        if not cells:
            return False
        connection.executemany(
            "INSERT OR IGNORE INTO cells VALUES (?, ?)", [(cell, record) for record, cell in cells]
        )
        query = "SELECT cell, record FROM cells WHERE cell"
        first = dict(self._select(connection, query, [cell for _, cell in cells]))
        return any(first[cell] != record for record, cell in cells)

    def _siblings(self, connection: sqlite3.Connection, records: Sequence[int]) -> dict[int, list[list[int]]]:
        """List all records of each owner of some records, by these."""
        pairs = self._select(connection, "SELECT record, owner FROM owners WHERE record", records)
        owners = sorted({owner for _, owner in pairs})
        of_owner: dict[int, list[int]] = defaultdict(list)
        for record, owner in self._select(connection, "SELECT record, owner FROM owners WHERE owner", owners):
            of_owner[owner].append(record)
        siblings: dict[int, list[list[int]]] = defaultdict(list)
        for record, owner in pairs:
            siblings[record].append(of_owner[owner])
        return siblings

    def _count_unused(self, connection: sqlite3.Connection, number: int, records: Sequence[int]) -> int:
        """Count the records that a channel has not shown."""
        query = f"SELECT record FROM uses WHERE channel = {number} AND count > 0 AND record"
        return len(records) - len(self._select(connection, query, records))

    @staticmethod
    def _select(
        connection: sqlite3.Connection, query: str, keys: Sequence[int], more: str = ""
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query whose last column is one of some keys, many keys in one statement."""
        rows: list[tuple[Any, ...]] = []
        for chunk in _chunks(keys):
            statement = f"{query} IN ({','.join('?' * len(chunk))}) {more}"
            rows += connection.execute(statement, chunk).fetchall()
        return rows

    def _number_of(self, connection: sqlite3.Connection, mechanism: Mechanism) -> int:
        """Return the number of a mechanism, a new one if it is not counted yet."""
        self._read_mechanisms(connection)
        for number, counted in self._mechanisms.items():
            if counted.same(mechanism):
                return number
        ratios = np.asarray(mechanism.ratios, "<f8").tobytes()
        precisions = mechanism.precisions
        along = None if precisions is None else precisions.astype("<f8").tobytes()
        values = (mechanism.name, ratios, mechanism.planned, mechanism.accepted, mechanism.axes, along)
        inserted = connection.execute("INSERT INTO channels VALUES (NULL, ?, ?, ?, ?, ?, ?)", values)
        number = int(inserted.lastrowid or 0)
        self._mechanisms[number] = mechanism
        return number

    def _read_mechanisms(self, connection: sqlite3.Connection) -> None:
        """Read the channels that are counted and not known yet."""
        last = (max(self._mechanisms, default=0),)
        for row in connection.execute("SELECT * FROM channels WHERE id > ?", last):
            number, name, ratios, planned, accepted, axes, along = row
            precisions = None if along is None else np.frombuffer(along, "<f8")
            self._mechanisms[number] = Mechanism(
                name, np.frombuffer(ratios, "<f8"), planned, accepted, axes, precisions
            )

    # -- the file --------------------------------------------------------------------------------------------

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new ledger."""
        for table in _TABLES:
            connection.execute(table)
        connection.execute("INSERT INTO about VALUES (?, ?, ?)", (self.number, self.since, self.key))

    def _read_about(self, connection: sqlite3.Connection) -> None:
        """Read what a file says of itself, and refuse one that is not whole."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION or version not in (2, 3, 4, _FORMAT):
            advice = "a database of something else: give another one"
            if application == _APPLICATION:
                advice = "of another version of leakbound: go on with that, as this one cannot add its uses"
            raise GuaranteeError(f"ledger = {self.path}: the file is {advice}")
        if not connection.execute(_TOTALS_AGREE).fetchone()[0]:
            raise GuaranteeError(
                f"ledger = {self.path}: its counts do not add up, so it was copied while it was written, or its "
                f"{self.path and self.path.name}-journal is missing: bring back both files together"
            )
        if version == 2:
            (key,) = connection.execute("SELECT key FROM key").fetchone()
            for statement in _FROM_SECOND:
                connection.execute(statement)
            about = (self.number, f"before {self.since}", key)
            connection.execute("INSERT INTO about VALUES (?, ?, ?)", about)
            connection.execute("INSERT INTO runs SELECT NULL, ? FROM total WHERE uses > 0", (about[1],))
        for statement in (*(_AXES if version < 4 else ()), *(_UNKNOWN_SEEDS if version < _FORMAT else ())):
            connection.execute(statement)
        self.number, self.since, self.key = connection.execute("SELECT * FROM about").fetchone()

    def _note_place(self) -> None:
        """Keep where this ledger lies, next to the owner's key, and warn if a copy of it lies elsewhere."""
        note = owner_file().parent / "ledgers" / self.number.hex()
        with suppress(OSError, sqlite3.Error):
            other = Path(note.read_text(encoding="utf-8")) if note.exists() else None
            if other == self.path:
                return
            if other is not None and other.exists() and not other.samefile(str(self.path)):
                with closing(sqlite3.connect(f"{other.as_uri()}?mode=ro", uri=True)) as connection:
                    (number,) = connection.execute("SELECT number FROM about").fetchone()
                if number == self.number:
                    warnings.warn(
                        f"ledger = {self.path}: it is a copy of {other}, or that is one of it, and the two count "
                        "apart: name one file in all runs, and remove the other",
                        CapacityWarning,
                        stacklevel=4,
                    )
                    return
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with storage.atomic(note, sealed=False, private=True) as part:
                part.write_text(str(self.path), encoding="utf-8")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that nobody else writes during. An error undoes it."""
        self.check_process()
        if self._process != process():
            self._lock = RLock()  # another thread may have held the other one when this process was forked
        try:
            with self._lock:
                connection = self._connection_here()
                self._check_place()  # a journal at the path may be that of another file
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._check_place()  # others may have written for a while
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                        self._mechanisms.clear()  # one may have been added
                        self._splits.clear()
        except sqlite3.Error as error:
            raise GuaranteeError(f"ledger = {self.path}: {error}, so no use can be counted in it") from error

    def _connection_here(self) -> sqlite3.Connection:
        """Return the connection of this process."""
        if self._connection is not None and self._process == process():
            return self._connection
        if self._connection is not None:
            self._inherited.append(self._connection)
        place = ":memory:" if self.path is None else f"{self.path.as_uri()}?mode=rw"  # is never made here
        self._connection = sqlite3.connect(
            place, timeout=_WAIT, isolation_level=None, check_same_thread=False, uri=self.path is not None
        )
        # All counts lie in the file after each transaction, whoever is killed. Only a machine that fails may lose
        # the last ones, or damage the file, which is then refused. The journal that stays is void by its header.
        self._connection.execute("PRAGMA journal_mode = PERSIST")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._process = process()
        self._run = False
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


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield as many rows as one statement takes."""
    for begin in range(0, len(rows), _AT_ONCE):
        yield rows[begin : begin + _AT_ONCE]
