"""Risks of identification and membership that nats allow, and the nats that success demonstrates.

Bounds on identification follow from one inequality. If a release reveals I nats about the true index, an
attacker identifies it with a probability p whose divergence d(p ‖ 1/M) is at most I. So a measured p
demonstrates nats, and bounded nats limit p. An attacker who states a probability for each candidate
demonstrates more than one who chooses a candidate. Bounds on risks hold for every attacker, who may know the
distribution and all other records. They are averages over records of the distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np
from jaxtyping import Float, Int

_HEDGE = 0.01  # part of the uniform guess in stated probabilities
_RARE = 28.0  # −ln of the probability, at most, that a sum of steps leaves its grid
_MOST_ROWS = 24  # of a record whose numbers in a sample are told apart
_LARGER = 8  # shifts that larger numbers are rounded up to
_POINTS = 2**20  # of the grid of a sum
_STEP_POINTS = 2**15  # of one step


def identification_information(rate: float, candidates: int) -> float:
    """Compute the least nats of a release from which an attacker identifies the true one of M with probability p.

    d(p ‖ 1/M) = p ln(p M) + (1 − p) ln((1 − p) / (1 − 1/M)). The guess is computed from the release, and no
    computation adds information about the uniform index. A probability p <= 1/M demonstrates 0 nats.

    Args:
        rate: p, in [0, 1].
        candidates: M >= 2, each equally likely before the release.

    Returns:
        Nats in [0, ln M].

    Raises:
        ValueError: If p is no probability or M < 2.
    """
    check_candidates(candidates)
    if not 0 <= rate <= 1:
        raise ValueError(f"rate = {rate}: a probability is in [0, 1]")
    if rate * candidates <= 1:
        return 0.0
    chance = 1.0 / candidates
    hit = rate * math.log1p((rate - chance) / chance)
    miss = (1.0 - rate) * math.log1p((chance - rate) / (1.0 - chance)) if rate < 1 else 0.0
    return max(0.0, hit + miss)


def lower_rate(hits: int, trials: int, confidence: float = 0.95) -> float:
    """Compute the one-sided lower confidence limit of a probability from independent trials (Clopper and Pearson).

    If the probabilities of the trials differ, it is a limit of their mean, because the number of hits then
    varies less than a binomial number (Hoeffding 1956).

    Args:
        hits: Number of successes.
        trials: Number of independent trials. Without trials the limit is 0.
        confidence: Probability, in (0, 1), at least, that the limit is not above the truth.

    Raises:
        ValueError: If ``hits`` is not in [0, ``trials``] or ``confidence`` not in (0, 1).
    """
    if not 0 <= hits <= trials:
        raise ValueError(
            f"hits = {hits}: there are {trials} trials, so between 0 and {trials} of them succeed"
        )
    check_confidence(confidence)
    from scipy import special  # slow import

    return float(special.betaincinv(hits, trials - hits + 1, 1.0 - confidence)) if hits else 0.0


def demonstrated_information(hits: int, trials: int, candidates: int, confidence: float = 0.95) -> float:
    """Compute a lower confidence limit of the nats of a release from independent trials of identification among M.

    It is :func:`identification_information` of :func:`lower_rate`, in [0, ln M]. A rate of at most 1/M gives
    0.

    Args:
        hits: Number of trials in which the true candidate was identified.
        trials: Number of independent trials.
        candidates: M >= 2.
        confidence: In (0, 1).

    Raises:
        ValueError: As these functions.
    """
    return identification_information(lower_rate(hits, trials, confidence), candidates)


def stated_gains(posteriors: Float[np.ndarray, "*shape"], candidates: int) -> Float[np.ndarray, "*shape"]:
    """Compute the nats that stated probabilities gain over the uniform guess, ln(M q).

    q is mixed with 1 % of the uniform guess, so that no gain is −∞. As relative entropies are not negative,
    the expectation of the gains is at most what the release reveals about the index, for every way to state
    probabilities. For the true posterior probabilities without mixing it is equal to that.

    Args:
        posteriors: Probability that was stated for the true candidate, in each trial.
        candidates: M >= 2.

    Returns:
        Nats between ln 0.01 and ln M.

    Raises:
        ValueError: If a stated probability is none, or M < 2.

    Source:
        Barber and Agakov 2003, "The IM algorithm".
    """
    check_candidates(candidates)
    if np.any((posteriors < 0) | (posteriors > 1 + 1e-9)):
        raise ValueError("posteriors: a stated probability is in [0, 1]")
    return np.log((1.0 - _HEDGE) * candidates * posteriors + _HEDGE)


def gained_information(
    mean: float, variance: float, trials: int, candidates: int, confidence: float = 0.95
) -> float:
    """Compute a lower confidence limit of the nats of a release from :func:`stated_gains` of independent trials.

    mean − √(2 V ln(2/δ)/n) − 7 R ln(2/δ)/(3(n − 1)), where V is the sample variance, R the range of gains and
    1 − δ the confidence. It is never below 0. Trials must be independent but need not be identically
    distributed.

    Args:
        mean: Mean of the gains, nats.
        variance: Sample variance of the gains, squared nats.
        trials: n >= 2.
        candidates: M >= 2.
        confidence: In (0, 1).

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Maurer and Pontil 2009, "Empirical Bernstein bounds and sample variance penalization", Theorem 4.
    """
    check_candidates(candidates)
    check_confidence(confidence)
    if not (2 <= trials < math.inf and variance >= 0 and mean <= math.log(candidates) + 1e-9):
        least = f"trials = {trials} must be >= 2, variance = {variance} >= 0"
        raise ValueError(f"{least} and mean = {mean} <= ln {candidates}")
    doubt = math.log(2.0 / (1.0 - confidence))
    spread = math.log(candidates) - math.log(_HEDGE)
    limit = mean - math.sqrt(2.0 * variance * doubt / trials) - 7.0 * spread * doubt / (3.0 * (trials - 1))
    return max(0.0, limit)


def naming_bound(information: float, candidates: int) -> float:
    """Compute the largest probability of identifying the true one of M equally likely candidates from I nats.

    It solves d(p ‖ 1/M) = I. This is Fano's inequality without its slack of ln 2
    (:func:`leakbound.accounting.reconstruction.fano_error`).

    Args:
        information: I, nats about the index, in [0, ∞].
        candidates: M >= 2.

    Returns:
        p in [1/M, 1], which is 1 if I >= ln M. It is not below the exact root by more than rounding.

    Raises:
        ValueError: If ``information`` is negative or NaN, or M < 2.
    """
    check_candidates(candidates)
    check_information(information)
    if information >= math.log(candidates):
        return 1.0
    # Bisection needs no library, and its upper end is never below the root.
    low = 1.0 / candidates
    high = 1.0
    while low < (middle := 0.5 * (low + high)) < high:
        if identification_information(middle, candidates) < information:
            low = middle
        else:
            high = middle
    return min(1.0, high + 1e-12)


def dp_naming_bound(
    noise_multiplier: float, sample_rate: float, steps: int, candidates: int, rows: int = 1
) -> float:
    """Compute the largest probability of identifying the true one of M equally likely records of a DP training.

    The attacker sees all noisy sums, and knows all other records and the candidates. Consider an event that
    has the probability 1/M without the record. The attacker succeeds at most with the largest probability of
    such an event with the record. Both distributions have n independent coordinates: (1−q) N(0, m²) + q N(1,
    m²) with the record, N(0, m²) without it. The best event is where their likelihood ratio is large (Neyman
    and Pearson). For q = 1 the bound is Φ(Φ⁻¹(1/M) + √n/m). A record that stands c times in the data takes
    part J times in a step, J binomial, and moves the sum by at most J: a coordinate is Σ_j P(J = j) N(j, m²).

    For q < 1 the logarithm of the ratio is rounded up to a grid at each step, and summed by Fourier
    transform. Rounding up can only help the attacker.

    Args:
        noise_multiplier: m, noise standard deviation over the clipping bound, >= 0.
        sample_rate: q, probability that a record takes part in a step, in (0, 1].
        steps: n >= 0.
        candidates: M >= 2.
        rows: c, how often the record stands in the data, >= 1.

    Returns:
        Probability in [1/M, 1], for any distribution of the candidates and every attacker.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Hayes, Mahloujifar and Balle 2023, "Bounding training data reconstruction in DP-SGD", Theorem 2 and
        Proposition 3, with κ = 1/M. Ganesh 2024, "Tight group-level DP guarantees for DP-SGD with sampling
        via mixture of Gaussians mechanisms", for copies.
    """
    check_candidates(candidates)
    check_steps(noise_multiplier, sample_rate, steps)
    check_rows(rows)
    chance = 1.0 / candidates
    if not steps or not noise_multiplier:
        return 1.0 if steps else chance
    if sample_rate == 1:
        from scipy import special  # slow import

        return float(special.ndtr(special.ndtri(chance) + rows * math.sqrt(steps) / noise_multiplier))
    losses, masses, certain = _composed_losses(noise_multiplier, sample_rate, steps, rows)
    return min(1.0, max(chance, certain + _most_likely(losses, masses, chance)))


def drawn_shifts(
    sample_rate: float, rows: int
) -> tuple[Int[np.ndarray, " shifts"], Float[np.ndarray, " shifts"]]:
    """Compute how far a Poisson sample moves a sum at most, in clipping bounds, by how many of a record's rows it has.

    Args:
        sample_rate: q, probability that a row takes part in a step.
        rows: c, how often the record stands in the data.

    Returns:
        Shifts from 0 to c, and their probabilities. Up to 24 rows are distinguished. More are rounded up to one
        of eight larger shifts, which only reveals more.
    """
    shifts = np.arange(rows + 1)
    if rows > _MOST_ROWS:
        larger = np.ceil(np.geomspace(_MOST_ROWS, rows, _LARGER + 1)).astype(np.int64)
        shifts = np.unique(np.concatenate([shifts[: _MOST_ROWS + 1], larger]))
    if sample_rate == 1:
        return shifts, (shifts == rows).astype(np.float64)
    if rows == 1:
        return shifts, np.array([1.0 - sample_rate, sample_rate])
    from scipy import special  # slow import

    # P(J <= j) is a regularized incomplete beta function; differences of the tails keep small probabilities.
    tails = np.append(special.bdtrc(shifts[:-1], rows, sample_rate), 0.0)
    return shifts, -np.diff(tails, prepend=1.0)


def step_log_ratio(
    x: Float[np.ndarray, " n"], noise_multiplier: float, sample_rate: float, rows: int
) -> Float[np.ndarray, " n"]:
    """Compute the logarithm of Σ_j P(J = j) N(j, m²) over N(0, m²) at each x, J rows of a record in the sample."""
    if not math.isfinite(1.0 / noise_multiplier**2):
        raise OverflowError(
            f"noise_multiplier = {noise_multiplier}: its square is below the range of float64"
        )
    total = np.full_like(x, -np.inf)
    for shift, share in zip(*drawn_shifts(sample_rate, rows), strict=True):
        if share > 0:
            weight = math.log(share) if shift else rows * math.log1p(-sample_rate)
            total = np.logaddexp(total, weight + shift * (2.0 * x - shift) / (2.0 * noise_multiplier**2))
    return total


def _composed_losses(
    noise_multiplier: float, sample_rate: float, steps: int, rows: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute log-likelihood ratios of a sum of steps on a grid, their masses, and the mass off the grid."""
    from scipy import fft, special  # slow imports

    x = noise_multiplier * np.linspace(-9.0, 9.0, _STEP_POINTS)
    shifts, shares = drawn_shifts(sample_rate, rows)
    x = np.unique(np.concatenate([x + shift for shift in shifts]))
    with_record = np.zeros_like(x)
    for shift, share in zip(shifts, shares, strict=True):
        with_record += share * special.ndtr((x - shift) / noise_multiplier)
    masses = np.diff(with_record, prepend=0.0)  # of (x_(i−1), x_i], whose ratio is at most that of x_i
    ratio = step_log_ratio(x, noise_multiplier, sample_rate, rows)
    certain = steps * max(1.0 - float(with_record[-1]), 0.0)
    mean = float((masses * ratio).sum())
    variance = float((masses * (ratio - mean) ** 2).sum())
    largest = float(np.abs(ratio - mean).max())
    third = _RARE * largest / 3.0  # Bernstein's inequality, solved for the distance that has this probability
    half = min(third + math.sqrt(third**2 + 2.0 * _RARE * steps * variance), steps * largest)
    spacing = 2.0 * half / _POINTS
    places = np.ceil((ratio - mean) / spacing).astype(np.int64)
    single = np.bincount(places % _POINTS, masses, _POINTS)
    total = np.maximum(fft.irfft(fft.rfft(single) ** steps, _POINTS), 0.0)
    order = np.concatenate([np.arange(_POINTS // 2), np.arange(-_POINTS // 2, 0)])
    # What leaves the grid comes back at its other end. It is less than what is added here.
    return order * spacing + steps * mean, total, certain + 2.0 * math.exp(-_RARE)


def _most_likely(losses: np.ndarray, masses: np.ndarray, chance: float) -> float:
    """Find the largest mass of an event whose mass without the record, mass · e^{−loss}, is ``chance``."""
    descending = np.argsort(-losses)
    gained = masses[descending]
    paid = np.cumsum(gained * np.exp(-np.maximum(losses[descending], -700.0)))
    # Rounding up takes mass from the distribution without the record. What it lacks lies where the ratio is 0.
    whole = int(np.searchsorted(paid, chance))
    reached = float(gained[:whole].sum())
    if whole < len(paid):
        before = float(paid[whole - 1]) if whole else 0.0
        reached += (chance - before) / float(paid[whole] - before) * float(gained[whole])
    return reached


def check_candidates(candidates: int) -> None:
    """Refuse fewer than two candidates, or infinitely many."""
    if not 2 <= candidates < math.inf:
        raise ValueError(f"candidates = {candidates}: identification takes at least 2 and finitely many")


def check_steps(noise_multiplier: float, sample_rate: float, steps: int | float) -> None:
    """Refuse a noise multiplier, a sample rate and a number of steps that cannot be."""
    if not (0 <= noise_multiplier < math.inf and 0 < sample_rate <= 1 and 0 <= steps < math.inf):
        raise ValueError(
            f"noise_multiplier = {noise_multiplier} must be >= 0 and finite, sample_rate = {sample_rate} in (0, 1] and "
            f"steps = {steps} >= 0"
        )


def check_rows(rows: int) -> None:
    """Refuse a number of rows of a record that cannot be."""
    if not 1 <= rows < math.inf:
        raise ValueError(f"rows = {rows}: a record stands at least once in the data")


def check_information(information: float) -> None:
    """Refuse a negative amount of information, or NaN."""
    if not information >= 0:
        raise ValueError(f"information = {information}: it is >= 0 nats")


def check_confidence(confidence: float) -> None:
    """Refuse a confidence outside (0, 1)."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence}: it must be in (0, 1), e.g. 0.95")


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


def bound_text(value: float, rounding: str = ROUND_CEILING, digits: int = 3) -> str:
    """Write a bound with few digits, rounded away from the unsafe side except for errors of float64.

    Args:
        value: Finite number.
        rounding: ``ROUND_CEILING`` of :mod:`decimal` for upper bounds, ``ROUND_FLOOR`` for lower ones.
        digits: Digits that are written.

    Example:
        >>> bound_text(3.0119), bound_text(3.0119, ROUND_FLOOR)
        ('3.02', '3.01')
    """
    safe = value * (1 + (1e-11 if rounding == ROUND_FLOOR else -1e-11))
    return format(Context(digits, rounding).create_decimal_from_float(safe).normalize(), "f")
