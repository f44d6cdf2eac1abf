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
        return np.append(column, 0)[self.rows]  # at row -1

    def used(self, book: Book) -> Int[np.ndarray, " used"]:
        """Find the rows of the records that were used."""
        rows = np.unique(self.rows[self.rows >= 0])
        return rows[book.uses[rows] > 0]

    def state(self, book: Book) -> dict[str, Tensor]:
        """Return digests and counts of records that were used, their labels, and their frozen copies, if any."""
        rows = self.used(book).tolist()
        digests = [list(book.digests[row]) for row in rows]
        kept = {
            "size": torch.tensor([len(self.rows)]),
            "digests": torch.tensor(digests, dtype=torch.uint8).reshape(-1, WORD),
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
        held = _parts(state, width)
        used, labels = ([row.tobytes() for row in held[name].numpy()] for name in ("digests", "labels"))
        uses = held["uses"].numpy()
        (size,), copied, labelled = (held[name].tolist() for name in ("size", "copied", "labelled"))
        places = set(range(len(uses)))
        if not len(set(used)) == len(used) == len(uses) <= size or np.any(uses < 1):
            raise ValueError("give one count of at least 1 for each record that was used")
        if not len(labelled) == len(labels) == len(held["nats"]) or not {*labelled} <= places:
            raise ValueError("each label belongs to a record that was used")
        if not bool((held["nats"] >= 0).all()):
            raise ValueError("each label has nats of at least 0")
        if len(held["copies"]) != len(copied) or not held["copies"].isfinite().all():
            raise ValueError("copies must be finite, one for each record that has one")
        if not len(copied) == len({*copied} & places) or (needs_copies and len(copied) != len(uses)):
            raise ValueError("frozen noise needs the copy of each record that was used")
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
