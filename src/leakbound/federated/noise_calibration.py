"""Noise that a mutual-information budget asks of federated averaging, and weights of the clients.

Budgets are in nats, σ is a standard deviation per coordinate, as in the paper. Everything is computed from
the logarithm of α_k = C_k/√(d·(e^{2ε_k/d} − 1)), the noise of an aggregate in which client k had weight 1: it
holds for 10⁸ parameters and budgets of 10⁻³ nats, and no product over clients is formed.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from leakbound.accounting.gaussian import log_expm1

PerClient = Float[np.ndarray, " clients"]
"""One number for each client."""
LEAST_PARAM_NORM = 1e-6
"""Floor of a clipping threshold that follows the norms: at 0 it would never grow again."""


@dataclass(frozen=True)
class AggregateNoise:
    """Noise of each client and of the server in one round, and weights of the average.

    Attributes:
        weights: Share p_k of each client; they sum to 1.
        client_std: Noise σ_k per coordinate that each client adds before its upload.
        server_std: Noise per coordinate that the server adds to the average.
    """

    weights: PerClient
    client_std: PerClient
    server_std: float

    @property
    def aggregate_std(self) -> float:
        """Noise per coordinate of what the server publishes, √(Σ p_k² σ_k² + σ_s²)."""
        stds = self.weights * self.client_std
        largest = float(stds.max()) or 1.0  # so that no square underflows
        return math.hypot(largest * float(np.linalg.norm(stds / largest)), self.server_std)


def log_noise_unit(max_param_norms: PerClient, mi_budgets: PerClient, dimension: int) -> PerClient:
    """Logarithm of α_k, the noise that lets ε_k nats pass of a vector of norm at most C_k.

    Solves (d/2) ln(1 + C²/(d α²)) = ε, the largest information that any distribution of the vector can send
    through noise of that strength. For d ≫ ε, α ≈ C/√(2ε).

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
    """Noise that the server adds so that the average reveals at most ε_k about each client, σ_s = max_k p_k α_k.

    Args:
        max_param_norms: Clipping threshold C_k of each client, > 0.
        mi_budgets: Budget ε_k of each client in nats for one round.
        dimension: Number of parameters d.
        weights: Shares p_k that sum to 1; equal ones if not given.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        PMIDP-FL, Theorem 1 (one C and ε for all), and (5.22). Sufficient, and in low dimension more than necessary:
        the distribution that attains the bound does not respect the threshold.
    """
    shares, log_needed = _needed(max_param_norms, mi_budgets, dimension, weights)
    return AggregateNoise(shares, np.zeros(len(shares)), math.exp(log_needed))


def client_noise(
    max_param_norms: PerClient, mi_budgets: PerClient, dimension: int, weights: PerClient | None = None
) -> AggregateNoise:
    """Equal noise that every client adds so that the average reveals at most ε_k about each, σ_c = max_k p_k α_k / ‖p‖.

    The average has the same distribution as under :func:`server_noise` (Theorem 2). The bound is about the
    average: an upload reveals far more (:func:`leakbound.federated.server_leak`).

    Args:
        max_param_norms: Clipping threshold C_k of each client, > 0.
        mi_budgets: Budget ε_k of each client in nats for one round, > 0.
        dimension: Number of parameters d.
        weights: Shares p_k that sum to 1; equal ones if not given.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        PMIDP-FL, Corollary 1 (one C and ε for all), and (5.21), the baseline of PMIDP-FL.
    """
    shares, log_needed = _needed(max_param_norms, mi_budgets, dimension, weights)
    std = math.exp(log_needed - math.log(np.linalg.norm(shares)))
    return AggregateNoise(shares, np.full(len(shares), std), 0.0)


def personalized_noise(max_param_norms: PerClient, mi_budgets: PerClient, dimension: int) -> AggregateNoise:
    """Noise σ_k = α_k/√N and weights p_k ∝ 1/σ_k, under which every client's budget is met with equality.

    Of all weights and noises that meet the budgets these give the average the least noise, a variance of 1/(Σ
    1/α_k)². Weights are a softmax of −ln α, in time N. The paper's products take N² and leave the range of
    floats. They depend on budgets and thresholds, not on how many records a client has: the average leans
    towards clients with loose budgets.

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


def no_noise(n_clients: int) -> AggregateNoise:
    """Equal weights and no noise: plain federated averaging."""
    return AggregateNoise(np.full(n_clients, 1 / n_clients), np.zeros(n_clients), 0.0)


def next_max_param_norms(max_param_norms: PerClient, norms: PerClient, rate: float) -> PerClient:
    """Clipping thresholds of the next round, an exponential moving average of the norms.

    Args:
        max_param_norms: Thresholds C_k of this round.
        norms: Norms *before* clipping; with those after it, as the paper may be read, a threshold could never
            grow.
        rate: η_c in [0, 1). 0 keeps the thresholds.

    Returns:
        New thresholds, at least ``LEAST_PARAM_NORM``. They are functions of the private history, and σ_k,
        which is sent in clear, reveals them: the budgets do not cover that.

    Source:
        PMIDP-FL, (5.18).
    """
    return np.maximum((1 - rate) * max_param_norms + rate * norms, LEAST_PARAM_NORM)


def draw_budgets(
    n_clients: int, mean: float, spread: float, least: float, generator: np.random.Generator
) -> PerClient:
    """Budgets ε_k ~ N(mean, spread²), those below ``least`` set to ``least``.

    Args:
        n_clients: Number of clients.
        mean: μ_ε in nats.
        spread: σ_ε in nats, a standard deviation (the paper's text calls it a variance).
        least: Smallest budget, > 0.
        generator: Draws them.

    Source:
        PMIDP-FL, Sec. VI.B, which sets the least budget to 1.
    """
    return np.maximum(mean + spread * generator.standard_normal(n_clients), least)


def _needed(
    max_param_norms: PerClient, mi_budgets: PerClient, dimension: int, weights: PerClient | None
) -> tuple[PerClient, float]:
    """Checked weights, or equal ones, and the logarithm of the least noise of their average, max_k p_k α_k."""
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
