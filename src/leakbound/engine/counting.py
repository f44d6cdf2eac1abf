"""Per-record use counts, updated before each release over indices, collections, ranks and runs."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int, Shaped

from leakbound.accounting.leakage import Held, Mechanism
from leakbound.engine.book import Book, order_of_use
from leakbound.engine.identity import Identity
from leakbound.engine.label_count import LabelCount
from leakbound.engine.ledger import Kept, Ledger, alike
from leakbound.engine.ranks import together
from leakbound.engine.records import Key
from leakbound.engine.refusals import BudgetError, GuaranteeError
from leakbound.engine.uses import Label, Uses, process

_COUNTED_APART = (
    "ranks have counted apart from each other: start torch.distributed before the first batch, and load one state on "
    "all ranks"
)
_APART = "where ranks hold different records, name them apart, protect(..., name=f'train{rank}')"
_ROUNDING = 1e-9  # relative, of nats that are compared


@dataclass(frozen=True)
class Plan:
    """Limit on the nats of a record, which all ranks share.

    Attributes:
        most: Planned uses with independent noise, None for no limit.
        mechanism: Channel of the engine.
        adds: Whether the target is met as long as nats of all channels stay within those of the planned uses.
        frozen: Whether noise is frozen.
        seeded: Whether a seed repeats it.
        facts: Facts about the channel and the plan, which all ranks must share.
    """

    most: int | None
    mechanism: Mechanism
    adds: bool
    frozen: bool
    seeded: bool
    facts: Mapping[str, Any]

    @property
    def once(self) -> bool:
        """True if every draw for a record gives the same copy, in whatever run."""
        return self.frozen and self.seeded

    def exceeded(self, held: Held) -> Int[np.ndarray, " over"]:
        """Find the records about which more nats are revealed than by the planned uses."""
        if self.most is None:
            return np.zeros(0, np.int64)
        # Nats grow with uses. Those of no more uses than planned, and of no other channel, are not computed.
        seen = held.fresh_uses + held.parallel
        places = np.flatnonzero(((seen > self.most) | (held.others > 0)) & (held.fresh_uses > 0))
        if not len(places):
            return places
        others = held.others[places]
        limit = self.mechanism.nats(self.most) * (1.0 + _ROUNDING)
        over = self.mechanism.all_nats(seen[places]) + others > limit
        over |= held.fresh_uses[places] > self.most
        return places[over | ((others > 0) & (not self.adds))]


@dataclass(frozen=True)
class Offer:
    """Records that one rank is about to release.

    ``facts`` are those of its plan, ``uses`` are all that it has counted, ``filed`` is the identity of its
    ledger on disk, ``sizes`` are the numbers of records of its collections, ``labels`` those of each record,
    and ``done`` says that it has no more batches.
    """

    facts: Mapping[str, Any]
    identity: Identity
    pristine: bool
    uses: int
    filed: Identity | None
    sizes: dict[str, int]
    names: Shaped[np.ndarray, " batch"]
    records: Int[np.ndarray, " batch"]
    contents: list[bytes]
    labels: list[list[int]]
    done: bool


@dataclass(frozen=True)
class Joint:
    """Uses with new noise in the joint batch of all ranks.

    Attributes:
        rows: (joint,) row of the book of each record.
        charged: Places that are used with new noise.
        kinds: Rows of these, each once.
        kind_of: Which of the kinds each of these places has.
        counts: (kinds,) number of places of each.
        listed: Labels of each record.
        released: Those that are released, except of records that released the same ones last time.
    """

    rows: Int[np.ndarray, " joint"]
    charged: Int[np.ndarray, " charged"]
    kinds: Int[np.ndarray, " kinds"]
    kind_of: Int[np.ndarray, " charged"]
    counts: Int[np.ndarray, " kinds"]
    listed: list[list[int]]
    released: list[Label]


@dataclass(frozen=True)
class Counted:
    """A batch of all ranks whose uses are counted.

    Attributes:
        rows: (joint,) row of the book of each record, in the order of ranks.
        own: Part of them that is this rank's.
        numbers: (own,) number of each use, from 0. Always 0 for frozen noise.
        new: Places in the joint batch whose frozen copy has to be drawn.
        done: Whether no rank has more batches.
    """

    rows: Int[np.ndarray, " joint"]
    own: slice
    numbers: Int[np.ndarray, " own"]
    new: Int[np.ndarray, " new"]
    done: bool


class Counter:
    """Count the uses of an engine's records.

    Args:
        plan: Limit on nats.
        identity: Key of digests, if there is no file.
        file: Record of uses on disk.
        labels: Labels, as they are counted.

    Attributes:
        ledgers: Collections by name.
        book: Counts by record.
    """

    # Which of the copies of an engine in this process releases records.
    _releasing: ClassVar[dict[bytes, bytes]] = {}

    def __init__(self, plan: Plan, identity: Identity, file: Uses | None, labels: LabelCount) -> None:
        self.plan, self.file, self.identity = plan, file, identity
        self.ledgers: dict[str, Ledger] = {}
        self.book = Book()
        self._books = {identity: self.book}
        self._labels = labels
        self._number = 0 if file is None else file.number_of(plan.mechanism)
        self._original = self._copy = os.urandom(16)
        self._lock, self._process = RLock(), process()

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the lock, which a copy makes for itself.

        Raises:
            GuaranteeError: If the copy would count apart from this one what both release.
        """
        if self.file is None and not self.pristine:
            raise GuaranteeError(
                "a copy of an engine that has released records would count apart from it: hand on its state_dict(), or "
                "give for_data a ledger, in which all copies count"
            )
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.file is None and not self.plan.seeded:  # so that a copy's state is no state of this run
            self.identity = Identity.made(self.identity.double)
            self._books = {self.identity: self.book}
        self._copy = os.urandom(16)
        self._lock = RLock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread at a time count, in the process that counts.

        Raises:
            GuaranteeError: In another process than that of the original, which would know nothing of these
                uses.
        """
        if process() != self._process:
            if self.file is None:
                raise GuaranteeError(
                    f"process {os.getpid()} was forked from the one that counts the uses of this engine, or was given "
                    "a copy of it, and that one would not know of these: make the engine in the process that trains, "
                    "or give for_data a ledger"
                )
            self._lock, self._process = RLock(), process()
        with self._lock:
            yield

    def adopt(self) -> None:
        """Count in this process from now on, by the states of clients, which come and go with them."""
        if self.file is None:
            self._process = process()
            self._lock = RLock()
            self._original = self._copy

    def _claim(self) -> None:
        """Refuse to release where another copy of the engine does, and no ledger counts for both.

        Raises:
            GuaranteeError: If one does.
        """
        if self.file is None and self._releasing.setdefault(self._original, self._copy) != self._copy:
            raise GuaranteeError(
                "another copy of this engine releases records, and the two would count apart: protect all records by "
                "that one, or give for_data a ledger, in which all copies count"
            )

    @property
    def pristine(self) -> bool:
        """True if nothing was released or loaded."""
        return not any(book.looks.any() for book in self._books.values())

    def count(
        self,
        ledgers: Sequence[Ledger],
        which: Int[np.ndarray, " batch"],
        records: Int[np.ndarray, " batch"],
        contents: Callable[[], tuple[list[bytes], list[list[int]]]],
        done: bool = False,
    ) -> Counted:
        """Count one use of each record of all ranks' batches, or refuse them on all ranks.

        Args:
            ledgers: Collections of this rank's records.
            which: Number of the collection, for each record.
            records: Index inside it.
            contents: Returns the records' digests without key and their labels, or refuses them.
            done: Whether this rank has no more batches.
        """

        def offer() -> Offer:
            held, labels = contents()
            if held:
                self._claim()
            return Offer(
                facts=self.plan.facts,
                identity=self.identity,
                pristine=self.pristine,
                uses=int(self.book.uses.sum()),
                filed=None if self.file is None else self.file.identity,
                sizes={ledger.name: len(ledger.rows) for ledger in ledgers},
                names=np.array([ledger.name for ledger in ledgers], str)[which],
                records=records,
                contents=held,
                labels=labels,
                done=done,
            )

        offers, rank = together(offer)
        joint: Joint

        def verdict() -> Held:
            nonlocal joint
            self._check_alike(offers)
            joint = self._joint(offers)
            return self._verdict(offers, rank, joint)

        verdicts, _ = together(verdict)
        kinds = joint.kinds
        before = np.max([held.fresh_uses for held in verdicts], axis=0)
        numbers = np.zeros(len(joint.rows), np.int64)
        if not self.plan.frozen:
            numbers = before[joint.kind_of] + order_of_use(joint.kind_of, joint.counts)
        self.book.looks[kinds] = np.maximum(before, joint.counts) if self.plan.once else before + joint.counts
        for column in ("parallel", "others", "labels"):
            getattr(self.book, column)[kinds] = np.max([getattr(held, column) for held in verdicts], axis=0)
        places = self.book.rows([digest for digest, _, _ in joint.released]).tolist()
        for place, (_, label, nats) in zip(places, joint.released, strict=True):
            self.book.count_label(place, label, nats)
        self.book.listed.update(zip(joint.rows.tolist(), joint.listed, strict=True))
        np.add.at(self.book.uses, joint.rows, 1)
        if not self.plan.frozen:
            self.book.uses[kinds] = self.book.looks[kinds]
        begin = sum(len(offer.contents) for offer in offers[:rank])
        part = slice(begin, begin + len(records))
        return Counted(joint.rows, part, numbers[part], joint.charged, all(offer.done for offer in offers))

    def left(self) -> int | None:
        """Count the uses with fresh noise that the record with fewest has left, None without a limit."""
        if self.plan.frozen or self.plan.most is None:
            return None
        used = [ledger.used(self.book) for ledger in self.ledgers.values()]
        held = self.book.held(np.concatenate([np.zeros(0, np.int64), *used]))
        uses = range(1, 1 + self.plan.most)
        return bisect_left(uses, True, key=lambda more: len(self.plan.exceeded(held.after(more))) > 0)

    def refresh(self) -> None:
        """Read what other runs have added to the ledger on disk since."""
        if self.file is None or not self.book.digests:
            return
        with self._lock:
            held = self.file.held(self._number, self.book.digests)
            self.book.parallel, self.book.others, self.book.labels = held.parallel, held.others, held.labels
            self.book.looks = np.maximum(self.book.looks, held.fresh_uses)
            if not self.plan.frozen:
                self.book.uses = self.book.looks.copy()

    def state(self) -> dict[str, Any]:
        """Collect digests, counts and copies of all collections, also of those not protected yet."""
        sealed = None if self.plan.seeded or self.file is not None else self.identity.sealed()
        return {
            "key": {"name": self.identity.name, "sealed": sealed},
            "ledgers": {name: ledger.state(self.book) for name, ledger in self.ledgers.items()},
        }

    def load(self, key: Mapping[str, Any], kept: Mapping[str, Kept], *, adds: bool) -> None:
        """Resume from a state.

        Args:
            key: Of the state.
            kept: Its collections.
            adds: Whether uses that the state does not know are kept as they are, and not refused or rewound.

        Raises:
            GuaranteeError: If it counts under another key, is of other records, or forgets uses.
        """
        identity = self._identity_of(key)
        if identity != self.identity and not adds and not self.pristine:
            raise GuaranteeError(
                "the state is of another run, and this engine has released records already: load it into a new engine, "
                "or give both runs one ledger, so that their uses add up"
            )
        book = self._books.get(identity, Book())
        rows = {name: book.rows(collection.digests) for name, collection in kept.items()}
        placed = self._placed(identity, book, kept, rows)
        if self.file is None and not adds:
            self._rewind(book, kept, rows)
        for name, collection in kept.items():
            self._take_over(book, collection, rows[name])
            if name not in placed:
                self.ledgers[name] = Ledger(name, collection.size)
                self.ledgers[name].rows[: len(rows[name])] = rows[name]
        for name, placed_rows in placed.items():
            self.ledgers[name].rows = placed_rows
        self.identity = identity
        self.book = self._books[identity] = book

    def _placed(
        self, identity: Identity, book: Book, kept: Mapping[str, Kept], rows: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Find the rows of the book for the records of each collection at hand."""
        placed = {}
        for name, ledger in self.ledgers.items():
            if ledger.base is not None:
                ledger.check_size(kept[name].size if name in kept else 0)
                current = ledger.rows if book is self.book else np.full_like(ledger.rows, -1)
                placed[name] = ledger.placed(identity, book, rows[name], current)
        return placed

    def _rewind(self, book: Book, kept: Mapping[str, Kept], rows: Mapping[str, np.ndarray]) -> None:
        """Forget the uses of a trial whose noise repeats. In other runs refuse a state that forgets uses."""
        if self.plan.seeded:
            for ledger in self.ledgers.values():
                rows_in_use = ledger.rows[ledger.rows >= 0]
                self.book.uses[rows_in_use] = self.book.looks[rows_in_use] = 0
        elif book is self.book:
            self._check_remembered(kept, rows)

    def _take_over(self, book: Book, collection: Kept, rows: np.ndarray) -> None:
        """Raise the counts of a book to those of a collection, and keep the noisy copies that the book lacks."""
        looks = np.minimum(collection.uses, 1) if self.plan.frozen else collection.uses
        book.uses[rows] = np.maximum(book.uses[rows], collection.uses)
        book.looks[rows] = np.maximum(book.looks[rows], looks)
        for place, label, nats in collection.labels:
            book.count_label(int(rows[place]), label, nats)
        copied = rows[list(collection.copied)].tolist()
        held = book.copied(copied)
        fresh = [place for place, row in enumerate(copied) if row not in held]
        book.keep([copied[place] for place in fresh], collection.copies[fresh])

    def registered(self, name: str, base: Any, key: Key) -> Ledger:
        """Return the ledger of a collection: its own under any name, or one that waits for its records.

        Raises:
            GuaranteeError: If the name stands for another collection, or a record that a state has counted is
                missing.
        """
        for ledger in self.ledgers.values():
            if ledger.base is not None and ledger.base[0] is base:
                ledger.grow(len(base))
                return ledger
        if name in self.ledgers and self.ledgers[name].base is not None:
            raise GuaranteeError(
                f"name = {name!r}: another dataset is counted under it, so protect once, before the loop, or give "
                "other records another name"
            )
        waiting, ledger = self.ledgers.get(name), Ledger(name, len(base))
        ledger.base = base, key
        if waiting is not None:
            ledger.check_size(len(waiting.rows))
            ledger.rows = ledger.placed(self.identity, self.book, waiting.used(self.book), ledger.rows)
        self.ledgers[name] = ledger
        return ledger

    def columns(self) -> tuple[np.ndarray, ...]:
        """Return uses, those with independent noise, all other nats, those of labels, and where records are counted.

        A record that stands at several indices is counted at the first. One that no loader shows is counted
        once it was used.
        """
        self.refresh()
        ledgers = list(self.ledgers.values()) or [Ledger("", 1)]
        rows = np.concatenate([ledger.rows for ledger in ledgers])
        book = self.book
        channel = self.plan.mechanism
        direct = replace(channel, accepted=None).all_nats(book.looks)
        more = book.held(slice(None)).nats(channel) - np.where(np.isfinite(direct), direct, 0.0)
        columns = book.uses, book.looks, more, book.labels
        uses, looks, others, labels = (np.append(column, 0)[rows] for column in columns)  # 0 at row -1
        shown = np.concatenate([ledger.shown if ledger.base else ~ledger.shown for ledger in ledgers])
        shown |= uses > 0
        counted = np.flatnonzero(shown & (rows >= 0))
        shown[counted] = False
        shown[counted[np.unique(rows[counted], return_index=True)[1]]] = True
        return uses, looks, others, labels, shown

    def _identity_of(self, key: Mapping[str, Any]) -> Identity:
        """Return the identity under which a state counts."""
        if key["name"] == self.identity.name:
            return self.identity
        if self.file is not None or key["sealed"] is None:
            raise GuaranteeError(
                "the state counts under another key than this engine: go on with the ledger that the state was saved "
                "with, or without one if there was none"
            )
        return self.identity.opened(key["name"], key["sealed"])

    def _check_remembered(self, kept: Mapping[str, Kept], rows: Mapping[str, np.ndarray]) -> None:
        """Refuse a state that forgets uses whose noise cannot be repeated."""
        remembered = np.zeros_like(self.book.looks)
        for name, collection in kept.items():
            remembered[rows[name]] = np.minimum(collection.uses, 1) if self.plan.frozen else collection.uses
        for name, ledger in self.ledgers.items():
            used = ledger.used(self.book)
            if np.any(remembered[used] < self.book.looks[used]):
                raise GuaranteeError(
                    f"the state forgets uses of {name!r} that this engine has released with noise that nobody can "
                    "repeat: go on without loading it, and save it after each release"
                )

    def _joint(self, offers: list[Offer]) -> Joint:
        """Find the uses with new noise in a joint batch, and the labels that are new with them."""
        rows = self.book.rows(self.identity.of([content for offer in offers for content in offer.contents]))
        charged = np.arange(len(rows))
        if self.plan.frozen:
            charged = self.book.uncopied(rows, self.book.looks if self.plan.seeded else None)
        kinds, kind_of, counts = np.unique(rows[charged], return_inverse=True, return_counts=True)
        listed = [labels for offer in offers for labels in offer.labels]
        last = map(self.book.listed.get, rows.tolist())
        fresh = [place for place, labels in enumerate(last) if labels != listed[place]]
        digests = [self.book.digests[rows[place]] for place in fresh]
        released = self._labels.keyed(digests, [listed[place] for place in fresh], self.identity)
        return Joint(rows, charged, kinds, kind_of, counts, listed, released)

    def _verdict(self, offers: list[Offer], rank: int, joint: Joint) -> Held:
        """Return what was held before of each record that is charged.

        Raises:
            GuaranteeError: If an index holds another record than before.
            BudgetError: If a record has no uses left.
        """
        rows = joint.rows
        names = np.concatenate([offer.names for offer in offers])
        records = np.concatenate([offer.records for offer in offers])
        apart = f"; {_APART}" if len(offers) > 1 else ""
        for name in dict.fromkeys(names.tolist()):
            self.ledgers[name].check_same(records[names == name], rows[names == name], apart)
        before = self.book.held(joint.kinds)

        def check(held: Held) -> None:
            looks = np.maximum(held.fresh_uses, before.fresh_uses + joint.counts)
            over = self.plan.exceeded(replace(held, fresh_uses=looks))
            if len(over):
                place = int(np.isin(rows, joint.kinds[over]).argmax())
                raise BudgetError(self._spent(str(names[place]), int(records[place]), int(rows[place])))

        if self.file is not None and rank == 0:
            digests = [self.book.digests[row] for row in joint.kinds]
            more: Any = {"once": self.plan.once, "labels": joint.released, "labelled": len(offers) > 1}
            held = self.file.charge(self._number, digests, joint.counts, check, **more)
            labels = np.maximum(held.labels, before.labels)
            return replace(held, fresh_uses=np.maximum(held.fresh_uses, before.fresh_uses), labels=labels)
        if not offers[0].filed:
            check(before.after(joint.counts))
        return before

    def _check_alike(self, offers: list[Offer]) -> None:
        """Refuse ranks that do not share channel, plan and ledger, and take over their key and collections.

        Raises:
            GuaranteeError: If they count something else than this one.
        """
        for rank, offer in enumerate(offers):
            if not alike(offer.facts, self.plan.facts):
                raise GuaranteeError(
                    f"rank {rank} has another channel or plan than this one: give for_data the same public records, "
                    "target and options on all ranks, or load one saved engine on all of them"
                )
            if offer.filed not in (None, offers[0].filed):
                raise GuaranteeError(
                    f"rank {rank} has another ledger than rank 0, which counts for all: name one file on all ranks, or "
                    "on rank 0 alone"
                )
            if offer.uses != offers[0].uses and (self.plan.frozen or offers[0].filed is None):
                raise GuaranteeError(_COUNTED_APART)
            for name, size in offer.sizes.items():
                if size != len(self.ledgers.setdefault(name, Ledger(name, size)).rows):
                    raise GuaranteeError(
                        f"rank {rank} has {size} records under the name {name!r}, this one has "
                        f"{len(self.ledgers[name].rows)}: {_APART}"
                    )
        if any(offer.identity != self.identity for offer in offers):
            if not all(offer.pristine for offer in offers):
                raise GuaranteeError(_COUNTED_APART)
            self.identity = offers[0].identity
            self.book = self._books.setdefault(self.identity, Book())

    def _spent(self, name: str, record: int, row: int) -> str:
        """Say which record has no uses left."""
        twins = sum(int(np.count_nonzero(ledger.rows == row)) for ledger in self.ledgers.values())
        equal = ", counted together with equal records at other indices" if twins > 1 else ""
        runs = ", counted over all runs and channels of the ledger" if self.file is not None else ""
        if not self.plan.adds and self.file is not None and self.book.looks[row] < (self.plan.most or 0):
            return (
                f"record {record} of {name!r} went through another channel, and an error of reconstruction after "
                "several channels is not computed: take a target in nats, or records that no other channel has released"
            )
        if self.plan.frozen:
            return (
                f"record {record} of {name!r} has had its one noisy copy{runs}, and another one would reveal more: "
                "load the state_dict() of the run that holds it"
            )
        return (
            f"record {record} of {name!r} has had its {self.plan.most} planned uses{equal}{runs}: stop training here, "
            "or calibrate for more uses before the first"
        )
