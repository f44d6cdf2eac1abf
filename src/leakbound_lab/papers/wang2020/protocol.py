"""Networks of servers, the weights with which they average, and noise on the states that they send.

Time counts from T₀, the moment at which the servers have collected their contributors' reports. The noise is
that of the three published schemes, or masks that neighbours share. Every scheme draws for all repetitions of
an experiment at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Protocol, runtime_checkable

import networkx as nx
import numpy as np
from jaxtyping import Float

_TRIES = 1000
_KINDS: dict[str, Callable[[int], nx.Graph]] = {
    "cycle": nx.cycle_graph,
    "path": nx.path_graph,
    "star": lambda servers: nx.star_graph(servers - 1),
    "complete": nx.complete_graph,
}


def named_graph(kind: str, servers: int) -> nx.Graph:
    """Make a ``cycle``, ``path``, ``star`` or ``complete`` graph on the nodes 0..n − 1, n >= 2."""
    return _KINDS[kind](servers)


def random_graph(servers: int, edge_probability: float, generator: np.random.Generator) -> nx.Graph:
    """Draw an Erdős–Rényi graph, again until it is connected.

    Args:
        servers: n, number of nodes, >= 2.
        edge_probability: Probability of each edge, in (0, 1].
        generator: Draws the edges.

    Returns:
        A connected graph on 0..n − 1: an Erdős–Rényi graph given that it is connected.

    Raises:
        ValueError: If the probability is so low that 1000 draws give no connected graph.
    """
    rows, columns = np.triu_indices(servers, 1)
    for _ in range(_TRIES):
        present = generator.random(len(rows)) < edge_probability
        graph = graph_from_edges(servers, zip(rows[present].tolist(), columns[present].tolist(), strict=True))
        if nx.is_connected(graph):
            return graph
    raise ValueError(
        f"edge_probability = {edge_probability}: none of {_TRIES} random graphs on {servers} servers is connected; "
        f"raise it above ln(n)/n = {np.log(servers) / servers:.3g}"
    )


def graph_from_edges(servers: int, edges: Iterable[tuple[int, int]]) -> nx.Graph:
    """Make the undirected graph on 0..n − 1 with the given edges, connected or not."""
    graph = nx.empty_graph(servers)
    graph.add_edges_from(edges)
    return graph


def metropolis_weights(graph: nx.Graph) -> Float[np.ndarray, "n n"]:
    """Compute Metropolis weights W of a connected graph.

    w_il = 1 / (1 + max(deg_i, deg_l)) on edges, w_ii = 1 − Σ_l w_il, 0 elsewhere.

    Args:
        graph: Connected, undirected, on 0..n − 1.

    Returns:
        (n, n) float64, symmetric and doubly stochastic with a positive diagonal. All eigenvalues but one,
        which is 1, are below 1 in absolute value.

    Raises:
        ValueError: If the graph is not connected. The message lists its components.

    Source:
        Wang et al. 2020, Eq. (3).
    """
    groups = [sorted(group) for group in nx.connected_components(graph)]
    if len(groups) != 1:
        parts = "; ".join(
            ", ".join(map(str, group[:6])) + (", ..." if len(group) > 6 else "") for group in groups[:4]
        )
        raise ValueError(
            f"the graph falls into {len(groups)} components ({parts}{'; ...' if len(groups) > 4 else ''}): "
            "averaging needs a connected one; add edges between them"
        )
    weights = np.zeros((len(graph), len(graph)))
    for first, second in graph.edges:
        weights[first, second] = weights[second, first] = 1.0 / (
            1.0 + max(graph.degree[first], graph.degree[second])
        )
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return weights


@runtime_checkable
class Draws(Protocol):
    """Source of noise: a NumPy generator, or secure draws that no seed repeats."""

    def standard_normal(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard normal numbers, float64."""

    def random(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw uniform numbers in [0, 1), float64."""


@dataclass(frozen=True)
class InitialNoise:
    """Scheme 1: Gaussian noise on the first states only, θ_i(0) ~ N(0, σ_i²), then none.

    Attributes:
        variances: (n,) σ_i² of each server, each > 0.

    Source:
        Wang et al. 2020, Eq. (10).
    """

    variances: Float[np.ndarray, " n"]

    def noises(self, runs: int, draws: Draws) -> Iterator[Float[np.ndarray, "runs n"]]:
        """Yield θ(0), θ(1), … without end."""
        return _once(np.sqrt(self.variances) * draws.standard_normal((runs, len(self.variances))))


@dataclass(frozen=True)
class ZeroSumNoise:
    """Scheme 2: each noise takes the one before back, θ(t) = φ(t) − φ(t − 1), with φ_i(t) ~ N(0, ρᵗ σ_i²).

    Attributes:
        variances: (n,) σ_i² of each server, each > 0.
        decay: ρ, factor of the variance from one step to the next, in (0, 1).

    Source:
        Wang et al. 2020, Eq. (12).
    """

    variances: Float[np.ndarray, " n"]
    decay: float

    def noises(self, runs: int, draws: Draws) -> Iterator[Float[np.ndarray, "runs n"]]:
        """Yield θ(0), θ(1), … without end."""
        shape = (runs, len(self.variances))
        return _taken_back(
            lambda: draws.standard_normal(shape), np.sqrt(self.variances), math.sqrt(self.decay)
        )


@dataclass(frozen=True)
class BoundedNoise:
    """Scheme 3: as scheme 2 with bounded noise, φ_i(t) ~ U[−a ρᵗ, a ρᵗ], whose variance falls by ρ² a step.

    Attributes:
        bounds: (n,) a of each server, each > 0: √(3 σ²) has variance σ² at the start.
        decay: ρ, factor of the bound from one step to the next, in (0, 1).

    Source:
        Wang et al. 2020, Eq. (15) and the example below it.
    """

    bounds: Float[np.ndarray, " n"]
    decay: float

    def noises(self, runs: int, draws: Draws) -> Iterator[Float[np.ndarray, "runs n"]]:
        """Yield θ(0), θ(1), … without end."""
        shape = (runs, len(self.bounds))
        return _taken_back(lambda: 2.0 * draws.random(shape) - 1.0, self.bounds, self.decay)


@dataclass(frozen=True)
class PairwiseMasks:
    """Beyond the paper: neighbours agree on r_il = −r_li ~ N(0, σ_r²), and θ_i(0) = Σ_l r_il, then none.

    The masks cancel in the sum, so the average is kept exactly, and what an observer learns never grows.

    Attributes:
        graph: Connected graph on 0..n − 1, where an edge is a shared mask.
        variance: σ_r² of each mask, > 0.
    """

    graph: nx.Graph
    variance: float

    @classmethod
    def of_mean_variance(cls, graph: nx.Graph, variance: float) -> PairwiseMasks:
        """Make the scheme whose first noise has the given variance on average over the servers."""
        return cls(graph, variance * len(graph) / (2.0 * graph.number_of_edges()))

    def noises(self, runs: int, draws: Draws) -> Iterator[Float[np.ndarray, "runs n"]]:
        """Yield θ(0), θ(1), … without end."""
        first, second = np.array(self.graph.edges).T
        masks = math.sqrt(self.variance) * draws.standard_normal((runs, len(first)))
        signs = np.zeros((len(first), len(self.graph)))
        signs[np.arange(len(first)), first] = 1.0
        signs[np.arange(len(first)), second] = -1.0
        return _once(masks @ signs)


Scheme = InitialNoise | ZeroSumNoise | BoundedNoise | PairwiseMasks
"""A distribution of the noise that servers add."""


def _once(first: Float[np.ndarray, "runs n"]) -> Iterator[Float[np.ndarray, "runs n"]]:
    """The first noise, then zeros."""
    return chain([first], repeat(np.zeros_like(first)))


def _taken_back(
    draw: Callable[[], Float[np.ndarray, "runs n"]], size: Float[np.ndarray, " n"], factor: float
) -> Iterator[Float[np.ndarray, "runs n"]]:
    """Each draw minus the one before it: their sizes shrink by a factor a step."""
    before = np.zeros(1)
    while True:
        current = size * draw()
        yield current - before
        before = current
        size = size * factor
