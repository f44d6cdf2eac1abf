"""Uses of records that are known only by their values, over all clones of a transformer in one process."""

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
    """Count uses by keyed digests. Equal rows are one record, and a seeded copy that comes again is one use.

    A copy or a pickle that is loaded in the process that made it is the same object. Elsewhere it refuses to
    count.
    """

    def __init__(self, name: bytes | None = None) -> None:
        self._foreign = name is not None
        self._name = name or os.urandom(16)
        self._process, self._lock = os.getpid(), threading.Lock()
        self._counts: Counter[bytes] = Counter()
        # Shares of plans, whose precisions of noise add.
        self._spent: defaultdict[bytes, Fraction] = defaultdict(Fraction)
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
        """Count one use of each row, or refuse all of them.

        Args:
            rows: Records.
            most: Planned uses, None without a plan.
            copy: Name of the channel and its seed, if they give equal rows equal noise.

        Raises:
            BudgetError: If a row has no uses left.
            GuaranteeError: If there is a plan, and this is a copy in another process.
        """
        digests = [
            blake2b(row.tobytes(), digest_size=16, key=self._name).digest()
            for row in np.ascontiguousarray(rows)
        ]
        if most is not None:
            self.check_process()
        with self._lock:
            copies = set() if copy is None else {(digest, copy) for digest in digests} - self._copies
            added = Counter(digests if copy is None else (digest for digest, _ in copies))
            for row, digest in enumerate(digests):
                if most and digest in added and self._spent[digest] + Fraction(added[digest], most) > 1:
                    raise BudgetError(
                        f"row {row} would be used {self._counts[digest] + added[digest]} times, over all fits and "
                        f"clones of this channel, where {most} are planned (a use under a smaller plan counts for "
                        "more): plan for more (uses=), or transform the records once and go on with the noisy ones"
                    )
            self._counts.update(added)
            for digest, number in added.items() if most is not None else ():
                self._spent[digest] += Fraction(number, most)
            self._copies |= copies

    @property
    def most(self) -> int:
        """Uses of the record that was used most."""
        return max(self._counts.values(), default=0)


def _of_name(name: bytes) -> RecordUses:
    """Return the counts of this process under a name, or empty ones that refuse to count."""
    return _KNOWN.get(name) or RecordUses(name)


def refuse_shared(public: Num[np.ndarray, "n d"], private: Num[np.ndarray, "m d"]) -> None:
    """Refuse public records of which many are private ones, in any order.

    Where most records are different ones, more than a tenth that coincide are no coincidence.

    Raises:
        GuaranteeError: If they are.
    """
    public_digests = {blake2b((row + 0.0).tobytes()).digest() for row in public}
    private_digests = {blake2b((row + 0.0).tobytes()).digest() for row in private}
    shared = len(public_digests & private_digests)
    if len(public_digests) >= _DISTINCT * len(public) and shared > _MOST_SHARED * len(public_digests):
        raise GuaranteeError(
            f"{shared} of {len(public)} public records are among those to protect, and the channel reveals "
            "their mean and covariance: calibrate to others"
        )
