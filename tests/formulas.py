"""Published formulas that no command needs, to compare the library with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np
from jaxtyping import Float
from scipy import linalg
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp

from leakbound.accounting.gaussian import log_determinant, log_expm1
from leakbound.channels import Moments
from leakbound.channels.calibration import AIM, representable
from leakbound.channels.shapes import printed_scale
from leakbound_lab.papers.pmidp.noise_calibration import AggregateNoise
from leakbound_lab.papers.wang2020.protocol import graph_from_edges
from leakbound_lab.papers.zeng2022.general import conditional_variances
from leakbound_lab.papers.zeng2022.releases import BIT, Exchangeable, Release


def white_scale(dimension: int, capacity: float) -> float:
    """Scale of white noise for a covariance of full rank in closed form, 1 / (e^{2κ/d} − 1)."""
    return representable(-float(log_expm1(2.0 * capacity / dimension)), capacity)


def printed_capacity(bound: Mapping[str, np.ndarray], scale: float, *, per_index: bool = False) -> float:
    """Published upper bound U(σ) on the capacity of noise σ diag(β), in nats, with its misprinted quotient corrected.

    U = ½ {min[Σ ln(c_i + σβ_i), Σ ln(u_i + σk_i)] − Σ ln(σβ_i)}. With ``per_index`` the smaller of the two terms for
    every pixel, which is valid too and never larger.
    """
    marginal = np.log1p(bound["variances"] / (scale * bound["weights"]))
    predicted = np.log(bound["predictors"] / bound["weights"])
    predicted = predicted + np.log1p(bound["innovations"] / (scale * bound["predictors"]))
    return 0.5 * float(np.minimum(marginal, predicted).sum() if per_index else min(marginal.sum(), predicted.sum()))


def per_index_scale(bound: Mapping[str, np.ndarray], capacity: float) -> float:
    """Smallest σ at which the tighter of the published bounds, that for every pixel, is at most κ."""

    def excess(log_scale: float) -> float:
        reached = printed_capacity(bound, math.exp(log_scale), per_index=True)
        return math.log(reached) - math.log(capacity * AIM)

    upper = printed_scale(bound, capacity)
    high = math.log(upper)
    if excess(high) >= 0:  # both bounds agree at the root
        return upper
    low, stride = high - 1.0, 1.0
    while excess(low) < 0:
        low, stride = low - stride, 2.0 * stride
    return math.exp(brentq(excess, low, high, xtol=1e-13, rtol=8.9e-16))


def kl_divergence(mean_p: np.ndarray, covariance_p: np.ndarray, mean_q: np.ndarray, covariance_q: np.ndarray) -> float:
    """KL divergence D(P ‖ Q) of two Gaussians, in nats: ½ [tr(Q⁻¹P) − d + Δᵀ Q⁻¹ Δ + ln det Q − ln det P]."""
    determinants = log_determinant(covariance_q) - log_determinant(covariance_p)
    factor = np.linalg.cholesky(covariance_q)
    spread = linalg.solve_triangular(factor, np.linalg.cholesky(covariance_p), lower=True)
    shift = linalg.solve_triangular(factor, mean_p - mean_q, lower=True)
    return 0.5 * float((spread**2).sum() - len(mean_p) + shift @ shift + determinants)


def expected_square(
    weights: np.ndarray, states: np.ndarray, variances: np.ndarray, decay: float | None, time: int
) -> float:
    """E‖y(s) − x̂ 1‖² over the noise of scheme 1, 2 or 3, in closed form.

    With P_k = Wᵏ and M_k = P_{s−k} − P_{s−k−1} for k < s − 1, M_{s−1} = W, schemes 2 and 3 have
    ‖P_s y(0) − x̂ 1‖² + Σ_{k<s} ρᵏ Σ_i σ_i² ‖column i of M_k‖²; scheme 1 has M_0 = P_s alone.

    Args:
        weights: W, symmetric and doubly stochastic.
        states: y(0).
        variances: (n,) variance of φ_i(0).
        decay: Factor of the variance in a step: ρ for scheme 2, ρ² for scheme 3, none for scheme 1.
        time: s, steps after T₀, >= 0.
    """
    powers = [np.eye(len(weights))]
    for _ in range(time):
        powers.append(weights @ powers[-1])
    bias = float(((powers[time] @ states - states.mean()) ** 2).sum())
    if time == 0:
        return bias
    if decay is None:
        return bias + float((powers[time] ** 2).sum(axis=0) @ variances)
    passed = [powers[time - k] - powers[time - k - 1] for k in range(time - 1)] + [weights]
    return bias + sum(decay**k * float((matrix**2).sum(axis=0) @ variances) for k, matrix in enumerate(passed))


def graph_from_adjacency(adjacency: Float[np.ndarray, "n n"]) -> nx.Graph:
    """Undirected graph of a symmetric matrix with an edge wherever an entry off the diagonal is not 0."""
    first, second = np.nonzero(np.triu(adjacency, 1))
    return graph_from_edges(len(adjacency), zip(first.tolist(), second.tolist(), strict=True))


def convergence_rate(weights: Float[np.ndarray, "n n"]) -> float:
    """|λ₂(W)|, the second largest absolute eigenvalue: the factor by which differences shrink in a step."""
    return float(np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2])


def contraction(weights: Float[np.ndarray, "n n"]) -> float:
    """χ = ½ max_ij Σ_l |w_il − w_jl|, which bounds how much of the spread of states one step leaves.

    Wang et al. state χ ∈ (0, 1) for Metropolis weights. It is 1 as soon as two servers have no closed neighbour in
    common, and 0 on a complete graph; that spreads vanish follows from |λ₂(W)| < 1 instead.

    Source:
        Wang et al. 2020, Lemma 6.
    """
    return 0.5 * float(np.abs(weights[:, None, :] - weights[None, :, :]).sum(axis=2).max())


def threshold_bits(signal: Exchangeable) -> float:
    """Budget above which the optimum of case 3 releases both modes, ½ log₂(v / min x)."""
    return 0.5 * math.log(signal.conditional_variance / min(signal.joint, signal.difference)) / BIT


def release_privacy_bits(
    signal: Float[np.ndarray, "n n"], precision: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, " n"]:
    """I(X_i; Y | X⁻ⁱ) of each client, ½ log₂(1 + v_i Q_ii), bits."""
    return 0.5 * np.log1p(conditional_variances(signal) * np.diag(precision)) / BIT


def printed_weights(noise_units: Float[np.ndarray, " clients"]) -> Float[np.ndarray, " clients"]:
    """Weights by the products of all other clients' α or σ, as printed: PMIDP-FL, (5.30) for α, (5.33) for σ.

    Products of α, as in Theorem 3, overflow, and those of σ = α/√N, as in Corollary 2, vanish, from a few hundred
    clients on. The weights are NaN then.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        products = np.array([np.prod(np.delete(noise_units, k)) for k in range(len(noise_units))])
        return products / products.sum()


