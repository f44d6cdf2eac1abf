"""Risks that I nats about one record allow, and the nats that keep a risk below a limit.

I bounds what all releases together reveal about one record of a distribution. The bounds on risks hold for
every attacker, who may know the distribution and all other records. They are averages over records of the
distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from leakbound.accounting.naming import check_information, identification_information, naming_bound


@dataclass(frozen=True)
class IdentificationRisk:
    """Risk of identifying the true one of M equally likely candidates.

    Attributes:
        candidates: M.
        probability: Largest probability of identification. It is 1 from ln M nats on.
        epsilon: ε of pure differential privacy that gives the same bound, or None if there is no bound.
        allowed: For each limit of the probability, the most nats that keep it. Limits at or below guessing
            are left out.
    """

    candidates: int
    probability: float
    epsilon: float | None
    allowed: dict[float, float]


def identification_risk(
    information: float, candidates: int, limits: Sequence[float] = ()
) -> IdentificationRisk:
    """Compute what I >= 0 nats allow among M >= 2 candidates, and the nats that keep limits of the probability.

    Raises:
        ValueError: If an argument is out of range.
    """
    bound = naming_bound(information, candidates)
    epsilon = identification_epsilon(bound, candidates) if bound < 1 else None
    allowed = {
        limit: identification_information(limit, candidates) for limit in limits if limit * candidates > 1
    }
    return IdentificationRisk(candidates, bound, epsilon, allowed)


def identification_epsilon(probability: float, candidates: int) -> float:
    """Compute the ε of pure DP that limits identification among M to a probability p, ln(p (M − 1)/(1 − p)).

    By Bayes' rule no candidate gains more than e^ε over another one. The true one is therefore identified
    with a probability of at most e^ε/(e^ε + M − 1), which randomized response reaches. Datasets differ in the
    value of one record. Nats with the same bound imply no ε, because nats hold on average over records and ε
    for every record.

    Raises:
        ValueError: If p is not in [1/M, 1) or M < 2.
    """
    if candidates < 2 or not 1 / candidates <= probability < 1:
        raise ValueError(
            f"probability = {probability}: among candidates = {candidates} >= 2 it is in [1/M, 1)"
        )
    return max(0.0, math.log(probability) - math.log1p(-probability) + math.log(candidates - 1))


def membership_bound(information: float) -> tuple[float, float]:
    """Compute the largest advantage TPR − FPR and AUC of membership inference from I nats about a record.

    They are a = min(√(I/2), √(1 − e^{−I})) and ½ + a − a²/2. I is the divergence between two pairs: a used
    record and the release, and another record of the distribution and the release. Both terms bound the total
    variation distance of these pairs, and no ROC curve exceeds it.

    Raises:
        ValueError: If I is negative or NaN.

    Source:
        Pinsker's inequality. Bretagnolle and Huber 1979, "Estimation des densités: risque minimax".
    """
    check_information(information)
    advantage = min(math.sqrt(0.5 * information), math.sqrt(-math.expm1(-information)))
    return advantage, 0.5 + advantage - 0.5 * advantage**2


def membership_information(advantage: float) -> float:
    """Compute the most nats whose :func:`membership_bound` is an advantage a, max(2a², −ln(1 − a²)).

    Raises:
        ValueError: If a is not in [0, 1).
    """
    if not 0 <= advantage < 1:
        raise ValueError(f"advantage = {advantage}: TPR - FPR is limited to something in [0, 1)")
    return max(2.0 * advantage**2, -math.log1p(-(advantage**2)))


def bound_text(value: float, rounding: str = ROUND_CEILING) -> str:
    """Write a bound with three digits, rounded away from the unsafe side except for errors of float64.

    Args:
        value: Finite number.
        rounding: ``ROUND_CEILING`` of :mod:`decimal` for upper bounds, ``ROUND_FLOOR`` for lower ones.

    Example:
        >>> bound_text(3.0119), bound_text(3.0119, ROUND_FLOOR)
        ('3.02', '3.01')
    """
    safe = value * (1 + (1e-11 if rounding == ROUND_FLOOR else -1e-11))
    return format(Context(3, rounding).create_decimal_from_float(safe).normalize(), "f")
