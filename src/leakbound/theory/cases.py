"""The three cases of Zeng et al. 2022, solved exactly: least noise, or most useful noise, within a budget.

Budgets ε are in (0, 500] bits. Every function raises a ``ValueError`` for others.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from leakbound.theory.budget import BIT, allowed_ratio
from leakbound.theory.exchangeable import Exchangeable


def common_noise_variance(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> float:
    """Compute the least noise variance of case 1: equal for all clients, with each within its budget.

    Parameters and noise are independent, and σ² = max_i s_i / (2^{2ε} − 1).

    Args:
        variances: s_i, variances of the clients' parameters, each > 0.
        mi_budget_bits: ε, bits, the budget of every client.

    Raises:
        ValueError: If a variance is not positive and finite.

    Source:
        Zeng et al. 2022, Theorem 1.
    """
    _check_variances(variances)
    return float(variances.max()) / allowed_ratio(mi_budget_bits)


def common_noise_utility_bits(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> float:
    """Compute the utility of :func:`common_noise_variance`, bits per client.

    It is (1/2n) Σ_i log₂[1 + s_i (2^{2ε} − 1)/max s].

    Args:
        variances: s_i, variances of the clients' parameters, each > 0.
        mi_budget_bits: ε, bits, the budget of every client.

    Raises:
        ValueError: If a variance is not positive and finite.

    Source:
        Zeng et al. 2022, Eq. (9).
    """
    _check_variances(variances)
    ratios = variances / variances.max() * allowed_ratio(mi_budget_bits)
    return 0.5 * float(np.log1p(ratios).mean()) / BIT


def own_noise_variances(variances: Float[np.ndarray, " n"], mi_budget_bits: float) -> Float[np.ndarray, " n"]:
    """Compute each client's noise variance in case 1 that spends exactly its budget, s_i / (2^{2ε} − 1).

    A common variance protects all clients but the one of largest variance more than their budgets require.
    With this noise the utility is ε, the largest possible without dependence.

    Args:
        variances: s_i, variances of the clients' parameters, each > 0.
        mi_budget_bits: ε, bits, the budget of every client.

    Raises:
        ValueError: If a variance is not positive and finite.
    """
    _check_variances(variances)
    return variances / allowed_ratio(mi_budget_bits)


def independent_noise(
    signal: Exchangeable, mi_budget_bits: float, *, as_printed: bool = False
) -> Exchangeable:
    """Compute the least independent noise of case 2, in which parameters depend on each other.

    It is σ² = v / (2^{2ε} − 1). Here v = σ_m² − (n − 1) σ_k⁴ / (σ_m² + (n − 2) σ_k²) is a client's variance
    once all others are known.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, bits, the budget of every client.
        as_printed: Use the sign of the paper, σ_m² + (n − 1) σ_k⁴ / …, which adds more noise than the budget
            requires.

    Source:
        Zeng et al. 2022, Theorem 2 and Eq. (14). The correct sign follows from their own Eq. (13).
    """
    n, variance, covariance = signal.n_clients, signal.variance, signal.covariance
    left = signal.conditional_variance
    if as_printed:
        left = variance + (n - 1) * covariance**2 / (variance + (n - 2) * covariance)
    return Exchangeable(left / allowed_ratio(mi_budget_bits), 0.0, n)


@dataclass(frozen=True)
class ExchangeableOptimum:
    """Noise of greatest utility within a budget.

    Args:
        joint_precision: 1/z_a, precision of the joint direction of all clients, 0 if it is not released.
        difference_precision: 1/z_b, precision of the differences between clients, 0 if they are not released.
        utility_bits: Utility, bits per client.
        noise: Covariance of the noise, or None if an eigenvalue is infinite.
    """

    joint_precision: float
    difference_precision: float
    utility_bits: float
    noise: Exchangeable | None


def optimal_exchangeable_noise(signal: Exchangeable, mi_budget_bits: float) -> ExchangeableOptimum:
    """Compute the exchangeable noise of greatest utility in case 3 that keeps every client within its budget.

    The budget is linear in the noise's precisions q_a = 1/z_a and q_b = 1/z_b, q_a + (n − 1) q_b <= n (2^{2ε}
    − 1)/v, and the utility is concave in them. So the optimum is water-filling over two eigenvalues, q_j =
    1/level − 1/x_j where that is positive, and else 0. Above a threshold of the budget 1/z_j = 2^{2ε}/v −
    1/x_j. Given the release the clients are then independent, and the utility is ε + DTC/n, the cap of all
    mechanisms. Below the threshold only the larger mode is released.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, bits, the budget of every client.

    Returns:
        The optimum. The covariance of the noise between clients has the opposite sign of that of the
        parameters.

    Source:
        Zeng et al. 2022, Section 3.3, who search for it.
    """
    n, v = signal.n_clients, signal.conditional_variance
    ratio = allowed_ratio(mi_budget_bits)
    modes = ((signal.joint, 1), (signal.difference, n - 1))
    # 2^{2ε}/v − 1/x_j = ratio/v + (1/v − 1/x_j); the bracket is a share of 1/x_b − 1/x_a, here without subtracting.
    tilt = n * signal.covariance / signal.joint / signal.difference
    precisions = [ratio / v + (n - 1) / n * tilt, ratio / v - tilt / n]
    if min(precisions) <= 0.0:
        strong = 0 if signal.joint >= signal.difference else 1
        precisions = [0.0, 0.0]
        precisions[strong] = n * ratio / v / modes[strong][1]
    joint, difference = precisions
    noise = None
    if min(precisions) > 0.0:
        covariance = (
            -tilt / joint / difference / n
        )  # from the difference of the precisions, −tilt, which loses no digits
        noise = Exchangeable(1.0 / difference + covariance, covariance, n)
    total = sum(count * math.log1p(x * q) for (x, count), q in zip(modes, precisions, strict=True))
    return ExchangeableOptimum(joint, difference, 0.5 * total / n / BIT, noise)


def _check_variances(variances: Float[np.ndarray, " n"]) -> None:
    """Check that there are variances, all positive and finite."""
    if variances.size == 0:
        raise ValueError("variances: is empty; give one for each client")
    wrong = ~((variances > 0) & np.isfinite(variances))
    if wrong.any():
        client = int(np.argmax(wrong))
        raise ValueError(f"variances[{client}] = {variances[client]}: a client's variance is > 0 and finite")
