"""Networks of servers, and the weights with which each averages its neighbours."""

from collections.abc import Callable, Iterable

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
    """Make a ``cycle``, ``path``, ``star`` or ``complete`` graph on the nodes 0..n − 1, n >= 2.

    Raises:
        ValueError: If the kind is unknown or there are too few servers.
    """
    if kind not in _KINDS:
        raise ValueError(f"graph = {kind!r}: known: {', '.join(_KINDS)}, or random")
    _check_servers(servers)
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
        ValueError: If the probability is outside (0, 1], or so low that 1000 draws give no connected graph.
    """
    _check_servers(servers)
    if not 0.0 < edge_probability <= 1.0:
        raise ValueError(f"edge_probability = {edge_probability}: a probability in (0, 1] is needed")
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
    """Make the undirected graph on 0..n − 1 with the given edges, connected or not.

    Raises:
        ValueError: If an edge names a server that does not exist, or joins one to itself.
    """
    _check_servers(servers)
    graph = nx.empty_graph(servers)
    for first, second in edges:
        if first == second or not {first, second} <= set(range(servers)):
            raise ValueError(f"edge ({first}, {second}): joins two different servers of 0..{servers - 1}")
        graph.add_edge(first, second)
    return graph


def check_connected(graph: nx.Graph) -> None:
    """Refuse a graph on which servers cannot reach a common average.

    Raises:
        ValueError: If the graph is not connected. The message lists its components.
    """
    groups = [sorted(group) for group in nx.connected_components(graph)]
    if len(groups) != 1:
        shown = "; ".join(
            ", ".join(map(str, group[:6])) + (", ..." if len(group) > 6 else "") for group in groups[:4]
        )
        raise ValueError(
            f"the graph falls into {len(groups)} components ({shown}{'; ...' if len(groups) > 4 else ''}): "
            "averaging needs a connected one; add edges between them"
        )


def metropolis_weights(graph: nx.Graph) -> Float[np.ndarray, "n n"]:
    """Compute Metropolis weights W of a connected graph.

    w_il = 1 / (1 + max(deg_i, deg_l)) on edges, w_ii = 1 − Σ_l w_il, 0 elsewhere.

    Args:
        graph: Connected, undirected, on 0..n − 1.

    Returns:
        (n, n) float64, symmetric and doubly stochastic with a positive diagonal. All eigenvalues but one,
        which is 1, are below 1 in absolute value.

    Raises:
        ValueError: If the graph is not connected.

    Source:
        Wang et al. 2020, Eq. (3).
    """
    check_connected(graph)
    weights = np.zeros((len(graph), len(graph)))
    for first, second in graph.edges:
        weights[first, second] = weights[second, first] = 1.0 / (
            1.0 + max(graph.degree[first], graph.degree[second])
        )
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return weights


def _check_servers(servers: int) -> None:
    """Raise if there is nothing to average."""
    if servers < 2:
        raise ValueError(f"servers = {servers}: averaging needs at least 2")
