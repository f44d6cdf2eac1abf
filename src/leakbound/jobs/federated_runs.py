"""Federated runs: one setting of federated averaging each, trained once even if several tables show it."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from leakbound.config.defenses import level_text
from leakbound.config.federated import FederatedConfig
from leakbound.config.settings import Count, Level, Name, Settings

Scheme = Literal["none", "client", "server", "personalized", "uniform"]
"""Noise and clipping of a run, as :class:`FederatedRun` explains them."""
BASIC: tuple[Scheme, ...] = ("client", "server")
"""Schemes with one budget for all and a fixed threshold."""
ADAPTED: tuple[Scheme, ...] = ("personalized", "uniform")
"""Schemes with a budget for each client and thresholds that follow the norms."""


class FederatedRun(Settings):
    """One setting of federated averaging, with all its seeds.

    Attributes:
        dataset: Name of the dataset.
        model: Name of the network.
        scheme: ``none`` has neither noise nor clipping. ``client`` and ``server`` (Corollary 1 and Theorem 1)
            have one budget for all and a fixed threshold. ``personalized`` (Corollary 2) and ``uniform`` (its
            baseline with equal weights and noise) have a budget for each client, and thresholds that follow
            the norms.
        n_clients: Number of clients.
        max_param_norm: Clipping threshold, or the first one if it follows the norms. None without clipping.
        mi_budget: Budget of one round in nats, or the mean of personal budgets. None without noise.
        budget_spread: Standard deviation of personal budgets in nats. None if all clients have the same.
    """

    dataset: Name
    model: Name
    scheme: Scheme
    n_clients: Count
    max_param_norm: Annotated[Level, Field(gt=0)] | None = None
    mi_budget: Annotated[Level, Field(gt=0)] | None = None
    budget_spread: Level | None = None

    @model_validator(mode="after")
    def _has_what_its_scheme_needs(self) -> "FederatedRun":
        spread = ("budget_spread",) if self.scheme in ADAPTED else ()
        for name in () if self.scheme == "none" else ("max_param_norm", "mi_budget", *spread):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: is missing, and the scheme {self.scheme} needs it")
        return self

    @property
    def slug(self) -> str:
        """Return the name of the run, e.g. ``mnist/mlp/personalized-m20-s10-c10/n100``."""
        parts = {"m": self.mi_budget, "s": self.budget_spread, "c": self.max_param_norm}
        texts = [f"{letter}{level_text(value)}" for letter, value in parts.items() if value is not None]
        return f"{self.dataset}/{self.model}/{'-'.join([self.scheme, *texts])}/n{self.n_clients}"

    def facts(self, rounds: int, batch_size: int, replicas: int) -> dict[str, Any]:
        """Return the name and coordinates of the run in MLflow.

        Args:
            rounds: Number of communication rounds.
            batch_size: Records in a local step.
            replicas: Number of replicas.
        """
        names = {"slug": f"federated/{self.slug}", "dataset": self.dataset, "model": self.model}
        label = "" if self.mi_budget is None else f"{level_text(self.mi_budget)} nats"
        level = {"defense": self.scheme, "level": self.mi_budget, "level_label": label}
        return {**names, **level, "rounds": rounds, "batch_size": batch_size, "replicas": replicas}


def federated_runs(config: FederatedConfig | None) -> dict[str, list[FederatedRun]]:
    """List the runs whose rows each table of federated averaging contains.

    Args:
        config: The section ``federated`` of a configuration, None if it is missing.

    Returns:
        Name of a table to its runs, none for closed forms.
    """
    if config is None:
        return {}
    return {
        name: [run for pair in config.models.items() for run in _runs(config, name, *pair)]
        for name in config.tables()
    }


def _runs(config: FederatedConfig, table: str, dataset: str, model: str) -> Iterator[FederatedRun]:
    """Yield the runs of one table on one dataset."""
    usual = {
        "n_clients": config.n_clients,
        "max_param_norm": config.max_param_norm,
        "mi_budget": config.mi_budget,
    }
    personal = usual | {"mi_budget": config.budget_mean, "budget_spread": config.budget_spread}
    sweeps: dict[str, tuple[tuple[Scheme, ...], dict[str, Any], str, Sequence[float]]] = {
        "budgets": (BASIC, usual, "mi_budget", config.mi_budgets),
        "clients": (BASIC, usual, "n_clients", config.client_counts),
        "thresholds": (BASIC, usual, "max_param_norm", config.max_param_norms),
        "means": (ADAPTED, personal, "mi_budget", config.budget_means),
        "spreads": (ADAPTED, personal, "budget_spread", config.budget_spreads),
    }
    if table == "budgets":
        yield FederatedRun(dataset=dataset, model=model, scheme="none", n_clients=config.n_clients)
    if table in sweeps:
        schemes, settings, swept, values = sweeps[table]
        for scheme, value in product(schemes, values):
            yield FederatedRun(dataset=dataset, model=model, scheme=scheme, **settings | {swept: value})
