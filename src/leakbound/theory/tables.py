"""Rows of the figures of Zeng et al. 2022 and of what goes beyond them.

Every function returns a tidy table with the columns ``mi_budget`` (ε, bits), ``variant`` (which noise), ``metric`` and
``value``, and more where a part needs them. Metrics: ``utility`` and ``gain`` (utility minus budget), ``privacy``,
``excess`` (privacy minus budget) and ``unconditional_leak``, all in bits; ``noise_variance``, ``noise_covariance``.
``method`` says how a value was found: ``closed_form``, ``determinants`` or ``search``; ``budget`` is the budget itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from leakbound.config.theory import CorrelatedCase, DependentCase, IndependentCase, NoiseSurface, TheoryConfig
from leakbound.randomness.seeding import numpy_generator
from leakbound.theory import determinants
from leakbound.theory.correlated import optimal_exchangeable_noise
from leakbound.theory.dependent import independent_noise
from leakbound.theory.exchangeable import (
    Exchangeable,
    exchangeable_dual_total_correlation_bits,
    exchangeable_privacy_bits,
    exchangeable_unconditional_leak_bits,
    exchangeable_utility_bits,
)
from leakbound.theory.general_tables import general_rows
from leakbound.theory.independent import common_noise_utility_bits, common_noise_variance, own_noise_variances
from leakbound.theory.printed import printed_privacy_bits
from leakbound.theory.search import search_exchangeable_noise

Rows = list[dict[str, Any]]


def theory_rows(part: str, settings: TheoryConfig, seed: int) -> pd.DataFrame:
    """Table of one part.

    Args:
        part: One of ``settings.tables()``.
        settings: Settings of all parts.
        seed: Of the configuration; draws derive from it, the part and the replica.

    Raises:
        ValueError: If the configuration does not make this part.
    """
    if part not in settings.tables():
        raise ValueError(f"part = {part!r}: the configuration makes {', '.join(settings.tables()) or 'none'}")
    makers: dict[str, Callable[[Any, int], Rows]] = {
        "case1": _case1,
        "case2": _case2,
        "case3": _case3,
        "surface": _surface,
        "general": general_rows,
    }
    return pd.DataFrame(makers[part](getattr(settings, part), seed))


def _case1(settings: IndependentCase, seed: int) -> Rows:
    """Common noise and each client's own, for variances drawn uniformly from (0, 1)."""
    rows: Rows = []
    for replica in range(settings.draws):
        variances = numpy_generator(seed, "theory", "case1", replica).uniform(size=settings.n_clients)
        signal = np.diag(variances)
        for budget in settings.mi_budgets:
            common = common_noise_variance(variances, budget)
            noises = {"common": np.full_like(variances, common), "own": own_noise_variances(variances, budget)}
            utility = common_noise_utility_bits(variances, budget)
            where = {"mi_budget": budget, "replica": replica}
            rows += _metrics({**where, "variant": "common", "method": "closed_form"}, {"utility": utility})
            rows += _metrics({**where, "variant": "own", "method": "closed_form"}, {"utility": budget})
            for variant, noise in noises.items():
                largest = int(variances.argmax())
                found = {
                    "utility": determinants.utility_bits(signal, np.diag(noise)),
                    "privacy": determinants.privacy_bits(signal, np.diag(noise), largest),
                    "noise_variance": float(noise.mean()),
                }
                rows += _metrics({**where, "variant": variant, "method": "determinants"}, found)
    return rows


def _case2(settings: DependentCase, seed: int) -> Rows:
    """Independent noise, corrected and as printed."""
    signal = Exchangeable(settings.variance, settings.covariance, settings.n_clients)
    rows: Rows = []
    for budget in settings.mi_budgets:
        for variant in ("corrected", "printed"):
            noise = independent_noise(signal, budget, as_printed=variant == "printed")
            where = {"mi_budget": budget, "variant": variant}
            rows += _both_ways(where, signal, noise, budget)
            rows += _metrics({**where, "method": "budget"}, {"privacy": budget})
    return rows


