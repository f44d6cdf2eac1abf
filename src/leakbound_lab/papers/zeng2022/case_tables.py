"""Rows of the figures of Zeng et al. 2022 and of the general problem beyond them.

Every table is tidy, with the columns ``mi_budget`` (ε, bits), ``variant`` (the noise), ``metric`` and
``value``, and others that a table needs. These metrics are in bits: ``utility``, ``gain`` (utility minus
budget), ``privacy``, ``excess`` (privacy minus budget) and ``unconditional_leak``. ``noise_variance`` and
``noise_covariance`` have the unit of the parameters' variance. ``method`` states how a value was computed:
``closed_form``, ``determinants`` or ``search``. ``budget`` is the budget itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.config.theory import (
    CorrelatedCase,
    DependentCase,
    GeneralCase,
    IndependentCase,
    NoiseSurface,
    TheoryConfig,
)
from leakbound_lab.papers.zeng2022 import cases, general, releases
from leakbound_lab.papers.zeng2022.cases import printed_privacy_bits, search_exchangeable_noise
from leakbound_lab.papers.zeng2022.general import optimal_release
from leakbound_lab.papers.zeng2022.releases import Exchangeable, Release

Rows = list[dict[str, Any]]


def theory_rows(table: str, settings: TheoryConfig, seed: int) -> pd.DataFrame:
    """Compute one of the tables.

    Args:
        table: One of ``settings.tables()``.
        settings: Settings of all tables.
        seed: Seed of the configuration. Draws derive from it, the table and the replica.

    Raises:
        ValueError: If the configuration does not make this table.
    """
    if table not in settings.tables():
        raise ValueError(
            f"table = {table!r}: the configuration makes {', '.join(settings.tables()) or 'none'}"
        )
    makers: tuple[Callable[[Any, int], Rows], ...] = (_case1, _case2, _case3, _surface, _general)
    make = dict(zip(settings.TABLES, makers, strict=True))[table]
    return pd.DataFrame(make(getattr(settings, table), seed))


def _case1(settings: IndependentCase, seed: int) -> Rows:
    """Compare common noise with each client's own, for variances drawn uniformly from (0, 1)."""
    rows: Rows = []
    for replica in range(settings.draws):
        variances = numpy_generator(seed, "theory", "case1", replica).uniform(size=settings.n_clients)
        signal = np.diag(variances)
        for budget in settings.mi_budgets:
            where = {"mi_budget": budget, "replica": replica}
            utility = cases.common_noise_utility_bits(variances, budget)
            rows += _metrics({**where, "variant": "common", "method": "closed_form"}, {"utility": utility})
            rows += _metrics({**where, "variant": "own", "method": "closed_form"}, {"utility": budget})
            common = np.full_like(variances, cases.common_noise_variance(variances, budget))
            for variant, noise in (("common", common), ("own", cases.own_noise_variances(variances, budget))):
                values = {
                    "utility": releases.utility_bits(signal, np.diag(noise)),
                    "privacy": releases.privacy_bits(signal, np.diag(noise), int(variances.argmax())),
                    "noise_variance": float(noise.mean()),
                }
                rows += _metrics({**where, "variant": variant, "method": "determinants"}, values)
    return rows


def _case2(settings: DependentCase, seed: int) -> Rows:
    """Tabulate independent noise, corrected and as printed."""
    signal = Exchangeable(settings.variance, settings.covariance, settings.n_clients)
    rows: Rows = []
    for budget in settings.mi_budgets:
        for variant in ("corrected", "printed"):
            noise = cases.independent_noise(signal, budget, as_printed=variant == "printed")
            where = {"mi_budget": budget, "variant": variant}
            rows += _both_ways(where, Release(signal, noise), budget)
            rows += _metrics({**where, "method": "budget"}, {"privacy": budget})
    return rows


def _case3(settings: CorrelatedCase, seed: int) -> Rows:
    """Compare the exact optimum, independent noise, and searches with correct or printed constraint."""
    signal = Exchangeable(settings.variance, settings.covariance, settings.n_clients)
    shared = signal.dual_total_correlation_bits / settings.n_clients
    rows: Rows = []
    for budget in settings.mi_budgets:
        where: dict[str, Any] = {"mi_budget": budget, "box": np.nan}
        optimum = cases.optimal_exchangeable_noise(signal, budget)
        exact = {**where, "variant": "exact"}
        rows += _metrics({**exact, "method": "closed_form"}, {"shared": shared})
        if optimum.noise is None:
            values = {"utility": optimum.utility_bits, "gain": optimum.utility_bits - budget}
            rows += _metrics({**exact, "method": "closed_form"}, values)
        else:
            rows += _both_ways(exact, Release(signal, optimum.noise), budget)
        independent = Release(signal, cases.independent_noise(signal, budget))
        rows += _both_ways({**where, "variant": "independent"}, independent, budget)
        values = _released(search_exchangeable_noise(signal, budget), budget)
        rows += _metrics({**where, "variant": "search", "method": "search"}, values)
        for least in settings.boxes:
            for variant in ("boxed", "boxed_printed"):
                printed = variant == "boxed_printed"
                region = {"least_variance": least, "reach": settings.reach}
                release = search_exchangeable_noise(signal, budget, as_printed=printed, **region)
                labels = {**where, "variant": variant, "box": least, "method": "search"}
                rows += _metrics(labels, _released(release, budget))
    return rows


