"""Records that are nearly others, such as a copy of lower precision: counted apart, and said.

A copy at float16, or after a small change, has another digest, so it counts as a record of its own, and both
together reveal up to twice the bound about what they share. Coarsened values find most of these. A flipped,
rotated or cropped copy is far away in values and is not found.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Num
from scipy import linalg

from leakbound.channels.covariance import Moments
from leakbound.engine.refusals import CapacityWarning

_LEAST = 16  # values of a record, below which different records are often near each other
_LARGEST = 4096  # values, above which whitening takes too long
_NUMBERS = 12  # coarse numbers of a record, independent of each other
_WIDTH = 0.1  # of a cell, in standard deviations of such a number
_RIDGE = 0.1  # of the mean variance, so that directions without variance do not turn rounding into distance


class NearCopies:
    """Find records that agree with others in twelve coarse numbers without being equal.

    The numbers are random combinations of values, whitened by the calibration's covariance, in cells of two
    grids, of which one may separate a copy from its original. Two independent Gaussian records agree with a
    probability of 10⁻¹⁸.

    Args:
        moments: Mean and covariance of the calibration records.
    """

    def __init__(self, moments: Moments) -> None:
        self._mean = moments.mean
        self._axes: Float[np.ndarray, "d numbers"] | None = None
        self._seen: dict[bytes, tuple[bytes, str]] = {}
        self._shown: set[bytes] = set()
        if isinstance(moments, Moments) and _LEAST <= moments.dimension <= _LARGEST:
            ridge = _RIDGE * moments.total_variance / moments.dimension
            factor = linalg.cholesky(moments.covariance + ridge * np.eye(moments.dimension), lower=True)
            draws = np.random.default_rng(0).normal(size=(moments.dimension, _NUMBERS))
            axes = linalg.solve_triangular(factor, draws, lower=True, trans="T")
            self._axes = axes / np.sqrt((axes * (moments.covariance @ axes)).sum(axis=0)) / _WIDTH

    def add_public(self, rows: Num[np.ndarray, "n d"], names: Sequence[bytes]) -> None:
        """Add public records, whose digests are ``names``."""
        for key, name in self._cells(rows, names):
            self._seen.setdefault(key, (name, "a public"))

    def show(self, rows: Num[np.ndarray, "n d"], names: Sequence[bytes]) -> None:
        """Add private records, and warn once if one is nearly another one or a public one.

        Args:
            rows: Values.
            names: Digests, equal for equal records.
        """
        fresh = [place for place, name in enumerate(names) if name not in self._shown]
        self._shown.update(names)
        for key, name in self._cells(rows[fresh], [names[place] for place in fresh]):
            other, of = self._seen.setdefault(key, (name, "another private"))
            if other != name:
                self._axes = None
                warnings.warn(
                    f"a private record is nearly {of} one, but not equal to it: if one is a copy of the other, at "
                    "another precision say, the two reveal up to twice what is stated; keep one of them",
                    CapacityWarning,
                    stacklevel=4,
                )
                return

    def _cells(self, rows: Num[np.ndarray, "n d"], names: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the cells of records in both grids, with their names."""
        if self._axes is None or not len(rows):
            return
        numbers = (rows.astype(np.float64) - self._mean) @ self._axes
        for grid in (0.0, 0.5):
            cells = np.floor(numbers + grid).astype(np.int64)
            yield from zip((b"%.1f" % grid + cell.tobytes() for cell in cells), names, strict=True)
