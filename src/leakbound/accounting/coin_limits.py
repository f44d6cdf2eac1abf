"""Lower limits of one network's leakage, from coins that decided which records it was trained on.

Members and others come from one distribution, so that chance decides which record of a pair of both was used.
Canaries were used by coins of their own. Whoever guesses such coins too often contradicts a bound, whatever
the training was (:mod:`leakbound.accounting.one_run`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from leakbound.accounting.one_run import Adjacency, guess, one_run_epsilon, one_run_information

Quantity = Literal["epsilon", "nats"]
Source = Literal["pairs", "canaries"]
DELTA = 1e-5
"""δ of the limit of ε where no bound states one."""
_PARTS = (0.5, 0.2, 0.1, 0.05, 0.02, 1.0)  # of the pairs, the clearest ones, whose coin is guessed
# Rank above which canaries count as included, and part of them that is guessed.
_RANKS = ((0.5, 1.0), (0.5, 0.5), (0.5, 0.1), (0.0, 0.1))
# The same counts come again and again.
_epsilon = lru_cache(maxsize=4096)(one_run_epsilon)
_information = lru_cache(maxsize=4096)(one_run_information)


@dataclass(frozen=True)
class StatedBound:
    """Bound on the leakage that somebody states.

    Attributes:
        quantity: ``epsilon`` of adding or removing a record, or ``nats`` that all uses reveal about a record.
        value: Above 0.
        delta: δ of ε, in [0, 1).
    """

    quantity: Quantity
    value: float
    delta: float = DELTA

    def __post_init__(self) -> None:
        if not (0 < self.value < np.inf and 0 <= self.delta < 1):
            raise ValueError(
                f"{self.quantity} = {self.value:g}, delta = {self.delta:g}: give a finite bound above 0 and a delta in "
                "[0, 1)"
            )

    def __str__(self) -> str:
        more = f" at delta = {self.delta:g}" if self.quantity == "epsilon" else ""
        return f"{self.quantity} = {self.value:g}{more}"


@dataclass(frozen=True)
class CoinLimit:
    """Lower confidence limit from guessed coins.

    Attributes:
        source: ``pairs`` of a member and another record, or ``canaries``.
        quantity: ``epsilon`` or ``nats``.
        demonstrated: Limit.
        reachable: Limit if all coins were guessed right: one network with so many shows no more.
        coins: Number of pairs or canaries.
        guesses: Number of coins that were guessed.
        correct: Number of guesses that were right.
        bound: Stated bound of this quantity, if any.
    """

    source: Source
    quantity: Quantity
    demonstrated: float
    reachable: float
    coins: int
    guesses: int
    correct: int
    bound: float | None

    @property
    def contradicts(self) -> bool:
        """True if more was demonstrated than the bound allows."""
        return self.bound is not None and self.demonstrated > self.bound


def coin_limits(
    bound: StatedBound | None,
    confidence: float,
    training: Mapping[str, Sequence[np.ndarray]],
    evaluated: Mapping[str, Sequence[np.ndarray]],
    canaries: tuple[np.ndarray, np.ndarray] | None = None,
) -> Iterator[CoinLimit]:
    """Yield lower limits: ε and nats from pairs, and ε from canaries, which share the chance of error on ε.

    Records are in random order, so that those of equal places are random pairs, whose coins decided which
    of them is a member. The attacker, and how many coins it guesses, are those that show most on known
    pairs. A coin replaces a record, and ε is that of adding or removing one.

    Args:
        bound: Bound that limits are held against, with their δ.
        confidence: Probability, in (0, 1), at least, that no limit of a quantity is above the truth.
        training: Attacker to its scores of members and of others whose membership it knows, NaN for those
            without one.
        evaluated: The same for further records.
        canaries: Scores in random order, higher means included, and coins.
    """
    doubts: dict[Quantity, float] = dict.fromkeys(("epsilon", "nats"), 1 - confidence)
    if canaries is not None:
        doubts["epsilon"] /= 2
        scores, included = canaries
        # The largest limit of four ways to guess, corrected for the choice. Equal scores keep order.
        ranks = (np.argsort(np.argsort(scores, kind="stable")) + 0.5) / len(scores)
        doubt = doubts["epsilon"] / len(_RANKS)
        limits = [
            _limit(bound, "canaries", "epsilon", doubt, ranks - low, part, included) for low, part in _RANKS
        ]
        yield max(limits, key=lambda limit: limit.demonstrated)
    for quantity, doubt in doubts.items():
        guesses = partial(_limit, bound, "pairs", quantity, doubt)
        tried = {
            (name, part): guesses(_differences(*training[name]), part).demonstrated
            for name, part in product(training, _PARTS)
        }
        name, part = max(tried, key=lambda choice: tried[choice])
        yield guesses(_differences(*evaluated[name]), part)


def _limit(
    bound: StatedBound | None,
    source: Source,
    quantity: Quantity,
    doubt: float,
    scores: Float[np.ndarray, " coins"],
    part: float,
    included: Bool[np.ndarray, " coins"] | None = None,
) -> CoinLimit:
    """Compute the limit from guesses of the clearest coins. For pairs they all have positive scores."""
    total = len(scores)
    guesses, correct = guess(scores, np.ones(total, bool) if included is None else included, part)
    delta = DELTA if bound is None else bound.delta
    stated = bound.value if bound is not None and bound.quantity == quantity else None

    def demonstrated(guesses: int, correct: int) -> float:
        if quantity == "nats":
            return _information(total, guesses, correct, 1 - doubt)
        adjacency: Adjacency = "pairs" if source == "pairs" else "add_remove"
        return _epsilon(total, guesses, correct, delta, 1 - doubt, adjacency)

    limit = demonstrated(guesses, correct)
    return CoinLimit(source, quantity, limit, demonstrated(total, total), total, guesses, correct, stated)


def verdict_on(bound: StatedBound | None, limits: Sequence[CoinLimit], confidence: float) -> str:
    """Say what limits show about a bound, and what one network can show at most."""
    bounded = [limit for limit in limits if limit.bound is not None]
    if bound is None or not bounded:
        return "no bound was given, so none is contradicted"
    most = max(limit.demonstrated for limit in bounded)
    reach = max(limit.reachable for limit in bounded)
    outcome = "contradicted" if any(limit.contradicts for limit in bounded) else "not contradicted"
    sentence = f"{bound} is {outcome} at confidence {confidence:g}: the lower limit is {most:.3g}"
    if reach < bound.value:
        sentence += f", and one network with so many records shows at most {reach:.3g} whatever it leaks"
    return sentence


def _differences(
    members: Float[np.ndarray, " m"], others: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " pairs"]:
    """Subtract the score of another record from that of a member, pair by pair, without pairs lacking one."""
    pairs = min(len(members), len(others))
    differences = members[:pairs] - others[:pairs]
    return differences[np.isfinite(differences)]


def check_coins(included: np.ndarray, canaries: int) -> None:
    """Refuse bits of canaries that no fair coins can have given.

    Raises:
        ValueError: If there is not one for each canary, or far more or fewer than half are included.
    """
    if included.shape != (canaries,) or not np.isin(included, (0, 1)).all():
        raise ValueError(
            f"canaries: included of shape {included.shape}: a 0 or 1 for each of {canaries} is needed"
        )
    if stats.binomtest(int(included.sum()), canaries, 0.5).pvalue < 1e-4:
        raise ValueError(
            f"canaries: {int(included.sum())} of {canaries} are included, which fair coins do not give: include each "
            "by a coin of its own"
        )
