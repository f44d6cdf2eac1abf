"""Risks from nats, held against closed forms and extreme mechanisms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from leakbound.accounting.risk import (
    identification_epsilon,
    identification_risk,
    membership_bound,
    membership_information,
)

NATS = st.floats(1e-6, 40)


def divergence(first: float, second: float) -> float:
    return float(special.rel_entr(first, second) + special.rel_entr(1 - first, 1 - second))


@given(st.integers(2, 10**6), st.floats(0.001, 0.999))
def test_nats_that_are_allowed_give_back_the_probability_and_more_nats_more(candidates, part):
    limit = 1 / candidates + part * (1 - 1 / candidates)
    nats = identification_risk(1.0, candidates, [limit]).allowed[limit]
    assert nats == pytest.approx(divergence(limit, 1 / candidates), rel=1e-9)
    assert identification_risk(nats, candidates).probability == pytest.approx(limit, abs=1e-6)
    assert identification_risk(1.5 * nats, candidates).probability > limit


def test_nothing_is_limited_from_the_nats_that_a_list_holds():
    for candidates in (2, 900, 10**6):
        assert identification_risk(math.log(candidates), candidates).epsilon is None
        row = identification_risk(0.999 * math.log(candidates), candidates, [1 / candidates, 0.9])
        assert row.probability < 1 < row.epsilon < math.inf
        assert set(row.allowed) == {0.9}  # guessing reaches the other limit


@pytest.mark.parametrize("candidates", [2, 10, 900])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_randomised_response_reaches_the_epsilon_and_reveals_fewer_nats_than_allowed(candidates, epsilon):
    """It states the truth with p = e^ε/(e^ε + M − 1), and each other candidate with p e^{−ε}."""
    true = 1 / (1 + (candidates - 1) * math.exp(-epsilon))
    assert identification_epsilon(true, candidates) == pytest.approx(epsilon, rel=1e-9)
    revealed = math.log(candidates) + true * math.log(true) + (1 - true) * math.log(true * math.exp(-epsilon))
    assert identification_risk(revealed, candidates).epsilon == pytest.approx(epsilon, rel=1e-3)
    assert revealed <= min(epsilon, epsilon**2 / 2) * (1 + 1e-9)


@given(NATS)
def test_membership_is_the_better_one_of_two_bounds_and_its_inverse_asks_for_no_more(nats):
    advantage, auc = membership_bound(nats)
    assert advantage == pytest.approx(min(math.sqrt(nats / 2), math.sqrt(1 - math.exp(-nats))), rel=1e-9)
    assert auc == pytest.approx(1 - (1 - advantage) ** 2 / 2)
    if advantage < 0.999:
        assert membership_information(advantage) == pytest.approx(nats, rel=1e-6)
    assert membership_bound(2 * nats)[0] >= advantage


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_no_pair_of_laws_is_told_apart_better_than_its_divergence_allows(first, second):
    assert abs(first - second) <= membership_bound(divergence(first, second))[0] * (1 + 1e-9) + 1e-12
