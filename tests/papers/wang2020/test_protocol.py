"""Networks, weights and noise of Wang et al. 2020, and the averages that they end at."""

import math
from itertools import islice

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formulas import convergence_rate, expected_square
from leakbound_lab.papers.wang2020.protocol import (
    BoundedNoise,
    InitialNoise,
    PairwiseMasks,
    ZeroSumNoise,
    graph_from_edges,
    metropolis_weights,
    named_graph,
    random_graph,
)
from leakbound_lab.papers.wang2020.simulations import collect_reports, trajectories

GRAPH = graph_from_edges(5, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])
WEIGHTS = metropolis_weights(GRAPH)
STATES = np.array([1.0, 4.0, -2.0, 3.0, 0.0])
VARIANCES = np.array([9.0, 4.0, 5.0, 6.0, 7.0])
DECAY = 0.8
SCHEMES = {
    "initial": (InitialNoise(VARIANCES), None),
    "zero_sum": (ZeroSumNoise(VARIANCES, DECAY), DECAY),
    "bounded": (BoundedNoise(np.sqrt(3 * VARIANCES), DECAY), DECAY**2),
}
MASKS = PairwiseMasks(GRAPH, 3.0)


def paths(scheme, steps: int, runs: int = 4000) -> np.ndarray:
    """States by time, run and server."""
    return np.stack(list(islice(trajectories(WEIGHTS, STATES, scheme, runs, np.random.default_rng(0)), steps + 1)))


def score(sample: np.ndarray, expected: float) -> float:
    """Standard errors between the mean of a sample and what it should be."""
    return abs(sample.mean() - expected) / (sample.std() / math.sqrt(len(sample)))


@pytest.mark.parametrize("name", SCHEMES)
def test_simulated_square_errors_match_the_closed_form(name):
    """Twelve scores beyond 4.5 under the closed form: a false alarm in one of 10⁴ seeds; the seed is fixed."""
    scheme, decay = SCHEMES[name]
    states = paths(scheme, 20)
    for time in (1, 2, 5, 20):
        squares = ((states[time] - STATES.mean()) ** 2).sum(axis=1)
        assert score(squares, expected_square(WEIGHTS, STATES, VARIANCES, decay, time)) < 4.5


def test_bounded_noise_converges_in_every_single_run():
    scheme, _ = SCHEMES["bounded"]
    states = paths(scheme, 120, runs=500)
    assert np.abs(states[120] - STATES.mean()).max() < 1e-6
    for time in range(1, 30):
        errors = np.abs(states[time].mean(axis=1) - STATES.mean())
        assert errors.max() <= scheme.bounds.mean() * DECAY ** (time - 1) + 1e-12


def test_masks_keep_the_mean_at_every_step():
    states = paths(MASKS, 30, runs=300)
    np.testing.assert_allclose(states.mean(axis=2), STATES.mean(), atol=1e-12)


def test_masks_give_the_wanted_variance_on_average_over_the_servers():
    masks = PairwiseMasks.of_mean_variance(GRAPH, 9.0)
    assert masks.variance * np.mean([degree for _, degree in GRAPH.degree]) == pytest.approx(9.0)


def test_reports_average_to_what_contributors_reported():
    generator = np.random.default_rng(3)
    values = [generator.uniform(1, 100, size) for size in (3, 5, 4, 2, 6)]
    states = collect_reports(values, 1e-12, generator)
    assert states.mean() == pytest.approx(np.concatenate(values).mean(), abs=1e-5)


@given(st.integers(2, 25), st.floats(0.3, 1.0), st.integers(0, 10_000))
def test_metropolis_weights_are_symmetric_doubly_stochastic_and_contract(servers, probability, seed):
    graph = random_graph(servers, probability, np.random.default_rng(seed))
    weights = metropolis_weights(graph)
    assert np.array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=1e-14)
    assert (weights >= 0).all()
    assert (np.diag(weights) > 0).all()
    assert convergence_rate(weights) < 1


@pytest.mark.parametrize("kind", ["cycle", "path", "star", "complete"])
def test_a_named_graph_is_connected_and_has_all_servers(kind):
    graph = named_graph(kind, 7)
    assert sorted(graph) == list(range(7))
    assert nx.is_connected(graph)


def test_a_random_graph_depends_on_its_generator_alone():
    first, second, other = (random_graph(20, 0.25, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert set(first.edges) == set(second.edges)
    assert set(first.edges) != set(other.edges)


def test_a_network_that_no_draw_connects_is_refused():
    with pytest.raises(ValueError, match=r"none of 1000 random graphs .* is connected"):
        random_graph(30, 0.001, np.random.default_rng(0))


def test_a_disconnected_graph_is_refused_with_its_parts():
    graph = graph_from_edges(5, [(0, 1), (2, 3)])
    with pytest.raises(ValueError, match=r"falls into 3 components \(0, 1; 2, 3; 4\).*add edges"):
        metropolis_weights(graph)
