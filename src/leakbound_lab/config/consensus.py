"""Settings of private average consensus (Wang et al. 2020). The defaults are the paper's."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict, model_validator

from leakbound_lab.config.settings import Settings, TableSection

_Edge = Annotated[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]], Strict(False)]
_Value = Annotated[int, Field(ge=-(10**9), le=10**9)]


class AveragingConfig(Settings):
    """Repetitions of the simulated averaging."""

    runs: Annotated[int, Field(ge=1, le=1_000_000)] = 5000
    """Repetitions of each scheme. Only the servers' noise is drawn again."""
    batches: Annotated[int, Field(ge=1, le=1000)] = 10
    """Batches of equally many repetitions. The mean over a batch is one replica."""

    @model_validator(mode="after")
    def _splits_evenly(self) -> "AveragingConfig":
        if self.runs % self.batches:
            raise ValueError(f"runs = {self.runs} does not split into batches = {self.batches} equal parts")
        return self


class ConsensusConfig(TableSection):
    """Servers that average their contributors' data over a network, with several schemes of noise."""

    TABLES: ClassVar[tuple[str, ...]] = ("averaging", "privacy")

    servers: Annotated[int, Field(ge=2, le=1000)] = 20
    """n, servers of the network."""
    graph: Literal["random", "cycle", "path", "star", "complete"] = "random"
    """Network. A random one is drawn again until it is connected. The paper does not print its own."""
    edge_probability: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Probability of each edge of the random network."""
    edges: Annotated[tuple[_Edge, ...], Strict(False), Field(max_length=100_000)] = ()
    """Pairs of connected servers, numbered from 0: a network of your own instead of ``graph``."""
    contributors: Annotated[int, Field(ge=1, le=100_000)] = 100
    """m, contributors of each server."""
    values: Annotated[tuple[_Value, _Value], Strict(False)] = (1, 100)
    """Least and largest of the contributors' values, which are uniform integers."""
    adjacent_distance: Annotated[float, Field(ge=1e-9, le=1e9)] = 2.0
    """α, largest difference of one contributor's value between adjacent data."""
    kl_budget: Annotated[float, Field(ge=1e-9, le=1e9)] = 0.5
    """ε, KL-DP level in nats of a contributor towards its own server. Its noise has the variance α²/(2ε)."""
    noise_variance: Annotated[float, Field(ge=1e-12, le=1e12)] = 9.0
    """σ², variance of the first noise of each server, for masks on average."""
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """ρ, factor of the noise from one step to the next: of its variance in scheme 2, of its bound in scheme 3."""
    steps: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Steps after the servers have collected the reports."""
    averaging: AveragingConfig = AveragingConfig()

    @model_validator(mode="after")
    def _is_possible(self) -> "ConsensusConfig":
        if self.values[0] > self.values[1]:
            raise ValueError(f"values = {list(self.values)}: the least value comes first")
        for first, second in self.edges:
            if first == second or max(first, second) >= self.servers:
                raise ValueError(
                    f"edges has [{first}, {second}]: an edge joins two different servers of 0..{self.servers - 1}"
                )
        reached = {0}  # servers that server 0 reaches over the edges
        before: set[int] = set()
        while reached != before:
            before = reached
            reached = before | {end for edge in self.edges if before & set(edge) for end in edge}
        if self.edges and len(reached) < self.servers:
            alone = sorted(set(range(self.servers)) - reached)
            raise ValueError(
                f"edges: no way leads from server 0 to {alone[:6]}; averaging needs a connected network"
            )
        return self
