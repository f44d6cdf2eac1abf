"""From leakage to reconstruction: errors no attacker can beat, errors one attacker reaches, and surrogates.

Errors are squared, summed over the coordinates unless a name says ``per dimension``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import linalg
from scipy.special import logsumexp

from leakbound.accounting.gaussian import (
    check_covariance,
    check_uses,
    clip_eigenvalues,
    conditional_covariance,
    gaussian_capacity,
    log_determinant,
)


def gaussian_surrogate_error(eigenvalues: Float[np.ndarray, " d"], information: float) -> float:
    """Squared error per dimension that I nats leave of a *Gaussian* with these eigenvalues, GM(λ) e^{−2I/d}.

    A surrogate and not a bound: the published Theorem 1 has the entropy of the data, which is −∞ for pixels
    of 256 levels. The Gaussian entropy in its place is an upper bound where a lower one is needed, and images
    have been reconstructed better than this.

    Args:
        eigenvalues: λ of the data covariance, float64, each >= 0.
        information: I, nats about one record, >= 0.

    Returns:
        Squared pixel units; 0 if an eigenvalue is 0.

    Raises:
        ValueError: If ``information`` is negative or NaN, or an eigenvalue is negative beyond rounding.
    """
    _check_information(information)
    signal = clip_eigenvalues(eigenvalues)
    if not signal.all():
        return 0.0
    return math.exp(float(np.log(signal).mean()) - 2.0 * information / signal.size)


def dequantized_error_bound(records: int, dimension: int, information: float, spacing: float) -> float:
    """Squared error per dimension that no attacker can beat on N distinct images of pixel spacing Δ.

    Δ²/(2πe) · e^{2(ln N − I)/d}: spread uniformly over their pixel's step, the images have entropy ln N + d
    ln Δ. Valid and tiny, about 0.06 Δ².

    Args:
        records: N, number of equally likely distinct images.
        dimension: d, pixels times colors.
        information: I, nats about one record, >= 0.
        spacing: Δ, distance of neighbouring pixel values, > 0.

    Raises:
        ValueError: If an argument is out of range.
    """
    _check_information(information)
    if records < 1 or dimension < 1 or not 0 < spacing < math.inf:
        raise ValueError(
            f"records = {records}, dimension = {dimension}, spacing = {spacing}: all must be positive"
        )
    return (
        spacing**2 / (2.0 * math.pi * math.e) * math.exp(2.0 * (math.log(records) - information) / dimension)
    )


def fano_error(information: float, candidates: int) -> float:
    """Least probability of naming the wrong one of M equally likely records, max(0, 1 − (I + ln 2)/ln M).

    Raises:
        ValueError: If ``information`` I, in nats, is negative or NaN, or there are fewer than 2
            ``candidates`` M.
    """
    _check_information(information)
    if candidates < 2:
        raise ValueError(f"candidates = {candidates}: guessing takes at least 2")
    return max(0.0, 1.0 - (information + math.log(2.0)) / math.log(candidates))


def batch_capacity(eigenvalues: Float[np.ndarray, " d"], noise_variance: float, batch_size: int) -> float:
    """Capacity of the mean of B records under noise of constant variance, ½ Σ ln(1 + λ_i/(Bσ)).

    Args:
        eigenvalues: λ of one record's covariance, float64, each >= 0.
        noise_variance: σ on the mean, not divided by B.
        batch_size: B, independent records averaged, >= 1.

    Returns:
        Nats about the batch mean; falls with B, whereas DP noise is divided by B and its capacity rises.

    Raises:
        ValueError: If ``batch_size`` < 1 or a variance is negative.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: a batch holds at least one record")
    return gaussian_capacity(eigenvalues, batch_size * noise_variance)


def dropped_coordinate_capacity(
    covariance: Float[np.ndarray, "d d"], dropped: Sequence[int], noise_variance: float
) -> float:
    """Nats that compression by dropping coordinates takes from the channel σI, ΔC = C(Σ) − C(Σ_kept) >= 0.

    ½ [ln det(Q + σI − Rᵀ(P + σI)⁻¹R) − q ln σ] with P the kept and Q the dropped block, of q coordinates.

    Args:
        covariance: Σ of the uncompressed record, float64.
        dropped: Indices that are not sent; some, not all.
        noise_variance: σ > 0.

    Raises:
        ValueError: If Σ is no covariance, the indices are all or given twice, or σ is not positive and
            finite.
    """
    if not 0 < noise_variance < math.inf:
        raise ValueError(f"noise_variance = {noise_variance}: it must be positive and finite")
    kept = sorted(set(range(len(covariance))) - set(dropped))
    if len(kept) + len(dropped) != len(covariance):
        raise ValueError(f"dropped = {list(dropped)}: indices in 0..{len(covariance) - 1}, each once")
    # Measured in noise variances, so that ln σ need not be subtracted.
    observed = covariance / noise_variance + np.eye(len(covariance))
    return 0.5 * log_determinant(conditional_covariance(observed, kept))


