import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulas import bounded_ratios
from leakbound_lab.papers.wang2020.privacy import Secret, bounded_level, masked_level, uniform_level, zero_sum_level
from leakbound_lab.papers.wang2020.protocol import PairwiseMasks, graph_from_edges, metropolis_weights, named_graph
from reference import observed_level

GRAPH = graph_from_edges(5, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])
PAPER = Secret(shift=0.02, state_variance=0.04)  # α = 2, V = 400, c = 0.01
BOUND = math.sqrt(27.0)
secrets = st.builds(Secret, shift=st.floats(1e-3, 2.0), state_variance=st.floats(1e-3, 10.0))


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 9), min_size=5, max_size=5),
    st.lists(st.floats(0.5, 9.0), min_size=5, max_size=5),
    st.floats(0.3, 0.95),
    st.integers(0, 8),
    st.integers(0, 4),
)
def test_the_covariance_of_all_messages_gives_the_joint_level(counts, variances, decay, time, server):
    """No reasoning about looks on one side, precisions that add on the other."""
    scale = 5 / sum(counts)
    state_variances = scale**2 * 4.0 * np.array(counts)
    secret = Secret(2.0 * scale, float(state_variances[server]))
    observed = observed_level(
        metropolis_weights(GRAPH), state_variances, np.array(variances), decay, time, server, secret.shift
    )
    assert observed == pytest.approx(zero_sum_level(secret, variances[server], decay, time), rel=1e-7)


def test_while_noise_dominates_the_printed_level_is_short_by_the_sum_of_the_decays():
    drowned = Secret(shift=1e-3, state_variance=1e-12)
    factor = zero_sum_level(drowned, 9.0, 0.8, 50) / zero_sum_level(drowned, 9.0, 0.8, 50, as_printed=True)
    assert factor == pytest.approx(1 / (1 - 0.8), rel=1e-4)


def test_uniform_noise_without_width_hides_nothing():
    np.testing.assert_allclose(uniform_level(PAPER, np.array([0.0, 1e-12, 1e-8])), PAPER.limit, rtol=1e-9)


@pytest.mark.parametrize(("time", "decay"), [(1, 0.8), (5, 0.8), (10, 0.8), (4, 0.5)])
def test_joint_level_of_scheme_3_matches_simulated_likelihood_ratios(time, decay):
    """To 4.5 standard errors of 2·10⁵ draws in four cases: false alarm below 10⁻⁴; the seed is fixed."""
    runs = 200_000
    ratios = bounded_ratios(PAPER.shift, 0.2, BOUND, decay, time, np.random.default_rng(time), runs)
    found = bounded_level(PAPER, BOUND, decay, time)
    assert abs(ratios.mean() - found) < 4.5 * ratios.std() / math.sqrt(runs)


@settings(max_examples=8)
@given(secrets, st.floats(0.1, 10.0), st.floats(0.3, 0.95), st.integers(1, 40))
def test_joint_level_of_scheme_3_lies_between_its_last_look_and_the_limit(secret, bound, decay, time):
    joint = bounded_level(secret, bound, decay, time)
    assert bounded_level(secret, bound, decay, time, single=True) <= joint * (1 + 1e-9)
    assert bounded_level(secret, bound, decay, time - 1) <= joint * (1 + 1e-9)
    assert joint <= secret.limit * (1 + 1e-9)


def test_scheme_2_protects_better_than_scheme_3_throughout_the_published_setting():
    for time in range(0, 40, 3):
        assert zero_sum_level(PAPER, 9.0, 0.8, time) < bounded_level(PAPER, BOUND, 0.8, time)
    assert bounded_level(PAPER, BOUND, 0.8, 0) == pytest.approx(1.738525e-4, rel=1e-6)
    assert bounded_level(PAPER, BOUND, 0.8, 10) == pytest.approx(3.667217e-3, rel=1e-6)


def test_masks_protect_a_server_until_all_its_neighbours_collude():
    graph = named_graph("cycle", 6)
    alone = masked_level(PAPER, graph, 3.0, 0)
    watched = masked_level(PAPER, graph, 3.0, 0, colluders=[1])
    surrounded = masked_level(PAPER, graph, 3.0, 0, colluders=[1, 5])
    assert PAPER.limit / 6 <= alone < watched < surrounded
    assert surrounded == pytest.approx(PAPER.limit, rel=1e-12)


def test_the_first_messages_under_masks_have_the_covariance_that_the_level_is_computed_from():
    """Each of 25 covariances to 5 standard errors: false alarm below 10⁻⁴; the seed is fixed."""
    generator, runs = np.random.default_rng(7), 200_000
    sent = 0.2 * generator.standard_normal((runs, 5)) + next(PairwiseMasks(GRAPH, 3.0).noises(runs, generator))
    exact = 0.04 * np.eye(5) + 3.0 * np.array(
        [[2, -1, -1, 0, 0], [-1, 2, -1, 0, 0], [-1, -1, 3, -1, 0], [0, 0, -1, 2, -1], [0, 0, 0, -1, 1]]
    )
    spread = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / runs)
    assert (np.abs(sent.T @ sent / runs - exact) < 5 * spread).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Secret(0.0, 1.0), "shift = 0.0: must be positive"),
        (lambda: Secret(1.0, -1.0), "state_variance = -1.0: must be positive"),
        (lambda: zero_sum_level(PAPER, 0.0, 0.8, 1), "noise_variance: 0 is not positive"),
        (lambda: zero_sum_level(PAPER, 1.0, 1.2, 1), r"decay = 1.2: ρ lies inside \(0, 1\)"),
        (lambda: bounded_level(PAPER, -1.0, 0.8, 1), "bound: -1 is not positive"),
        (lambda: masked_level(PAPER, GRAPH, 0.0, 1), "mask_variance: 0 is not positive"),
        (lambda: masked_level(PAPER, GRAPH, 1.0, 9), "server = 9: must be in the graph"),
        (lambda: masked_level(PAPER, GRAPH, 1.0, 1, colluders=[1]), "not among the colluders"),
    ],
)
def test_what_gives_no_level_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
