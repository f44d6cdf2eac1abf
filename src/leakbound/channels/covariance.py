"""Mean and covariance of records in one pass and float64, exact or shrunk.

Exact moments are for these records. Shrunk moments are for other records of the same distribution. The
covariance of fewer records than values has low rank plus a constant diagonal. Its eigenvalues and its
shrinkage are computed from the Gram matrix of the records, and it is formed only where directions are needed.
That of a few large records is never formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Float, Num
from scipy import linalg
from scipy.linalg.blas import dsyrk

from leakbound.accounting.gaussian import check_covariance, clip_eigenvalues
from leakbound.channels.directions import Directions, gram_matrix

LARGEST = 786_432
"""Values of a record at most, e.g. 512 × 512 × 3."""
DENSE = 20_000
"""Values of a record at most whose covariance is formed: it takes 3.2 GB in float64."""
FEW = 5_000
"""Records at most whose Gram matrix stands for the covariance of larger ones."""
LARGE = 4_096
"""Values of a record at most whose principal directions are those of a covariance, however few records there are."""
_SMALL = 512  # values of a record at most whose covariance is formed at once
_AMPLE = 10  # records for each dimension beyond which the least error takes no shrinking
_CHUNK = 2000  # records held as float64 at once
_FOLDS = 4  # parts of the records that are left out in turn, as far as there are records
_LEAST_WEIGHT = 1e-6  # of the identity, and the precision to which more of it is found
_Progress = Callable[[str, float], None]
_ROUNDING = 1e-12  # eigenvalues of a Gram matrix below this share of the largest are rounding


@dataclass(frozen=True)
class Moments:
    """First two moments of the distribution that draws one of N records uniformly.

    Attributes:
        mean: (d,), pixel units, pixels flattened in the order (color, row, column).
        covariance: (d, d), squared pixel units, normalised by 1/N, so that bounds hold exactly for these
            records and not only for a population that they were drawn from.
        count: N, number of records.
        shrinkage: Weight in [0, 1] of the multiple of the identity that the covariance is mixed with. Its
            trace is kept.

    Raises:
        ValueError: If the shapes disagree, an entry is not finite, or the covariance is not symmetric.
    """

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    count: int
    shrinkage: float = 0.0

    def __post_init__(self) -> None:
        """Check that the moments can be decomposed."""
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
    def formed(self) -> bool:
        """True if the covariance may be formed, so that bounds may take determinants of it."""
        return True

    @cached_property
    def name(self) -> str:
        """Name of the covariance, by which channels that were calibrated to it know each other."""
        return blake2b(np.ascontiguousarray(self.covariance).tobytes(), digest_size=16).hexdigest()

    @property
    def total_variance(self) -> float:
        """Trace of the covariance, E‖D − E D‖²."""
        return float(np.trace(self.covariance))

    def eigenvalues(self) -> Float[np.ndarray, " d"]:
        """Return the variances along the principal directions, descending."""
        return clip_eigenvalues(linalg.eigvalsh(self.covariance))[::-1].copy()

    def part(self, values: slice) -> Float[np.ndarray, "p p"]:
        """Return the covariance of some of the values."""
        return self.covariance[values, values]

    def principal(self) -> tuple[Float[np.ndarray, " d"], Any]:
        """Return the variances along the principal directions, descending, and the directions as columns."""
        variances, basis = linalg.eigh(self.covariance, driver="evd")
        return clip_eigenvalues(variances)[::-1].copy(), np.ascontiguousarray(basis[:, ::-1])

    def whitening(
        self, values: slice, ridge: float, draws: Float[np.ndarray, "p k"]
    ) -> Float[np.ndarray, "p k"]:
        """Multiply columns by a square root of the inverse of the covariance of some values plus a ridge.

        Args:
            values: Of a record.
            ridge: Variance that is added to each value, > 0.
            draws: The columns, one row for each of these values.
        """
        covariance = np.array(self.part(values), order="F")
        covariance[np.diag_indices(len(covariance))] += ridge
        factor = linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        return linalg.solve_triangular(factor, draws, lower=True, trans="T", check_finite=False)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return named arrays for storage."""
        return {
            "mean": self.mean,
            "covariance": self.covariance,
            "count": np.array([self.count], dtype=np.int64),
            "shrinkage": np.array([self.shrinkage]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Moments:
        """Restore moments from the arrays of :meth:`arrays`.

        Raises:
            KeyError: If an array is missing.
            ValueError: If an array is of another type or shape.
        """
        size = arrays["mean"].size
        if arrays["count"].shape != (1,) or arrays["count"].dtype != np.int64 or arrays["count"][0] < 1:
            raise ValueError("count: must be one whole number of at least 1")
        return cls(
            stored_array(arrays, "mean", (size,)),
            stored_array(arrays, "covariance", (size, size)),
            int(arrays["count"][0]),
            float(stored_array(arrays, "shrinkage", (1,))[0]),
        )


class LowRankMoments(Moments):
    """Moments whose covariance is a XᵀX + c I, from the Gram matrix XXᵀ of the centred records X.

    Args:
        records: (n, d), in any units, which are kept.
        mean: (d,), their mean.
        gram: (n, n), XXᵀ.
        squares: (r,), its eigenvalues, descending, without those that are rounding.
        factor: a >= 0.
        rest: c > 0, variance in the directions in which no record varies, squared units of the records.
        shrinkage: As in :class:`Moments`.
    """

    _records: Num[np.ndarray, "n d"]
    _gram: Float[np.ndarray, "n n"]
    _rank: int
    _factor: float
    _eigenvalues: Float[np.ndarray, " d"]

    def __init__(
        self,
        records: Num[np.ndarray, "n d"],
        mean: Float[np.ndarray, " d"],
        gram: Float[np.ndarray, "n n"],
        squares: Float[np.ndarray, " r"],
        factor: float,
        rest: float,
        *,
        shrinkage: float,
    ) -> None:
        everywhere = np.full(len(mean), rest)
        everywhere[: len(squares)] += factor * squares
        facts = {"mean": mean, "count": len(records), "shrinkage": shrinkage, "_eigenvalues": everywhere}
        facts |= {"_records": records, "_gram": gram, "_rank": len(squares), "_factor": factor}
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"LowRankMoments({self.count} records of {self.dimension} values, shrinkage={self.shrinkage:.3g})"
        )

    @cached_property
    def directions(self) -> Directions:
        """V as combinations of the records. Noise of one variance does not need them."""
        squares, vectors = linalg.eigh(self._gram, driver="evd")
        first = len(squares) - self._rank
        roots = np.sqrt(squares[first:][::-1])
        return Directions(self._records, self.mean, vectors[:, first:][:, ::-1] / roots)

    @cached_property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """The full covariance, for records that are not too large.

        Raises:
            ValueError: If they have more than 20,000 values.
        """
        if self.dimension > DENSE:
            raise ValueError(
                f"records of {self.dimension} values: this needs their full covariance, which takes "
                f"{8e-9 * self.dimension**2:.0f} GB; allowed are {DENSE} values, or a shape without weights"
            )
        return self.part(slice(None))

    @cached_property
    def name(self) -> str:
        """Name of the covariance, which is that of its records and weights."""
        digest = blake2b(np.array([self._factor, self._eigenvalues[-1]]).tobytes(), digest_size=16)
        digest.update(np.ascontiguousarray(self._records).data)
        return digest.hexdigest()

    @property
    def formed(self) -> bool:
        """True if the covariance may be formed: not that of large records."""
        return self.dimension <= LARGE

    @property
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return float(self._eigenvalues.sum())

    def eigenvalues(self) -> Float[np.ndarray, " d"]:
        """Return the variances along the principal directions, descending."""
        return self._eigenvalues

    def part(self, values: slice) -> Float[np.ndarray, "p p"]:
        """Return the covariance of some of the values, which is formed for these alone."""
        centred = self._records[:, values] - self.mean[values]
        shared = centred.T @ centred
        shared *= self._factor
        shared[np.diag_indices(len(shared))] += self._eigenvalues[-1]
        return shared

    def principal(self) -> tuple[Float[np.ndarray, " d"], Any]:
        """Return the variances along the principal directions, descending, and the directions.

        They are columns of a matrix, or :class:`Directions` where the covariance is not formed.
        """
        return super().principal() if self.formed else (self._eigenvalues, self._kept)

    def whitening(
        self, values: slice, ridge: float, draws: Float[np.ndarray, "p k"]
    ) -> Float[np.ndarray, "p k"]:
        """Multiply columns by a square root of the inverse of the covariance of some values plus a ridge."""
        if len(draws) < self.dimension:
            return super().whitening(values, ridge, draws)
        return self.directions.scaled(draws.T, (self._eigenvalues + ridge) ** -0.5).T

    @cached_property
    def _kept(self) -> Directions:
        """Directions over a copy of the records, so that later changes to them do not alter the noise."""
        return replace(self.directions, records=self.directions.records.copy())


def stored_array(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the float64 array of a name and shape from the arrays of a file.

    Raises:
        KeyError: If it is missing.
        ValueError: If it is of another type or shape, or contains NaN.
    """
    array = arrays[name]
    if array.dtype != np.float64 or array.shape != shape:
        raise ValueError(
            f"{name}: is {array.dtype} of shape {array.shape}, but must be float64 of shape {shape}"
        )
    if np.isnan(array).any():
        raise ValueError(f"{name}: holds NaN")
    return array


def estimate_moments(chunks: Iterable[Num[np.ndarray, "_ ..."]]) -> Moments:
    """Compute the mean and 1/N covariance of records that arrive in chunks.

    Each chunk is centred by its own mean and merged with the earlier ones (Chan, Golub, LeVeque 1979), so
    large means cost no digits. Memory is O(d² + chunk·d). Chunks of about d records make the rank-k updates
    efficient.

    Args:
        chunks: Arrays (n, ...) of real numbers. All but the first axis are flattened to d coordinates. Chunks
            may differ in n, and an empty chunk is skipped.

    Returns:
        Moments in float64. The covariance is exactly symmetric.

    Raises:
        ValueError: If there is no record, a value is not finite, or records differ in size. The message names
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
            mean = np.zeros(records.shape[1])
            scatter = np.zeros((records.shape[1],) * 2, order="F")
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


@dataclass(frozen=True)
class _Estimate:
    """Moments as tensors on a GPU, or as arrays, with the attributes of :class:`Moments`."""

    mean: Any
    covariance: Any
    count: int


def _estimate(flat: Num[np.ndarray, "n d"], device: str) -> Moments | _Estimate:
    """Compute moments in float64 on a device."""
    if device == "cpu" or not len(flat):
        return estimate_moments(chunks(flat))
    import torch

    records = torch.tensor(flat, device=device).double()
    mean = records.mean(dim=0)
    records -= mean
    scatter = (records.T @ records / len(flat)).triu()  # a product is symmetric to rounding only
    return _Estimate(mean, scatter + scatter.triu(1).T, len(flat))


def exact_moments(records: Num[np.ndarray, "n ..."], device: str = "cpu") -> Moments:
    """Compute the moments of records on a device, equal on all devices to the rounding of float64.

    Args:
        records: (n, ...), all but the first axis flattened to d coordinates.
        device: Torch device.

    Raises:
        ValueError: As :func:`estimate_moments`. On a GPU it does not name the record.
    """
    moments = _estimate(records.reshape(len(records), -1), device)
    if isinstance(moments, Moments):
        return moments
    return Moments(moments.mean.cpu().numpy(), moments.covariance.cpu().numpy(), moments.count)


def population_moments(
    records: Num[np.ndarray, "n ..."], progress: _Progress = lambda stage, done: None, device: str = "cpu"
) -> Moments:
    """Estimate mean and covariance of the distribution of some records, for use with other records.

    The covariance of N records is too small in the directions that these records do not cover. Noise in
    proportion to it would protect other records less than it states: the inverse covariance of N Gaussian
    records is too large by N/(N − d − 2), and that of records with rare values by far more. The covariance is
    therefore shrunk towards a multiple of the identity, (1 − ρ) Σ + ρ (tr Σ/d) I, with 10 d records and more
    within the d directions in which they vary. The weight ρ is that of Ledoit and Wolf, which has the least
    expected squared error, or 0 with so many records, or a larger one: the least weight for which
    held-out records x have a mean of xᵀ Σ⁻¹ x of at most d. As ½ ln det is concave, noise in proportion to Σ
    then keeps its capacity on other records of the distribution. Noise that differs less from direction to
    direction keeps it too, if the total variance is not too small: Σ is normalised by 1/(N − 1) and raised by
    the squared relative standard error of its trace, because nats grow with the inverse of the noise.

    With at most 5,000 records, each of more than 512 values and more values than records, the same result is
    computed from their Gram matrix (:class:`LowRankMoments`), which keeps the records. On a GPU that is so from
    more than 4,096 values.

    Args:
        records: (n, ...), all but the first axis flattened to d coordinates, d at most 786,432.
        progress: Called when a stage begins, with its name and the completed share of the work.
        device: Torch device of products and decompositions. Few large records stay on the CPU.

    Returns:
        Moments in float64 with their ``shrinkage`` ρ, which tends to 0 with 1/N.

    Raises:
        ValueError: As :func:`estimate_moments`, for fewer than 2 records, and for more than 5,000 records of
            more than 20,000 values.

    Source:
        Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices".
    """
    if len(records) < 2:
        raise ValueError(f"records = {len(records)}: an estimate of their distribution needs at least 2")
    flat = records.reshape(len(records), -1)
    width = flat.shape[1]
    least_width = _SMALL if device == "cpu" else LARGE
    if width > least_width and len(flat) < width and len(flat) <= FEW:
        return _low_rank_moments(flat, progress)
    if width > DENSE:
        raise ValueError(
            f"records = {len(flat)} of {width} values: with more than {DENSE} values, allowed are {FEW} records"
        )
    exact = exact_moments(flat, device)
    lengths = np.concatenate([((part - exact.mean) ** 2).sum(axis=1) for part in chunks(flat)])
    least = _ledoit_wolf(lengths, float((exact.covariance**2).sum()), width)
    target = np.eye(width)
    if len(flat) >= _AMPLE * width:
        # So many records do not vary where none of the others does, and noise there would only cost capacity.
        least = 0.0
        variances, basis = linalg.eigh(exact.covariance, driver="evd")
        basis = basis[:, variances > _ROUNDING * variances[-1]]
        target = basis @ basis.T
    rank = max(1, round(float(np.trace(target))))
    if len(flat) < width and device == "cpu":
        folds = _folds_of_gram(gram_matrix(flat, exact.mean), rank, progress)
    else:
        folds = _folds(flat, rank, progress, device)
    weight = _weight_for_fresh(folds, rank, least)
    covariance = (1.0 - weight) * exact.covariance + weight * exact.total_variance / rank * target
    return replace(exact, covariance=_raised(lengths) * covariance, shrinkage=weight)


def _low_rank_moments(flat: Num[np.ndarray, "n d"], progress: _Progress) -> LowRankMoments:
    """Compute the moments of :func:`population_moments` from the Gram matrix of fewer records than values."""
    count, width = flat.shape
    mean = flat.mean(axis=0, dtype=np.float64)
    progress("Gram matrix", 0.05)
    gram = gram_matrix(flat, mean)
    if not np.isfinite(gram).all():
        raise ValueError("a value is NaN or infinite")
    lengths = np.diag(gram).copy()
    squares = linalg.eigvalsh(gram)[::-1]
    squares = squares[squares > _ROUNDING * squares[0]]
    if not len(squares):  # all records are equal
        return LowRankMoments(flat, mean, gram, squares, 0.0, 0.0, shrinkage=0.0)
    spread = float((gram**2).sum()) / count**2
    least = max(_LEAST_WEIGHT, _ledoit_wolf(lengths, spread, width))  # no direction may be without noise
    weight = _weight_for_fresh(_folds_of_gram(gram, width, progress), width, least)
    factor = _raised(lengths) * (1.0 - weight) / count
    rest = _raised(lengths) * weight * float(lengths.mean()) / width
    return LowRankMoments(flat, mean, gram, squares, factor, rest, shrinkage=weight)


def unshrunk(variances: Float[np.ndarray, " d"], moments: Moments) -> Float[np.ndarray, " d"]:
    """Compute variances before a covariance was shrunk to its mean variance, where shrinking has made them smaller.

    Args:
        variances: Along the principal directions of the moments, as their covariance has them.
        moments: Whose weight of the identity is undone.

    Returns:
        Variances in the same order, each at least the given one. They are the given ones without shrinkage,
        and if nothing but the identity is left.
    """
    kept = 1.0 - moments.shrinkage
    if kept < _LEAST_WEIGHT:
        return variances
    excess = variances - moments.total_variance / moments.dimension
    return variances + moments.shrinkage / kept * np.maximum(excess, 0.0)


def _ledoit_wolf(lengths: Float[np.ndarray, " n"], spread: float, width: int) -> float:
    """Compute the weight of Ledoit and Wolf from n centred records.

    Args:
        lengths: Squared length of each record.
        spread: Sum of the squared entries of their covariance, normalised by 1/n.
        width: d, number of values.
    """
    error = float((lengths**2).mean()) - spread
    distance = spread - float(lengths.mean()) ** 2 / width
    return min(error / len(lengths), distance) / distance if error > 0 and distance > 0 else 0.0


def _raised(lengths: Float[np.ndarray, " n"]) -> float:
    """Compute n/(n − 1)/(1 − squared relative standard error of a total variance), from squared lengths."""
    count = len(lengths)
    mean = float(lengths.mean())
    error = float(lengths.var()) / mean**2 / count if mean else 0.0
    return count / (count - 1.0) / (1.0 - error)


_Fold = tuple[Float[np.ndarray, "_"], float, Float[np.ndarray, "_"]]  # noqa: F821
"""Variances of the records that are kept, along their principal directions; their mean variance; variances there of
those that are left out, around the mean of the kept ones."""


def _weight_for_fresh(folds: Sequence[_Fold], width: int, least: float) -> float:
    """Find the least weight of the identity for which held-out folds have a mean of xᵀ Σ⁻¹ x of at most d.

    Args:
        folds: Variances of records that are kept and left out, in turn.
        width: d, number of directions that share the noise.
        least: Smallest weight that is allowed, tried first.
    """
    from scipy.optimize import bisect  # slow import

    def excess(weight: float) -> float:
        """Return the mean of xᵀ Σ⁻¹ x over d, less 1."""
        shrunk = [(fresh, (1.0 - weight) * variances + weight * mean) for variances, mean, fresh in folds]
        return float(np.mean([ratios_of(fresh, scale).sum() / width for fresh, scale in shrunk])) - 1.0

    low = high = least
    while high < 1.0 and excess(high) > 0:
        low = high
        high = min(1.0, max(2.0 * high, 2.0 * _LEAST_WEIGHT))
    return high if high == low or excess(high) > 0 else float(bisect(excess, low, high, xtol=_LEAST_WEIGHT))


def _folds(flat: Num[np.ndarray, "n d"], width: int, progress: _Progress, device: str) -> list[_Fold]:
    """Leave out each part of the records in turn, by the covariance of the others."""
    folds = []
    parts = [_estimate(flat[fold::_FOLDS], device) for fold in range(min(_FOLDS, len(flat)))]
    for fold, left_out in enumerate(parts):
        progress(f"shrinkage, part {fold + 1} of {len(parts)}", 0.2 + 0.6 * fold / len(parts))
        kept = _merged(parts[:fold] + parts[fold + 1 :])
        variances, fresh = _along_axes(kept, left_out)
        folds.append(_fold(variances, float(kept.covariance.trace()) / width, fresh))
    return folds


def _folds_of_gram(gram: Float[np.ndarray, "n n"], width: int, progress: _Progress) -> list[_Fold]:
    """Leave out each part of fewer records than values in turn, by the Gram matrix of the others.

    What is left out varies outside the span of the others, too, where their variance is 0.

    Args:
        gram: Inner products of centred records.
        width: As in :func:`_weight_for_fresh`.
        progress: As in :func:`population_moments`.
    """
    count = len(gram)
    folds = []
    for fold in range(min(_FOLDS, count)):
        progress(f"shrinkage, part {fold + 1} of {_FOLDS}", 0.2 + 0.6 * fold / _FOLDS)
        out = np.arange(count) % _FOLDS == fold
        # Inner products around the mean of those that are kept.
        inner = gram[np.ix_(~out, ~out)]
        shift = inner.mean(axis=0)
        level = float(shift.mean())
        inner += level - shift - shift[:, None]
        nearness = gram[np.ix_(out, ~out)]
        offsets = nearness.mean(axis=1) - level
        nearness -= offsets[:, None] + shift
        lengths = np.diag(gram)[out] - 2.0 * offsets - level
        trace = float(np.trace(inner))
        squares, vectors = linalg.eigh(inner, overwrite_a=True, driver="evd", check_finite=False)
        spanned = squares > _ROUNDING * squares[-1]
        along = np.square(nearness @ vectors[:, spanned]).mean(axis=0) / squares[spanned]
        beyond = max(float(lengths.mean()) - float(along.sum()), 0.0)
        kept = len(inner)
        variances = np.append(squares[spanned] / kept, 0.0)
        folds.append(_fold(variances, trace / kept / width, np.append(along, beyond)))
    return folds


def _fold(variances: Float[np.ndarray, " axes"], mean: float, fresh: Float[np.ndarray, " axes"]) -> _Fold:
    """Make a fold, without what is rounding."""
    return np.maximum(variances, 0.0), mean, np.where(fresh < _ROUNDING * fresh.max(), 0.0, fresh)


def _along_axes(kept: _Estimate, others: Moments | _Estimate) -> tuple[Any, Any]:
    """Compute variances along principal directions, and those of other records around the same mean."""
    if isinstance(kept.covariance, np.ndarray):
        variances, basis = linalg.eigh(kept.covariance, driver="evd")
        seen = np.einsum("ij,ij->j", basis, others.covariance @ basis)
        return variances, seen + ((others.mean - kept.mean) @ basis) ** 2
    import torch

    variances, basis = torch.linalg.eigh(kept.covariance)
    seen = (basis * (others.covariance @ basis)).sum(dim=0) + ((others.mean - kept.mean) @ basis).square()
    return variances.cpu().numpy(), seen.cpu().numpy()


def _merged(parts: Sequence[Moments | _Estimate]) -> _Estimate:
    """Compute the moments of all records of several parts, normalised by their number."""
    count = sum(part.count for part in parts)
    mean = sum(part.count * part.mean for part in parts) / count
    around = [part.count * (part.covariance + (shift := part.mean - mean)[:, None] * shift) for part in parts]
    return _Estimate(mean, sum(around) / count, count)


def ratios_of(variances: Float[np.ndarray, " d"], scale: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Divide variances by a scale elementwise: 0 where nothing varies, ∞ where only the scale is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.divide(variances, scale, out=np.zeros_like(variances), where=variances > 0)


def chunks(flat: Num[np.ndarray, "n d"]) -> Iterator[Num[np.ndarray, "_ d"]]:
    """Yield the records in parts that fit into memory as float64."""
    return (flat[start : start + _CHUNK] for start in range(0, len(flat), _CHUNK))