def conditional_covariance(covariance: Float[np.ndarray, "d d"], given: Sequence[int]) -> Float[np.ndarray, "r r"]:
    """Covariance of a Gaussian vector's other coordinates once the ``given`` ones are known, Σ_aa − Σ_ab Σ_bb⁻¹ Σ_ba.

    Args:
        covariance: Σ of the whole vector, float64. The block of the given coordinates is positive definite.
        given: Indices of the known coordinates.

    Returns:
        Covariance of the rest, in increasing order of index.
    """
    observed = list(given)
    rest = [index for index in range(len(covariance)) if index not in observed]
    cross = covariance[np.ix_(rest, observed)]
    result = covariance[np.ix_(rest, rest)] - cross @ np.linalg.solve(covariance[np.ix_(observed, observed)], cross.T)
    return 0.5 * (result + result.T)


def posterior(
    observation: Float[np.ndarray, " d"],
    candidates: Float[np.ndarray, "m d"],
    noise_covariance: float | Float[np.ndarray, "d d"],
) -> Float[np.ndarray, " m"]:
    """Probability of each candidate given one noisy observation of an equally likely one of them.

    w_j ∝ exp(−½ (y − x_j)ᵀ Σ_ξ⁻¹ (y − x_j)). The least-squares estimate is ``w @ candidates``.

    Args:
        observation: y; for k looks their mean.
        candidates: x_1..x_M.
        noise_covariance: Σ_ξ as a variance or in full; positive definite; for k looks divided by k.

    Returns:
        w, probabilities that sum to 1.
    """
    offsets = observation - candidates
    noise = np.asarray(noise_covariance) if np.ndim(noise_covariance) else noise_covariance * np.eye(len(observation))
    scores = -0.5 * (offsets * np.linalg.solve(noise, offsets.T).T).sum(axis=1)
    return np.exp(scores - logsumexp(scores))


