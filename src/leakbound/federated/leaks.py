"""Leaks of federated averaging about a client: to those who see the average, and to the server.

All leaks are in nats and bound the mutual information over every distribution of the clipped parameters.
Rounds compose by the chain rule, which also holds if a client trains on earlier averages: T rounds reveal at
most the sum of their leaks. The paper bounds one round alone.
"""

import math

import numpy as np

from leakbound.accounting.gaussian import log_expm1
from leakbound.federated.noise_calibration import AggregateNoise, PerClient


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
    return _gaussian_leak(
        noise.weights * max_param_norms, np.full(len(noise.weights), noise.aggregate_std), dimension
    )


def server_leak(noise: AggregateNoise, max_param_norms: PerClient, dimension: int) -> PerClient:
    """Compute the leak of one upload about its client to whoever sees it, in nats.

    It is (d/2) ln(1 + C_k²/(d σ_k²)), and ∞ at σ_k = 0.

    With noise at the clients this is about N times the leak to the average. The budgets do not bound it.

    Args:
        noise: Weights and noise of the round.
        max_param_norms: Clipping threshold C_k of each client, > 0.
        dimension: Number of parameters d.
    """
    return _gaussian_leak(max_param_norms, noise.client_std, dimension)


def _gaussian_leak(norms: PerClient, std: PerClient, dimension: int) -> PerClient:
    """Compute the largest information about vectors of bounded norm behind Gaussian noise, in nats."""
    with np.errstate(divide="ignore"):
        return 0.5 * dimension * np.logaddexp(0.0, 2 * (np.log(norms) - np.log(std)) - math.log(dimension))


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
