"""Uses of each record that a process has met: by digest, by index in a collection, and as a state of both.

A state holds digests, counts and frozen copies, so records may come back in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.accounting.leakage import Held
from leakbound.engine.accountant import alike
from leakbound.engine.identity import SEALED, WORD, Identity, Label
from leakbound.engine.records import Key, input_of
from leakbound.engine.refusals import GuaranteeError

_COLUMNS = ("releases", "fresh_uses", "parallel", "others", "labels")


class Uses:
    """Uses by record. A row is a record, whatever collections it is in and however often.

    Attributes:
        digests: Of each row.
        releases: (rows,) uses, those of a frozen copy included.
        fresh_uses: (rows,) uses with independent noise through the engine's channel.
        parallel: (rows,) uses of this channel that those of other channels along its axes are worth, as far as
            a ledger on disk knows of them.
        others: (rows,) nats that channels along other axes have revealed, as far as it knows of them.
        labels: (rows,) nats that labels have revealed.
        copies: Row to its frozen copy (1, 1, d).
        released: Row to the keyed digests of its labels that were released, with their nats.
        listed: Row to the labels that its last use released.
    """

    def __init__(self) -> None:
        self.digests: list[bytes] = []
        self._rows: dict[bytes, int] = {}
        self.releases = np.zeros(0, np.int64)
        self.fresh_uses = np.zeros(0, np.int64)
        self.parallel = np.zeros(0)
        self.others = np.zeros(0)
        self.labels = np.zeros(0)
        self.copies: dict[int, Tensor] = {}
        self.released: dict[int, dict[bytes, float]] = {}
        self.listed: dict[int, list[int]] = {}

    def rows(self, digests: Sequence[bytes]) -> Int[np.ndarray, " digests"]:
        """Return the row of each digest. New ones get a row without uses."""
        rows = [self._rows.setdefault(digest, len(self._rows)) for digest in digests]
        if new := len(self._rows) - len(self.releases):
            self.digests += reversed([*islice(reversed(self._rows), new)])
            for name in _COLUMNS:
                setattr(self, name, np.pad(getattr(self, name), (0, new)))
        return np.array(rows, dtype=np.int64)

    def held(self, rows: Int[np.ndarray, " records"] | slice) -> Held:
        """Return what is known of some rows."""
        return Held(*(getattr(self, name)[rows] for name in _COLUMNS[1:]))

    def count_label(self, row: int, label: bytes, nats: float) -> None:
        """Count the nats of a label that a row released, unless it is counted already."""
        released = self.released.setdefault(row, {})
        if label not in released:
            self.labels[row] += nats
        released[label] = nats

    def uncopied(self, rows: Int[np.ndarray, " batch"], seeded: bool) -> Int[np.ndarray, " new"]:
        """Find where records stand first that lack a frozen copy, or a use where a seed repeats copies."""
        first = np.sort(np.unique(rows, return_index=True)[1])
        if seeded:
            return first[self.fresh_uses[rows[first]] == 0]
        return np.array([place for place in first if int(rows[place]) not in self.copies], dtype=np.int64)

    def frozen(self, rows: Iterable[int]) -> Float[Tensor, "rows 1 1 d"]:
        """Return the frozen copies of rows that have one."""
        return torch.stack([self.copies[row] for row in rows])

    def take_over(self, saved: SavedRecords, rows: Int[np.ndarray, " used"], frozen: bool) -> None:
        """Raise the counts of some rows to saved ones, and keep the noisy copies that are not here yet."""
        self.releases[rows] = np.maximum(self.releases[rows], saved.uses)
        self.fresh_uses[rows] = np.maximum(self.fresh_uses[rows], saved.fresh_uses(frozen))
        for place, label, nats in saved.labels:
            self.count_label(int(rows[place]), label, nats)
        for place, copy in zip(saved.copied, saved.copies, strict=True):
            self.copies.setdefault(int(rows[place]), copy.clone())


@dataclass(frozen=True)
class Batch:
    """Joint batch of all ranks.

    Attributes:
        rows: (joint,) row in the uses of each record, in the order of ranks.
        own: Part of them that is this rank's.
        charged: Places that are used with new noise, which for frozen noise is that of a new copy.
        kinds: Rows of these, each once.
        kind_of: Which of the kinds each of these places has.
        counts: (kinds,) number of places of each.
        numbers: (joint,) number of each use, from 0. Always 0 for frozen noise.
        listed: Labels of each record.
        released: Those that are released, except of records that released the same ones last time.
        done: Whether no rank has more batches.
    """

    rows: Int[np.ndarray, " joint"]
    own: slice
    charged: Int[np.ndarray, " charged"]
    kinds: Int[np.ndarray, " kinds"]
    kind_of: Int[np.ndarray, " charged"]
    counts: Int[np.ndarray, " kinds"]
    numbers: Int[np.ndarray, " joint"]
    listed: list[list[int]]
    released: list[Label]
    done: bool


class CountedRecords:
    """Records of one collection under its name, by index. They must not change between uses.

    Args:
        name: Of the collection.
        size: Number of its records.

    Attributes:
        rows: (records,) row of each record in the uses, -1 until it is known.
        shown: (records,) whether a loader or dataset shows the record.
        base: The collection itself, and the place of the input. None while a state waits for it.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.base: tuple[Any, Key] | None = None
        self.rows = np.full(size, -1, dtype=np.int64)
        self.shown = np.zeros(size, dtype=bool)

    def check_same(
        self, records: Int[np.ndarray, " batch"], rows: Int[np.ndarray, " batch"], apart: str = ""
    ) -> None:
        """Refuse indices that hold another record than at their first use, and register the others.

        Args:
            records: Indices.
            rows: Row in the uses of each record.
            apart: Advice for several ranks.

        Raises:
            GuaranteeError: If one does.
        """
        before = self.rows[records]
        self.rows[records] = rows
        if np.any(changed := (self.rows[records] != rows) | ((before >= 0) & (before != rows))):
            self.rows[records] = before
            raise GuaranteeError(
                f"record {int(records[changed.argmax()])} of {self.name!r} has other values than at its first use, so "
                "something random acts before the channel: move it behind the channel, protect(..., after=transform)"
                f"{apart}"
            )

    def placed(
        self,
        size: int,
        identity: Identity,
        uses: Uses,
        used: Int[np.ndarray, " used"],
        current: Int[np.ndarray, " records"],
    ) -> Int[np.ndarray, " records"]:
        """Read all records to find those that a state of ``size`` records has used, and return their rows.

        If the state has used none, the current rows are returned.

        Raises:
            GuaranteeError: If one is missing, or the state has another number of records.
        """
        if size != len(self.rows):
            raise GuaranteeError(
                f"the state has {size or 'no'} records under the name {self.name!r}, here are {len(self.rows)}: "
                "protect the same data under the same names"
            )
        if not len(used):
            return current
        dataset, key = self.base or ((), None)
        inputs = (input_of(dataset[index], key)[None] for index in range(len(self.rows)))
        rows = uses.rows(identity.of([identity.contents(record)[0] for record in inputs]))
        if missing := np.count_nonzero(~np.isin(used, rows)):
            raise GuaranteeError(
                f"{missing} of {len(used)} records that the state has counted are not in the data of {self.name!r}: "
                "protect the records that it was saved with, as they were, for cropped or augmented ones reveal more"
            )
        return rows

    def used(self, uses: Uses) -> Int[np.ndarray, " used"]:
        """Find the rows of the records that were used."""
        rows = np.unique(self.rows[self.rows >= 0])
        return rows[uses.releases[rows] > 0]

    def state(self, uses: Uses) -> dict[str, Tensor]:
        """Return digests and counts of records that were used, their labels, and their frozen copies, if any."""
        rows = self.used(uses).tolist()
        digests = [list(uses.digests[row]) for row in rows]
        state = {
            "size": torch.tensor([len(self.rows)]),
            "digests": torch.tensor(digests, dtype=torch.uint8).reshape(-1, WORD),
            "uses": torch.from_numpy(uses.releases[rows].copy()),
        }
        places = {row: place for place, row in enumerate(rows)}
        if labels := [(places[row], *label) for row in rows for label in uses.released.get(row, {}).items()]:
            state |= {
                "labelled": torch.tensor([place for place, _, _ in labels]),
                "labels": torch.tensor([list(label) for _, label, _ in labels], dtype=torch.uint8),
                "nats": torch.tensor([nats for _, _, nats in labels], dtype=torch.float64),
            }
        if copied := [row for row in rows if row in uses.copies]:
            state |= {"copied": torch.tensor([places[row] for row in copied]), "copies": uses.frozen(copied)}
        return state


