"""Published formulas that no command needs, to compare the library with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np
from jaxtyping import Float
from scipy import linalg
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtri

from leakbound.accounting.gaussian import check_covariance, gaussian_capacity, log_determinant, log_expm1
from leakbound.channels import Moments
from leakbound.channels.calibration import AIM, representable
from leakbound.channels.printed_bound import printed_scale
from leakbound.consensus.graphs import graph_from_edges
from leakbound.consensus.schemes import check_decay
from leakbound.federated import AggregateNoise
from leakbound.theory import Exchangeable, Release, conditional_variances
from leakbound.theory.budget import BIT


def white_scale(dimension: int, capacity: float) -> float:
    """Scale of white noise for a covariance of full rank in closed form, 1 / (e^{2κ/d} − 1)."""
    if dimension < 1 or not 0 < capacity < math.inf:
        raise ValueError(f"dimension = {dimension} must be >= 1 and capacity = {capacity} positive and finite")
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


def reported_mean_error(noise_variances: np.ndarray, delta: float, *, as_printed: bool = False) -> float:
    """Distance |x̂ − x̄| that is exceeded with probability δ.

    z_{1−δ/2} √(Σ σ_ij²) / Σ m_i, exact since the noise is Gaussian.

    Args:
        noise_variances: σ_ij² of all contributors.
        delta: δ, in (0, 1).
        as_printed: The larger value √(Σ σ_ij² / δ) / Σ m_i, from Chebyshev's inequality.

    Raises:
        ValueError: If δ is outside (0, 1).

    Source:
        Wang et al. 2020, Lemma 2.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta = {delta}: a probability inside (0, 1) is needed")
    quantile = 1.0 / math.sqrt(delta) if as_printed else -float(ndtri(delta / 2.0))
    return quantile * math.sqrt(float(noise_variances.sum())) / len(noise_variances)


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

    Raises:
        ValueError: If the decay is outside (0, 1).
    """
    if decay is not None:
        check_decay(decay)
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
    """Undirected graph of a symmetric matrix with an edge wherever an entry off the diagonal is not 0.

    Raises:
        ValueError: If the matrix is not symmetric.
    """
    if not np.array_equal(adjacency, adjacency.T):
        raise ValueError("adjacency: is not symmetric; averaging needs undirected edges")
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


def dp_noise_multiplier(
    capacity: float, batch_size: int, parameters: int | None = None, *, as_printed: bool = False
) -> float:
    """Noise multiplier at which ``accounting.dp_capacity``, with the same arguments, is ``capacity`` nats per step."""
    if parameters is not None:
        return math.sqrt(batch_size / (parameters * math.expm1(2.0 * capacity / parameters)))
    return math.sqrt((1.0 if as_printed else 0.5) * batch_size / capacity)


def dp_capacity_from_epsilon(epsilon: float, delta: float, batch_size: int, *, as_printed: bool = False) -> float:
    """Most that one step of the classical Gaussian mechanism at (ε, δ) reveals: B ε² / (4 ln(1.25/δ)).

    Source:
        Tan et al. 2024, Theorem 4 (2), which is stated for (ε, δ)-DP, with its factor ½ restored.
    """
    if not 0 < epsilon <= 1:
        raise ValueError(
            f"epsilon = {epsilon}: the classical mechanism is calibrated for one step with 0 < epsilon <= 1"
        )
    return batch_size * epsilon**2 / ((2.0 if as_printed else 4.0) * math.log(1.25 / delta))


def dequantized_error_bound(records: int, dimension: int, information: float, spacing: float) -> float:
    """Squared error per dimension that no attacker can beat on N distinct images of pixel spacing Δ.

    Δ²/(2πe) · e^{2(ln N − I)/d}: spread uniformly over their pixel's step, the images have entropy ln N + d ln Δ. Valid
    and tiny, about 0.06 Δ².
    """
    return spacing**2 / (2.0 * math.pi * math.e) * math.exp(2.0 * (math.log(records) - information) / dimension)


def batch_capacity(eigenvalues: Float[np.ndarray, " d"], noise_variance: float, batch_size: int) -> float:
    """Capacity of the mean of B records under noise of constant variance, ½ Σ ln(1 + λ_i/(Bσ)).

    It falls with B, whereas DP noise is divided by B and its capacity rises.
    """
    return gaussian_capacity(eigenvalues, batch_size * noise_variance)


def dropped_coordinate_capacity(
    covariance: Float[np.ndarray, "d d"], dropped: Sequence[int], noise_variance: float
) -> float:
    """Nats that compression by dropping coordinates takes from the channel σI, ΔC = C(Σ) − C(Σ_kept) >= 0.

    ½ [ln det(Q + σI − Rᵀ(P + σI)⁻¹R) − q ln σ] with P the kept and Q the dropped block, of q coordinates.
    """
    kept = sorted(set(range(len(covariance))) - set(dropped))
    # Measured in noise variances, so that ln σ need not be subtracted.
    observed = covariance / noise_variance + np.eye(len(covariance))
    return 0.5 * log_determinant(conditional_covariance(observed, kept))


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

    Raises:
        ValueError: If Σ is no covariance, or the known block is singular.
    """
    check_covariance(covariance)
    observed = list(given)
    rest = [index for index in range(len(covariance)) if index not in observed]
    cross = covariance[np.ix_(rest, observed)]
    try:
        factor = linalg.cho_factor(covariance[np.ix_(observed, observed)])
    except linalg.LinAlgError as error:
        raise ValueError("the known coordinates have a singular covariance; drop the redundant ones") from error
    result = covariance[np.ix_(rest, rest)] - cross @ linalg.cho_solve(factor, cross.T)
    return 0.5 * (result + result.T)


