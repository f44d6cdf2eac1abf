"""Rows as attacks leave them, made of values."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

UNTRAINED = {"learning_rate": np.nan, "chosen": True, "status": ""}


class Part(NamedTuple):
    """Values of one metric of one variant, those of units 0, 1, ... or all of one unit."""

    replica: int
    variant: str
    metric: str
    values: np.ndarray
    unit: int | None = None


def rows_of(parts: Iterable[Part]) -> pd.DataFrame:
    """Rows of an attack: one frame, since one for each of some dozen parts would take most of the tests' time."""
    parts = list(parts)
    counts = [len(part.values) for part in parts]
    units = [
        np.arange(n) if part.unit is None else np.full(n, part.unit) for n, part in zip(counts, parts, strict=True)
    ]
    repeated = {
        name: np.repeat(np.array([getattr(part, name) for part in parts], dtype=kind), counts)
        for name, kind in (("replica", int), ("variant", object), ("metric", object))
    }
    numbers = {"unit": np.concatenate(units), "value": np.concatenate([part.values for part in parts])}
    return pd.DataFrame({**repeated, **numbers, "low": np.nan, "high": np.nan, **UNTRAINED})
