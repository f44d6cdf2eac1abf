"""Lower limits of ε from one run of a mechanism whose canaries were included by fair coins."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from leakbound.accounting.risk import check_confidence, identification_information

Adjacency = Literal["add_remove", "pairs"]
_LARGEST = 700.0  # e^ε is finite up to here


def guess(
    scores: Float[np.ndarray, "*shape"], included: Bool[np.ndarray, "*shape"], part: float
) -> tuple[int, int]:
    """Guess the coins with the largest scores either way, and count the guesses and those that are right.

    Args:
        scores: Positive for canaries that seem included, negative for others.
        included: The coins.
        part: Part of the canaries that is guessed, in (0, 1].
    """
    flat = scores.ravel()
    guesses = max(1, round(part * flat.size))
    clearest = np.argsort(-np.abs(flat), kind="stable")[:guesses]
    return guesses, int(((flat[clearest] > 0) == included.ravel()[clearest]).sum())


def one_run_p_value(
    canaries: int,
    guesses: int,
    correct: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
) -> float:
    """Bound the probability that so many guesses are correct if the mechanism is (ε, δ)-DP.

    The number of correct guesses is at most binomial with success e^ε/(1 + e^ε), but for what δ allows.

    Args:
        canaries: m, each included, or one of each pair chosen, by a fair coin of its own.
        guesses: r <= m, canaries whose coin is guessed. How many is decided without looking at the coins.
        correct: v <= r, guesses that are right.
        epsilon: ε >= 0 of one record that is added or removed.
        delta: δ in [0, 1].
        adjacency: ``pairs`` where one of each pair of records is always there. A coin then replaces a record,
            which is a removal and an addition, so that (2ε, (1 + e^ε) δ) holds.

    Raises:
        ValueError: If the counts are not 0 <= v <= r <= m, or ε or δ is out of range.

    Source:
        Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", Theorem 5.2 and
        Appendix D.
    """
    _check(canaries, guesses, correct, delta)
    if not epsilon >= 0:
        raise ValueError(f"epsilon = {epsilon}: it must be >= 0")
    if adjacency == "pairs":
        delta = min(1.0, (1.0 + math.exp(min(epsilon, _LARGEST))) * delta)
        epsilon = 2.0 * epsilon
    success = float(special.expit(epsilon))
    certain = float(_at_least(correct, guesses, success))
    if delta == 0 or correct == 0:
        return min(1.0, certain)
    short = np.arange(1, correct + 1)
    near = _at_least(correct - short, guesses, success) - certain
    return min(1.0, certain + 2.0 * canaries * delta * float((near / short).max()))


def one_run_epsilon(
    canaries: int,
    guesses: int,
    correct: int,
    delta: float,
    confidence: float = 0.95,
    adjacency: Adjacency = "add_remove",
) -> float:
    """Compute the lower confidence limit of ε at δ, the largest one that :func:`one_run_p_value` rejects.

    Args:
        canaries: m, of several independent runs all together.
        guesses: r <= m, as there.
        correct: v <= r, as there.
        delta: δ in [0, 1].
        confidence: Probability, in (0, 1), at least, that the limit is not above the truth.
        adjacency: Neighbours that a coin decides between. The limit is always one for adding or removing a
            record.

    Raises:
        ValueError: As there, and if ``confidence`` is not in (0, 1).

    Returns:
        ε >= 0, which is 0 if none is rejected.
    """
    _check(canaries, guesses, correct, delta)
    check_confidence(confidence)

    def rejected(epsilon: float) -> bool:
        """Return whether an ε is too small for the observed guesses."""
        return one_run_p_value(canaries, guesses, correct, epsilon, delta, adjacency) < 1.0 - confidence

    return _largest(rejected)


def one_run_gaussian(canaries: int, guesses: int, correct: int, confidence: float = 0.95) -> float:
    """Compute the lower confidence limit of μ for a mechanism that is known to be a Gaussian one.

    A sum of clipped gradients with noise is one. It has the trade-off of N(0, 1) against N(μ, 1): n full sums
    with noise of multiplier m have μ = √n/m. As the distribution is known, the same guesses show far more
    than :func:`one_run_epsilon`, which has to allow the worst (ε, δ). The limit contradicts an accountant of
    that distribution. It is no limit for other mechanisms, such as subsampled ones.

    Args:
        canaries: m, each included by a fair coin of its own.
        guesses: r <= m. How many is decided without looking at the coins.
        correct: v <= r.
        confidence: Probability, in (0, 1), at least, that the limit is not above the truth.

    Returns:
        μ >= 0. :func:`gaussian_epsilon` has its ε.

    Raises:
        ValueError: If the counts or the confidence are out of range.

    Source:
        Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-differential privacy in one run", Theorem 9 and
        Algorithm 3.
    """
    _check(canaries, guesses, correct, 0.0)
    check_confidence(confidence)

    def rejected(mu: float) -> bool:
        """Return whether a μ is too small for the observed guesses."""
        right = (1.0 - confidence) * correct / canaries
        wrong = (1.0 - confidence) * (guesses - correct) / canaries
        for count in range(correct - 1, -1, -1):
            least = max(wrong, float(special.ndtr(special.ndtri(min(right, 1.0)) - mu)))
            if least == wrong:
                break
            right += count / (guesses - count) * (least - wrong)
            wrong = least
        return right + wrong > guesses / canaries

    return _largest(rejected)


def one_run_information(pairs: int, guesses: int, correct: int, confidence: float = 0.95) -> float:
    """Compute a lower confidence limit of nats about a record from guesses on pairs in a single run.

    The mechanism is any. One of each pair of records of one distribution was used, by a fair coin. With I
    nats about one record, the run reveals at most k I about k coins, so that an event of probability q
    without any leakage has at most the probability p with d(p ‖ q) = k I. The limit is d(α ‖ q)/k, where q is
    the probability that guesses at random are right at least so often and α = 1 − confidence.

    Nats are a mean over runs: a mechanism that reveals everything in one of twenty runs, and nothing in the
    others, leaks ln 2/20 nats about a coin. So one run demonstrates at most α ln 2, .035 nats at a confidence
    of .95, however many guesses are right. Several networks demonstrate more
    (:func:`leakbound.accounting.lower_limits.weights_information`).

    Args:
        pairs: k, with a coin of its own each.
        guesses: r <= k. How many is decided without looking at the coins.
        correct: v <= r.
        confidence: Probability, in (0, 1), at least, that the limit is not above the truth.

    Raises:
        ValueError: If the counts or the confidence are out of range.

    Example:
        >>> from leakbound.accounting.one_run import one_run_information
        >>> f"{one_run_information(400, 200, 190):.4f}"
        '0.0121'
    """
    _check(pairs, guesses, correct, 0.0)
    check_confidence(confidence)
    level = 1.0 - confidence
    chance = float(_at_least(correct, guesses, 0.5))
    if chance >= level:
        return 0.0
    log_chance = math.log(chance) if chance > 0 else -math.inf
    if math.isinf(log_chance):  # Chernoff's bound, where the chance is too small for float64
        log_chance = -guesses * identification_information(correct / guesses, 2)
    rest = math.log1p(-level) - math.log1p(-math.exp(log_chance))
    return (level * (math.log(level) - log_chance) + confidence * rest) / pairs


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute ε at δ of the Gaussian mechanism with μ, from Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = δ.

    Args:
        mu: Shift over the noise's standard deviation, >= 0.
        delta: δ in (0, 1).

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Balle and Wang 2018, "Improving the Gaussian mechanism for differential privacy", Theorem 8.
    """
    from scipy.optimize import brentq  # slow import

    if not 0 <= mu < math.inf or not 0 < delta < 1:
        raise ValueError(f"mu = {mu} must be >= 0 and finite, delta = {delta} in (0, 1)")

    def excess(epsilon: float) -> float:
        """Return the δ that an ε needs, less the allowed one."""
        needed = special.log_ndtr(-mu / 2 - epsilon / mu) + epsilon
        return float(special.ndtr(mu / 2 - epsilon / mu) - math.exp(needed)) - delta

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    largest = mu * (mu / 2.0 - float(special.ndtri(delta)))  # where the first term alone is δ
    return float(brentq(excess, 0.0, largest, xtol=1e-12))


def _largest(rejected: Callable[[float], bool]) -> float:
    """Find the largest rejected argument, not rounded up, if smaller ones are rejected too. Else 0."""
    if not rejected(0.0):
        return 0.0
    low = 0.0
    high = 1.0
    while rejected(high) and high < _LARGEST:
        low = high
        high = 2.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _at_least(correct: int | Int[np.ndarray, " counts"], guesses: int, success: float) -> Any:
    """Compute the probability that so many guesses are right, each with a probability of success."""
    # scipy.stats, whose survival function has the same bits, takes half a second to import. None or more are certain:
    # not every version of SciPy that is allowed has a limit for a parameter of 0.
    right = np.maximum(correct, 1)
    return np.where(np.equal(correct, 0), 1.0, special.betainc(right, guesses - right + 1, success))


def _check(canaries: int, guesses: int, correct: int, delta: float) -> None:
    """Refuse counts and a δ that cannot be."""
    if not 0 <= correct <= guesses <= canaries or canaries < 1:
        raise ValueError(
            f"correct = {correct}, guesses = {guesses}, canaries = {canaries}: correct <= guesses <= canaries is needed"
        )
    if not 0 <= delta <= 1:
        raise ValueError(f"delta = {delta}: it must be in [0, 1]")
