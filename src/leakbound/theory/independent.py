"""Case 1: independent parameters, independent noise (Zeng et al. 2022, Section 3.1)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from leakbound.theory.budget import BIT, allowed_ratio


def common_noise_variance(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> float:
    """Least noise variance, the same for all clients, that keeps every client within its budget.

    σ² = max_i s_i / (2^{2ε} − 1).

    Args:
        variances: s_i of the clients' parameters, each > 0.
        mi_budget_bits: ε, in (0, 500].

    Raises:
        ValueError: If a variance is not positive and finite, or ε is outside.

    Source:
        Zeng et al. 2022, Theorem 1.
    """
    _check(variances)
    return float(variances.max()) / allowed_ratio(mi_budget_bits)


def common_noise_utility_bits(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> float:
    """Utility of :func:`common_noise_variance`, (1/2n) Σ_i log₂[1 + s_i (2^{2ε} − 1)/max s], bits per client.

    Args:
        variances: s_i of the clients' parameters, each > 0.
        mi_budget_bits: ε, in (0, 500].

    Raises:
        ValueError: If a variance is not positive and finite, or ε is outside.

    Source:
        Zeng et al. 2022, Eq. (9).
    """
    _check(variances)
    ratios = variances / variances.max() * allowed_ratio(mi_budget_bits)
    return 0.5 * float(np.log1p(ratios).mean()) / BIT


def own_noise_variances(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> Float[np.ndarray, " n"]:
    """Noise variance of each client that spends exactly its budget, s_i / (2^{2ε} − 1).

    A common variance protects all but the client of largest variance more than was asked. With this noise the utility
    is ε, the most that is possible without dependence.

    Args:
        variances: s_i of the clients' parameters, each > 0.
        mi_budget_bits: ε, in (0, 500].

    Raises:
        ValueError: If a variance is not positive and finite, or ε is outside.
    """
    _check(variances)
    return variances / allowed_ratio(mi_budget_bits)


def _check(variances: Float[np.ndarray, " n"]) -> None:
    """Refuse variances that are none."""
    if variances.size == 0:
        raise ValueError("variances: is empty; give one for each client")
    wrong = ~((variances > 0) & np.isfinite(variances))
    if wrong.any():
        client = int(np.argmax(wrong))
        raise ValueError(f"variances[{client}] = {variances[client]}: a client's variance is > 0 and finite")
