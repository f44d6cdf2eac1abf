"""Rows of the general problem: any covariance, a budget for each client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.config.theory import GeneralCase
from leakbound.randomness.seeding import numpy_generator
from leakbound.theory.convex import optimal_release
from leakbound.theory.correlated import optimal_exchangeable_noise
from leakbound.theory.exchangeable import Exchangeable
from leakbound.theory.general import (
    Problem,
    closed_form_precision,
    independent_noise_variances,
    release_utility_bits,
    utility_cap_bits,
)
from leakbound.theory.shared_noise import best_exchangeable_precision

Rows = list[dict[str, Any]]


def general_rows(settings: GeneralCase, seed: int) -> Rows:
    """Utility of the optimum and of simpler noise, with the cap of all mechanisms, for two kinds of parameters.

    ``exchangeable`` parameters have unit variances, equal covariances and one budget, so that the closed form of case
    3 is the answer; ``drawn`` ones depend on common factors by drawn loadings and have drawn budgets.

    Args:
        settings: Clients, factors, budgets, draws.
        seed: Of the configuration.

    Returns:
        Rows with ``parameters``, ``replica``, ``mi_budget`` (the mean of the budgets), ``variant``, ``metric`` and
        ``value``: ``utility`` of each variant and its ``share`` of the cap, and the ``released`` directions of the
        optimum.
    """
    alike = Exchangeable(1.0, settings.common, settings.n_clients)
    rows: Rows = []
    for budget in settings.mi_budgets:
        where = {"parameters": "exchangeable", "replica": 0, "mi_budget": budget}
        rows += _solved(where, Problem(alike.matrix(), np.full(settings.n_clients, budget)))
        closed = {"utility": optimal_exchangeable_noise(alike, budget).utility_bits}
        rows += _metrics(where, "exchangeable_closed_form", closed)
    for replica in range(settings.draws):
        signal, shares = _drawn(settings, seed, replica)
        for budget in settings.mi_budgets:
            where = {"parameters": "drawn", "replica": replica, "mi_budget": budget}
            rows += _solved(where, Problem(signal, budget * shares))
    return rows


def _drawn(settings: GeneralCase, seed: int, replica: int) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, " n"]]:
    """A covariance of unit variances, and budgets in units of their mean."""
    generator = numpy_generator(seed, "theory", "general", replica)
    loadings = generator.normal(size=(settings.n_clients, settings.factors))
    loadings *= np.sqrt(settings.common / (loadings**2).sum(axis=1, keepdims=True))
    signal = loadings @ loadings.T
    np.fill_diagonal(signal, 1.0)
    shares = 1.0 + settings.spread * generator.uniform(-1.0, 1.0, size=settings.n_clients)
    return signal, shares / shares.mean()


def _solved(where: Mapping[str, Any], problem: Problem) -> Rows:
    """Rows of one problem."""
    optimum = optimal_release(problem)
    independent = np.diag(1.0 / independent_noise_variances(problem))
    closed = closed_form_precision(problem)
    utilities = {
        "cap": utility_cap_bits(problem),
        "bound": optimum.bound_bits,
        "optimum": optimum.utility_bits,
        "independent": release_utility_bits(problem.signal, independent),
        "exchangeable": release_utility_bits(problem.signal, best_exchangeable_precision(problem)),
    }
    if closed is not None:
        utilities["closed_form"] = release_utility_bits(problem.signal, closed)
    rows: Rows = []
    for variant, utility in utilities.items():
        rows += _metrics(where, variant, {"utility": utility, "share": utility / utilities["cap"]})
    return rows + _metrics(where, "optimum", {"released": float(optimum.released)})


def _metrics(where: Mapping[str, Any], variant: str, values: Mapping[str, float]) -> Rows:
    """One row for each metric of one variant."""
    return [{**where, "variant": variant, "metric": metric, "value": value} for metric, value in values.items()]
