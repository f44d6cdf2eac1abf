"""Per-record use counts of one collection, updated before each release. Records must not change between uses.

A state of it holds digests, counts and frozen copies, so records may come back in any order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.engine.book import Book
from leakbound.engine.identity import SEALED, WORD, Identity
from leakbound.engine.records import Key, as_tensor, taken
from leakbound.engine.refusals import GuaranteeError

_ALIKE = 1e-6  # relative difference of facts of equal channels, calibrated again


class Ledger:
    """Count the uses of one collection of records.

    Args:
        name: Of the collection.
        size: Number of its records.

    Attributes:
        rows: (records,) row of each record in the book, -1 until it is known.
        shown: (records,) whether a loader or dataset shows the record.
        base: The collection itself, and the place of the input. None while a state waits for it.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.base: tuple[Any, Key] | None = None
        self.rows = np.full(size, -1, dtype=np.int64)
        self.shown = np.zeros(size, dtype=bool)

    def grow(self, size: int) -> None:
        """Make room for records that were appended to the collection since."""
        if (more := size - len(self.rows)) > 0:
            self.rows = np.pad(self.rows, (0, more), constant_values=-1)
            self.shown = np.pad(self.shown, (0, more))

    def check_same(
        self, records: Int[np.ndarray, " batch"], rows: Int[np.ndarray, " batch"], apart: str = ""
    ) -> None:
        """Refuse indices that hold another record than at their first use, and register the others.

        Args:
            records: Indices.
            rows: Row of the book of each record.
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

    def check_size(self, size: int) -> None:
        """Refuse a state of another collection.

        Raises:
            GuaranteeError: If it has another number of records.
        """
        if size != len(self.rows):
            raise GuaranteeError(
                f"the state has {size or 'no'} records under the name {self.name!r}, here are {len(self.rows)}: "
                "protect the same data under the same names"
            )

    def placed(
        self,
        identity: Identity,
        book: Book,
        used: Int[np.ndarray, " used"],
        current: Int[np.ndarray, " records"],
    ) -> Int[np.ndarray, " records"]:
        """Read all records to find those that a state has used, and return their rows.

        If the state has used none, the current rows are returned.

        Raises:
            GuaranteeError: If one is missing.
        """
        if not len(used):
            return current
        dataset, key = self.base or ((), None)
        inputs = (as_tensor(taken(dataset[index], key))[None] for index in range(len(self.rows)))
        rows = book.rows(identity.of([identity.contents(record)[0] for record in inputs]))
        if missing := np.count_nonzero(~np.isin(used, rows)):
            raise GuaranteeError(
                f"{missing} of {len(used)} records that the state has counted are not in the data of {self.name!r}: "
                "protect the records that it was saved with, as they were, for cropped or augmented ones reveal more"
            )
        return rows

    def counts(self, column: np.ndarray) -> np.ndarray:
        """Read a column of the book by index, 0 for records that are not known yet."""
        return (
            np.where(self.rows >= 0, column[self.rows], 0)
            if len(column)
            else np.zeros(len(self.rows), column.dtype)
        )

    def used(self, book: Book) -> Int[np.ndarray, " used"]:
        """Find the rows of the records that were used."""
        rows = np.unique(self.rows[self.rows >= 0])
        return rows[book.uses[rows] > 0]

    def state(self, book: Book) -> dict[str, Tensor]:
        """Return digests and counts of records that were used, their labels, and their frozen copies, if any."""
        rows = self.used(book).tolist()
        kept = {
            "size": torch.tensor([len(self.rows)]),
            "digests": torch.tensor([list(book.digests[row]) for row in rows], dtype=torch.uint8).reshape(
                -1, WORD
            ),
            "uses": torch.from_numpy(book.uses[rows].copy()),
        }
        places = {row: place for place, row in enumerate(rows)}
        if labels := [(places[row], *label) for row in rows for label in book.labels_of(row).items()]:
            kept |= {
                "labelled": torch.tensor([place for place, _, _ in labels]),
                "labels": torch.tensor([list(label) for _, label, _ in labels], dtype=torch.uint8),
                "nats": torch.tensor([nats for _, _, nats in labels], dtype=torch.float64),
            }
        if copied := book.copied(rows):
            kept |= {"copied": torch.tensor([places[row] for row in copied]), "copies": book.frozen(copied)}
        return kept


@dataclass(frozen=True)
class Kept:
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

    @classmethod
    def of(cls, state: Mapping[str, Any], width: int, needs_copies: bool) -> Kept:
        """Check a state that was loaded, on whatever device.

        Args:
            state: Result of :meth:`Ledger.state`.
            width: Values of a record.
            needs_copies: Whether each record that was used must have its frozen copy.

        Raises:
            ValueError: If it does not hold what an engine writes.
        """
        held = {part: state[part].cpu() for part in {"size", "digests", "uses", *state}}
        size, digests, uses = held["size"], held["digests"], held["uses"]
        copied = held.get("copied", torch.zeros(0, dtype=torch.int64))
        copies = held.get("copies", torch.zeros(0, 1, 1, width))
        if (
            any(counts.dtype != torch.int64 for counts in (size, uses, copied))
            or digests.dtype != torch.uint8
        ):
            raise ValueError("counts must be int64, digests uint8")
        count = len(uses)
        used = tuple(row.tobytes() for row in digests.numpy())
        if (
            size.shape != (1,)
            or uses.shape != (count,)
            or digests.shape != (count, WORD)
            or len(set(used)) != count
        ):
            raise ValueError("give one count for each record")
        if not count <= int(size) or (count and int(uses.min()) < 1):
            raise ValueError("a record was used once or more")
        places = tuple(copied.tolist())
        if (
            copies.shape != (len(places), 1, 1, width)
            or copies.dtype != torch.float32
            or not copies.isfinite().all()
        ):
            raise ValueError("copies must be finite float32, one for each record that has one")
        if not len(places) == len(set(places) & {*range(count)}) or (needs_copies and len(places) != count):
            raise ValueError("frozen noise needs the copy of each record that was used")
        return cls(int(size), used, uses.numpy().copy(), _checked_labels(held, count), places, copies)


def _checked_labels(held: Mapping[str, Tensor], count: int) -> tuple[tuple[int, bytes, float], ...]:
    """Check the labels of a state's records, and return the place, the keyed digest and the nats of each.

    Raises:
        ValueError: If they are not those of records that were used.
    """
    places = held.get("labelled", torch.zeros(0, dtype=torch.int64))
    labels = held.get("labels", torch.zeros(0, WORD, dtype=torch.uint8))
    nats = held.get("nats", torch.zeros(0, dtype=torch.float64))
    if (places.dtype, labels.dtype, nats.dtype) != (torch.int64, torch.uint8, torch.float64):
        raise ValueError("places of labels must be int64, their digests uint8, their nats float64")
    if labels.shape != (len(places), WORD) or nats.shape != places.shape or not bool((nats >= 0).all()):
        raise ValueError("each label belongs to a record and has nats")
    if not set(places.tolist()) <= {*range(count)}:
        raise ValueError("labels are of records that were used")
    names = (row.tobytes() for row in labels.numpy())
    return tuple(zip(places.tolist(), names, nats.tolist(), strict=True))


def alike(facts: Any, others: Mapping[str, Any]) -> bool:
    """Return whether two engines have the same facts, up to the rounding of calibrations."""
    if not isinstance(facts, Mapping) or facts.keys() != others.keys():
        return False
    pairs = [(facts[name], other) for name, other in others.items()]
    return all(
        math.isclose(fact, other, rel_tol=_ALIKE)
        if isinstance(fact, float) and isinstance(other, float)
        else fact == other
        for fact, other in pairs
    )


def checked_state(
    state: Mapping[str, Any], law: Mapping[str, Any], width: int, needs_copies: bool
) -> tuple[Mapping[str, Any], int, dict[str, Kept]]:
    """Check an engine's state, and return its key, steps and collections.

    Args:
        state: State as it was loaded.
        law: Facts of the engine that the state must share.
        width: Values of a record.
        needs_copies: Whether each record that was used must have its frozen copy.

    Raises:
        GuaranteeError: If it is not of the form that an engine saves, or of one with another channel or
            noise.
    """
    if not alike(stated := state.get("law"), law):
        loaded = stated if isinstance(stated, Mapping) else {}
        apart = [name for name in law if not alike({name: loaded.get(name)}, {name: law[name]})]
        facts = ", ".join(f"{name} = {loaded.get(name)}, not {law[name]}" for name in apart)
        raise GuaranteeError(
            f"the state is of another engine ({facts or 'with more facts'}): calibrate as that one was, on the same "
            "data"
        )
    try:
        kept = {name: Kept.of(held, width, needs_copies) for name, held in state["ledgers"].items()}
        key, steps = state["key"], state["steps"]
        sealed = key["sealed"]
        if not isinstance(key["name"], str) or (sealed is not None and len(bytes.fromhex(sealed)) != SEALED):
            raise ValueError("a key has a name, and is sealed or None")
        if type(steps) is not int or steps < 0:
            raise ValueError("steps are a whole number of at least 0")
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise GuaranteeError(
            "the state is not as state_dict() gave it: go on from a whole checkpoint"
        ) from error
    return key, steps, kept
