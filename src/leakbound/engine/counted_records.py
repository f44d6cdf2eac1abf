"""Records of a collection by index, and the state of an engine, which holds their rows of the ledger.

Nothing is counted here. A state holds digests, counts and frozen copies, so records may come back in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from leakbound.engine.accountant import alike
from leakbound.engine.identity import SEALED, WORD, Identity, Label
from leakbound.engine.ledger import Rows
from leakbound.engine.records import Key, input_of
from leakbound.engine.refusals import GuaranteeError

_COMPARED = 64  # records by which two datasets are compared


class CountedRecords:
    """Records of one collection under its name, by index. They must not change between uses.

    Args:
        name: Of the collection.
        size: Number of its records.

    Attributes:
        digests: (records, 2) keyed digest of each record as two words, of which a ledger knows the first. 0
            until it is known.
        in_loader: (records,) whether a protected loader or dataset has the record.
        base: The collection itself, and the place of the input. None while a state waits for it.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.base: tuple[Any, Key] | None = None
        self.digests = np.zeros((size, 2), np.int64)
        self.in_loader = np.zeros(size, dtype=bool)

    @property
    def has_digest(self) -> Bool[np.ndarray, " records"]:
        """True if the digest of each record is known."""
        return np.asarray(self.digests.any(axis=1))

    def check_same(
        self, records: Int[np.ndarray, " batch"], digests: Int[np.ndarray, "batch 2"], advice: str = ""
    ) -> None:
        """Refuse indices that hold another record than at their first use, and register the others.

        Args:
            records: Indices.
            digests: Digest of each record.
            advice: What several ranks may do about it, for the message.

        Raises:
            GuaranteeError: If one does.
        """
        before = self.digests[records]
        self.digests[records] = digests
        changed = (self.digests[records] != digests) | (
            (before != digests) & before.any(axis=1, keepdims=True)
        )
        if np.any(changed):
            self.digests[records] = before
            raise GuaranteeError(
                f"record {int(records[changed.any(axis=1).argmax()])} of {self.name!r} has other values than at its "
                "first use, so something random acts before the channel: move it behind the channel, protect(..., "
                f"after=transform){advice}"
            )

    def grow(self, size: int) -> None:
        """Make room for records that were appended."""
        more = max(0, size - len(self.digests))
        self.digests = np.pad(self.digests, ((0, more), (0, 0)))
        self.in_loader = np.pad(self.in_loader, (0, more))

    def compute_digests(
        self, identity: Identity, places: Sequence[int] | None = None
    ) -> Int[np.ndarray, "read 2"]:
        """Compute the digests of records, by default of all."""
        dataset, key = self.base or ((), None)
        indices = range(len(dataset)) if places is None else places
        contents = [identity.contents(input_of(dataset[index], key)[None])[0] for index in indices]
        return word_pairs(identity.digests(contents))

    def same_records_as(self, base: Any, key: Key, identity: Identity) -> bool:
        """Return whether another dataset holds the same records, as one that was made again does.

        Some are compared. Each use is compared with the first one in any case.
        """
        other = CountedRecords(self.name, len(base))
        other.base = base, key
        count = min(len(base), len(self.digests))
        places = np.unique(np.linspace(0, count - 1, _COMPARED).astype(np.int64)).tolist()
        mine, theirs = (each.compute_digests(identity, places) for each in (self, other))
        return count > 0 and np.array_equal(mine, theirs)

    def digests_with(
        self, used: Int[np.ndarray, "used 2"], identity: Identity
    ) -> Int[np.ndarray, "records 2"]:
        """Read all records and return their digests, of which a state has used some.

        Raises:
            GuaranteeError: If it has used some, and none of these is here.
        """
        digests = self.compute_digests(identity)
        if len(used) and not np.isin(used[:, 0], digests[:, 0]).any():
            raise GuaranteeError(
                f"{len(used)} of {len(used)} records that the state has counted are not in the data of {self.name!r}: "
                "protect the records that it was saved with, as they were, for cropped or augmented ones reveal more, "
                "and give other records another name"
            )
        return digests


