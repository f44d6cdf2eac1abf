"""Risk: what I nats about one record allow an attacker, and how few nats keep a risk below a limit.

I bounds what all releases together reveal about one record of a law. The bounds on risks hold for every
attacker, who may know the law and all other records, on average over records of the law.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leakbound.accounting.naming import check_information, identification_information, naming_bound


@dataclass(frozen=True)
class IdentificationRisk:
    """Identification of the true one of M equally likely candidates.

    Attributes:
        candidates: M.
        probability: Most with which the true one is identified; 1 from ln M nats on, where nothing limits it.
        epsilon: ε of pure differential privacy that gives the same bound, or None where there is no bound.
        allowed: Limit of the probability to the most nats that keep it; without limits that guessing reaches.
    """

    candidates: int
    probability: float
    epsilon: float | None
    allowed: dict[float, float]


def identification_risk(
    information: float, candidates: int, limits: Sequence[float] = ()
) -> IdentificationRisk:
    """Row of what I >= 0 nats allow among M >= 2 candidates, and of what to ask for to keep limits of the probability.

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
    """ε of pure DP that limits identification among M to a probability p, ln(p (M − 1)/(1 − p)).

    By Bayes' rule no candidate gains more than e^ε over another, so the true one is identified with at most
    e^ε/(e^ε + M − 1), which randomised response reaches. Data sets differ in the value of one record. Nats
    with the same bound imply no ε: they hold on average over records, ε for every one.

    Raises:
        ValueError: If p is not in [1/M, 1) or M < 2.
    """
    if candidates < 2 or not 1 / candidates <= probability < 1:
        raise ValueError(
            f"probability = {probability}: among candidates = {candidates} >= 2 it is in [1/M, 1)"
        )
    return max(0.0, math.log(probability) - math.log1p(-probability) + math.log(candidates - 1))


def membership_bound(information: float) -> tuple[float, float]:
    """Largest advantage TPR − FPR, and largest AUC, of recognising that a record was used, from I nats about it.

    a = min(√(I/2), √(1 − e^{−I})) and ½ + a − a²/2. I is the divergence of a used record and the release from
    another record of the law and the release; both bound their total variation distance, which no ROC curve
    exceeds.

    Raises:
        ValueError: If I is negative or NaN.

    Source:
        Pinsker's inequality; Bretagnolle and Huber 1979, "Estimation des densités: risque minimax".
    """
    check_information(information)
    advantage = min(math.sqrt(0.5 * information), math.sqrt(-math.expm1(-information)))
    return advantage, 0.5 + advantage - 0.5 * advantage**2


def membership_information(advantage: float) -> float:
    """Most nats whose :func:`membership_bound` is an advantage a, max(2a², −ln(1 − a²)).

    Raises:
        ValueError: If a is not in [0, 1).
    """
    if not 0 <= advantage < 1:
        raise ValueError(f"advantage = {advantage}: TPR - FPR is limited to something in [0, 1)")
    return max(2.0 * advantage**2, -math.log1p(-(advantage**2)))