def posterior(
    observation: Float[np.ndarray, " d"],
    candidates: Float[np.ndarray, "m d"],
    noise_covariance: float | Float[np.ndarray, " d"] | Float[np.ndarray, "d d"],
) -> Float[np.ndarray, " m"]:
    """Probability of each candidate given one noisy observation of an equally likely one of them.

    w_j ∝ exp(−½ (y − x_j)ᵀ Σ_ξ⁻¹ (y − x_j)). The least-squares estimate is ``w @ candidates``.

    Args:
        observation: y; for k looks their mean.
        candidates: x_1..x_M.
        noise_covariance: Σ_ξ as a variance, as a diagonal, or in full; positive definite; for k looks divided
            by k.

    Returns:
        w, probabilities that sum to 1.

    Raises:
        ValueError: If Σ_ξ is not positive definite and finite.
    """
    offsets = observation - candidates
    noise = np.asarray(noise_covariance, dtype=np.float64)
    if noise.ndim < 2:
        if not np.all((noise > 0) & np.isfinite(noise)):
            raise ValueError("noise_covariance: every variance must be positive and finite")
        whitened = offsets / np.sqrt(noise)
    else:
        check_covariance(noise, "noise_covariance")
        try:
            factor = linalg.cholesky(noise, lower=True)
        except linalg.LinAlgError as error:
            raise ValueError("noise_covariance: it is not positive definite") from error
        whitened = linalg.solve_triangular(factor, offsets.T, lower=True).T
    scores = -0.5 * (whitened**2).sum(axis=1)
    return np.exp(scores - logsumexp(scores))


def budget_per_round(total: float, rounds: int, dimension: int | None = None) -> float:
    """Budget ε of each round so that all T together reveal at most ``total`` nats.

    Args:
        total: Nats over all rounds, > 0.
        rounds: T.
        dimension: If given, the secret is taken to be the same vector in each round: ``federated.static_leak`` is
            inverted. Without it the budget is total/T, which always holds.
    """
    if dimension is None:
        return total / rounds
    signal = float(log_expm1(np.array([2 * total / dimension]))[0]) - math.log(rounds)
    return 0.5 * dimension * float(np.logaddexp(0.0, signal))


def distances(moments: Moments, records: np.ndarray) -> Float[np.ndarray, " n"]:
    """Squared Mahalanobis distances, where what lies outside the directions of the data counts very much.

    The records that a covariance comes from lie in its directions, and are nearer to their mean than others.
    """
    variances, basis = linalg.eigh(moments.covariance, driver="evd")
    along = (records.reshape(len(records), -1).astype(np.float64) - moments.mean) @ basis
    return (along**2 / variances.clip(min=1e-9 * variances.max())).sum(axis=1)


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
