"""The federated runs of a configuration, each trained once however many figures show it. No torch is loaded here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from leakbound.config.federated import FederatedConfig
from leakbound.config.whole import Config
from leakbound.jobs.federated_run import ADAPTED, BASIC, FederatedRun

_SHARED = (
    "split",
    "concentration",
    "communication_rounds",
    "local_epochs",
    "batch_size",
    "learning_rate",
    "clipped",
    "clip_rate",
    "least_budget",
    "evaluations",
    "max_stack",
)


def part_runs(config: FederatedConfig, part: str) -> list[FederatedRun]:
    """Runs whose rows the table ``part`` holds; none for closed forms."""
    return [run for dataset, model in config.models.items() for run in _runs(config, part, dataset, model)]


def all_runs(config: FederatedConfig) -> dict[str, FederatedRun]:
    """Slug to run, of all tables; what several tables show is there once."""
    return {run.slug: run for part in config.tables() for run in part_runs(config, part)}


def _runs(config: FederatedConfig, part: str, dataset: str, model: str) -> Iterator[FederatedRun]:
    """Runs of one table on one dataset."""
    norm, count = config.max_param_norm, config.n_clients
    if part == "budgets":
        yield FederatedRun(dataset, model, "none", count)
        for scheme in BASIC:
            for budget in config.mi_budgets:
                yield FederatedRun(dataset, model, scheme, count, norm, budget)
    elif part == "clients":
        for scheme in BASIC:
            for clients in config.client_counts:
                yield FederatedRun(dataset, model, scheme, clients, norm, config.mi_budget)
    elif part == "thresholds":
        for scheme in BASIC:
            for threshold in config.max_param_norms:
                yield FederatedRun(dataset, model, scheme, count, threshold, config.mi_budget)
    elif part == "means":
        for scheme in ADAPTED:
            for mean in config.budget_means:
                yield FederatedRun(dataset, model, scheme, count, norm, mean, config.budget_spread)
    elif part == "spreads":
        for scheme in ADAPTED:
            for spread in config.budget_spreads:
                yield FederatedRun(dataset, model, scheme, count, norm, config.budget_mean, spread)


def run_settings(config: Config, run: FederatedRun) -> dict[str, Any]:
    """Everything but the images that a run depends on, and how often it is saved, as plain values."""
    federated = _section(config)
    return {
        "run": asdict(run),
        "most_clients": None if federated.records else federated.most_clients(),
        "replicas": federated.replicas or config.replicas,
        "federated": federated.model_dump(mode="json", include={*_SHARED, "records", "checkpoint_seconds"}),
        "seed": config.seed,
        **({} if run.mi_budget is None else {"privacy_noise": config.privacy_noise}),
        "device": config.device,
        "plugins": _plugins(config, run.model),
    }


def table_settings(config: Config, part: str) -> dict[str, Any]:
    """Which runs' rows a table gathers; for closed forms the networks and settings that they are computed for."""
    federated = _section(config)
    if part != "composition":
        return {"part": part, "runs": [asdict(run) for run in part_runs(federated, part)]}
    keep = {"models", "n_clients", "communication_rounds", "mi_budget"}
    plugins: dict[str, dict[str, str]] = {}
    for model in federated.models.values():
        for kind, entries in _plugins(config, model).items():
            plugins.setdefault(kind, {}).update(entries)
    return {"part": part, "federated": federated.model_dump(mode="json", include=keep), "plugins": plugins}


def tracking_settings(config: Config, run: FederatedRun, figures: dict[str, str]) -> dict[str, Any]:
    """Everything but files that the MLflow run of a federated run depends on.

    Args:
        config: The configuration.
        run: One of its runs.
        figures: ``paper/id`` of each figure of a federated table to the name of that table.
    """
    federated = _section(config)
    parts = {f"federated/{part}" for part in federated.tables() if run in part_runs(federated, part)}
    return {
        "preset": config.preset,
        "run": asdict(run),
        "communication_rounds": federated.communication_rounds,
        "batch_size": federated.batch_size,
        "replicas": federated.replicas or config.replicas,
        "figures": sorted(key for key, table in figures.items() if table in parts),
        "uri": config.tracking.uri,
    }


def _section(config: Config) -> FederatedConfig:
    """The section of federated averaging.

    Raises:
        ValueError: If the configuration has none.
    """
    if config.federated is None:
        raise ValueError(f"preset {config.preset} has no section federated; add one")
    return config.federated


def _plugins(config: Config, model: str) -> dict[str, dict[str, str]]:
    """The network, if it comes from outside the package."""
    declared = config.plugins.models
    return {"models": {model: declared[model]}} if model in declared else {}
