"""Utility and privacy of a release by determinants, and what Zeng et al. 2022 print for case 3.

The release is Yⁿ = Xⁿ + Zⁿ with Gaussian parameters and independent Gaussian noise. ``signal`` is Σ_X and
``noise`` is Σ_Z, both positive definite and float64. ``client`` is i, from 0. Functions of full covariances
raise a ``ValueError`` if a covariance is not positive definite, or if there is no such client.

In case 3, Eqs. (22) and (24), |Cov(Yⁿ, X⁻ⁱ)| factors into (σ_m² − σ_k²)^{n−2} (σ² − σ_e²)^{n−2} and a
bracket. The printed bracket A + B + C + D is correct for independent parameters only. With it as the
constraint, the search for the best noise has no solution and returns the edge of the region that it searches.
"""

import math

import numpy as np
from jaxtyping import Float

from leakbound.accounting.gaussian import log_determinant, mutual_information
from leakbound.theory.budget import BIT
from leakbound.theory.exchangeable import Release


def printed_argument(release: Release) -> float:
    """Compute the argument of the logarithm in Eq. (24): A + B + C + D over the correct denominator.

    It can be negative.
    """
    signal = release.signal
    conditioned = signal.variance + (signal.n_clients - 2) * signal.covariance
    bracket = printed_bracket(release, (-1) ** (signal.n_clients + 1))
    return bracket / (conditioned * release.noise.joint * release.noise.difference)


def printed_privacy_bits(release: Release) -> float:
    """Compute I(X_i; Yⁿ | X⁻ⁱ) by Eq. (24), in bits, NaN if the argument of the logarithm is not positive."""
    argument = printed_argument(release)
    return 0.5 * math.log(argument) / BIT if argument > 0.0 else math.nan


def printed_bracket(release: Release, sign: int) -> float:
    """Compute A + B + C + D with a given sign of B.

    The sign is (−1)^{n+1} in Eq. (24), and −1 in Eq. (22) once its powers are collected.
    """
    n, a, b = release.signal.n_clients, release.signal.variance, release.signal.covariance
    s, e = release.noise.variance, release.noise.covariance
    first = (a + s) * (s - e) * (a - b)
    second = sign * (n - 1) * e * (e - a - s) * (a - b)
    third = (n - 1) * b**2 * (e - s)
    fourth = (n - 1) ** 2 * e * b * (a + s - b - e)
    return first + second + third + fourth


def utility_bits(signal: Float[np.ndarray, "n n"], noise: Float[np.ndarray, "n n"]) -> float:
    """Compute I(Xⁿ; Yⁿ)/n = (1/2n) log₂[det(Σ_X + Σ_Z) / det Σ_Z], bits per client.

    Source:
        Zeng et al. 2022, Eqs. (4), (25).
    """
    return 0.5 * (log_determinant(signal + noise) - log_determinant(noise)) / len(signal) / BIT


def privacy_bits(signal: Float[np.ndarray, "n n"], noise: Float[np.ndarray, "n n"], client: int) -> float:
    """Compute I(X_i; Yⁿ | X⁻ⁱ) = ½ log₂[det Cov(Yⁿ, X⁻ⁱ) / (det Cov(X⁻ⁱ) det Σ_Z)], for n >= 2 clients.

    Source:
        Zeng et al. 2022, Eq. (19).
    """
    others = _others(len(signal), client)
    others_covariance = signal[np.ix_(others, others)]
    cross = signal[:, others]
    joint = np.block([[signal + noise, cross], [cross.T, others_covariance]])
    return 0.5 * (log_determinant(joint) - log_determinant(others_covariance) - log_determinant(noise)) / BIT


def unconditional_leak_bits(
    signal: Float[np.ndarray, "n n"], noise: Float[np.ndarray, "n n"], client: int
) -> float:
    """Compute I(X_i; Yⁿ), information about a client without side information, for n >= 2 clients."""
    _others(len(signal), client)
    cross = signal[:, [client]]
    joint = np.block([[signal[[client]][:, [client]], cross.T], [cross, signal + noise]])
    return mutual_information(joint, [0]) / BIT


def _others(clients: int, client: int) -> list[int]:
    """List all clients except one."""
    if clients < 2 or not 0 <= client < clients:
        raise ValueError(f"client = {client}: one of 0..{clients - 1}, and at least two clients")
    return [other for other in range(clients) if other != client]
