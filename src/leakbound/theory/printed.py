"""Determinants behind the privacy of case 3, beside what Zeng et al. 2022 print for them in Eqs. (22) and (24).

|Cov(Yⁿ, X⁻ⁱ)| factors into (σ_m² − σ_k²)^{n−2} (σ² − σ_e²)^{n−2} and a bracket. The printed bracket A + B + C + D is
right for independent parameters only; with their constraint the search for the best noise has no solution, and returns
the edge of whatever box it searches.
"""

from __future__ import annotations

import math

from leakbound.theory.budget import BIT
from leakbound.theory.exchangeable import Exchangeable, check_same_clients


def joint_bracket(signal: Exchangeable, noise: Exchangeable, *, as_printed: bool = False) -> float:
    """|Cov(Yⁿ, X⁻ⁱ)| without its common factors, the numerator of Eq. (24).

    [σ_m² + (n−2) σ_k²] z_a z_b + x_a x_b [σ² + (n−2) σ_e²] (theory B7).

    Args:
        signal: Covariance of the clients' parameters.
        noise: Covariance of the noise.
        as_printed: A + B + C + D as in the paper, with (−1)^{n+1} in B.

    Returns:
        Variances to the third power.

    Raises:
        ValueError: If signal and noise have different numbers of clients.
    """
    check_same_clients(signal, noise)
    n = signal.n_clients
    if as_printed:
        return _printed_bracket(signal, noise, (-1) ** (n + 1))
    own = signal.variance + (n - 2) * signal.covariance
    other = noise.variance + (n - 2) * noise.covariance
    return own * noise.joint * noise.difference + other * signal.joint * signal.difference


def joint_determinant(signal: Exchangeable, noise: Exchangeable, *, as_printed: bool = False) -> float:
    """|Cov(Yⁿ, X⁻ⁱ)|, of 2n − 1 rows, as Eq. (22) gives it; in plain numbers, so for few clients only.

    Args:
        signal: Covariance of the clients' parameters.
        noise: Covariance of the noise.
        as_printed: By the paper's Eq. (22), which its Eq. (24) simplifies with another sign for odd n.

    Raises:
        ValueError: If signal and noise have different numbers of clients.
    """
    check_same_clients(signal, noise)
    bracket = _printed_bracket(signal, noise, -1) if as_printed else joint_bracket(signal, noise)
    return bracket * (signal.difference * noise.difference) ** (signal.n_clients - 2)


def printed_privacy_bits(signal: Exchangeable, noise: Exchangeable) -> float:
    """I(X_i; Yⁿ | X⁻ⁱ) as Eq. (24) has it, ½ log₂ of (A + B + C + D) over the correct denominator.

    Args:
        signal: Covariance of the clients' parameters.
        noise: Covariance of the noise.

    Returns:
        Bits; NaN where the argument of the logarithm is not positive.

    Raises:
        ValueError: If signal and noise have different numbers of clients.
    """
    own = signal.variance + (signal.n_clients - 2) * signal.covariance
    argument = joint_bracket(signal, noise, as_printed=True) / (own * noise.joint * noise.difference)
    return 0.5 * math.log(argument) / BIT if argument > 0.0 else math.nan


def _printed_bracket(signal: Exchangeable, noise: Exchangeable, sign: int) -> float:
    """A + B + C + D with the given sign of B: (−1)^{n+1} in Eq. (24), −1 in Eq. (22) once its powers are collected."""
    n, a, b = signal.n_clients, signal.variance, signal.covariance
    s, e = noise.variance, noise.covariance
    first = (a + s) * (s - e) * (a - b)
    second = sign * (n - 1) * e * (e - a - s) * (a - b)
    third = (n - 1) * b**2 * (e - s)
    fourth = (n - 1) ** 2 * e * b * (a + s - b - e)
    return first + second + third + fourth