def distances(moments: Moments, records: np.ndarray) -> Float[np.ndarray, " n"]:
    """Squared Mahalanobis distances, where what lies outside the directions of the data counts very much.

    The records that a covariance comes from lie in its directions, and are nearer to their mean than others.
    """
    least = 1e-9 * np.trace(moments.covariance)  # of the variance outside: by a triangle, not by all eigenvectors
    root = linalg.cholesky(moments.covariance + least * np.eye(len(moments.mean)), lower=True)
    from_mean = records.reshape(len(records), -1).astype(np.float64) - moments.mean
    return (linalg.solve_triangular(root, from_mean.T, lower=True) ** 2).sum(axis=0)


def joint_bracket(release: Release) -> float:
    """|Cov(Yⁿ, X⁻ⁱ)| without its common factors, the numerator that Eq. (24) should have.

    [σ_m² + (n−2) σ_k²] z_a z_b + x_a x_b [σ² + (n−2) σ_e²] (theory B7), variances to the third power.
    """
    signal, noise, n = release.signal, release.noise, release.signal.n_clients
    conditioned = signal.variance + (n - 2) * signal.covariance
    other = noise.variance + (n - 2) * noise.covariance
    return conditioned * noise.joint * noise.difference + other * signal.joint * signal.difference


def utility(noise: AggregateNoise, dimension: int) -> float:
    """1 / E‖published average − exact average‖², the utility of PMIDP-FL, or inf without noise."""
    variance = dimension * noise.aggregate_std**2
    return math.inf if variance == 0 else 1 / variance


def bounded_ratios(
    shift: float, spread: float, bound: float, decay: float, time: int, generator: np.random.Generator, runs: int
) -> np.ndarray:
    """Simulate log-likelihood ratios of all messages of scheme 3, whose mean is the level: what bounded noise leaves.

    Args:
        shift: Δ, how far the state moves.
        spread: Standard deviation of the state.
        bound: a, half-width of the first noise.
        decay: ρ, factor of the half-width from one message to the next.
        time: s, messages after the first.
        generator: Draws states and noise.
        runs: Number of simulations.
    """
    state = spread * generator.standard_normal(runs)
    low, high = np.full(runs, -np.inf), np.full(runs, np.inf)
    for step in range(time + 1):
        width = bound * decay**step
        look = state + width * generator.uniform(-1, 1, runs)
        low, high = np.maximum(low, look - width), np.minimum(high, look + width)

    def log_likelihood(mean: float) -> np.ndarray:
        bottom, top = (low - mean) / spread, (high - mean) / spread
        bottom, top = np.where(bottom > 0, -top, bottom), np.where(bottom > 0, -bottom, top)
        return log_ndtr(top) + np.log1p(-np.exp(log_ndtr(bottom) - log_ndtr(top)))

    # The mean of both directions has far less spread than either: odd terms in the shift cancel.
    return log_likelihood(0.0) - 0.5 * (log_likelihood(shift) + log_likelihood(-shift))