@dataclass(frozen=True)
class SavedRecords:
    """Checked state of a collection.

    Attributes:
        size: Records of the collection.
        digests: Digests of those that were used.
        uses: Uses of each of them.
        labels: Labels that they released: place, keyed digest and nats of each.
        copied: Places of those that have a frozen copy.
        copies: Their frozen copies.
    """

    size: int
    digests: tuple[bytes, ...]
    uses: Int[np.ndarray, " used"]
    labels: tuple[tuple[int, bytes, float], ...]
    copied: tuple[int, ...]
    copies: Float[Tensor, "copied 1 1 d"]

    def fresh_uses(self, frozen: bool) -> Int[np.ndarray, " used"]:
        """Return the uses of each with independent noise, of which a frozen copy is one."""
        return np.minimum(self.uses, 1) if frozen else self.uses

    @classmethod
    def of(cls, state: Mapping[str, Any], width: int, needs_copies: bool) -> SavedRecords:
        """Check a state that was loaded, on whatever device.

        Args:
            state: Result of :meth:`CountedRecords.state`.
            width: Values of a record.
            needs_copies: Whether each record that was used must have its frozen copy.

        Raises:
            ValueError: If it does not hold what an engine writes.
        """
        held = _parts(state, width)
        used, labels = ([row.tobytes() for row in held[name].numpy()] for name in ("digests", "labels"))
        uses = held["uses"].numpy()
        (size,), copied, labelled = (held[name].tolist() for name in ("size", "copied", "labelled"))
        places = set(range(len(uses)))
        whole = len(set(used)) == len(used) == len(uses) <= size and bool((uses >= 1).all())
        whole &= len(labelled) == len(labels) == len(held["nats"]) and {*labelled} <= places
        whole &= bool((held["nats"] >= 0).all() and held["copies"].isfinite().all())
        whole &= len(held["copies"]) == len(copied) == len({*copied} & places)
        if not whole or (needs_copies and len(copied) != len(uses)):
            raise ValueError("counts, labels or copies are not those of records that were used")
        released = tuple(zip(labelled, labels, held["nats"].tolist(), strict=True))
        return cls(size, tuple(used), uses.copy(), released, tuple(copied), held["copies"])