def _case3(settings: CorrelatedCase, seed: int) -> Rows:
    """The exact optimum, independent noise beside it, and searches with the correct and the printed constraint."""
    signal = Exchangeable(settings.variance, settings.covariance, settings.n_clients)
    shared = exchangeable_dual_total_correlation_bits(signal) / settings.n_clients
    rows: Rows = []
    for budget in settings.mi_budgets:
        where: dict[str, Any] = {"mi_budget": budget, "box": np.nan}
        optimum = optimal_exchangeable_noise(signal, budget)
        exact = {**where, "variant": "exact"}
        rows += _metrics({**exact, "method": "closed_form"}, {"shared": shared})
        if optimum.noise is None:
            found = {"utility": optimum.utility_bits, "gain": optimum.utility_bits - budget}
            rows += _metrics({**exact, "method": "closed_form"}, found)
        else:
            rows += _both_ways(exact, signal, optimum.noise, budget)
        rows += _both_ways({**where, "variant": "independent"}, signal, independent_noise(signal, budget), budget)
        rows += _searched({**where, "variant": "search"}, signal, budget)
        for box in settings.boxes:
            for variant in ("boxed", "boxed_printed"):
                told = {**where, "variant": variant, "box": box}
                limits = {"least_variance": box, "reach": settings.reach}
                rows += _searched(told, signal, budget, as_printed=variant == "boxed_printed", **limits)
    return rows


def _surface(settings: NoiseSurface, seed: int) -> Rows:
    """Utility and privacy around each budget's optimum; ``tilt`` is (n − 1) σ_e²/σ²."""
    n = settings.n_clients
    signal = Exchangeable(settings.variance, settings.covariance, n)
    rows: Rows = []
    for budget in settings.mi_budgets:
        rows += _metrics({"mi_budget": budget, "variant": "budget"}, {"privacy": budget})
        best = {"search": search_exchangeable_noise(signal, budget).noise}
        if (optimum := optimal_exchangeable_noise(signal, budget).noise) is not None:
            best["optimum"] = optimum
        for variant, noise in best.items():
            tilt = (n - 1) * noise.covariance / noise.variance
            rows += _surface_point(variant, signal, noise, {"mi_budget": budget, "tilt": tilt})
        center = best.get("optimum", best["search"]).variance
        for variance in center * np.geomspace(0.2, 5.0, settings.points):
            for tilt in np.linspace(-0.96, 0.96, settings.points):
                noise = Exchangeable(float(variance), float(variance * tilt / (n - 1)), n)
                rows += _surface_point("grid", signal, noise, {"mi_budget": budget, "tilt": float(tilt)})
    return rows


def _surface_point(variant: str, signal: Exchangeable, noise: Exchangeable, where: Mapping[str, Any]) -> Rows:
    """Rows of one choice of the noise."""
    found = {
        "utility": exchangeable_utility_bits(signal, noise),
        "privacy": exchangeable_privacy_bits(signal, noise),
        "privacy_printed": printed_privacy_bits(signal, noise),
    }
    return _metrics({**where, "variant": variant, "noise_variance": noise.variance}, found)


def _searched(where: Mapping[str, Any], signal: Exchangeable, budget: float, **options: Any) -> Rows:
    """Rows of what a search ends with."""
    found = search_exchangeable_noise(signal, budget, **options)
    values = {
        "utility": found.utility_bits,
        "gain": found.utility_bits - budget,
        "privacy": found.privacy_bits,
        "excess": found.privacy_bits - budget,
        "noise_variance": found.noise.variance,
        "noise_covariance": found.noise.covariance,
    }
    return _metrics({**where, "method": "search"}, values)


def _both_ways(where: Mapping[str, Any], signal: Exchangeable, noise: Exchangeable, budget: float) -> Rows:
    """Rows of one noise by closed forms, and of what it tells by determinants."""
    utility, privacy = exchangeable_utility_bits(signal, noise), exchangeable_privacy_bits(signal, noise)
    closed = {
        "utility": utility,
        "gain": utility - budget,
        "privacy": privacy,
        "excess": privacy - budget,
        "unconditional_leak": exchangeable_unconditional_leak_bits(signal, noise),
        "noise_variance": noise.variance,
        "noise_covariance": noise.covariance,
    }
    parameters, added = signal.matrix(), noise.matrix()
    whole = {
        "utility": determinants.utility_bits(parameters, added),
        "privacy": determinants.privacy_bits(parameters, added, 0),
        "unconditional_leak": determinants.unconditional_leak_bits(parameters, added, 0),
    }
    return [
        *_metrics({**where, "method": "closed_form"}, closed),
        *_metrics({**where, "method": "determinants"}, whole),
    ]


def _metrics(where: Mapping[str, Any], found: Mapping[str, float]) -> Rows:
    """One row for each metric."""
    return [{**where, "metric": metric, "value": float(value)} for metric, value in found.items()]
