"""Comparison of private records with the calibration of their channel: the capacity for their own moments.

A channel states its capacity for the covariance that it was calibrated to. Records on another scale, or of
another distribution, leak another amount, ½ ln det(I + k Σ_own Σ_ξ⁻¹). This module estimates it from the
records. The result is a statistic of private records, so it stays with their owner.

The covariance of few records is too small in most directions. Let s be the eigenvalues of the records' own
covariance in units of the noise, and r those of the calibration. The estimate uses (1 − w) s + w (Σs/Σr) r
with w = d/(d + n). It has these properties:

* If the distribution is that of the calibration, its expectation is at most the promised capacity for any
  number of records, because ½ ln det is concave.
* If only the scale differs, a dozen records show it, on twice the scale for data of several directions.
* With many records it tends to the capacity for their covariance, and it is never below this capacity.
* It is at most the sum over the axes of the noise, ½ Σ ln(1 + k own variance/noise variance), which is an
  upper bound (Hadamard).
* For another distribution and few records it is too large.

Chance is subtracted before an alarm. A refusal subtracts all that chance explains, with the dispersion that
the records show. A warning subtracts two standard errors of Gaussian records: those of a distribution like
the calibration's are warned of once in some 200 comparisons, or less, and heavy tails do not hide an excess.
Where fewer than 30 calibration records leave their own distribution open, their error is not subtracted.
"""

import math
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from jaxtyping import Float, Num
from scipy import linalg, special

from leakbound.channels.channel import GaussianChannel, Spectrum
from leakbound.channels.directions import Directions, blocks, gram_matrix

WARNED, REFUSED = 1.05, 1.25  # times the promised capacity
_SAMPLE = 512  # records that are enough for the comparison
_ALL = 4096  # records that are compared without a sample, where that is quick
_QUICK = 2**32  # multiplications of their comparison
_FEWEST = 16  # of them, however large they are
_VALUES = 2**26  # of all of them, if those are more
_FALSE_ALARM = 1e-4  # of one comparison, about
_DEVIATIONS = 2.0  # standard errors that a warning grants to Gaussian records
_KNOWN = 30  # calibration records from which on their error counts as chance in a warning
_BARE = 1e-12  # share of the largest variance, below which noise does not follow that of the data (channels.shapes)
_HIDDEN = 1e-3  # standard deviations of the noise: what is below them is hidden, 5e-7 nats


@dataclass(frozen=True)
class OwnCapacity:
    """Capacity of a channel for all planned uses together, for the moments of the records that use it.

    Attributes:
        records: Number of records that it was estimated from.
        nats: The estimate, nats. It is 0 with fewer than two records.
        likely: The same with variances lowered by two standard errors, nats. This value raises a warning.
        certain: The same with variances lowered by all that chance explains, nats. This value refuses.
        promised: Capacity for the moments that the channel was calibrated to, nats.
    """

    records: int
    nats: float
    likely: float
    certain: float
    promised: float

    def exceeds(self, share: float, accepted: float | int | None = None) -> bool:
        """Check whether more leaks than ``share`` times the promised capacity, beyond chance.

        Args:
            share: Factor of the promised capacity, >= 1.
            accepted: Nats that the owner of the records accepts in any case.
        """
        return self.certain > max(share * self.promised, accepted or 0.0)

    def seems_to_exceed(self, accepted: float | int | None = None) -> bool:
        """Check whether probably 5 % more leaks than was promised, and more than was accepted."""
        return self.likely > max(WARNED * self.promised, accepted or 0.0)

    def sentence(self) -> str:
        """Describe the excess and its remedies in one sentence, which is a statistic of the records."""
        return (
            f"by the moments of {self.records} different records that pass the channel it reveals "
            f"{self.rounded:g} nats of each, not {self.promised:.4g}: bring them to the scale of the calibration "
            "records, or calibrate to records like them; if they are right, accept this amount with "
            f"accept_capacity={self.rounded:g}"
        )

    @property
    def rounded(self) -> float:
        """Return the nats, rounded up to two digits."""
        return rounded_up(self.nats)


