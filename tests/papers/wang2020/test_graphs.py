import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formulas import contraction, convergence_rate
from leakbound.papers.wang2020.graphs import (
    check_connected,
    graph_from_edges,
    metropolis_weights,
    named_graph,
    random_graph,
)


@given(st.integers(2, 25), st.floats(0.3, 1.0), st.integers(0, 10_000))
def test_metropolis_weights_are_symmetric_doubly_stochastic_and_contract(servers, probability, seed):
    graph = random_graph(servers, probability, np.random.default_rng(seed))
    weights = metropolis_weights(graph)
    assert np.array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=1e-14)
    assert (weights >= 0).all()
    assert (np.diag(weights) > 0).all()
    assert convergence_rate(weights) < 1


def test_weights_are_zero_exactly_where_there_is_no_edge():
    graph = named_graph("path", 5)
    weights = metropolis_weights(graph)
    apart = ~(nx.to_numpy_array(graph) + np.eye(5)).astype(bool)
    assert (weights[apart] == 0).all()
    assert (weights[~apart] > 0).all()


@pytest.mark.parametrize("kind", ["cycle", "path", "star", "complete"])
def test_a_named_graph_is_connected_and_has_all_servers(kind):
    graph = named_graph(kind, 7)
    assert sorted(graph) == list(range(7))
    check_connected(graph)


def test_a_power_of_the_weights_contracts_even_where_one_step_does_not():
    weights = metropolis_weights(named_graph("path", 4))
    assert contraction(weights) == pytest.approx(1.0)
    assert contraction(np.linalg.matrix_power(weights, 3)) < 1


def test_positive_own_weights_keep_every_eigenvalue_but_one_inside_the_unit_circle():
    """Less than 1 in magnitude, as the paper has it; without own weights a cycle of 4 has the eigenvalue −1."""
    eigenvalues = np.linalg.eigvalsh(metropolis_weights(named_graph("cycle", 4)))
    assert np.abs(eigenvalues[:-1]).max() < 1
    assert np.linalg.eigvalsh(nx.to_numpy_array(named_graph("cycle", 4)) / 2)[0] == pytest.approx(-1.0)


def test_a_random_graph_depends_on_its_generator_alone():
    first, second, other = (random_graph(20, 0.25, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert set(first.edges) == set(second.edges)
    assert set(first.edges) != set(other.edges)


def test_a_disconnected_graph_is_refused_with_its_parts():
    graph = graph_from_edges(5, [(0, 1), (2, 3)])
    with pytest.raises(ValueError, match=r"falls into 3 components \(0, 1; 2, 3; 4\).*add edges"):
        metropolis_weights(graph)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_graph(30, 0.001, np.random.default_rng(0)), r"none of 1000 random graphs .* is connected"),
        (lambda: random_graph(5, 0.0, np.random.default_rng(0)), r"edge_probability = 0.0: a probability in \(0, 1\]"),
        (lambda: named_graph("cycle", 1), "servers = 1: averaging needs at least 2"),
        (lambda: named_graph("wheel", 5), "graph = 'wheel': known: cycle, path"),
        (lambda: graph_from_edges(3, [(0, 3)]), r"edge \(0, 3\): joins two different servers of 0..2"),
        (lambda: graph_from_edges(3, [(1, 1)]), r"edge \(1, 1\)"),
    ],
)
def test_what_is_no_network_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
