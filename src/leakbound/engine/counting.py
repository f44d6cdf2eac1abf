"""Uses of all records of an engine, counted before each release over indices, collections, ranks and runs."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from leakbound.accounting.leakage import Held
from leakbound.engine.accountant import alike
from leakbound.engine.identity import Identity, LabelCount
from leakbound.engine.ledger import Ledger, process
from leakbound.engine.records import Key
from leakbound.engine.refusals import BudgetError, GuaranteeError
from leakbound.engine.release import together
from leakbound.engine.targets import Plan
from leakbound.engine.uses import Batch, CountedRecords, SavedRecords, Uses, order_of_use

_COUNTED_APART = (
    "ranks have counted apart from each other: start torch.distributed before the first batch, and load one state on "
    "all ranks"
)
_APART = "where ranks hold different records, name them apart, protect(..., name=f'train{rank}')"


class Counter:
    """Count the uses of an engine's records.

    Args:
        plan: Limit on nats.
        facts: Facts about the channel and the plan, which all ranks must share.
        identity: Key of digests, if there is no file.
        file: Ledger on disk.
        labels: Labels, as they are counted.

    Attributes:
        collections: Records by the name of their collection.
        uses: Uses by record.
    """

    # By process and original: which of its copies releases records, b"" for those that count by states, and
    # what these share.
    _releasing: ClassVar[dict[tuple[bytes, bytes], bytes]] = {}
    _taken: ClassVar[dict[tuple[bytes, bytes], tuple[Identity, dict[Identity, Uses], Any]]] = {}

    def __init__(
        self,
        plan: Plan,
        facts: Mapping[str, Any],
        identity: Identity,
        file: Ledger | None,
        labels: LabelCount,
    ) -> None:
        self.plan, self.file, self.identity = plan, file, identity
        self._facts = facts
        self.collections: dict[str, CountedRecords] = {}
        self.uses = Uses()
        self._by_identity = {identity: self.uses}
        self._labels = labels
        self._number = 0 if file is None else file.number_of(plan.mechanism)
        self._original = self._copy = os.urandom(16)
        self._lock, self._process = RLock(), process()

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the lock, unless the copy would count apart from this one."""
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
            self._by_identity = {self.identity: self.uses}
        self._copy = os.urandom(16)
        self._lock = RLock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread at a time count, and none in a process of whose uses the original would not know."""
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
        """Count in this process from now on, by states that each client brings and takes away.

        Collections are forgotten. Counts of their records stay.
        """
        self.collections = {}
        if self.file is None and (self._copy or self._process != process()):
            # Copies in one process that count by states share what the process knows.
            self._process = process()
            key = self._process, self._original
            if self._releasing.get(key) == self._copy:
                self._releasing[key] = b""
            self._copy = b""
            shared = self._taken.setdefault(key, (self.identity, self._by_identity, RLock()))
            self.identity, self._by_identity, self._lock = shared
            self.uses = self._by_identity[self.identity]

    @property
    def pristine(self) -> bool:
        """True if nothing was released or loaded."""
        return not any(uses.fresh_uses.any() for uses in self._by_identity.values())

    def count(
        self,
        collections: Sequence[CountedRecords],
        which: Int[np.ndarray, " batch"],
        records: Int[np.ndarray, " batch"],
        contents: Callable[[], tuple[list[bytes], list[list[int]]]],
        done: bool = False,
    ) -> Batch:
        """Count one use of each record of all ranks' batches, or refuse them on all ranks.

        Args:
            collections: Those of this rank's records.
            which: Number of the collection, for each record.
            records: Index inside it.
            contents: Returns the records' digests without key and their labels, or refuses them.
            done: Whether this rank has no more batches.
        """

        def offer() -> SimpleNamespace:
            held, labels = contents()
            alone = not held or self.file is not None
            key = process(), self._original
            if not alone and self._releasing.setdefault(key, self._copy) != self._copy:
                raise GuaranteeError(
                    "another copy of this engine releases records, and the two would count apart: protect all records "
                    "by that one, or give for_data a ledger, in which all copies count"
                )
            return SimpleNamespace(
                facts=self._facts,
                identity=self.identity,
                pristine=self.pristine,
                uses=int(self.uses.releases.sum()),
                filed=None if self.file is None else self.file.identity,
                sizes={collection.name: len(collection.rows) for collection in collections},
                names=np.array([collection.name for collection in collections], str)[which],
                records=records,
                contents=held,
                labels=labels,
                done=done,
            )

        # What each rank is about to release.
        offers, rank = together(offer)
        batch: Batch

        def verdict() -> Held:
            nonlocal batch
            self._check_alike(offers)
            batch = self._batch(offers, rank)
            return self._verdict(offers, rank, batch)

        # The verdict of all ranks. In the ledger on disk uses are counted here, before anything is drawn.
        verdicts, _ = together(verdict)
        uses, kinds = self.uses, batch.kinds
        before = np.max([held.fresh_uses for held in verdicts], axis=0)
        # Numbers of the uses, by which a seed draws their noise.
        if not self.plan.frozen:
            batch.numbers[:] = before[batch.kind_of] + order_of_use(batch.kind_of, batch.counts)
        # The counts of this process follow, with what other runs have added to the ledger since.
        uses.fresh_uses[kinds] = np.maximum(before, batch.counts) if self.plan.once else before + batch.counts
        for column in ("parallel", "others", "labels"):
            getattr(uses, column)[kinds] = np.max([getattr(held, column) for held in verdicts], axis=0)
        places = uses.rows([digest for digest, _, _ in batch.released]).tolist()
        for place, (_, label, nats) in zip(places, batch.released, strict=True):
            uses.count_label(place, label, nats)
        uses.listed.update(zip(batch.rows.tolist(), batch.listed, strict=True))
        np.add.at(uses.releases, batch.rows, 1)
        if not self.plan.frozen:
            uses.releases[kinds] = uses.fresh_uses[kinds]
        return batch

    def left(self) -> int | None:
        """Count the uses with fresh noise that the record with fewest has left, None without a limit."""
        if self.plan.frozen or self.plan.most is None:
            return None
        used = [records.used(self.uses) for records in self.collections.values()]
        held = self.uses.held(np.concatenate([np.zeros(0, np.int64), *used]))
        more = range(1, 1 + self.plan.most)
        return bisect_left(more, True, key=lambda count: len(self.plan.exceeded(held.after(count))) > 0)

    def refresh(self) -> None:
        """Read what other runs have added to the ledger on disk since."""
        if self.file is None or not self.uses.digests:
            return
        with self._lock:
            uses, held = self.uses, self.file.held(self._number, self.uses.digests)
            uses.parallel, uses.others, uses.labels = held.parallel, held.others, held.labels
            uses.fresh_uses = np.maximum(uses.fresh_uses, held.fresh_uses)
            if not self.plan.frozen:
                uses.releases = uses.fresh_uses.copy()

    def state(self) -> dict[str, Any]:
        """Collect digests, counts and copies of all collections, also of those not protected yet."""
        sealed = None if self.plan.seeded or self.file is not None else self.identity.sealed()
        return {
            "key": {"name": self.identity.name, "sealed": sealed},
            "ledgers": {name: records.state(self.uses) for name, records in self.collections.items()},
        }

    def load(self, key: Mapping[str, Any], saved: Mapping[str, SavedRecords], *, adds: bool) -> None:
        """Resume from a state.

        Args:
            key: Of the state.
            saved: Its collections.
            adds: Whether uses that the state does not know are kept as they are, and not refused or rewound.

        Raises:
            GuaranteeError: If it counts under another key, is of other records, or forgets uses.
        """
        identity = self.identity.of_state(key, self.file is not None)
        if identity != self.identity and not adds and not self.pristine:
            raise GuaranteeError(
                "the state is of another run, and this engine has released records already: load it into a new engine, "
                "or give both runs one ledger, so that their uses add up"
            )
        uses = self._by_identity.get(identity, Uses())
        rows = {name: uses.rows(records.digests) for name, records in saved.items()}
        # Collections at hand are read, so that each index leads to its record, in whatever order they are.
        placed = {}
        for name, records in self.collections.items():
            if records.base is not None:
                size = saved[name].size if name in saved else 0
                used = rows.get(name, np.zeros(0, np.int64))
                current = records.rows if uses is self.uses else np.full_like(records.rows, -1)
                placed[name] = records.placed(size, identity, uses, used, current)
        if self.file is None and not adds:
            self._rewind(uses, saved, rows)
        # All is checked: the state's uses are taken over, and collections without records wait for them.
        for name, held in saved.items():
            uses.take_over(held, rows[name], self.plan.frozen)
            if name not in placed:
                self.collections[name] = CountedRecords(name, held.size)
                self.collections[name].rows[: len(rows[name])] = rows[name]
        for name, placed_rows in placed.items():
            self.collections[name].rows = placed_rows
        self.identity = identity
        self.uses = self._by_identity[identity] = uses

    def _rewind(
        self, uses: Uses, saved: Mapping[str, SavedRecords], rows: Mapping[str, Int[np.ndarray, " used"]]
    ) -> None:
        """Forget the uses of a trial whose noise repeats. In other runs refuse a state that forgets uses."""
        if self.plan.seeded:
            for records in self.collections.values():
                in_use = records.rows[records.rows >= 0]
                self.uses.releases[in_use] = self.uses.fresh_uses[in_use] = 0
        elif uses is self.uses:
            remembered = np.zeros_like(uses.fresh_uses)
            for name, held in saved.items():
                remembered[rows[name]] = held.fresh_uses(self.plan.frozen)
            for name, records in self.collections.items():
                used = records.used(uses)
                if np.any(remembered[used] < uses.fresh_uses[used]):
                    raise GuaranteeError(
                        f"the state forgets uses of {name!r} that this engine has released with noise that nobody can "
                        "repeat: go on without loading it, and save it after each release"
                    )

    def registered(self, name: str, base: Any, key: Key) -> CountedRecords:
        """Return the records of a collection: its own under any name, or one that waits for its records.

        Raises:
            GuaranteeError: If the name stands for another collection, or a record that a state has counted is
                missing.
        """
        for records in self.collections.values():
            if records.base is not None and records.base[0] is base:
                more = max(0, len(base) - len(records.rows))  # that were appended since
                records.rows = np.pad(records.rows, (0, more), constant_values=-1)
                records.shown = np.pad(records.shown, (0, more))
                return records
        waiting, records = self.collections.get(name), CountedRecords(name, len(base))
        if waiting is not None and waiting.base is not None:
            raise GuaranteeError(
                f"name = {name!r}: another dataset is counted under it, so protect once, before the loop, or give "
                "other records another name"
            )
        records.base = base, key
        if waiting is not None:
            used, size = waiting.used(self.uses), len(waiting.rows)
            records.rows = records.placed(size, self.identity, self.uses, used, records.rows)
        self.collections[name] = records
        return records

    def columns(self) -> tuple[np.ndarray, ...]:
        """Return uses, those with independent noise, all other nats, those of labels, and where records are counted.

        A record that stands at several indices is counted at the first. One that no loader shows is counted
        once it was used.
        """
        self.refresh()
        collections = list(self.collections.values()) or [CountedRecords("", 1)]
        rows = np.concatenate([records.rows for records in collections])
        uses, channel = self.uses, self.plan.mechanism
        direct = replace(channel, accepted=None).all_nats(uses.fresh_uses)
        more = uses.held(slice(None)).nats(channel) - np.where(np.isfinite(direct), direct, 0.0)
        columns = (
            np.append(column, 0)[rows] for column in (uses.releases, uses.fresh_uses, more, uses.labels)
        )
        releases, fresh_uses, others, labels = columns  # 0 at row -1
        shown = np.concatenate([each.shown if each.base else ~each.shown for each in collections])
        shown |= releases > 0
        counted = np.flatnonzero(shown & (rows >= 0))
        shown[counted] = False
        shown[counted[np.unique(rows[counted], return_index=True)[1]]] = True
        return releases, fresh_uses, others, labels, shown

    def _batch(self, offers: list[SimpleNamespace], rank: int) -> Batch:
        """Find the uses with new noise in a joint batch, and the labels that are new with them."""
        uses = self.uses
        rows = uses.rows(self.identity.of([content for offer in offers for content in offer.contents]))
        charged = uses.uncopied(rows, self.plan.seeded) if self.plan.frozen else np.arange(len(rows))
        kinds, kind_of, counts = np.unique(rows[charged], return_inverse=True, return_counts=True)
        listed = [labels for offer in offers for labels in offer.labels]
        last = map(uses.listed.get, rows.tolist())
        fresh = [place for place, labels in enumerate(last) if labels != listed[place]]
        digests = [uses.digests[rows[place]] for place in fresh]
        begin = sum(len(offer.contents) for offer in offers[:rank])
        return Batch(
            rows=rows,
            own=slice(begin, begin + len(offers[rank].contents)),
            charged=charged,
            kinds=kinds,
            kind_of=kind_of,
            counts=counts,
            numbers=np.zeros(len(rows), np.int64),
            listed=listed,
            released=self._labels.keyed(digests, [listed[place] for place in fresh], self.identity),
            done=all(offer.done for offer in offers),
        )

    def _verdict(self, offers: list[SimpleNamespace], rank: int, batch: Batch) -> Held:
        """Return what was held before of each record that is charged, or refuse the batch."""
        rows = batch.rows
        names = np.concatenate([offer.names for offer in offers])
        records = np.concatenate([offer.records for offer in offers])
        apart = f"; {_APART}" if len(offers) > 1 else ""
        for name in dict.fromkeys(names.tolist()):
            self.collections[name].check_same(records[names == name], rows[names == name], apart)
        before = self.uses.held(batch.kinds)

        def check(held: Held) -> None:
            fresh_uses = np.maximum(held.fresh_uses, before.fresh_uses + batch.counts)
            over = self.plan.exceeded(replace(held, fresh_uses=fresh_uses))
            if len(over):
                place = int(np.isin(rows, batch.kinds[over]).argmax())
                raise BudgetError(self._spent(str(names[place]), int(records[place]), int(rows[place])))

        if self.file is not None and rank == 0:
            digests = [self.uses.digests[row] for row in batch.kinds]
            more: Any = {"once": self.plan.once, "labels": batch.released, "labelled": len(offers) > 1}
            held = self.file.charge(self._number, digests, batch.counts, check, **more)
            labels = np.maximum(held.labels, before.labels)
            return replace(held, fresh_uses=np.maximum(held.fresh_uses, before.fresh_uses), labels=labels)
        if not offers[0].filed:
            check(before.after(batch.counts))
        return before

    def _check_alike(self, offers: list[SimpleNamespace]) -> None:
        """Refuse ranks without the same channel, plan and ledger. Take over their key and collections."""
        for rank, offer in enumerate(offers):
            if not alike(offer.facts, self._facts):
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
                if size != len(self.collections.setdefault(name, CountedRecords(name, size)).rows):
                    raise GuaranteeError(
                        f"rank {rank} has {size} records under the name {name!r}, this one has "
                        f"{len(self.collections[name].rows)}: {_APART}"
                    )
        if any(offer.identity != self.identity for offer in offers):
            if not all(offer.pristine for offer in offers):
                raise GuaranteeError(_COUNTED_APART)
            self.identity = offers[0].identity
            self.uses = self._by_identity.setdefault(self.identity, Uses())

    def _spent(self, name: str, record: int, row: int) -> str:
        """Say which record has no uses left."""
        twins = sum(int(np.count_nonzero(records.rows == row)) for records in self.collections.values())
        equal = ", counted together with equal records at other indices" if twins > 1 else ""
        runs = ", counted over all runs and channels of the ledger" if self.file is not None else ""
        if not self.plan.adds and self.file is not None and self.uses.fresh_uses[row] < (self.plan.most or 0):
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
