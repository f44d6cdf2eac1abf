"""Identity of records: collection and index of each position, through subsets and concatenations.

So an index of one collection is recognised whichever loader reads it. Equal records are recognised by their
digests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from torch.utils.data import ConcatDataset, Subset


@dataclass(frozen=True)
class Places:
    """Origin of each record of a dataset.

    Attributes:
        bases: Collections that records come from, none of them a part of another dataset.
        which: (positions,) number of the collection, for each position of the dataset.
        records: (positions,) index inside the collection.
    """

    bases: tuple[Any, ...]
    which: Int[np.ndarray, " positions"]
    records: Int[np.ndarray, " positions"]

    @classmethod
    def of(cls, dataset: Any) -> Places:
        """Find the origins of a dataset's records, through ``Subset`` and ``ConcatDataset``."""
        if isinstance(dataset, Subset):
            inner, chosen = cls.of(dataset.dataset), np.asarray(dataset.indices, dtype=np.int64)
            return cls(inner.bases, inner.which[chosen], inner.records[chosen])
        if not isinstance(dataset, ConcatDataset):
            size = len(dataset)
            return cls((dataset,), np.zeros(size, dtype=np.int64), np.arange(size, dtype=np.int64))
        bases: list[Any] = []
        which, records = [], []
        for part in map(cls.of, dataset.datasets):
            bases += [base for base in part.bases if not any(base is other for other in bases)]
            numbers = [next(at for at, other in enumerate(bases) if other is base) for base in part.bases]
            which.append(np.array(numbers, dtype=np.int64)[part.which])
            records.append(part.records)
        return cls(tuple(bases), np.concatenate(which), np.concatenate(records))
