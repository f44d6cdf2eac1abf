"""Private average consensus (Wang et al. 2020): networks, noise schemes, convergence, and levels towards observers."""

from leakbound.consensus.averaging import expected_square, final_gap, report, reported_mean_error, trajectories
from leakbound.consensus.graphs import (
    contraction,
    convergence_rate,
    graph_from_adjacency,
    graph_from_edges,
    metropolis_weights,
    named_graph,
    random_graph,
)
from leakbound.consensus.privacy import (
    Secret,
    bounded_level,
    contributor_level,
    contributor_variance,
    masked_level,
    observed_level,
    zero_sum_level,
)
from leakbound.consensus.schemes import BoundedNoise, InitialNoise, PairwiseMasks, ZeroSumNoise

__all__ = [
    "BoundedNoise",
    "InitialNoise",
    "PairwiseMasks",
    "Secret",
    "ZeroSumNoise",
    "bounded_level",
    "contraction",
    "contributor_level",
    "contributor_variance",
    "convergence_rate",
    "expected_square",
    "final_gap",
    "graph_from_adjacency",
    "graph_from_edges",
    "masked_level",
    "metropolis_weights",
    "named_graph",
    "observed_level",
    "random_graph",
    "report",
    "reported_mean_error",
    "trajectories",
    "zero_sum_level",
]
