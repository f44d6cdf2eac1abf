"""Uses of each record of one collection, counted before a release, with what must not change between them."""

import os
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.engine.refusals import BudgetError, GuaranteeError

_WORD = 8  # bytes of a record's print


class Ledger:
    """Counts of one collection of records, in one process.

    Args:
        name: Of the collection.
        size: Number of its records.

    Attributes:
        uses: (records,) releases of each record so far.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.uses = np.zeros(size, dtype=np.int64)
        self._secret = os.urandom(16)  # so that prints, were they ever seen, would not single out a record
        self._prints = np.zeros(size, dtype=np.uint64)
        self._rows: dict[int, int] = {}  # record to its row of the copies
        self._copies: list[Tensor] = []

    def numbers(self, records: Int[np.ndarray, " rows"], most: int | None) -> Int[np.ndarray, " rows"]:
        """Number of the use, from 0, that each row of a batch will be; nothing is counted yet.

        Raises:
            BudgetError: If a record would be used more often than ``most`` times.
        """
        found = self.uses[records].copy()
        seen: dict[int, int] = {}
        for row, record in enumerate(records.tolist()):
            found[row] += seen.get(record, 0)
            seen[record] = seen.get(record, 0) + 1
        if most is not None and len(found) and int(found.max()) >= most:
            record = int(records[int(found.argmax())])
            raise BudgetError(
                f"record {record} of {self.name!r} has had its {most} planned uses: stop training here, or calibrate "
                "for more uses before the first"
            )
        return found

    def check_same(self, records: Int[np.ndarray, " rows"], inputs: Tensor) -> None:
        """Refuse records that come with other values than at their first use in this process.

        Raises:
            GuaranteeError: If one does.
        """
        for record, value in zip(records.tolist(), inputs, strict=True):
            digest = blake2b(value.contiguous().numpy().tobytes(), digest_size=_WORD, key=self._secret).digest()
            found = np.frombuffer(digest, np.uint64)[0] | np.uint64(1)  # 0 means not seen yet
            if self._prints[record] not in (0, found):
                raise GuaranteeError(
                    f"record {record} of {self.name!r} has other values than at its first use, so something random "
                    "acts before the channel: move it behind the channel, protect(..., after=transform)"
                )
            self._prints[record] = found

    def count(self, records: Int[np.ndarray, " rows"]) -> None:
        """Count one use for each row."""
        np.add.at(self.uses, records, 1)

    def unseen(self, records: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " new"]:
        """Rows of a batch whose records have no frozen copy yet, each record once."""
        first = np.unique(records, return_index=True)[1]
        return np.array([row for row in sorted(first) if int(records[row]) not in self._rows], dtype=np.int64)

    def keep(self, records: Int[np.ndarray, " new"], copies: Float[Tensor, "new d"]) -> None:
        """Keep the frozen copies of some records."""
        for record, copy in zip(records.tolist(), copies, strict=True):
            self._rows[record] = len(self._copies)
            self._copies.append(copy.clone())

    def frozen(self, records: Int[np.ndarray, " rows"]) -> Float[Tensor, "rows d"]:
        """Frozen copies of records that have one."""
        return torch.stack([self._copies[self._rows[record]] for record in records.tolist()])

    def state(self) -> dict[str, Any]:
        """Counts, and the frozen copies that no seed repeats: they were released, so they tell nothing more."""
        kept = {"uses": torch.from_numpy(self.uses.copy())}
        if self._copies:
            kept |= {"records": torch.tensor(list(self._rows)), "copies": torch.stack(self._copies)}
        return kept

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self.uses = state["uses"].numpy().copy()
        self._rows, self._copies = {}, []
        if "copies" in state:
            self.keep(state["records"].numpy(), state["copies"])
