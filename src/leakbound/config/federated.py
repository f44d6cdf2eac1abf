"""Settings of federated averaging under a mutual-information budget (PMIDP-FL)."""

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, Strict

from leakbound.config.settings import (
    Count,
    Name,
    PlannedBlocks,
    Records,
    Replicas,
    Seconds,
    Some,
    Steps,
    TableSection,
)

Positive = Annotated[float, Field(ge=1e-12, le=1e12)]
Spread = Annotated[float, Field(ge=0, le=1e12)]
Sweep = Literal["budgets", "clients", "thresholds", "means", "spreads", "composition"]


class FederatedConfig(TableSection):
    """Federated averaging with noise at clients or server, and personalized budgets. Defaults are the paper's."""

    TABLES: ClassVar[tuple[str, ...]] = get_args(Sweep)

    models: dict[Name, Name] = {"mnist": "mlp", "cifar10": "cnn"}
    """Dataset to the network that is trained on it."""
    sweeps: Annotated[tuple[Sweep, ...], Strict(False), Field(min_length=1)] = get_args(Sweep)
    """Tables to make: fig03 and fig04, fig05, fig06, fig08 and fig09, fig07 and fig10, pmidp_composition."""
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
    """Rate at which thresholds of personalized runs and their baseline follow the norms, or 0 for constant
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

    def blocks(self, replicas: int) -> PlannedBlocks:
        """List each dataset with its network, and the replicas of a run."""
        return list(self.models.items()), self.replicas or replicas

    def most_clients(self) -> int:
        """Return the largest number of clients of any run."""
        return max((self.n_clients, *(self.client_counts if "clients" in self.sweeps else ())))

    def records_each(self, members: int) -> int:
        """Return how many records a client has, given the dataset's number of members."""
        return self.records or max(1, members // self.most_clients())