def _surface(settings: NoiseSurface, seed: int) -> Rows:
    """Tabulate utility and privacy around each budget's optimum. ``tilt`` is (n − 1) σ_e²/σ²."""
    n = settings.n_clients
    signal = Exchangeable(settings.variance, settings.covariance, n)
    rows: Rows = []
    for budget in settings.mi_budgets:
        rows += _metrics({"mi_budget": budget, "variant": "budget"}, {"privacy": budget})
        best = {"search": search_exchangeable_noise(signal, budget).noise}
        if (optimum := cases.optimal_exchangeable_noise(signal, budget).noise) is not None:
            best["optimum"] = optimum
        points = [
            (variant, noise, (n - 1) * noise.covariance / noise.variance) for variant, noise in best.items()
        ]
        center = best.get("optimum", best["search"]).variance
        for variance in center * np.geomspace(0.2, 5.0, settings.points):
            for tilt in np.linspace(-0.96, 0.96, settings.points):
                noise = Exchangeable(float(variance), float(variance * tilt / (n - 1)), n)
                points.append(("grid", noise, float(tilt)))
        for variant, noise, tilt in points:
            release = Release(signal, noise)
            values = {
                "utility": release.utility_bits,
                "privacy": release.privacy_bits,
                "privacy_printed": printed_privacy_bits(release),
            }
            where = {"mi_budget": budget, "tilt": tilt, "variant": variant, "noise_variance": noise.variance}
            rows += _metrics(where, values)
    return rows


def _general(settings: GeneralCase, seed: int) -> Rows:
    """Compare the optimum with simpler noise and with the cap of all mechanisms, for any covariance.

    ``exchangeable`` parameters have unit variances, equal covariances and one budget, so that the closed form
    of case 3 is the optimum. ``drawn`` parameters depend on common factors with drawn loadings, and have
    drawn budgets. ``mi_budget`` is the mean of the budgets, ``share`` is utility over cap, and ``released``
    counts the directions that the optimum releases.
    """
    alike = Exchangeable(1.0, settings.common, settings.n_clients)
    rows: Rows = []
    for budget in settings.mi_budgets:
        where = {"parameters": "exchangeable", "replica": 0, "mi_budget": budget}
        rows += _solved(where, general.Problem(alike.matrix(), np.full(settings.n_clients, budget)))
        closed = {"utility": cases.optimal_exchangeable_noise(alike, budget).utility_bits}
        rows += _metrics({**where, "variant": "exchangeable_closed_form"}, closed)
    for replica in range(settings.draws):
        signal, shares = _random_problem(settings, seed, replica)
        for budget in settings.mi_budgets:
            where = {"parameters": "drawn", "replica": replica, "mi_budget": budget}
            rows += _solved(where, general.Problem(signal, budget * shares))
    return rows


def _random_problem(
    settings: GeneralCase, seed: int, replica: int
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, " n"]]:
    """Draw a covariance with unit variances, and budgets in units of their mean."""
    generator = numpy_generator(seed, "theory", "general", replica)
    loadings = generator.normal(size=(settings.n_clients, settings.factors))
    loadings *= np.sqrt(settings.common / (loadings**2).sum(axis=1, keepdims=True))
    signal = loadings @ loadings.T
    np.fill_diagonal(signal, 1.0)
    shares = 1.0 + settings.spread * generator.uniform(-1.0, 1.0, size=settings.n_clients)
    return signal, shares / shares.mean()


def _solved(where: Mapping[str, Any], problem: general.Problem) -> Rows:
    """Return the rows of one general problem."""
    optimum = optimal_release(problem)
    independent = np.diag(1.0 / general.independent_noise_variances(problem))
    utilities = {
        "cap": general.utility_cap_bits(problem),
        "bound": optimum.bound_bits,
        "optimum": optimum.utility_bits,
        "independent": general.release_utility_bits(problem.signal, independent),
        "exchangeable": general.release_utility_bits(
            problem.signal, general.best_exchangeable_precision(problem)
        ),
    }
    if (closed := general.closed_form_precision(problem)) is not None:
        utilities["closed_form"] = general.release_utility_bits(problem.signal, closed)
    rows: Rows = []
    for variant, utility in utilities.items():
        rows += _metrics(
            {**where, "variant": variant}, {"utility": utility, "share": utility / utilities["cap"]}
        )
    return rows + _metrics({**where, "variant": "optimum"}, {"released": float(optimum.released)})


def _both_ways(where: Mapping[str, Any], release: Release, budget: float) -> Rows:
    """Return the rows of one release by closed forms, and its utility and leaks by releases."""
    signal = release.signal.matrix()
    noise = release.noise.matrix()
    closed = _released(release, budget)
    leak = {"unconditional_leak": release.unconditional_leak_bits}
    sizes = {name: closed.pop(name) for name in ("noise_variance", "noise_covariance")}
    by_determinants = {
        "utility": releases.utility_bits(signal, noise),
        "privacy": releases.privacy_bits(signal, noise, 0),
        "unconditional_leak": releases.unconditional_leak_bits(signal, noise, 0),
    }
    return [
        *_metrics({**where, "method": "closed_form"}, closed | leak | sizes),
        *_metrics({**where, "method": "determinants"}, by_determinants),
    ]


def _released(release: Release, budget: float) -> dict[str, float]:
    """Return metrics of one release by closed forms."""
    return {
        "utility": release.utility_bits,
        "gain": release.utility_bits - budget,
        "privacy": release.privacy_bits,
        "excess": release.privacy_bits - budget,
        "noise_variance": release.noise.variance,
        "noise_covariance": release.noise.covariance,
    }


def _metrics(where: Mapping[str, Any], values: Mapping[str, float]) -> Rows:
    """Return one row for each metric."""
    return [{**where, "metric": metric, "value": float(value)} for metric, value in values.items()]
