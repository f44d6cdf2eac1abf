"""Mean and covariance of records in one pass and float64: exact for these, or shrunk for others of their law."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Num
from scipy import linalg
from scipy.linalg.blas import dsyrk
from scipy.optimize import brentq

from leakbound.accounting.gaussian import check_covariance

_AMPLE = 10  # records for each dimension beyond which a covariance needs no shrinking
_CHUNK = 2000  # records held as float64 at once
_FOLDS = 4  # parts of the records that are left out in turn, as far as there are records
_LEAST_WEIGHT = 1e-6  # of the identity, and the precision to which more of it is found


@dataclass(frozen=True)
class Moments:
    """First two moments of the law that draws one of N records uniformly.

    Attributes:
        mean: (d,), pixel units, pixels flattened in the order (color, row, column).
        covariance: (d, d), squared pixel units, normalised by 1/N, so that bounds hold exactly for the
            records at hand and not only for a population that they were drawn from.
        count: N, number of records.
        shrinkage: Weight in [0, 1] of a multiple of the identity that the covariance was mixed with, its
            trace kept.

    Raises:
        ValueError: If the shapes disagree, an entry is not finite, or the covariance is not symmetric.
    """

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    count: int
    shrinkage: float = 0.0

    def __post_init__(self) -> None:
        """Refuse moments that cannot be decomposed."""
        if self.covariance.shape != (len(self.mean), len(self.mean)):
            raise ValueError(
                f"covariance has shape {self.covariance.shape}, the mean has length {len(self.mean)}"
            )
        if not np.isfinite(self.mean).all():
            raise ValueError("mean: an entry is NaN or infinite")
        check_covariance(self.covariance)

    @property
    def dimension(self) -> int:
        """d, number of pixels times colors."""
        return len(self.mean)

    @property
    def total_variance(self) -> float:
        """Trace of the covariance, E‖D − E D‖²."""
        return float(np.trace(self.covariance))

    def arrays(self) -> dict[str, np.ndarray]:
        """Named arrays for storage."""
        return {
            "mean": self.mean,
            "covariance": self.covariance,
            "count": np.array([self.count], dtype=np.int64),
            "shrinkage": np.array([self.shrinkage]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Moments:
        """Moments from the arrays of :meth:`arrays`.

        Raises:
            KeyError: If an array is missing.
            ValueError: If one is of another type or shape.
        """
        size = arrays["mean"].size
        mean, covariance = (
            stored_array(arrays, "mean", (size,)),
            stored_array(arrays, "covariance", (size, size)),
        )
        if arrays["count"].shape != (1,) or arrays["count"].dtype != np.int64 or arrays["count"][0] < 1:
            raise ValueError("count: must be one whole number of at least 1")
        shrinkage = float(stored_array(arrays, "shrinkage", (1,))[0])
        return cls(mean, covariance, int(arrays["count"][0]), shrinkage)


def stored_array(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The float64 array of this name and shape among the arrays of a file.

    Raises:
        KeyError: If it is missing.
        ValueError: If it is of another type or shape, or holds NaN.
    """
    array = arrays[name]
    if array.dtype != np.float64 or array.shape != shape:
        raise ValueError(
            f"{name}: is {array.dtype} of shape {array.shape}, expected is float64 of shape {shape}"
        )
    if np.isnan(array).any():
        raise ValueError(f"{name}: holds NaN")
    return array


def estimate_moments(chunks: Iterable[Num[np.ndarray, "_ ..."]]) -> Moments:
    """Mean and 1/N covariance of records that arrive in chunks.

    Each chunk is centred by its own mean and merged with what came before (Chan, Golub, LeVeque 1979), which
    loses no digits to large means. Memory is O(d² + chunk·d); a chunk of about d records keeps the rank-k
    updates efficient.

    Args:
        chunks: Arrays (n, ...) of real numbers; all but the first axis are flattened to d coordinates. Chunks
            may differ in n; an empty chunk is skipped.

    Returns:
        Moments in float64; the covariance is exactly symmetric.

    Raises:
        ValueError: If there is no record, a value is not finite, or records differ in size; the message names
            the record.
    """
    count = 0
    mean = np.empty(0)
    scatter = np.empty((0, 0), order="F")
    for chunk in chunks:
        if not len(chunk):
            continue
        records = np.array(chunk, dtype=np.float64).reshape(len(chunk), -1)
        if not count:
            mean, scatter = np.zeros(records.shape[1]), np.zeros((records.shape[1],) * 2, order="F")
        size, width = records.shape
        if width != len(mean):
            raise ValueError(
                f"record {count}: {width} values where earlier records have {len(mean)}; "
                "all images of a dataset need one size and one number of colors"
            )
        finite = np.isfinite(records).all(axis=1)
        if not finite.all():
            raise ValueError(f"record {count + int(np.argmin(finite))}: a value is NaN or infinite")
        centre = records.mean(axis=0)
        records -= centre
        shift = centre - mean
        # dsyrk fills one triangle in place: half the work of a product, and no second d×d array.
        scatter = dsyrk(1.0, records.T, beta=1.0, c=scatter, overwrite_c=1)
        scatter = dsyrk(count * size / (count + size), shift[:, None], beta=1.0, c=scatter, overwrite_c=1)
        mean += shift * (size / (count + size))
        count += size
    if not count:
        raise ValueError("no images: a covariance needs at least one record; check the split and its filters")
    scatter /= count
    lower = np.tril_indices(len(mean), -1)
    scatter[lower] = scatter.T[lower]
    return Moments(mean, np.ascontiguousarray(scatter), count)


