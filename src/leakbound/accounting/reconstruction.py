"""Reconstruction from leakage: errors no attacker can beat, errors one attacker reaches, and surrogates.

Errors are squared, summed over the coordinates unless a name says ``per dimension``.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from leakbound.accounting.gaussian import check_uses, clip_eigenvalues
from leakbound.accounting.risk import check_candidates, check_information

_CHUNK = 256  # draws of a simulation that are in memory at once


def gaussian_surrogate_error(eigenvalues: Float[np.ndarray, " d"], information: float) -> float:
    """Compute the squared error per dimension that I nats leave of a *Gaussian*, GM(λ) e^{−2I/d}.

    This is a surrogate and not a bound. The published Theorem 1 has the entropy of the data, which is −∞ for
    pixels of 256 levels. The Gaussian entropy in its place is an upper bound where a lower one is needed, and
    images have been reconstructed better than this.

    Args:
        eigenvalues: λ of the data covariance, float64, each >= 0.
        information: I, nats about one record, >= 0.

    Returns:
        Squared pixel units, or 0 if an eigenvalue is 0.

    Raises:
        ValueError: If ``information`` is negative or NaN, or an eigenvalue is negative beyond rounding.
    """
    check_information(information)
    signal = clip_eigenvalues(eigenvalues)
    if not signal.all():
        return 0.0
    return math.exp(float(np.log(signal).mean()) - 2.0 * information / signal.size)


def fano_error(information: float, candidates: int) -> float:
    """Bound from below the probability of choosing the wrong one of M records, max(0, 1 − (I + ln 2)/ln M).

    Raises:
        ValueError: If ``information`` I, in nats, is negative or NaN, or there are fewer than 2
            ``candidates`` M, which are equally likely.
    """
    check_information(information)
    check_candidates(candidates)
    return max(0.0, 1.0 - (information + math.log(2.0)) / math.log(candidates))


@dataclass(frozen=True)
class EmpiricalBayes:
    """Best attack of anyone who knows that the record is one of a list, estimated by Monte Carlo.

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
) -> EmpiricalBayes:
    """Compute Bayes error, identification rate and information under the empirical prior, by simulation.

    It bounds from below the error of every attack on anything computed from D̃, for an attacker whose prior
    is the list of candidates. No entropy is needed.

    Args:
        candidates: (M, d) distinct records, each equally likely.
        noise_variances: (d,) noise variance along each axis, positive wherever something passes. ∞ passes
            nothing.
        generator: Source of the records drawn and of their noise.
        draws: Number of simulated uses, >= 2. Errors fall as 1/√draws.
        basis: Axes as orthonormal columns, or None for the pixels.
        gain: (d,) factor along each axis, or None for 1.
        uses: k, number of uses with fresh noise, real, >= 1.

    Raises:
        ValueError: If ``draws`` < 2, ``uses`` < 1, or an axis passes something without noise.
    """
    check_uses(uses)
    if draws < 2:
        raise ValueError(f"draws = {draws}: give at least 2, which have a spread")
    centred = candidates - candidates.mean(axis=0)
    whitened = whiten(centred, noise_variances / uses, basis, gain)
    half_norms = 0.5 * (whitened**2).sum(axis=1)
    errors = np.empty(draws)
    entropies = np.empty(draws)
    hits = 0
    for start in range(0, draws, _CHUNK):
        draw = slice(start, min(start + _CHUNK, draws))
        rows = generator.integers(len(centred), size=draw.stop - draw.start)
        seen = whitened[rows] + generator.standard_normal((len(rows), whitened.shape[1]))
        scores = seen @ whitened.T - half_norms
        logs = scores - logsumexp(scores, axis=1, keepdims=True)
        weights = np.exp(logs)
        errors[draw] = ((centred[rows] - weights @ centred) ** 2).sum(axis=1)
        entropies[draw] = -(weights * logs).sum(axis=1)
        hits += int((scores.argmax(axis=1) == rows).sum())
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
    """Transform records so that the noise has unit variance along every axis that passes something.

    Args:
        records: (m, d), any.
        variances: (d,) noise variance along each axis, squared pixel units. ∞ passes nothing.
        basis: Axes as orthonormal columns, or None for the pixels.
        gain: Factor along each axis, or None for 1.

    Raises:
        ValueError: If an axis passes something without noise, or a gain or a variance is negative or NaN.
    """
    factors = np.ones_like(variances) if gain is None else gain
    if not (np.all(factors >= 0) and np.all(variances >= 0)):
        raise ValueError("noise_variances and gain: each is >= 0")
    passing = (factors > 0) & (variances < math.inf)
    if not np.all(variances[passing] > 0):
        raise ValueError(
            "noise_variances: an axis passes something without noise and shows the record exactly"
        )
    coordinates = records[:, passing] if basis is None else records @ basis[:, passing]
    return coordinates * (factors[passing] / np.sqrt(variances[passing]))