def word_pairs(digests: Sequence[bytes]) -> Int[np.ndarray, "digests 2"]:
    """Return each digest as two words."""
    return np.frombuffer(b"".join(digests), "<i8").reshape(-1, WORD // 8).astype(np.int64)


@dataclass(frozen=True)
class SavedCollection:
    """Checked state of a collection.

    Attributes:
        size: Records of the collection.
        digests: (used, 2) digests of those that were used.
        uses: (used,) uses of each of them.
        labels: Labels that they released.
        owners: Record and owner of those that have one.
        cells: Record and cell that it lies in, of those that are compared.
        seeded: Records with noise from a seed, each with 1, or with 0 if nobody has noted whether it is.
        copies: Frozen copies by record.
    """

    size: int
    digests: Int[np.ndarray, "used 2"]
    uses: Int[np.ndarray, " used"]
    labels: list[Label]
    owners: list[tuple[int, int]]
    cells: list[tuple[int, int]]
    seeded: list[tuple[int, int]]
    copies: dict[int, Float[Tensor, "1 1 d"]]

    @classmethod
    def of(cls, state: Mapping[str, Any], width: int, needs_copies: bool) -> SavedCollection:
        """Check a state that was loaded, on whatever device.

        Args:
            state: Result of :meth:`leakbound.engine.counting.Counter.state` for one collection.
            width: Values of a record.
            needs_copies: Whether each record that was used must have its frozen copy.

        Raises:
            ValueError: If it does not hold what an engine writes.
        """
        tensors = _parts(state, width)
        digests, labels, owners, cells = (
            tensors[name].numpy().copy().view("<i8").reshape(-1, 2)
            for name in ("digests", "labels", "owners", "cells")
        )
        uses = tensors["uses"].numpy().copy()
        (size,), copied, labelled, owned, celled, seeded, unknown = (
            tensors[name].tolist()
            for name in ("size", "copied", "labelled", "owned", "celled", "seeded", "unknown")
        )
        nats = tensors["nats"]
        places = set(range(len(uses)))
        whole = len(np.unique(digests, axis=0)) == len(digests) == len(uses) <= size and bool(
            (uses >= 1).all()
        )
        whole &= len(labelled) == len(labels) == len(nats)
        whole &= {*labelled, *owned, *celled, *seeded, *unknown} <= places
        whole &= (
            len(owned) == len(owners)
            and len(celled) == len(cells)
            and bool((nats >= 0).all() and tensors["copies"].isfinite().all())
        )
        whole &= len(tensors["copies"]) == len(copied) == len({*copied} & places)
        if not whole or (needs_copies and len(copied) != len(uses)):
            raise ValueError("counts, labels, owners or copies are not those of records that were used")
        records = digests[:, 0].tolist()
        if "seeded" not in state:  # an earlier version did not note it
            unknown = [*places]
        return cls(
            size,
            digests,
            uses,
            [
                (records[at], *rest)
                for at, *rest in zip(labelled, labels[:, 0].tolist(), nats.tolist(), strict=True)
            ],
            [(records[at], owner) for at, owner in zip(owned, owners[:, 0].tolist(), strict=True)],
            [(records[at], cell) for at, cell in zip(celled, cells[:, 0].tolist(), strict=True)],
            [(records[at], sure) for sure, noted in ((1, seeded), (0, unknown)) for at in noted],
            {records[at]: copy.clone() for at, copy in zip(copied, tensors["copies"], strict=True)},
        )

    def rows(self, frozen: bool) -> list[tuple[int, int, int, int]]:
        """List the uses of the engine's channel. A frozen copy is one with independent noise."""
        uses = self.uses.tolist()
        return [
            (record, 0, min(1, count) if frozen else count, count)
            for record, count in zip(self.digests[:, 0].tolist(), uses, strict=True)
        ]


def collection_state(
    size: int,
    digests: Int[np.ndarray, "used 2"],
    uses: Int[np.ndarray, " used"],
    rows: Rows,
    copies: Mapping[int, Tensor],
) -> dict[str, Tensor]:
    """Return a collection's state as tensors, which :meth:`SavedCollection.of` reads."""
    places = {record: place for place, record in enumerate(digests[:, 0].tolist())}

    def parts(words: Sequence[int]) -> Tensor:
        padded = np.stack([np.array(words, "<i8"), np.zeros(len(words), "<i8")], axis=1)
        return torch.from_numpy(padded.view(np.uint8).reshape(-1, WORD))

    state = {
        "size": torch.tensor([size]),
        "digests": torch.from_numpy(digests.astype("<i8").view(np.uint8).reshape(-1, WORD)),
        "uses": torch.from_numpy(uses.copy()),
        "seeded": torch.tensor([places[record] for record, sure in rows.seeded if sure], dtype=torch.int64),
    }
    if unknown := [places[record] for record, sure in rows.seeded if not sure]:
        state["unknown"] = torch.tensor(unknown)
    if rows.labels:
        state |= {
            "labelled": torch.tensor([places[record] for record, _, _ in rows.labels]),
            "labels": parts([label for _, label, _ in rows.labels]),
            "nats": torch.tensor([nats for _, _, nats in rows.labels], dtype=torch.float64),
        }
    for place, name, pairs_of in (("owned", "owners", rows.owners), ("celled", "cells", rows.cells)):
        if pairs_of:
            state[place] = torch.tensor([places[record] for record, _ in pairs_of])
            state[name] = parts([word for _, word in pairs_of])
    if copied := [record for record in places if record in copies]:
        state |= {
            "copied": torch.tensor([places[record] for record in copied]),
            "copies": torch.stack([copies[record] for record in copied]),
        }
    return state


def _parts(state: Mapping[str, Any], width: int) -> dict[str, Tensor]:
    """Return the parts of a collection's state on the CPU, without rows where they are left out.

    Raises:
        KeyError: If a part is missing that never is.
        ValueError: If one has another type, or rows of another shape.
    """
    kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        **dict.fromkeys(
            ("size", "uses", "labelled", "copied", "owned", "celled", "seeded", "unknown"), (torch.int64, ())
        ),
        **dict.fromkeys(("digests", "labels", "owners", "cells"), (torch.uint8, (WORD,))),
        "nats": (torch.float64, ()),
        "copies": (torch.float32, (1, 1, width)),
    }
    tensors = {name: torch.zeros(0, *row, dtype=kind) for name, (kind, row) in kinds.items()}
    tensors |= {name: state[name].cpu() for name in {"size", "digests", "uses", *state}}
    for name, (kind, row) in kinds.items():
        if tensors[name].dtype != kind or tensors[name].shape[1:] != row:
            raise ValueError(f"{name}: give rows of shape {row} of {kind}")
    return tensors


def parse_state(
    state: Mapping[str, Any], facts: Mapping[str, Any], width: int, needs_copies: bool
) -> tuple[Mapping[str, Any], int, dict[str, SavedCollection]]:
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
        differing = [name for name in facts if not alike({name: loaded.get(name)}, {name: facts[name]})]
        said = ", ".join(f"{name} = {loaded.get(name)}, not {facts[name]}" for name in differing)
        raise GuaranteeError(
            f"the state is of another engine ({said or 'with more facts'}): calibrate as that one was, on the same "
            "data"
        )
    try:
        collections = {
            name: SavedCollection.of(part, width, needs_copies) for name, part in state["ledgers"].items()
        }
        key = state["key"]
        steps = state["steps"]
        sealed = key["sealed"]
        whole = isinstance(key["name"], str) and (sealed is None or len(bytes.fromhex(sealed)) == SEALED)
        if not whole or type(steps) is not int or steps < 0:
            raise ValueError("a key has a name, and is sealed or None, and steps are counted from 0")
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise GuaranteeError(
            "the state is not as state_dict() gave it: go on from a whole checkpoint"
        ) from error
    return key, steps, collections
