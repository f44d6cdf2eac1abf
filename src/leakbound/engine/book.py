"""Uses of each record that an engine has met, by the digest of its values, and frozen copies of records."""

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.accounting.leakage import Held


class Book:
    """Counts by record. A row is a record, whatever collections it is in and however often.

    Attributes:
        digests: Of each row.
        uses: (rows,) releases.
        looks: (rows,) uses with independent noise through the engine's channel.
        parallel: (rows,) uses of this channel that those of other channels along its axes are worth, as far as
            a ledger on disk knows of them.
        others: (rows,) nats that channels along other axes have revealed, as far as it knows of them.
        labels: (rows,) nats that labels have revealed.
        listed: Row to the labels that its last use released.
    """

    def __init__(self) -> None:
        self.digests: list[bytes] = []
        self._rows: dict[bytes, int] = {}
        self.uses, self.looks = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.parallel, self.others, self.labels = np.zeros(0), np.zeros(0), np.zeros(0)
        self._copies: dict[int, Tensor] = {}
        self._released: dict[int, dict[bytes, float]] = {}
        self.listed: dict[int, list[int]] = {}

    def rows(self, digests: Sequence[bytes]) -> Int[np.ndarray, " digests"]:
        """Return the row of each digest. New ones get a row without uses."""
        rows = [self._rows.setdefault(digest, len(self._rows)) for digest in digests]
        if new := len(self._rows) - len(self.uses):
            self.digests += reversed([*islice(reversed(self._rows), new)])
            for name in ("uses", "looks", "parallel", "others", "labels"):
                setattr(self, name, np.pad(getattr(self, name), (0, new)))
        return np.array(rows, dtype=np.int64)

    def held(self, rows: Int[np.ndarray, " records"] | slice) -> Held:
        """Return what is known of some rows."""
        return Held(self.looks[rows], self.parallel[rows], self.others[rows], self.labels[rows])

    def count_label(self, row: int, label: bytes, nats: float) -> None:
        """Count the nats of a label that a row released, unless it is counted already."""
        released = self._released.setdefault(row, {})
        if label not in released:
            self.labels[row] += nats
        released[label] = nats

    def labels_of(self, row: int) -> dict[bytes, float]:
        """Return the labels that a row released, with their nats."""
        return self._released.get(row, {})

    def uncopied(
        self, rows: Int[np.ndarray, " batch"], looks: Int[np.ndarray, " rows"] | None = None
    ) -> Int[np.ndarray, " new"]:
        """Find where records stand first that have no frozen copy yet, or no use in ``looks``."""
        first = np.sort(np.unique(rows, return_index=True)[1])
        if looks is not None:
            return first[looks[rows[first]] == 0]
        return np.array([place for place in first if int(rows[place]) not in self._copies], dtype=np.int64)

    def keep(self, rows: Iterable[int], copies: Float[Tensor, "new 1 1 d"]) -> None:
        """Keep the frozen copies of some rows."""
        for row, copy in zip(rows, copies, strict=True):
            self._copies[row] = copy.clone()

    def frozen(self, rows: Iterable[int]) -> Float[Tensor, "rows 1 1 d"]:
        """Return the frozen copies of rows that have one."""
        return torch.stack([self._copies[row] for row in rows])

    def copied(self, rows: Iterable[int]) -> list[int]:
        """Select the rows that have a frozen copy."""
        return [row for row in rows if row in self._copies]


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
