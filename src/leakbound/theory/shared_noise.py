"""Exchangeable noise on any parameters: what case 3 of Zeng et al. 2022 can do where clients or budgets differ."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import optimize

from leakbound.theory.general import Problem, release_utility_bits


def best_exchangeable_precision(problem: Problem) -> Float[np.ndarray, "n n"]:
    """Exchangeable Q of greatest utility that keeps every client within its budget.

    All clients have the same Q_ii, so the least of the allowed powers holds for all. What is left to choose, how much
    of it goes to all clients moving together, is a concave problem in one variable.

    Args:
        problem: Covariance and budgets.

    Returns:
        Q = q_b I + (q_a − q_b) 11ᵀ/n with (q_a + (n − 1) q_b)/n = min_i P_i, positive semidefinite.

    Raises:
        ValueError: If there is one client only.
    """
    n, power = len(problem.signal), float(problem.powers.min())
    if n < 2:
        raise ValueError("n = 1: dependence takes at least 2 clients")

    def precision(share: float) -> Float[np.ndarray, "n n"]:
        joint, difference = n * power * share, n * power * (1.0 - share) / (n - 1)
        return difference * np.eye(n) + (joint - difference) / n

    best = optimize.minimize_scalar(
        lambda share: -release_utility_bits(problem.signal, precision(share)),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return precision(float(best.x))
