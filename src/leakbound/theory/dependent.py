"""Case 2: exchangeable parameters, independent noise (Zeng et al. 2022, Section 3.2)."""

from __future__ import annotations

from leakbound.theory.budget import allowed_ratio
from leakbound.theory.exchangeable import Exchangeable


def independent_noise_variance(signal: Exchangeable, mi_budget_bits: float, *, as_printed: bool = False) -> float:
    """Least variance of independent noise that keeps the budget, σ² = v / (2^{2ε} − 1).

    v = σ_m² − (n − 1) σ_k⁴ / (σ_m² + (n − 2) σ_k²) is a client's variance once all others are known.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, in (0, 500].
        as_printed: With the sign of the paper, σ_m² + (n − 1) σ_k⁴ / …, which adds more noise than the budget asks for.

    Raises:
        ValueError: If ε is outside.

    Source:
        Zeng et al. 2022, Theorem 2 and Eq. (14); the correct sign follows from their own Eq. (13).
    """
    if not as_printed:
        return signal.conditional_variance / allowed_ratio(mi_budget_bits)
    n, variance, covariance = signal.n_clients, signal.variance, signal.covariance
    explained = (n - 1) * covariance**2 / (variance + (n - 2) * covariance)
    return (variance + explained) / allowed_ratio(mi_budget_bits)


def independent_noise(signal: Exchangeable, mi_budget_bits: float, *, as_printed: bool = False) -> Exchangeable:
    """The noise of :func:`independent_noise_variance` as a covariance, for utility and privacy.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, in (0, 500].
        as_printed: With the sign of the paper.

    Raises:
        ValueError: If ε is outside.
    """
    variance = independent_noise_variance(signal, mi_budget_bits, as_printed=as_printed)
    return Exchangeable(variance, 0.0, signal.n_clients)
