"""Determinants behind the privacy of case 3, and what Zeng et al. 2022 print for them in Eqs. (22) and (24).

|Cov(Yⁿ, X⁻ⁱ)| factors into (σ_m² − σ_k²)^{n−2} (σ² − σ_e²)^{n−2} and a bracket. The printed bracket A + B + C
+ D is correct for independent parameters only. With it as the constraint, the search for the best noise has
no solution and returns the edge of the region that it searches.
"""

import math

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
