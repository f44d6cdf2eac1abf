"""The library's answer to each topic of ``tests/data/reference_values.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from opacus.accountants.analysis.rdp import compute_rdp
from scipy import linalg

import formulas
from formulas import contraction, convergence_rate, graph_from_adjacency, per_index_scale, threshold_bits, white_scale
from leakbound.accounting import dp, reconstruction
from leakbound.accounting.gaussian import gaussian_capacity, linear_mmse
from leakbound.channels import Moments, Personalized, PersonalizedPrinted
from leakbound.channels.calibration import least_power_level, least_power_variances, noise_scale, water_filling
from leakbound_lab.papers.pmidp.noise_calibration import (
    aggregate_leak,
    client_noise,
    log_noise_unit,
    next_max_param_norms,
    personalized_noise,
    server_leak,
    server_noise,
    static_leak,
)
from leakbound_lab.papers.wang2020.privacy import Secret, masked_level, zero_sum_level
from leakbound_lab.papers.wang2020.protocol import metropolis_weights
from leakbound_lab.papers.zeng2022 import cases, general
from leakbound_lab.papers.zeng2022.releases import Exchangeable, Release

Values = Mapping[str, Any]


def _eigenvalues(inputs: Values) -> np.ndarray:
    if "eigenvalues" in inputs:
        return np.array(inputs["eigenvalues"])
    law = inputs["power_law"]
    return law["scale"] * np.arange(1.0, law["d"] + 1) ** -law["exponent"]


def _channels(inputs: Values) -> dict[str, Any]:
    eigenvalues, capacity = _eigenvalues(inputs), float(inputs["kappa_nats"])
    dimension = len(eigenvalues)
    natural = noise_scale(eigenvalues, capacity)
    level = least_power_level(eigenvalues, capacity)
    least = least_power_variances(eigenvalues, level)
    scale = white_scale(dimension, capacity)
    filling = water_filling(eigenvalues, capacity)
    return {
        "sigma_natural": natural,
        "joint_leakage_k10_natural": gaussian_capacity(eigenvalues, natural, 10.0),
        "sigma_natural_budget_over_k10": noise_scale(eigenvalues, capacity, 10.0),
        "lmmse_total_natural": linear_mmse(eigenvalues, natural),
        "minpower_nu": level,
        "minpower_trace": least.sum(),
        "minpower_sigma_first3": least[:3],
        "lmmse_total_minpower": linear_mmse(eigenvalues, least),
        "white_scale": scale,
        "white_trace": scale * eigenvalues.sum(),
        "lmmse_total_white": linear_mmse(eigenvalues, scale * eigenvalues),
        "recon_bound_gaussian_surrogate": reconstruction.gaussian_surrogate_error(eigenvalues, capacity),
        "rd_theta": filling.level,
        "rd_distortion_total": filling.distortion,
        "rd_active": np.count_nonzero(filling.gain),
        "rd_gain_first3": filling.gain[:3],
        "rd_noise_var_first3": filling.variances[:3],
    }


def _white(inputs: Values) -> dict[str, Any]:
    scale = white_scale(inputs["d"], float(inputs["kappa_nats"]))
    flat = np.ones(inputs["d"])
    return {"scale": scale, "joint_k": {uses: gaussian_capacity(flat, scale, float(uses)) for uses in ("2", "12.8")}}


def _personalised(inputs: Values) -> dict[str, Any]:
    covariance, weights, capacity = np.array(inputs["Sigma"]), np.array(inputs["beta"]), float(inputs["kappa_nats"])
    moments = Moments(np.zeros(len(weights)), covariance, 1)
    exact = Personalized.decompose(moments, weights=weights)
    printed = PersonalizedPrinted.decompose(moments, weights=weights)
    printed_sigma = float(PersonalizedPrinted.calibrate(printed, capacity).variances[0] / weights[0])
    return {
        "sigma_exact": Personalized.calibrate(exact, capacity).variances[0] / weights[0],
        "generalised_eigenvalues_ascending": exact.eigenvalues[::-1],
        "u": printed.bound["innovations"],
        "k": printed.bound["predictors"],
        "sigma_paper_bound": printed_sigma,
        "sigma_elementwise_min_bound": per_index_scale(printed.bound, capacity),
        "leakage_at_paper_sigma": gaussian_capacity(exact.eigenvalues, printed_sigma),
    }


def _dp(inputs: Values) -> dict[str, Any]:
    multiplier, batch_size = inputs["multiplier"], inputs["B"]
    return {
        "capacity_corrected": dp.dp_capacity(multiplier, batch_size),
        "capacity_printed": dp.dp_capacity(multiplier, batch_size, as_printed=True),
        "capacity_finite_d": dp.dp_capacity(multiplier, batch_size, inputs["d"]),
    }


def _rdp(inputs: Values) -> dict[str, Any]:
    setting = {"noise_multiplier": inputs["multiplier"], "steps": inputs["steps"]}
    return {
        "epsilon": dp.poisson_epsilon(
            sample_rate=inputs["q"], delta=inputs["delta"], orders=np.arange(2.0, 257.0).tolist(), **setting
        ),
        "rdp_order_8": compute_rdp(q=inputs["q"], noise_multiplier=inputs["multiplier"], steps=1, orders=8.0),
    }


def _batch(inputs: Values) -> dict[str, Any]:
    return {"C_B": gaussian_capacity(np.array(inputs["eigenvalues"]), inputs["B"] * inputs["sigma"])}


def _fano(inputs: Values) -> dict[str, Any]:
    return {"min_error_probability": reconstruction.fano_error(inputs["I_nats"], inputs["M"])}


def _metropolis(inputs: Values) -> dict[str, Any]:
    weights = metropolis_weights(graph_from_adjacency(np.array(inputs["adjacency"], dtype=float)))
    return {"W": weights, "second_largest_abs_eigenvalue": convergence_rate(weights), "chi": contraction(weights)}


def observed_level(
    weights: np.ndarray,
    state_variances: np.ndarray,
    noise_variances: np.ndarray,
    decay: float,
    time: int,
    server: int,
    shift: float,
) -> float:
    """Level of scheme 2 from the covariance of all messages of all servers, without any reasoning about looks.

    Args:
        weights: (n, n) W.
        state_variances: (n,) v of every server.
        noise_variances: (n,) σ_i² of every server.
        decay: ρ, in (0, 1).
        time: s, steps after T₀ whose messages are seen, >= 0; the covariance has n(s + 1) rows.
        server: i, the contributor's own.
        shift: Δ = c α.
    """
    servers = len(weights)
    # Every message is a linear function of y(0) and φ(0), …, φ(s); its coefficients take the same steps as the states.
    coefficients = np.zeros((servers, servers * (time + 2)))
    coefficients[:, :servers] = np.eye(servers)
    messages = []
    for step in range(time + 1):
        sent = coefficients.copy()
        sent[:, servers * (step + 1) : servers * (step + 2)] += np.eye(servers)
        if step:
            sent[:, servers * step : servers * (step + 1)] -= np.eye(servers)
        messages.append(sent)
        coefficients = weights @ sent
    seen = np.concatenate(messages)
    variances = np.concatenate([state_variances, *(noise_variances * decay**step for step in range(time + 1))])
    moved = shift * seen[:, server]
    return 0.5 * float(moved @ linalg.cho_solve(linalg.cho_factor((seen * variances) @ seen.T), moved))


def _kldp(inputs: Values) -> dict[str, Any]:
    weights = metropolis_weights(graph_from_adjacency(np.array(inputs["adjacency"], dtype=float)))
    counts, variances = np.array(inputs["m"]), np.array(inputs["ds_noise_variance"])
    server, decay, times = inputs["server"], inputs["rho"], inputs["steps_after_T0"]
    scale = len(counts) / counts.sum()
    states = scale**2 * inputs["dc_noise_variance"] * counts
    secret = Secret(scale * inputs["alpha"], states[server])
    own = variances[server]
    return {
        "step1": Secret(inputs["alpha"], inputs["dc_noise_variance"]).limit,
        "scheme1": secret.level(own),
        "scheme2_printed": [zero_sum_level(secret, own, decay, time, as_printed=True) for time in times],
        "scheme2_joint": [zero_sum_level(secret, own, decay, time) for time in times],
        "scheme2_joint_bruteforce": [
            observed_level(weights, states, variances, decay, time, server, secret.shift) for time in times
        ],
        "limit": secret.limit,
    }


def _pairwise_masks(inputs: Values) -> dict[str, Any]:
    graph = graph_from_adjacency(np.array(inputs["adjacency"], dtype=float))
    secret = Secret(inputs["state_shift"], inputs["initial_state_variance"])
    return {
        "kldp": masked_level(secret, graph, inputs["mask_variance"], inputs["server"]),
        "floor": secret.limit / len(graph),
    }


def _independent_clients(inputs: Values) -> dict[str, Any]:
    variances, budget = np.array(inputs["variances"]), float(inputs["epsilon_bits"])
    return {
        "sigma2": cases.common_noise_variance(variances, budget),
        "U_bits": cases.common_noise_utility_bits(variances, budget),
    }


def _exchangeable(inputs: Values, variance: str, covariance: str) -> Exchangeable:
    return Exchangeable(float(inputs[variance]), float(inputs[covariance]), inputs["n"])


def _exchangeable_clients(inputs: Values) -> dict[str, Any]:
    signal, budget = _exchangeable(inputs, "sigma_m2", "sigma_k2"), float(inputs["epsilon_bits"])
    independent = cases.independent_noise(signal, budget)
    optimum = cases.optimal_exchangeable_noise(signal, budget)
    return {
        "conditional_variance": signal.conditional_variance,
        "case2_sigma2": independent.variance,
        "case2_U_bits": Release(signal, independent).utility_bits,
        "case2_printed_sigma2_WRONG": cases.independent_noise(signal, budget, as_printed=True).variance,
        "case3_sigma2": np.inf if optimum.noise is None else optimum.noise.variance,
        "case3_sigma_e2": None if optimum.noise is None else optimum.noise.covariance,
        "case3_U_bits": optimum.utility_bits,
        "dtc_per_client_bits": signal.dual_total_correlation_bits / signal.n_clients,
        "unconditional_leak_case2_bits": Release(signal, independent).unconditional_leak_bits,
        "threshold_epsilon_bits": threshold_bits(signal),
    }


def _exchangeable_release(inputs: Values) -> dict[str, Any]:
    signal, noise = _exchangeable(inputs, "sigma_m2", "sigma_k2"), _exchangeable(inputs, "sigma2", "sigma_e2")
    return {"privacy_bits": Release(signal, noise).privacy_bits, "utility_bits": Release(signal, noise).utility_bits}


def _general_release(inputs: Values) -> dict[str, Any]:
    problem = general.Problem(np.array(inputs["Sigma_X"]), np.array(inputs["epsilon_bits"]))
    closed = general.closed_form_precision(problem)
    return {
        "U_bits": general.optimal_release(problem).utility_bits,
        "closed_form_valid": closed is not None,
        "dtc_bits": general.dual_total_correlation_bits(problem.signal),
        "cap_bits": general.utility_cap_bits(problem),
        "noise_covariance": None if closed is None else np.linalg.inv(closed),
    }


def _pmidp(inputs: Values) -> dict[str, Any]:
    norms, budgets, dimension = np.array(inputs["C"]), np.array(inputs["epsilon_nats"]), inputs["d"]
    weights, count = np.array(inputs["weights_for_thm1_cor1"]), len(norms)
    personal = personalized_noise(norms, budgets, dimension)
    baseline = client_noise(norms, budgets, dimension)
    first = (np.full(count, norms[0]), np.full(count, budgets[0]), dimension, weights)
    return {
        "alpha": np.exp(log_noise_unit(norms, budgets, dimension)),
        "pmidp_sigma": personal.client_std,
        "pmidp_weights": personal.weights,
        "pmidp_utility": formulas.utility(personal, dimension),
        "baseline_sigma_client": baseline.client_std[0],
        "baseline_sigma_server": server_noise(norms, budgets, dimension).server_std,
        "baseline_utility": formulas.utility(baseline, dimension),
        "leak_each_client": aggregate_leak(personal, norms, dimension),
        "server_view_leak_client0": server_leak(personal, norms, dimension)[0],
        "cor1_sigma_client_C0_eps0": client_noise(*first).client_std[0],
        "thm1_sigma_server_C0_eps0": server_noise(*first).server_std,
    }


def _composition(inputs: Values) -> dict[str, Any]:
    budget, rounds = float(inputs["epsilon"]), inputs["T"]
    return {"linear": rounds * budget, "static_secret": static_leak(budget, inputs["d"], rounds)}


def _clip(inputs: Values) -> dict[str, Any]:
    before, after = [inputs["C0"]], [inputs["C0"]]
    for norm in inputs["preclip_norms"]:
        clipped = min(norm, after[-1])
        for thresholds, seen in ((before, norm), (after, clipped)):
            following = next_max_param_norms(np.array([thresholds[-1]]), np.array([seen]), inputs["eta"])
            thresholds.append(float(following[0]))
    return {"C_using_preclip_norm": before, "C_using_clipped_norm_RATCHETS_DOWN": after}


TOPICS: dict[str, Callable[[Values], dict[str, Any]]] = {
    "A.channels": _channels,
    "A.white": _white,
    "A.personalised": _personalised,
    "A.dp": _dp,
    "A.rdp": _rdp,
    "A.batch": _batch,
    "A.fano": _fano,
    "C.pmidp": _pmidp,
    "C.composition": _composition,
    "C.clip": _clip,
    "B.case1": _independent_clients,
    "B.case2_case3": _exchangeable_clients,
    "B.evaluate": _exchangeable_release,
    "B.general": _general_release,
    "D.metropolis": _metropolis,
    "D.kldp": _kldp,
    "D.pairwise_masks": _pairwise_masks,
}


def evaluate(topic: str, inputs: Values) -> dict[str, Any]:
    """What the library computes for one reference case, under the names of its expected values."""
    return TOPICS[topic](inputs)