def sample_size(width: int) -> int:
    """Return the number of records that are compared: 4,096, or fewer if they have many values."""
    return max(_FEWEST, min(max(_SAMPLE, min(_ALL, _QUICK // width**2)), _VALUES // width))


def different_rows(rows: Num[np.ndarray, "n d"]) -> dict[bytes, Num[np.ndarray, " d"]]:
    """Map the digest of each content to a row that has it.

    The rows of the least digests are a sample: it depends on the contents alone and is otherwise as a random one.

    Args:
        rows: Records, of one type of numbers. Negative zeros equal zeros.
    """
    zero = rows.dtype.type(0)
    return {blake2b((row + zero).tobytes(), digest_size=16).digest(): row for row in rows}


def unspanned(records: Num[np.ndarray, "n d"], channel: GaussianChannel, spectrum: Spectrum) -> bool:
    """Check whether a record varies in a direction in which neither the calibration data nor the noise do.

    Args:
        records: In the units of the channel.
        channel: Calibrated from the spectrum.
        spectrum: Spectrum of the calibration data.

    Returns:
        True if a record differs from the mean by more than a thousandth of the noise's standard deviation
        along such an axis.
    """
    variances = spectrum.data_eigenvalues
    basis = channel.basis
    if variances is None or basis is None:
        return False
    passing = np.ones(len(variances), bool) if channel.gain is None else channel.gain > 0
    bare = passing & (variances < _BARE * variances.max())
    if not bare.any():
        return False
    centred = records - spectrum.mean
    along = np.abs(centred @ basis[:, bare])
    # The axes are known, and the records written, to float64.
    sizes = np.hypot(len(bare) * np.linalg.norm(centred, axis=1), np.linalg.norm(records, axis=1))
    hidden = np.maximum(_HIDDEN * np.sqrt(channel.variances[bare]), np.finfo(np.float64).eps * sizes[:, None])
    return bool(np.any(along > hidden))


def rounded_up(value: float) -> float:
    """Round a number >= 0 up to two digits."""
    if not 0 < value < math.inf:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit * (1 - 1e-12)) * unit:.6g}")


def own_capacity(
    records: Num[np.ndarray, "n d"],
    channel: GaussianChannel,
    ratios: Float[np.ndarray, " d"],
    uses: int = 1,
    *,
    calibrated: float | int = math.inf,
) -> OwnCapacity:
    """Estimate the capacity of all uses of a channel together for the moments of the records that use it.

    Args:
        records: Some of the records, each once, in the units of the channel.
        channel: A calibrated channel.
        ratios: Variance ratios of one use under the calibration (:func:`leakbound.channels.signal_to_noise`).
        uses: k >= 1, number of uses with independent noise.
        calibrated: Number of records that the channel was calibrated to. Their sampling error counts as
            chance.
    """
    count = len(records)
    promised = _capacity(uses * ratios)
    if count < 2:
        return OwnCapacity(count, 0.0, 0.0, 0.0, promised)
    large = isinstance(channel.basis, Directions) or (channel.basis is None and count < len(ratios))
    seen = (_by_gram if large else _in_noise)(records, channel)
    if seen is None:
        return OwnCapacity(count, math.inf, math.inf, math.inf, promised)
    gram, power, axes = seen
    sample = np.zeros(max(len(ratios), len(gram)))
    sample[: len(gram)] = np.maximum(linalg.eigvalsh(gram)[::-1], 0.0) / count
    prior = np.zeros_like(sample)
    prior[: len(ratios)] = np.sort(ratios)[::-1]
    weight = len(ratios) / (len(ratios) + count)
    mixed = (
        (1.0 - weight) * sample + weight * (sample.sum() / prior.sum()) * prior if prior.sum() > 0 else sample
    )
    # The dispersion of total variances: that of the records, at least that of Gaussian ones.
    gaussian = math.sqrt(2.0) * float(np.linalg.norm(prior)) / float(prior.sum()) if prior.sum() > 0 else 0.0
    spread = max(float(power.std() / power.mean()), gaussian) if power.any() else 0.0
    quantile = -float(special.stdtrit(min(count, calibrated) - 1, _FALSE_ALARM))
    errors = (
        0.0,
        _DEVIATIONS * gaussian * math.sqrt(1.0 / count + (calibrated >= _KNOWN) / calibrated),
        quantile * spread * math.sqrt(1.0 / count + 1.0 / calibrated),
    )
    nats, likely, certain = (
        min(
            max(_capacity(uses * share * estimate) for estimate in (mixed, sample)),
            _capacity(uses * share * axes),
        )
        for share in (math.exp(-error) for error in errors)
    )
    return OwnCapacity(count, nats, likely, certain, promised)


def _capacity(ratios: Float[np.ndarray, " d"]) -> float:
    """Compute ½ Σ ln(1 + ratio)."""
    return 0.5 * float(np.log1p(ratios).sum())


_Seen = tuple[Float[np.ndarray, "k k"], Float[np.ndarray, " n"], Float[np.ndarray, " axes"]]
"""Matrix with the eigenvalues of the scatter, squared length of each record, and variance along each axis."""


def _in_noise(records: Num[np.ndarray, "n d"], channel: GaussianChannel) -> _Seen | None:
    """Return records along the axes of the noise, in units of its standard deviation.

    None if they vary along an axis without noise.
    """
    centred = records - records.mean(axis=0, dtype=np.float64)
    along = centred if channel.basis is None else centred @ channel.basis
    if channel.gain is not None:
        along = along * channel.gain
    noisy = (channel.variances > 0) & np.isfinite(channel.variances)
    if np.any(along[:, channel.variances == 0]):
        return None
    seen = along[:, noisy] / np.sqrt(channel.variances[noisy])
    squares = seen**2
    gram = seen @ seen.T if len(seen) < seen.shape[1] else seen.T @ seen
    return gram, squares.sum(axis=1), squares.mean(axis=0)


def _by_gram(records: Num[np.ndarray, "n d"], channel: GaussianChannel) -> _Seen | None:
    """Compute the same from a Gram matrix: for few large records, along pixels or :class:`Directions`.

    No copy of the records is made. The variance along the axes that Directions leave open is spread evenly
    over them, which bounds it for all choices.
    """
    mean = records.mean(axis=0, dtype=np.float64)
    gain = 1.0 if channel.gain is None else channel.gain
    noisy = channel.variances > 0
    precision = np.divide(gain**2, channel.variances, out=np.zeros_like(channel.variances), where=noisy)
    if channel.basis is None:
        variances = np.concatenate(
            [records[:, part].var(axis=0, dtype=np.float64) for part in blocks(*records.shape)]
        )
        gram = gram_matrix(records, mean, precision)
        return None if np.any(variances[~noisy]) else (gram, np.diag(gram), variances * precision)
    along = channel.basis.coordinates(records) - channel.basis.coordinates(mean[None])
    rank = along.shape[1]
    rest = precision[-1]
    gram = gram_matrix(records, mean)
    variances = np.full(
        len(mean), max(np.trace(gram) - (along**2).sum(), 0.0) / len(records) / (len(mean) - rank)
    )
    variances[:rank] = (along**2).mean(axis=0)
    gram = rest * gram + (along * (precision[:rank] - rest)) @ along.T
    return gram, np.diag(gram), variances * precision
