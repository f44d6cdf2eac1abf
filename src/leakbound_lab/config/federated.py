"""Settings of federated averaging under a mutual-information budget (PMIDP-FL), and its runs."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, Strict, model_validator

from leakbound_lab.config.defenses import level_text
from leakbound_lab.config.settings import (
    Count,
    Level,
    Name,
    Records,
    Replicas,
    Seconds,
    Settings,
    Some,
    Steps,
    TableSection,
)

Positive = Annotated[float, Field(ge=1e-12, le=1e12)]
Spread = Annotated[float, Field(ge=0, le=1e12)]
Printed = Literal["budgets", "clients", "thresholds", "means", "spreads", "composition"]
Sweep = Literal[Printed, "sampled_means", "sampled_spreads"]

Scheme = Literal["none", "client", "server", "personalized", "uniform", "sampled"]
"""Noise and clipping of a run, as :class:`FederatedRun` explains them."""
BASIC: tuple[Scheme, ...] = ("client", "server")
"""Schemes with one budget for all and a fixed threshold."""
PERSONAL: tuple[Scheme, ...] = ("personalized", "uniform")
"""Schemes with a budget for each client that the paper prints."""
ADAPTED: tuple[Scheme, ...] = (*PERSONAL, "sampled")
"""Schemes with a budget for each client and thresholds that follow the norms."""


class FederatedConfig(TableSection):
    """Federated averaging with noise at clients or server, and personalized budgets. Defaults are the paper's."""

    TABLES: ClassVar[tuple[str, ...]] = get_args(Sweep)

    models: dict[Name, Name] = {"mnist": "mlp", "cifar10": "cnn"}
    """Dataset to the network that is trained on it."""
    sweeps: Annotated[tuple[Sweep, ...], Strict(False), Field(min_length=1)] = get_args(Printed)
    """Tables to make: fig03 and fig04, fig05, fig06, fig08 and fig09, fig07 and fig10, pmidp_composition. Not
    by default: sampled_means and sampled_spreads, which have a baseline besides that samples clients by their
    budgets."""
    n_clients: Count = 100
    """Clients N, except where they are swept."""
    records: Records | None = None
    """Records of each client. Default: an equal share of the members for the largest number of clients."""
    split: Literal["iid", "dirichlet"] = "iid"
    """Records of one distribution for all clients (iid), or classes in proportions of their own
    (dirichlet)."""
    concentration: Positive = 0.5
    """Concentration of the Dirichlet distribution of those proportions. The split ``iid`` ignores it."""
    communication_rounds: Steps = 100
    """Rounds T of averaging."""
    local_epochs: Steps = 5
    """Passes τ of a client over its records in a round."""
    batch_size: Records = 64
    """Records in a step, or all of a client's if it has fewer."""
    learning_rate: Annotated[float, Field(gt=0, le=100)] = 0.01
    """Learning rate of plain SGD."""
    clipped: Literal["parameters", "update"] = "parameters"
    """What a client clips: its parameters, as in the paper, or their change, which needs a smaller
    threshold."""
    max_param_norm: Positive = 10.0
    """Clipping threshold C, except where it is swept. Where thresholds follow the norms, it is the first
    one."""
    clip_rate: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Rate at which thresholds of personalized runs and their baselines follow the norms, or 0 for constant
    thresholds. The paper does not state it."""
    mi_budgets: Some[Positive] = (5.0, 10.0, 20.0)
    """Budgets ε of the sweep over budgets, in nats for one round."""
    mi_budget: Positive = 10.0
    """Budget where clients and thresholds are swept. The paper does not state it."""
    client_counts: Some[Count] = (20, 40, 60, 80, 100, 120, 140, 160, 180, 200)
    """Numbers of clients of the sweep over them."""
    max_param_norms: Some[Positive] = (2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0)
    """Thresholds of the sweep over them."""
    budget_means: Some[Positive] = (5.0, 10.0, 15.0, 20.0)
    """Means of personal budgets of the sweep over them."""
    budget_spreads: Some[Spread] = (0.0, 5.0, 10.0, 15.0)
    """Standard deviations of personal budgets of the sweep over them."""
    budget_mean: Positive = 20.0
    """Mean of personal budgets where their spread is swept."""
    budget_spread: Spread = 10.0
    """Standard deviation of personal budgets where their mean is swept. The paper does not state it for
    fig09."""
    least_budget: Positive = 1.0
    """Personal budgets below this one are set to it."""
    evaluations: Annotated[Count, Field(ge=2)] = 20
    """Points of the curves: the first round, the last one, and others evenly spaced in between."""
    replicas: Replicas | None = None
    """Number of replicas of each run. Default: ``replicas`` of the configuration."""
    checkpoint_seconds: Seconds = 30.0
    """Least time between two checkpoints, in seconds. There is at most one a round."""
    max_stack: Count | Literal["auto"] = "auto"
    """Clients trained as one batch. auto takes as many as fit the cache of a CPU, or the memory of a GPU."""

    def tables(self) -> tuple[str, ...]:
        """List the names of the tables to make."""
        return self.sweeps

    def most_clients(self) -> int:
        """Return the largest number of clients of any run."""
        return max((self.n_clients, *(self.client_counts if "clients" in self.sweeps else ())))

    def records_each(self, members: int) -> int:
        """Return how many records a client has, given the dataset's number of members."""
        return self.records or max(1, members // self.most_clients())


class FederatedRun(Settings):
    """One setting of federated averaging, with all its seeds.

    Attributes:
        dataset: Name of the dataset.
        model: Name of the network.
        scheme: ``none`` has neither noise nor clipping. ``client`` and ``server`` (Corollary 1 and Theorem 1)
            have one budget for all and a fixed threshold. ``personalized`` (Corollary 2), ``uniform`` (its
            baseline with equal weights and noise) and ``sampled`` (clients of small budgets take part less
            often) have a budget for each client, and thresholds that follow the norms.
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
    pairs = config.models.items()
    return {name: [run for pair in pairs for run in _runs(config, name, *pair)] for name in config.tables()}


def _runs(config: FederatedConfig, table: str, dataset: str, model: str) -> Iterator[FederatedRun]:
    """Yield the runs of one table on one dataset."""
    usual = {name: getattr(config, name) for name in ("n_clients", "max_param_norm", "mi_budget")}
    personal = usual | {"mi_budget": config.budget_mean, "budget_spread": config.budget_spread}
    sweeps: dict[str, tuple[tuple[Scheme, ...], dict[str, Any], str, Sequence[float]]] = {
        "budgets": (BASIC, usual, "mi_budget", config.mi_budgets),
        "clients": (BASIC, usual, "n_clients", config.client_counts),
        "thresholds": (BASIC, usual, "max_param_norm", config.max_param_norms),
        "means": (PERSONAL, personal, "mi_budget", config.budget_means),
        "spreads": (PERSONAL, personal, "budget_spread", config.budget_spreads),
        "sampled_means": (ADAPTED, personal, "mi_budget", config.budget_means),
        "sampled_spreads": (ADAPTED, personal, "budget_spread", config.budget_spreads),
    }
    if table == "budgets":
        yield FederatedRun(dataset=dataset, model=model, scheme="none", n_clients=config.n_clients)
    if table in sweeps:
        schemes, settings, swept, values = sweeps[table]
        for scheme, value in product(schemes, values):
            yield FederatedRun(dataset=dataset, model=model, scheme=scheme, **settings | {swept: value})
