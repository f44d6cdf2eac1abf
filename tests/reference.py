"""The library's answer to each topic of ``tests/data/reference_values.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from opacus.accountants.analysis.rdp import compute_rdp

from leakbound import accounting
from leakbound.channels import Moments, Personalized, PersonalizedPrinted
from leakbound.channels.calibration import (
    least_power_level,
    least_power_variances,
    noise_scale,
    water_filling,
    white_scale,
)
from leakbound.channels.printed_bound import printed_scale
from leakbound.gaussian import gaussian_capacity, linear_mmse

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
        "recon_bound_gaussian_surrogate": accounting.gaussian_surrogate_error(eigenvalues, capacity),
        "rd_theta": filling.level,
        "rd_distortion_total": filling.distortion,
        "rd_active": filling.active,
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
        "sigma_elementwise_min_bound": printed_scale(printed.bound, capacity, per_index=True),
        "leakage_at_paper_sigma": gaussian_capacity(exact.eigenvalues, printed_sigma),
    }


def _dp(inputs: Values) -> dict[str, Any]:
    multiplier, batch_size = inputs["multiplier"], inputs["B"]
    return {
        "capacity_corrected": accounting.dp_capacity(multiplier, batch_size),
        "capacity_printed": accounting.dp_capacity(multiplier, batch_size, as_printed=True),
        "capacity_finite_d": accounting.dp_capacity(multiplier, batch_size, inputs["d"]),
    }


def _rdp(inputs: Values) -> dict[str, Any]:
    setting = {"noise_multiplier": inputs["multiplier"], "steps": inputs["steps"]}
    return {
        "epsilon": accounting.poisson_epsilon(
            sample_rate=inputs["q"], delta=inputs["delta"], orders=np.arange(2.0, 257.0).tolist(), **setting
        ),
        "rdp_order_8": compute_rdp(q=inputs["q"], noise_multiplier=inputs["multiplier"], steps=1, orders=8.0),
    }


def _compression(inputs: Values) -> dict[str, Any]:
    covariance = np.array(inputs["Sigma"])
    return {"delta_C": accounting.dropped_coordinate_capacity(covariance, inputs["dropped"], inputs["sigma"])}


def _batch(inputs: Values) -> dict[str, Any]:
    return {"C_B": accounting.batch_capacity(np.array(inputs["eigenvalues"]), inputs["sigma"], inputs["B"])}


def _empirical_posterior(inputs: Values) -> dict[str, Any]:
    candidates = np.array(inputs["candidates"])
    noise = inputs["noise_cov"]
    weights = accounting.posterior(
        np.array(inputs["observation"]), candidates, noise if isinstance(noise, float) else np.array(noise)
    )
    return {"posterior_mean": weights @ candidates, "weights": weights}


def _fano(inputs: Values) -> dict[str, Any]:
    return {"min_error_probability": accounting.fano_error(inputs["I_nats"], inputs["M"])}


TOPICS: dict[str, Callable[[Values], dict[str, Any]]] = {
    "A.channels": _channels,
    "A.white": _white,
    "A.personalised": _personalised,
    "A.dp": _dp,
    "A.rdp": _rdp,
    "A.compression": _compression,
    "A.batch": _batch,
    "A.empirical_posterior": _empirical_posterior,
    "A.fano": _fano,
}


def evaluate(topic: str, inputs: Values) -> dict[str, Any]:
    """What the library computes for one reference case, under the names of its expected values."""
    return TOPICS[topic](inputs)
