"""Case 3: exchangeable parameters, exchangeable noise (Zeng et al. 2022, Section 3.3), solved exactly.

In the noise's precisions q_a = 1/z_a and q_b = 1/z_b the budget is linear, q_a + (n − 1) q_b <= n (2^{2ε} − 1)/v, and
the utility concave: water-filling over two eigenvalues, q_j = 1/level − 1/x_j where that is positive, else 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakbound.theory.budget import BIT, allowed_ratio
from leakbound.theory.exchangeable import Exchangeable


@dataclass(frozen=True)
class ExchangeableOptimum:
    """Noise of greatest utility within a budget.

    Args:
        joint_precision: 1/z_a, of all clients moving together; 0 where nothing of it is released.
        difference_precision: 1/z_b, of the differences between clients; 0 where nothing of them is released.
        utility_bits: Bits per client.
        noise: The noise, or None if an eigenvalue is infinite.
    """

    joint_precision: float
    difference_precision: float
    utility_bits: float
    noise: Exchangeable | None


def threshold_bits(signal: Exchangeable) -> float:
    """Budget above which both modes are released, ½ log₂(v / min x).

    Args:
        signal: Covariance of the clients' parameters.
    """
    return 0.5 * math.log(signal.conditional_variance / min(signal.joint, signal.difference)) / BIT


def optimal_exchangeable_noise(signal: Exchangeable, mi_budget_bits: float) -> ExchangeableOptimum:
    """Exchangeable noise of greatest utility that keeps every client within its budget.

    Above the threshold 1/z_j = 2^{2ε}/v − 1/x_j: given the release, the clients are independent, and the utility is
    ε + DTC/n, its cap for any mechanism. Below it only the larger mode is released.

    Args:
        signal: Covariance of the clients' parameters.
        mi_budget_bits: ε, in (0, 500].

    Returns:
        The optimum; the noise's covariance has the opposite sign of the parameters'.

    Raises:
        ValueError: If ε is outside.
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
    total = sum(count * math.log1p(x * q) for (x, count), q in zip(modes, precisions, strict=True))
    noise = _noise(precisions[0], precisions[1], tilt, n) if min(precisions) > 0.0 else None
    return ExchangeableOptimum(precisions[0], precisions[1], 0.5 * total / n / BIT, noise)


def _noise(joint: float, difference: float, tilt: float, n: int) -> Exchangeable:
    """Noise of two positive precisions; its covariance from their difference −tilt, which loses no digits."""
    covariance = -tilt / joint / difference / n
    return Exchangeable(1.0 / difference + covariance, covariance, n)
