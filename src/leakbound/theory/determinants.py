"""Utility and privacy of a release by determinants of full covariances, independent of closed forms.

The release is Yⁿ = Xⁿ + Zⁿ with Gaussian parameters and independent Gaussian noise. ``signal`` is Σ_X and
``noise`` is Σ_Z, both positive definite and float64. ``client`` is i, from 0. Functions raise a
``ValueError`` if a covariance is not positive definite, or if there is no such client.
"""

import numpy as np
from jaxtyping import Float

from leakbound.accounting.gaussian import log_determinant, mutual_information
from leakbound.theory.budget import BIT


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
