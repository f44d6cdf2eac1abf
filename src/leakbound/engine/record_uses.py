"""Uses of records that are known by their values alone, over all copies and clones of a transformer in one process."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter, defaultdict
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Num

from leakbound.engine.refusals import BudgetError, GuaranteeError

_MOST_SHARED = 0.1  # of the public records, that may be private ones too
_DISTINCT = 0.9  # share of different records, from which on equal ones are no coincidence
_KNOWN: weakref.WeakValueDictionary[bytes, RecordUses] = weakref.WeakValueDictionary()


class RecordUses:
    """Counts by keyed digests; equal rows are one record, and a seeded copy that comes again is one use.

    A copy or a pickle that is loaded in the process that made it is the same object; elsewhere it refuses to
    count.
    """

    def __init__(self, name: bytes | None = None) -> None:
        self._foreign = name is not None
        self._name = name or os.urandom(16)
        self._process, self._lock = os.getpid(), threading.Lock()
        self._counts: Counter[bytes] = Counter()
        self._spent: defaultdict[bytes, Fraction] = defaultdict(
            Fraction
        )  # of plans, whose precisions of noise add
        self._copies: set[tuple[bytes, bytes]] = set()
        _KNOWN[self._name] = self

    def __reduce__(self) -> Any:
        return _of_name, (self._name,)

    def __deepcopy__(self, memo: Any) -> RecordUses:
        return self

    def check_process(self) -> None:
        """Refuse another process than that of the original.

        Raises:
            GuaranteeError: If this is a copy in one.
        """
        if self._foreign or self._process != os.getpid():
            raise GuaranteeError(
                "this channel comes from another process, and uses are counted in one: make and fit it here "
                "(n_jobs=1), or transform the records once and give the noisy ones to the search"
            )

    def take(self, rows: Num[np.ndarray, "n d"], most: int | None, copy: bytes | None) -> None:
        """Count one use of each row, of all or of none.

        Args:
            rows: Records.
            most: Uses that are planned.
            copy: Name of the channel and its seed, if they give equal rows equal noise.

        Raises:
            BudgetError: If a row has no uses left.
            GuaranteeError: If there is a plan, and this is a copy in another process.
        """
        found = [
            blake2b(row.tobytes(), digest_size=16, key=self._name).digest()
            for row in np.ascontiguousarray(rows)
        ]
        if most is not None:
            self.check_process()
        with self._lock:
            copies = set() if copy is None else {(one, copy) for one in found} - self._copies
            added = Counter(found if copy is None else (one for one, _ in copies))
            for row, one in enumerate(found):
                if most is not None and one in added and self._spent[one] + Fraction(added[one], most) > 1:
                    raise BudgetError(
                        f"row {row} would be used {self._counts[one] + added[one]} times, over all fits and clones of "
                        f"this channel, where {most} are planned (a use under a smaller plan counts for more): plan "
                        "for more (uses=), or transform the records once and go on with the noisy ones"
                    )
            self._counts.update(added)
            for one, number in added.items() if most is not None else ():
                self._spent[one] += Fraction(number, most)
            self._copies |= copies

    @property
    def most(self) -> int:
        """Uses of the record that was used most."""
        return max(self._counts.values(), default=0)


def _of_name(name: bytes) -> RecordUses:
    """The counts of this process under a name, or empty ones that refuse to count."""
    return _KNOWN.get(name) or RecordUses(name)


def refuse_shared(public: Num[np.ndarray, "n d"], private: Num[np.ndarray, "m d"]) -> None:
    """Refuse public records of which many are private ones, in any order.

    Where most records are different ones, more than a tenth that coincide are no coincidence.

    Raises:
        GuaranteeError: If they are.
    """
    known, own = ({blake2b((row + 0.0).tobytes()).digest() for row in rows} for rows in (public, private))
    if len(known) >= _DISTINCT * len(public) and len(known & own) > _MOST_SHARED * len(known):
        raise GuaranteeError(
            f"{len(known & own)} of {len(public)} public records are among those to protect, and the channel reveals "
            "their mean and covariance: calibrate to others"
        )