def population_moments(
    records: Num[np.ndarray, "n ..."], progress: Callable[[str, float], None] = lambda stage, done: None
) -> Moments:
    """Mean and covariance of the law that some records were drawn from, for use with other records of that law.

    The covariance of N records is too small in the directions that these happened not to take, and noise that
    follows it would protect other records less than it says. With fewer than 10 d records it is therefore
    shrunk towards a multiple of the identity, (1 − ρ) Σ + ρ (tr Σ/d) I: by the weight ρ of Ledoit and Wolf,
    whose expected squared error is least, or by a larger one, the least under which records x that were left
    out have a mean of xᵀ Σ⁻¹ x of at most d. As ½ ln det is concave, noise in proportion to Σ then keeps its
    capacity on fresh records of the law.

    Args:
        records: (n, ...), all but the first axis flattened to d coordinates.
        progress: Called when a stage begins, with its name and the share of the work before it.

    Returns:
        Moments in float64 that state their ``shrinkage`` ρ, 0 with 10 d records and more.

    Raises:
        ValueError: As :func:`estimate_moments`, and for fewer than 2 records.

    Source:
        Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices".
    """
    if len(records) < 2:
        raise ValueError(
            f"records = {len(records)}: the law that they come from takes at least 2 to estimate"
        )
    flat = records.reshape(len(records), -1)
    found = estimate_moments(_chunks(flat))
    width = found.dimension
    if len(flat) >= _AMPLE * width:
        return found
    from sklearn.covariance import ledoit_wolf_shrinkage

    weight = _weight_for_fresh(flat, float(ledoit_wolf_shrinkage(flat.astype(np.float64))), progress)
    covariance = (1.0 - weight) * found.covariance
    covariance[np.diag_indices(width)] += weight * found.total_variance / width
    return replace(found, covariance=covariance, shrinkage=weight)


def _weight_for_fresh(
    flat: Num[np.ndarray, "n d"], least: float, progress: Callable[[str, float], None]
) -> float:
    """Weight of the identity, ``least`` or more, under which folds left out have a mean of xᵀ Σ⁻¹ x of at most d."""
    folds, parts, width = [], min(_FOLDS, len(flat)), flat.shape[1]
    if len(flat) < width:  # turned into the directions that they take, which is all that is asked of them
        centred = flat - flat.mean(axis=0, dtype=np.float64)
        flat = centred @ linalg.svd(centred, full_matrices=False, check_finite=False)[2].T
    for fold in range(parts):
        progress(f"shrinkage, part {fold + 1} of {parts}", 0.2 + 0.6 * fold / parts)
        left_out = np.arange(len(flat)) % parts == fold
        kept = estimate_moments(_chunks(flat[~left_out]))
        variances, basis = linalg.eigh(kept.covariance, driver="evd")
        fresh = ((flat[left_out] - kept.mean) @ basis) ** 2
        folds.append((np.maximum(variances, 0.0), kept.total_variance / width, fresh.mean(axis=0)))

    def excess(weight: float) -> float:
        """Mean of xᵀ Σ⁻¹ x over d, less 1."""
        shrunk = [(fresh, (1.0 - weight) * variances + weight * mean) for variances, mean, fresh in folds]
        return float(np.mean([_ratios(fresh, scale).sum() / width for fresh, scale in shrunk])) - 1.0

    low = high = least
    while high < 1.0 and excess(high) > 0:
        low, high = max(high, _LEAST_WEIGHT), min(1.0, max(2.0 * high, 2.0 * _LEAST_WEIGHT))
    return high if high == low or excess(high) > 0 else float(brentq(excess, low, high, xtol=_LEAST_WEIGHT))


def _ratios(fresh: Float[np.ndarray, " d"], scale: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Quotients, 0 where nothing varies, ∞ where only the scale is 0."""
    with np.errstate(divide="ignore"):
        return np.divide(fresh, scale, out=np.zeros_like(fresh), where=fresh > 0)


def _chunks(flat: Num[np.ndarray, "n d"]) -> Iterator[Num[np.ndarray, "_ d"]]:
    """Records in parts that fit the memory as float64."""
    return (flat[start : start + _CHUNK] for start in range(0, len(flat), _CHUNK))
