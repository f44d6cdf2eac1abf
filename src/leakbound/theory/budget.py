"""Privacy budgets in bits, and the ratio of signal to noise that they allow."""

import math

import numpy as np
from jaxtyping import Float

BIT = math.log(2.0)
"""Nats in a bit."""
_LARGEST = 500.0  # beyond it 2^(2ε) leaves float64


def check_budget(mi_budget_bits: float, name: str = "mi_budget_bits") -> None:
    """Check that the closed forms are defined for a budget.

    Args:
        mi_budget_bits: ε, bits.
        name: Name of the setting, for the message.

    Raises:
        ValueError: If it is not in (0, 500] bits.
    """
    if not 0.0 < mi_budget_bits <= _LARGEST:
        raise ValueError(
            f"{name} = {mi_budget_bits}: a budget is > 0 and <= {_LARGEST:g} bits; at 0 nothing may be released"
        )


def allowed_ratio(mi_budget_bits: float) -> float:
    """Convert ε bits to the variance ratio of signal and noise that leaks ε about a Gaussian, 2^{2ε} − 1.

    Args:
        mi_budget_bits: ε, bits, in (0, 500].

    Raises:
        ValueError: If ε is not in (0, 500] bits.
    """
    check_budget(mi_budget_bits)
    return math.expm1(2.0 * mi_budget_bits * BIT)


def allowed_ratios(mi_budgets_bits: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Apply :func:`allowed_ratio` to each client's budget.

    Args:
        mi_budgets_bits: ε_i of each client, bits, in (0, 500].

    Raises:
        ValueError: If a budget is not in (0, 500] bits. The message names the client.
    """
    for client, budget in enumerate(mi_budgets_bits):
        check_budget(float(budget), f"mi_budgets_bits[{client}]")
    return np.expm1(2.0 * mi_budgets_bits * BIT)
