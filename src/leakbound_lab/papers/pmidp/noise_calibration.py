"""Noise that a mutual-information budget requires in federated averaging, weights of clients, and leaks.

Budgets are in nats, σ is a standard deviation per coordinate, as in the paper. All is computed from the
logarithm of α_k = C_k/√(d·(e^{2ε_k/d} − 1)), the noise of an average in which client k has weight 1. So it
works for 10⁸ parameters and budgets of 10⁻³ nats, and no product over clients is formed.

Leaks to those who see the average, and to the server, bound the mutual information over every distribution of
the clipped parameters. Rounds compose by the chain rule, which also holds if a client trains on earlier
averages: T rounds reveal at most the sum of their leaks. The paper bounds one round alone.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from leakbound.accounting.gaussian import log_expm1

PerClient = Float[np.ndarray, " clients"]
"""One number for each client."""
LEAST_PARAM_NORM = 1e-6
"""Floor of a clipping threshold that follows the norms: at 0 it would never grow again."""


@dataclass(frozen=True)
class AggregateNoise:
    """Noise of each client and of the server in one round, and weights of the average.

    Attributes:
        weights: Weight p_k of each client. Weights sum to 1.
        client_std: Noise σ_k per coordinate that each client adds before its upload.
        server_std: Noise per coordinate that the server adds to the average.
        present: Whether each client sends anything. Default: all do. The others have weight 0.
    """

    weights: PerClient
    client_std: PerClient
    server_std: float
    present: Bool[np.ndarray, " clients"] | None = None

    @property
    def aggregate_std(self) -> float:
        """Noise per coordinate of what the server publishes, √(Σ p_k² σ_k² + σ_s²)."""
        stds = self.weights * self.client_std
        largest = float(stds.max()) or 1.0  # so that no square underflows
        return math.hypot(largest * float(np.linalg.norm(stds / largest)), self.server_std)


@dataclass(frozen=True)
class SampledNoise:
    """Rates at which clients take part, and the noise of the sum of all who do.

    Attributes:
        rates: Probability q_k with which a client takes part in a round. That of at least one client is 1.
        sum_std: Noise per coordinate of the sum of a round's uploads.
    """

    rates: PerClient
    sum_std: float

    def draw(self, generator: np.random.Generator) -> AggregateNoise:
        """Draw who takes part in a round. They have equal weights, and share the noise.

        Args:
            generator: Draws who takes part.
        """
        present = generator.random(len(self.rates)) < self.rates
        count = int(present.sum())
        return AggregateNoise(present / count, present * (self.sum_std / math.sqrt(count)), 0.0, present)


def log_noise_unit(max_param_norms: PerClient, mi_budgets: PerClient, dimension: int) -> PerClient:
    """Compute ln α_k, the noise with which a vector of norm at most C_k leaks ε_k nats.

    α solves (d/2) ln(1 + C²/(d α²)) = ε. The left side is the largest information that any distribution of
    the vector can send through this noise. For d ≫ ε, α ≈ C/√(2ε).

    Args:
        max_param_norms: Clipping threshold C_k of each client, > 0.
        mi_budgets: Budget ε_k of each client in nats for one round, > 0.
        dimension: Number of parameters d.

    Raises:
        ValueError: If a threshold, a budget or the dimension is not positive and finite.
    """
    for name, values in (("max_param_norm", max_param_norms), ("mi_budget", mi_budgets)):
        if not (np.all(values > 0) and np.all(np.isfinite(values))):
            wrong = values[~((values > 0) & np.isfinite(values))][0]
            raise ValueError(f"{name} = {wrong}: must be positive and finite")
    if dimension < 1:
        raise ValueError(f"dimension = {dimension}: a model has at least one parameter")
    return np.log(max_param_norms) - 0.5 * (math.log(dimension) + log_expm1(2 * mi_budgets / dimension))


def server_noise(
    max_param_norms: PerClient, mi_budgets: PerClient, dimension: int, weights: PerClient | None = None
) -> AggregateNoise:
    """Compute the noise of the server under which the average reveals at most ε_k: σ_s = max_k p_k α_k.

    Args:
        max_param_norms: Clipping threshold C_k of each client, > 0.
        mi_budgets: Budget ε_k of each client in nats for one round, > 0.
        dimension: Number of parameters d.
        weights: Weights p_k that sum to 1. Default: equal weights.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        PMIDP-FL, Theorem 1 (one C and ε for all), and (5.22). The noise is sufficient. In low dimension it is
        more than necessary, because the distribution that attains the bound exceeds the threshold.
    """
    shares, log_needed = _needed(max_param_norms, mi_budgets, dimension, weights)
    return AggregateNoise(shares, np.zeros(len(shares)), math.exp(log_needed))


def client_noise(
    max_param_norms: PerClient, mi_budgets: PerClient, dimension: int, weights: PerClient | None = None
) -> AggregateNoise:
    """Compute equal noise of clients under which the average reveals at most ε_k: σ_c = max_k p_k α_k / ‖p‖.

    The average has the same distribution as under :func:`server_noise` (Theorem 2). The bound holds for the
    average. An upload reveals far more (:func:`server_leak`).

    Args:
        max_param_norms: Clipping threshold C_k of each client, > 0.
        mi_budgets: Budget ε_k of each client in nats for one round, > 0.
        dimension: Number of parameters d.
        weights: Weights p_k that sum to 1. Default: equal weights.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        PMIDP-FL, Corollary 1 (one C and ε for all), and (5.21), the baseline of PMIDP-FL.
    """
    shares, log_needed = _needed(max_param_norms, mi_budgets, dimension, weights)
    std = math.exp(log_needed - math.log(np.linalg.norm(shares)))
    return AggregateNoise(shares, np.full(len(shares), std), 0.0)


def personalized_noise(max_param_norms: PerClient, mi_budgets: PerClient, dimension: int) -> AggregateNoise:
    """Compute noise σ_k = α_k/√N and weights p_k ∝ 1/σ_k, which spend every client's budget exactly.

    Among all weights and noises that meet the budgets, these give the average the least noise, a variance of
    1/(Σ 1/α_k)². The weights are a softmax of −ln α and take time N. The paper's products take N² and exceed
    the range of floats. The weights depend on budgets and thresholds, not on the number of records, so
    clients with loose budgets count more in the average.

    Args:
        max_param_norms: Clipping threshold C_k of each client, > 0.
        mi_budgets: Budget ε_k of each client in nats for one round, > 0.
        dimension: Number of parameters d.

    Raises:
        ValueError: If a threshold, a budget or the dimension is not positive and finite.

    Source:
        PMIDP-FL, Theorem 3 and Corollary 2.
    """
    log_unit = log_noise_unit(max_param_norms, mi_budgets, dimension)
    scores = np.exp(log_unit.min() - log_unit)
    std = np.exp(log_unit - 0.5 * math.log(len(log_unit)))
    return AggregateNoise(scores / scores.sum(), std, 0.0)


def sampled_noise(max_param_norms: PerClient, mi_budgets: PerClient, dimension: int) -> SampledNoise:
    """Compute equal noise with which clients of small budgets take part less often, q_k = min(1, ε_k/L_k).

    L_k is what a round reveals about a client that takes part in it. Who takes part depends on no record, so that by
    the chain rule a round reveals at most q_k L_k ≤ ε_k on average over the draw, also to those who know who was drawn,
    and T rounds at most T ε_k. A client that is drawn reveals L_k, which may be more than ε_k.

    Of the noises at which some client spends exactly its budget in each round, the one is taken that leaves the
    average the least noise for the expected number of clients. The largest of them is that of :func:`client_noise`, so
    that sampling never has more. While no L_k exceeds 0.79 d it never has less than :func:`personalized_noise`. Takes
    time N².

    Args:
        max_param_norms: Clipping threshold C_k of each client, > 0.
        mi_budgets: Budget ε_k of each client in nats for one round, > 0.
        dimension: Number of parameters d.

    Raises:
        ValueError: If a threshold, a budget or the dimension is not positive and finite.

    Source:
        Lange, Borchardt and Rahm 2025, "Federated learning with individualized privacy through client sampling", who
        compute the rates from ε of DP and keep the rate of the average client. The rates in nats are derived here.

    Example:
        >>> sampled_noise(np.ones(2), np.array([1.0, 4.0]), 10**9).rates.round(3)
        array([0.25, 1.  ])
    """
    log_unit = log_noise_unit(max_param_norms, mi_budgets, dimension)
    log_norms = np.log(max_param_norms)
    best = SampledNoise(np.ones(len(log_unit)), math.exp(log_unit.max()))
    least = log_unit.max() - math.log(len(log_unit))
    for log_std in np.unique(log_unit)[:-1]:
        rates = np.minimum(1.0, mi_budgets / _gaussian_leak(log_norms, log_std, dimension))
        rates[log_unit <= log_std] = 1.0  # not one rounding less, so that somebody always takes part
        noise = log_std - math.log(rates.sum())
        if noise < least:
            best = SampledNoise(rates, math.exp(log_std))
            least = noise
    return best


def next_max_param_norms(max_param_norms: PerClient, norms: PerClient, rate: float) -> PerClient:
    """Compute the clipping thresholds of the next round, an exponential moving average of the norms.

    Args:
        max_param_norms: Thresholds C_k of this round.
        norms: Norms *before* clipping. With norms after clipping, as the paper may be read, a threshold could
            never grow.
        rate: Rate η_c of the average, in [0, 1). 0 keeps the thresholds.

    Returns:
        New thresholds, at least ``LEAST_PARAM_NORM``. They are functions of the private history, and σ_k,
        which clients send unprotected, reveals them. The budgets do not cover this leak.

    Source:
        PMIDP-FL, (5.18).
    """
    return np.maximum((1 - rate) * max_param_norms + rate * norms, LEAST_PARAM_NORM)


def draw_budgets(
    n_clients: int, mean: float, spread: float, least: float, generator: np.random.Generator
) -> PerClient:
    """Draw budgets ε_k ~ N(mean, spread²). Those below ``least`` are set to ``least``.

    Args:
        n_clients: Number of clients.
        mean: Mean μ_ε of the budgets, in nats.
        spread: Standard deviation σ_ε of the budgets, in nats (the paper's text calls it a variance).
        least: Smallest budget, in nats, > 0.
        generator: Draws the budgets.

    Source:
        PMIDP-FL, Sec. VI.B, which sets the least budget to 1.
    """
    return np.maximum(mean + spread * generator.standard_normal(n_clients), least)


def _needed(
    max_param_norms: PerClient, mi_budgets: PerClient, dimension: int, weights: PerClient | None
) -> tuple[PerClient, float]:
    """Return checked weights, or equal ones, and the logarithm of the noise that their average needs."""
    n_clients = len(mi_budgets)
    if n_clients < 1:
        raise ValueError("there are no clients: give at least one budget")
    shares = np.full(n_clients, 1 / n_clients) if weights is None else weights
    if len(shares) != n_clients or np.any(shares < 0) or not math.isclose(shares.sum(), 1, rel_tol=1e-9):
        raise ValueError(
            f"weights: {len(shares)} that sum to {shares.sum():g} for {n_clients} clients; give one for each, none "
            "negative, that sum to 1"
        )
    with np.errstate(divide="ignore"):
        return shares, float((np.log(shares) + log_noise_unit(max_param_norms, mi_budgets, dimension)).max())


def aggregate_leak(noise: AggregateNoise, max_param_norms: PerClient, dimension: int) -> PerClient:
    """Compute the leak of one published average about each client, in nats.

    It is (d/2) ln(1 + p_k² C_k²/(d s²)), given all other clients, and ∞ at s = 0.

    Args:
        noise: Weights and noise of the round.
        max_param_norms: Clipping threshold C_k of each client, > 0.
        dimension: Number of parameters d.

    Source:
        PMIDP-FL, proof of Theorem 1.
    """
    with np.errstate(divide="ignore"):
        return _gaussian_leak(np.log(noise.weights * max_param_norms), np.log(noise.aggregate_std), dimension)


def server_leak(noise: AggregateNoise, max_param_norms: PerClient, dimension: int) -> PerClient:
    """Compute the leak of one upload about its client to whoever sees it, in nats.

    It is (d/2) ln(1 + C_k²/(d σ_k²)), and ∞ at σ_k = 0. A client that sends nothing reveals nothing.

    With noise at the clients this is about N times the leak to the average. The budgets do not bound it.

    Args:
        noise: Weights and noise of the round.
        max_param_norms: Clipping threshold C_k of each client, > 0.
        dimension: Number of parameters d.
    """
    with np.errstate(divide="ignore"):
        leak = _gaussian_leak(np.log(max_param_norms), np.log(noise.client_std), dimension)
    return leak if noise.present is None else np.where(noise.present, leak, 0.0)


def _gaussian_leak(log_norms: PerClient, log_std: PerClient | float, dimension: int) -> PerClient:
    """Compute the largest information about vectors of bounded norm behind Gaussian noise, in nats, from logarithms."""
    return 0.5 * dimension * np.logaddexp(0.0, 2 * (log_norms - log_std) - math.log(dimension))


def static_leak(mi_budget: float, dimension: int, rounds: int) -> float:
    """Compute the leak in nats of T rounds that send the same vector: (d/2) ln(1 + T·(e^{2ε/d} − 1)) ≤ T·ε.

    Repeated releases of one secret add precisions, so this is less than the sum. Only the sum covers a vector
    that changes.

    Args:
        mi_budget: Budget ε of one round in nats, > 0.
        dimension: Number of parameters d.
        rounds: T, number of rounds, >= 1.
    """
    signal = math.log(rounds) + float(log_expm1(np.array([2 * mi_budget / dimension]))[0])
    return 0.5 * dimension * float(np.logaddexp(0.0, signal))
