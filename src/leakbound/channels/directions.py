"""Principal directions of a few large records, stored as linear combinations of the records.

With n records of d values, n far below d, every direction in which they vary is a combination of n centred
records. So n × r weights replace r × d numbers, and the records can stay in memory as they are, e.g. as
bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

_BLOCK = 2**22  # values that are in float64 at a time


@dataclass(frozen=True)
class Directions:
    """Orthonormal columns V = Σ_k (x_k − m) w_k, and all directions orthogonal to them, treated alike.

    An array of values along the axes has d entries: the first r for the columns, and one common value for the
    rest.

    Attributes:
        records: (n, d), x, in any units.
        mean: (d,), m, in the units of the records.
        weights: (n, r), w.
    """

    records: Num[np.ndarray, "n d"]
    mean: Float[np.ndarray, " d"]
    weights: Float[np.ndarray, "n r"]

    def coordinates(self, rows: Num[np.ndarray, "k d"]) -> Float[np.ndarray, "k r"]:
        """Compute the coordinates of rows along the columns, rows · V."""
        products = np.zeros((len(rows), len(self.records)))
        for part in blocks(len(self.records), len(self.mean)):
            products += rows[:, part].astype(np.float64) @ self._centred(part).T
        return products @ self.weights

    def scaled(
        self, rows: Float[np.ndarray, "k d"], values: Float[np.ndarray, " d"]
    ) -> Float[np.ndarray, "k d"]:
        """Multiply rows by a value along each axis: rows · (V diag(v) Vᵀ + v_rest (I − V Vᵀ))."""
        rest = float(values[-1])
        mixed = (self.coordinates(rows) * (values[: self.weights.shape[1]] - rest)) @ self.weights.T
        product = rest * rows
        for part in blocks(len(self.records), len(self.mean)):
            product[:, part] += mixed @ self._centred(part)
        return product

    def diagonal(self, values: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """Compute the diagonal, along the pixels, of the matrix with a value along each axis."""
        rest = float(values[-1])
        mixed = (self.weights * (values[: self.weights.shape[1]] - rest)) @ self.weights.T
        diagonal = np.full(len(self.mean), rest)
        for part in blocks(len(self.records), len(self.mean)):
            centred = self._centred(part)
            diagonal[part] += np.einsum("kj,kj->j", centred, mixed @ centred)
        return diagonal

    def _centred(self, part: slice) -> Float[np.ndarray, "n part"]:
        """Return some values of all records minus their mean."""
        return self.records[:, part] - self.mean[part]


def gram_matrix(
    records: Num[np.ndarray, "n d"],
    mean: Float[np.ndarray, " d"],
    scale: Float[np.ndarray, " d"] | float = 1.0,
) -> Float[np.ndarray, "n n"]:
    """Compute inner products Σ_j s_j (x_aj − m_j)(x_bj − m_j) of centred records, block by block.

    Args:
        records: (n, d), of any type.
        mean: (d,), m.
        scale: s >= 0, one for each value or one for all.
    """
    gram = np.zeros((len(records), len(records)))
    root = np.broadcast_to(np.sqrt(scale), mean.shape)
    for part in blocks(len(records), len(mean)):
        centred = (records[:, part] - mean[part]) * root[part]
        gram += centred @ centred.T
    return gram


def blocks(count: int, width: int) -> Iterator[slice]:
    """Yield slices of the values of some records, such that each block fits into memory as float64."""
    step = max(1, _BLOCK // max(1, count))
    return (slice(start, min(start + step, width)) for start in range(0, width, step))