def posterior(
    observation: Float[np.ndarray, " d"],
    candidates: Float[np.ndarray, "m d"],
    noise_covariance: float | Float[np.ndarray, " d"] | Float[np.ndarray, "d d"],
) -> Float[np.ndarray, " m"]:
    """Probability of each candidate given one noisy observation of an equally likely one of them.

    w_j ∝ exp(−½ (y − x_j)ᵀ Σ_ξ⁻¹ (y − x_j)). The least-squares estimate is ``w @ candidates``.

    Args:
        observation: y; for k looks their mean.
        candidates: x_1..x_M.
        noise_covariance: Σ_ξ as a variance, as a diagonal, or in full; positive definite; for k looks divided
            by k.

    Returns:
        w, probabilities that sum to 1.

    Raises:
        ValueError: If Σ_ξ is not positive definite and finite.
    """
    offsets = observation - candidates
    noise = np.asarray(noise_covariance, dtype=np.float64)
    if noise.ndim < 2:
        if not np.all((noise > 0) & np.isfinite(noise)):
            raise ValueError("noise_covariance: every variance must be positive and finite")
        whitened = offsets / np.sqrt(noise)
    else:
        check_covariance(noise, "noise_covariance")
        try:
            factor = linalg.cholesky(noise, lower=True)
        except linalg.LinAlgError as error:
            raise ValueError("noise_covariance: it is not positive definite") from error
        whitened = linalg.solve_triangular(factor, offsets.T, lower=True).T
    scores = -0.5 * (whitened**2).sum(axis=1)
    return np.exp(scores - logsumexp(scores))


@dataclass(frozen=True)
class EmpiricalBayes:
    """The best any attacker can do who knows that the record is one of a list, estimated by Monte Carlo.

    Attributes:
        error: E‖D − E[D|D̃]‖², least squared error, in squared pixel units summed over the coordinates.
        error_standard_error: Monte Carlo standard error of ``error``.
        identification_rate: Share of draws in which the most probable candidate is the true one.
        information: I(D; D̃) = ln M − E H(w), in nats, exact up to Monte Carlo error.
        information_standard_error: Monte Carlo standard error of ``information``.
    """

    error: float
    error_standard_error: float
    identification_rate: float
    information: float
    information_standard_error: float


def empirical_bayes(
    candidates: Float[np.ndarray, "m d"],
    noise_variances: Float[np.ndarray, " d"],
    generator: np.random.Generator,
    *,
    draws: int,
    basis: Float[np.ndarray, "d d"] | None = None,
    gain: Float[np.ndarray, " d"] | None = None,
    uses: float = 1.0,
    chunk: int = 256,
) -> EmpiricalBayes:
    """Exact Bayes error, identification rate and information under the empirical prior, by simulating the channel.

    It bounds from below the error of every attack on anything computed from D̃, for an attacker whose prior
    is the list of candidates. No entropy is needed.

    Args:
        candidates: (M, d) distinct records, each equally likely.
        noise_variances: (d,) noise variance along each axis; positive wherever something passes; ∞ passes
            nothing.
        generator: Source of the records drawn and of their noise.
        draws: Number of simulated uses, >= 2; errors fall as 1/√draws.
        basis: Axes as orthonormal columns; None for the pixels.
        gain: (d,) factor along each axis; None for 1.
        uses: k, looks with fresh noise, real, >= 1.
        chunk: Draws handled at once; memory is O(chunk·M + M·d).

    Raises:
        ValueError: If ``draws`` < 2, ``uses`` < 1, or an axis passes something without noise.
    """
    check_uses(uses)
    if draws < 2 or chunk < 1:
        raise ValueError(f"draws = {draws} must be >= 2 and chunk = {chunk} >= 1")
    centred = candidates - candidates.mean(axis=0)
    whitened = whiten(centred, noise_variances / uses, basis, gain)
    half_norms = 0.5 * (whitened**2).sum(axis=1)
    errors, entropies, hits = np.empty(draws), np.empty(draws), 0
    for start in range(0, draws, chunk):
        some = slice(start, min(start + chunk, draws))
        chosen = generator.integers(len(centred), size=some.stop - some.start)
        seen = whitened[chosen] + generator.standard_normal((len(chosen), whitened.shape[1]))
        scores = seen @ whitened.T - half_norms
        logs = scores - logsumexp(scores, axis=1, keepdims=True)
        weights = np.exp(logs)
        errors[some] = ((centred[chosen] - weights @ centred) ** 2).sum(axis=1)
        entropies[some] = -(weights * logs).sum(axis=1)
        hits += int((scores.argmax(axis=1) == chosen).sum())
    return EmpiricalBayes(
        error=float(errors.mean()),
        error_standard_error=float(errors.std(ddof=1)) / math.sqrt(draws),
        identification_rate=hits / draws,
        information=math.log(len(centred)) - float(entropies.mean()),
        information_standard_error=float(entropies.std(ddof=1)) / math.sqrt(draws),
    )


def whiten(
    records: Float[np.ndarray, "m d"],
    variances: Float[np.ndarray, " d"],
    basis: Float[np.ndarray, "d d"] | None,
    gain: Float[np.ndarray, " d"] | None,
) -> Float[np.ndarray, "m r"]:
    """Records in coordinates in which the noise has unit variance along every axis that passes something.

    Args:
        records: (m, d), any.
        variances: (d,) noise variance along each axis, squared pixel units; ∞ passes nothing.
        basis: Axes as orthonormal columns; None for the pixels.
        gain: Factor along each axis; None for 1.

    Raises:
        ValueError: If an axis passes something without noise.
    """
    factors = np.ones_like(variances) if gain is None else gain
    passing = (factors > 0) & (variances < math.inf)
    if not np.all(variances[passing] > 0):
        raise ValueError(
            "noise_variances: an axis passes something without noise and shows the record exactly"
        )
    coordinates = records[:, passing] if basis is None else records @ basis[:, passing]
    return coordinates * (factors[passing] / np.sqrt(variances[passing]))


def _check_information(information: float) -> None:
    """Refuse a negative amount of information."""
    if not information >= 0:
        raise ValueError(f"information = {information}: it is >= 0 nats")