def _parts(state: Mapping[str, Any], width: int) -> dict[str, Tensor]:
    """Return the parts of a collection's state on the CPU, without rows where they are left out.

    Raises:
        KeyError: If a part is missing that never is.
        ValueError: If one has another type, or rows of another shape.
    """
    kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        **dict.fromkeys(("size", "uses", "labelled", "copied"), (torch.int64, ())),
        **dict.fromkeys(("digests", "labels"), (torch.uint8, (WORD,))),
        "nats": (torch.float64, ()),
        "copies": (torch.float32, (1, 1, width)),
    }
    held = {name: torch.zeros(0, *row, dtype=kind) for name, (kind, row) in kinds.items()}
    held |= {name: state[name].cpu() for name in {"size", "digests", "uses", *state}}
    for name, (kind, row) in kinds.items():
        if held[name].dtype != kind or held[name].shape[1:] != row:
            raise ValueError(f"{name}: give rows of shape {row} of {kind}")
    return held


def checked_state(
    state: Mapping[str, Any], facts: Mapping[str, Any], width: int, needs_copies: bool
) -> tuple[Mapping[str, Any], int, dict[str, SavedRecords]]:
    """Check an engine's state, and return its key, steps and collections.

    Args:
        state: State as it was loaded.
        facts: Facts of the engine that the state must have, too.
        width: Values of a record.
        needs_copies: Whether each record that was used must have its frozen copy.

    Raises:
        GuaranteeError: If it is not of the form that an engine saves, or of one with another channel or
            noise.
    """
    if not alike(stated := state.get("law"), facts):
        loaded = stated if isinstance(stated, Mapping) else {}
        apart = [name for name in facts if not alike({name: loaded.get(name)}, {name: facts[name]})]
        said = ", ".join(f"{name} = {loaded.get(name)}, not {facts[name]}" for name in apart)
        raise GuaranteeError(
            f"the state is of another engine ({said or 'with more facts'}): calibrate as that one was, on the same "
            "data"
        )
    try:
        kept = {name: SavedRecords.of(held, width, needs_copies) for name, held in state["ledgers"].items()}
        key, steps = state["key"], state["steps"]
        sealed = key["sealed"]
        whole = isinstance(key["name"], str) and (sealed is None or len(bytes.fromhex(sealed)) == SEALED)
        if not whole or type(steps) is not int or steps < 0:
            raise ValueError("a key has a name, and is sealed or None, and steps are counted from 0")
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise GuaranteeError(
            "the state is not as state_dict() gave it: go on from a whole checkpoint"
        ) from error
    return key, steps, kept


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
