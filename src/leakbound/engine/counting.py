"""An engine's side of its ledger: which records a batch holds, on all ranks, and what a state takes along."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.accounting.leakage import Exposure
from leakbound.accounting.statement import upper_bound
from leakbound.engine.accountant import alike
from leakbound.engine.counted_records import CountedRecords, SavedCollection, collection_state, word_pairs
from leakbound.engine.identity import Identity, Label, LabelCount, words
from leakbound.engine.ledger import Ledger, Rows, process
from leakbound.engine.records import Key
from leakbound.engine.refusals import BudgetError, GuaranteeError
from leakbound.engine.release import Batch, gather_over_ranks, in_ranks
from leakbound.engine.targets import Plan

_COUNTED_APART = (
    "ranks have counted apart from each other: start torch.distributed before the first batch, and load one state on "
    "all ranks"
)
_APART = "where ranks hold different records, name them apart, protect(..., name=f'train{rank}')"


@dataclass(frozen=True)
class _Request:
    """Batches of all ranks, as one request to the ledger.

    Attributes:
        records: Words of the records, each once.
        which: (joint,) place of each record of the batch among them.
        releases: Uses of each.
        counts: Uses of each with independent noise, which for frozen noise is that of a new copy.
        labels: Labels that are released, except of records that released the same ones last time.
        owners: Records with their owners, where they are given.
        cells: Records with the cells that they lie in, as far as their rank does not know that these are noted.
        released: Labels of these records by their digests, and whether other values are released.
    """

    records: Int[np.ndarray, " records"]
    which: Int[np.ndarray, " joint"]
    releases: Int[np.ndarray, " records"]
    counts: Int[np.ndarray, " records"]
    labels: list[Label]
    owners: list[tuple[int, int]]
    cells: list[tuple[int, int]]
    released: dict[bytes, tuple[list[int], bool]]


class Counter:
    """Charge the uses of an engine's records to its ledger.

    Args:
        plan: Limit on nats.
        facts: Facts about the channel and the plan, which all ranks must share.
        identity: Key of digests, and the precision to which values count.
        ledger: Ledger that counts.
        labels: Labels, as they are counted.

    Attributes:
        collections: Records by the name of their collection.
        copies: Record to its frozen copy (1, 1, d).
    """

    def __init__(
        self, plan: Plan, facts: Mapping[str, Any], identity: Identity, ledger: Ledger, labels: LabelCount
    ) -> None:
        self.plan = plan
        self.ledger = ledger
        self.identity = identity
        self._facts = facts
        self.collections: dict[str, CountedRecords] = {}
        self.copies: dict[int, Float[Tensor, "1 1 d"]] = {}
        self._labels = labels
        self._released: dict[bytes, tuple[list[int], bool]] = {}  # labels that the ledger has a row of
        self._number = ledger.number_of(plan.mechanism)
        self._lock = RLock()
        self._process = process()

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the lock. The ledger of a copy is the same one, or refuses to count."""
        return {**self.__dict__, "_lock": None, "_process": b""}

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread at a time release, and none in a process in which the ledger does not count."""
        self.ledger.check_process()
        if process() != self._process:
            self._lock = RLock()
        self._process = process()
        with self._lock:
            yield

    def adopt(self) -> None:
        """Count in this process from now on, by states that each client brings and takes away.

        Collections are forgotten. Counts of their records stay.
        """
        self.collections = {}
        key = self.identity.key if self.plan.seeded else Identity.generate(self.identity.double).key
        ledger = self.ledger.in_this_process(key)
        if ledger is not self.ledger:
            self.ledger = ledger
            self.identity = Identity(ledger.key, self.identity.double)
            self._number = ledger.number_of(self.plan.mechanism)
            self._released = {}
            self.copies = {}

    @property
    def pristine(self) -> bool:
        """True if nothing was released or loaded."""
        return not self.ledger.counted

    def count(
        self,
        collections: Sequence[CountedRecords],
        which: Int[np.ndarray, " batch"],
        records: Int[np.ndarray, " batch"],
        contents: Callable[[], tuple[list[bytes], list[list[int]], list[tuple[bytes, ...]]]],
        *,
        owners: Sequence[Any] | None = None,
        extra: bool = False,
        done: bool = False,
        labelled: Callable[[], list[tuple[bytes, list[int]]]] = list,
    ) -> Batch:
        """Count one use of each record of all ranks' batches, or refuse them on all ranks.

        Args:
            collections: Those of this rank's records.
            which: Number of the collection, for each record.
            records: Index inside it.
            contents: Returns the records' digests without key, their labels and cells, or refuses them.
            owners: Owner of each record. None if they are not known.
            extra: Whether other values of the records are released, uncounted.
            done: Whether this rank has no more batches.
            labelled: Returns the digest without key of each record that releases labels without another use, with
                these labels, or refuses them.
        """

        def offer() -> SimpleNamespace:
            digests, labels, cells = contents()
            return SimpleNamespace(
                names=[collection.name for collection in collections],
                which=which,
                records=records,
                contents=digests,
                labels=labels,
                cells=cells,
                owners=owners,
                extra=extra,
                done=done,
                labelled=labelled(),
                sizes={collection.name: len(collection.digests) for collection in collections},
                standing=self._shared_facts() if in_ranks() else None,
            )

        # What each rank is about to release, and how it counts.
        offers, rank = gather_over_ranks(offer)
        if len(offers) > 1:
            self._check_agreement([offer.standing for offer in offers])
        request: _Request
        batch: Batch

        def verdict() -> tuple[Exposure, Rows | None] | None:
            nonlocal request, batch
            request, batch = self._join(offers, rank)
            if rank:
                return None
            exposure = self._charge(offers, request)
            if len(offers) == 1:
                return exposure, None
            labelled = np.array([record for record, *_ in request.labels], np.int64)
            return exposure, self.ledger.rows(np.append(request.records, labelled))

        # The verdict is that of the first rank, whose ledger counts. The others write down what it says.
        (granted, *_), _ = gather_over_ranks(verdict)
        exposure, rows = granted or (Exposure.nothing(0), None)
        if rank and rows is not None and self.ledger.path is None:
            self.ledger.merge(rows)
        if (
            self.plan.seeded and not self.plan.frozen
        ):  # numbers of the uses, by which a seed draws their noise
            before = exposure.fresh_uses - request.counts
            batch.numbers[:] = before[request.which] + order_of_use(request.which, request.releases)
        self._released.update(request.released)
        return batch

    def _labels_alone(self, offers: list[SimpleNamespace]) -> list[Label]:
        """List the labels of all ranks that are released without another use of their records.

        Raises:
            GuaranteeError: If a record was never released, so that no statement would be about its label.
        """
        labelled = [pair for offer in offers for pair in offer.labelled]
        if not labelled:
            return []
        digests = self.identity.digests([content for content, _ in labelled])
        unknown = ~np.isin(words(digests), self._records())
        if unknown.any():
            raise GuaranteeError(
                f"input {int(unknown.argmax())} is no record that was released: release it first, and then count its "
                "other labels"
            )
        extra = [False] * len(digests)
        return self._labels.rows(digests, [labels for _, labels in labelled], extra, self.identity)

    def _join(self, offers: list[SimpleNamespace], rank: int) -> tuple[_Request, Batch]:
        """Join the batches of all ranks to one request to the ledger. Refuse indices whose records have changed."""
        # Digests with the key of this engine. Each index must hold the record of its first use.
        digests = self.identity.digests([content for offer in offers for content in offer.contents])
        by_words = word_pairs(digests)
        self._check_indices(offers, by_words)
        # Each record once, with the labels that the ledger has no row of.
        joint = by_words[:, 0]
        records, which, releases = np.unique(joint, return_inverse=True, return_counts=True)
        counts, new = self._independent_uses(joint, records, which, releases)
        released, labels = self._new_labels(offers, digests)
        # This rank's part of the batch.
        begin = sum(len(offer.contents) for offer in offers[:rank])
        part = slice(begin, begin + len(offers[rank].contents))
        done = all(offer.done for offer in offers)
        batch = Batch(joint, digests, part, new, np.zeros(len(joint), np.int64), done)
        # Owners of those ranks that name them, and the cells by which near copies are found.
        ends = np.cumsum([len(offer.contents) for offer in offers])[:-1]
        owners = [
            pair
            for offer, of_rank in zip(offers, np.split(joint, ends), strict=True)
            for pair in self.identity.owner_pairs(of_rank, offer.owners)
        ]
        cells = self.identity.cell_pairs(joint, [cells for offer in offers for cells in offer.cells])
        return _Request(records, which, releases, counts, labels, owners, cells, released), batch

    def _check_indices(self, offers: list[SimpleNamespace], digests: Int[np.ndarray, "joint 2"]) -> None:
        """Refuse collections of other sizes on other ranks, and indices that hold another record than before."""
        advice = f"; {_APART}" if len(offers) > 1 else ""
        for other, offer in enumerate(offers):
            for name, size in offer.sizes.items():
                collection = self.collections.setdefault(name, CountedRecords(name, size))
                if size != len(collection.digests):
                    raise GuaranteeError(
                        f"rank {other} has {size} records under the name {name!r}, this one has "
                        f"{len(collection.digests)}: {_APART}"
                    )
        begin = 0
        for offer in offers:
            of_rank = digests[begin : begin + len(offer.records)]
            begin += len(offer.records)
            for number in dict.fromkeys(offer.which.tolist()):
                here = offer.which == number
                collection = self.collections[offer.names[number]]
                collection.check_same(offer.records[here], of_rank[here], advice)

    def _independent_uses(
        self,
        joint: Int[np.ndarray, " joint"],
        records: Int[np.ndarray, " records"],
        which: Int[np.ndarray, " joint"],
        releases: Int[np.ndarray, " records"],
    ) -> tuple[Int[np.ndarray, " records"], Int[np.ndarray, " new"]]:
        """Count the uses of each record with independent noise, and list the places that need a new frozen copy.

        A frozen copy is charged when it is drawn, and one that a seed repeats once in all runs.
        """
        none = np.zeros(0, np.int64)
        if not self.plan.frozen:
            return releases, none
        if self.plan.seeded:
            return np.ones_like(releases), none
        counts = np.array([record not in self.copies for record in records.tolist()], np.int64)
        first = np.sort(np.unique(joint, return_index=True)[1])
        return counts, first[counts[which[first]] > 0]

    def _new_labels(
        self, offers: list[SimpleNamespace], digests: list[bytes]
    ) -> tuple[dict[bytes, tuple[list[int], bool]], list[Label]]:
        """List the labels that the ledger has no row of, by the digest of their record and as its rows."""
        listed = [(labels, offer.extra) for offer in offers for labels in offer.labels]
        of_records = list(zip(digests, listed, strict=True))
        released = {digest: labels for digest, labels in of_records if self._released.get(digest) != labels}
        fresh = [pair for pair in of_records if pair[0] in released] if released else []
        rows = self._labels.rows(
            [digest for digest, _ in fresh],
            [labels for _, (labels, _) in fresh],
            [extra for _, (_, extra) in fresh],
            self.identity,
        )
        return released, rows + self._labels_alone(offers)

    def _charge(self, offers: list[SimpleNamespace], request: _Request) -> Exposure:
        """Charge a request to the ledger, or refuse it, and return the exposure of its records after it."""

        def check(exposure: Exposure) -> None:
            over = self.plan.over_limit(exposure)
            over = over[request.counts[over] > 0]
            if not len(over):
                return
            at = int(np.isin(request.which, over).argmax())
            kind = int(request.which[at])
            name = [offer.names[number] for offer in offers for number in offer.which.tolist()][at]
            index = int(np.concatenate([offer.records for offer in offers])[at])
            raise BudgetError(self._refusal(name, index, int(request.records[kind]), exposure, kind))

        return self.ledger.charge(
            self._number,
            request.records,
            request.counts,
            check,
            releases=request.releases,
            once=self.plan.once,
            seeded=self.plan.seeded,
            labels=request.labels,
            owners=request.owners,
            cells=request.cells,
        )

    def _shared_facts(self) -> tuple[Any, ...]:
        """Return what ranks must share: facts, key, file, and whether and what was counted."""
        filed = None if self.ledger.path is None else self.ledger.number
        counted = self.ledger.counted
        return self._facts, self.identity, filed, (len(self.copies), 0 if filed else counted), not counted

    def _check_agreement(self, ranks: Sequence[tuple[Any, ...]]) -> None:
        """Refuse ranks without the same channel, plan, ledger and counts. All take over the key of the first."""
        _, identity, first, first_counts, _ = ranks[0]
        for rank, (facts, _, other, other_counts, _) in enumerate(ranks):
            if not alike(facts, self._facts):
                raise GuaranteeError(
                    f"rank {rank} has another channel or plan than this one: give for_data the same public records, "
                    "target and options on all ranks, or load one saved engine on all of them"
                )
            if other not in (None, first):
                raise GuaranteeError(
                    f"rank {rank} has another ledger than rank 0, which counts for all: name one file on all ranks, or "
                    "on rank 0 alone"
                )
            if other_counts != first_counts and other == first:
                raise GuaranteeError(_COUNTED_APART)
        if any(other != identity for _, other, *_ in ranks):
            if not all(pristine for *_, pristine in ranks):
                raise GuaranteeError(_COUNTED_APART)
            self.identity = identity

    def uses_left(self) -> int | None:
        """Count the uses with fresh noise that the record with fewest has left, None without a limit."""
        if self.plan.frozen or self.plan.most is None:
            return None
        self._read_unknown()
        records = self._records()
        exposure = self.ledger.exposure(self._number, records)
        used = records[(exposure.fresh_uses > 0) | (exposure.parallel > 0) | (exposure.others > 0)]
        exposure = self.ledger.exposure(self._number, used)

        def ends(count: int) -> bool:
            # Beside other channels each further use reveals less than the sum of both.
            after = (
                self.ledger.exposure(self._number, used, more=count)
                if exposure.others.any()
                else exposure.after(count)
            )
            return len(self.plan.over_limit(after)) > 0

        return bisect_left(range(1, 1 + self.plan.most), True, key=ends)

    def seeded(self) -> tuple[int, int]:
        """Count the records with noise from a seed, and those of which nobody has noted whether they have it."""
        self._read_unknown()
        return self.ledger.seeded(self._records())

    def _records(self) -> Int[np.ndarray, " records"]:
        """List the words of all records that are known, each once."""
        words = [records.digests[records.has_digest, 0] for records in self.collections.values()]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *words]))

    @property
    def shows_equal(self) -> bool:
        """True if records at several indices of a collection have one frozen copy, which shows that they are equal."""
        listed = [each.digests[each.has_digest, 0] for each in self.collections.values()]
        return self.plan.frozen and any(len(np.unique(records)) < len(records) for records in listed)

    def _read_unknown(self) -> None:
        """Read the records that no batch has shown yet, where the ledger counts some that are not known here.

        Others may have released them, and their uses are part of what has leaked and of what is left.
        """
        if not len(np.setdiff1d(self.ledger.records(), self._records())):
            return
        for records in self.collections.values():
            unread = np.flatnonzero(records.in_loader & ~records.has_digest)
            if records.base is not None and len(unread):
                records.digests[unread] = records.compute_digests(self.identity, unread.tolist())

    def uses(self) -> dict[str, Int[np.ndarray, " records"]]:
        """Return the releases of each record, by the name of its collection."""
        self._read_unknown()
        return {name: self._releases(records) for name, records in self.collections.items()}

    def released(self) -> tuple[int, int | None]:
        """Count the different records that were released, and their owners, None if not all have one."""
        records = self._records()
        records = records[self.ledger.releases(self._number, records) > 0]
        owners = self.ledger.owners(records)
        return len(records), len(np.unique(owners)) if owners.all() else None

    def _releases(self, records: CountedRecords) -> Int[np.ndarray, " records"]:
        """Return all uses of a collection's records."""
        return np.where(records.has_digest, self.ledger.releases(self._number, records.digests[:, 0]), 0)

    def any_released(self, contents: Sequence[bytes]) -> bool:
        """Return whether one of some records was released, by digests without a key."""
        return bool(self.ledger.releases(self._number, words(self.identity.digests(contents))).any())

    def state(self) -> dict[str, Any]:
        """Collect digests, counts and copies of all collections, also of those not protected yet."""
        sealed = None if self.plan.seeded or self.ledger.path is not None else self.identity.sealed_key()
        return {
            "key": {"name": self.identity.name, "sealed": sealed},
            "ledgers": {name: self._state_of(records) for name, records in self.collections.items()},
        }

    def _state_of(self, records: CountedRecords) -> dict[str, Tensor]:
        """Write the rows of a collection's records that were used."""
        digests = records.digests[records.has_digest]
        digests = digests[np.unique(digests[:, 0], return_index=True)[1]]
        releases = self.ledger.releases(self._number, digests[:, 0])
        digests = digests[releases > 0]
        releases = releases[releases > 0]
        rows = self.ledger.rows(digests[:, 0])
        return collection_state(len(records.digests), digests, releases, rows, self.copies)

    def load(self, key: Mapping[str, Any], saved: Mapping[str, SavedCollection], *, adds: bool) -> None:
        """Resume from a state. Uses that it does not know stay counted, but for those whose noise repeats.

        Args:
            key: Of the state.
            saved: Its collections.
            adds: Whether this is a client's state next to those of others.

        Raises:
            GuaranteeError: If it counts under another key, or is of other records.
        """
        filed = self.ledger.path is not None
        identity = self.identity.of_state(key, filed)
        if identity != self.identity and not adds and not self.pristine:
            raise GuaranteeError(
                "the state is of another run, and this engine has released records already: load it into a new engine, "
                "or give both runs one ledger, so that their uses add up"
            )
        # Collections at hand are read, so that each index leads to its record, in whatever order they are.
        digests_at_hand = {}
        for name, records in self.collections.items():
            if records.base is not None and name in saved:
                digests_at_hand[name] = records.digests_with(saved[name].digests, identity)
            elif records.base is not None and identity != self.identity:
                digests_at_hand[name] = np.zeros_like(records.digests)
        repeats = None
        if self.plan.seeded and not filed and not adds:
            repeats = self._records()
        # All is checked: the state's rows are taken over, and collections without records wait for them.
        self.ledger.merge(self._rows_of([*saved.values()]), repeats)
        for state in saved.values():
            self.copies = state.copies | self.copies
        for name, state in saved.items():
            if name not in digests_at_hand:
                self.collections[name] = CountedRecords(name, state.size)
                self.collections[name].digests[: len(state.digests)] = state.digests
        for name, digests in digests_at_hand.items():
            used = saved[name].digests if name in saved else digests[:0]
            self._assign_digests(self.collections[name], digests, used)
        self.identity = identity

    def _rows_of(self, states: Sequence[SavedCollection]) -> Rows:
        """Return the rows of the ledger that states of collections hold.

        A file has noted itself what it counts.
        """
        seeded = [pair for state in states for pair in state.seeded if pair[1] or self.ledger.path is None]
        if self.plan.seeded:
            seeded = [(record, 1) for state in states for record in state.digests[:, 0].tolist()]
        return Rows(
            (self.plan.mechanism,),
            [row for state in states for row in state.rows(self.plan.frozen)],
            [label for state in states for label in state.labels],
            [pair for state in states for pair in state.owners],
            [pair for state in states for pair in state.cells],
            seeded,
        )

    def _assign_digests(
        self, records: CountedRecords, digests: Int[np.ndarray, "records 2"], used: Int[np.ndarray, "used 2"]
    ) -> None:
        """Give a collection the digests of its records. Used ones that are gone from it stay in the account."""
        records.digests = digests
        gone = used[~np.isin(used[:, 0], digests[:, 0])]
        if len(gone):
            earlier = self.collections.setdefault(
                name := f"{records.name} (earlier)", CountedRecords(name, 0)
            )
            gone = gone[~np.isin(gone[:, 0], earlier.digests[:, 0])]
            earlier.digests = np.concatenate([earlier.digests, gone])
            earlier.in_loader = np.zeros(len(earlier.digests), bool)

    def register(self, name: str, base: Any, key: Key) -> CountedRecords:
        """Return the records of a collection: its own under any name, or one that waits for its records.

        Raises:
            GuaranteeError: If the name stands for another collection, or all records that a state has counted
                are missing.
        """
        for records in self.collections.values():
            if records.base is not None and records.base[0] is base:
                records.grow(len(base))
                return records
        before = self.collections.get(name)
        if before is not None and before.base is not None:
            if not before.same_records_as(base, key, self.identity):
                raise GuaranteeError(
                    f"name = {name!r}: another dataset is counted under it, so protect once, before the loop, or give "
                    "other records another name"
                )
            before.base = base, key
            before.grow(len(base))
            return before
        records = CountedRecords(name, len(base))
        records.base = base, key
        self.collections[name] = records
        if before is not None and before.has_digest.any():
            used = before.digests[self._releases(before) > 0]
            try:
                self._assign_digests(records, records.digests_with(used, self.identity), used)
            except GuaranteeError:
                self.collections[name] = before
                raise
        return records

    def columns(self) -> tuple[np.ndarray, ...]:
        """Return what an accountant takes as six columns, with a row for each index of all collections.

        These are uses, uses with independent noise, nats of other channels, nats of labels, whether the row is
        counted, and the number of records of its owner, 0 without one.

        A record that stands at several indices is counted at the first, and so is an owner of several records,
        each of which has the numbers of all. One that no loader shows is counted once it was used.
        """
        self._read_unknown()
        collections = list(self.collections.values()) or [CountedRecords("", 1)]
        digests = np.concatenate([records.digests for records in collections])
        present = digests.any(axis=1)
        records = digests[:, 0]
        exposure = self.ledger.exposure(self._number, records)
        releases = np.where(present, self.ledger.releases(self._number, records), 0)
        fresh_uses = np.where(present, exposure.fresh_uses, 0)
        distinct = np.concatenate([each.in_loader if each.base else ~each.in_loader for each in collections])
        distinct |= releases > 0
        # Uses are those of an owner, where there is one.
        owners = self.ledger.owners(records)
        groups = self.ledger.group_sizes(records)
        for owner in np.unique(owners[owners != 0]).tolist():
            of_owner = np.flatnonzero(owners == owner)
            once = of_owner[np.unique(records[of_owner], return_index=True)[1]]
            releases[of_owner], fresh_uses[of_owner] = releases[once].sum(), fresh_uses[once].sum()
        channel = self.plan.mechanism
        direct = replace(channel, accepted=None).all_nats(fresh_uses)
        more = np.where(present, exposure.nats(channel), 0.0) - np.where(np.isfinite(direct), direct, 0.0)
        counted = np.flatnonzero(distinct & present)
        distinct[counted] = False
        subjects = np.where(owners != 0, owners, records)[counted]
        distinct[counted[np.unique(subjects, return_index=True)[1]]] = True
        return releases, fresh_uses, more, np.where(present, exposure.labels, 0.0), distinct, groups

    def _refusal(self, name: str, index: int, record: int, exposure: Exposure, kind: int) -> str:
        """Say which record has no uses left."""
        twins = sum(int(np.count_nonzero(each.digests[:, 0] == record)) for each in self.collections.values())
        equal = ", counted together with equal records at other indices" if twins > 1 else ""
        filed = self.ledger.path is not None
        runs = ", counted over all runs and channels of the ledger" if filed else ""
        nats = exposure.nats(self.plan.mechanism)[kind]
        limit = self.plan.limit
        owned = exposure.siblings[kind] > 0
        if exposure.others[kind] > 0 and not self.plan.adds:
            reason = f"record {index} of {name!r} went through another channel"
            several = "several channels"
            if owned:
                reason = f"other records of the owner of record {index} of {name!r} were released"
                several = "what they give away of it"
            return (
                f"{reason}, and an error of reconstruction after {several} is not computed: take a target in nats, or "
                "records of which nothing else was released"
            )
        if owned and nats > limit and exposure.fresh_uses[kind] <= (self.plan.most or 0):
            return (
                f"all records of the owner of record {index} of {name!r} would reveal {nats:.4g} nats together{runs}, "
                f"where {self.plan.most} uses are planned, for {limit:.4g} nats: plan for all records of an owner, "
                "whose nats add up, by a target with records=, or release fewer of them"
            )
        if exposure.fresh_uses[kind] <= (self.plan.most or 0):
            return (
                f"record {index} of {name!r} went through other channels, too, and would reveal "
                f"{upper_bound(nats, 6)} nats together{equal}{runs}, where {self.plan.most} uses of this one are "
                f"planned, for {limit:.6g} nats: stop training here, or plan for the uses of all channels before the "
                "first"
            )
        if self.plan.frozen:
            return (
                f"record {index} of {name!r} has had a noisy copy{runs}, and another one would reveal more: load the "
                "state_dict() of the run that holds it, if that froze its noise"
            )
        return (
            f"record {index} of {name!r} has had its {self.plan.most} planned uses{equal}{runs}: stop training here, "
            "or calibrate for more uses before the first"
        )


def order_of_use(
    which: Int[np.ndarray, " batch"], counts: Int[np.ndarray, " kinds"]
) -> Int[np.ndarray, " batch"]:
    """Number each place among those of its kind, from 0, in the order of the batch.

    Args:
        which: Kind of each place, from 0.
        counts: Places of each kind.
    """
    order = np.argsort(which, kind="stable")
    numbers = np.empty_like(which)
    numbers[order] = np.arange(len(which)) - (np.cumsum(counts) - counts)[which[order]]
    return numbers
