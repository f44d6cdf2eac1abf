"""Risks from nats, held against closed forms, extreme mechanisms and simulated attackers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from leakbound.accounting.reconstruction import empirical_bayes
from leakbound.accounting.risk import (
    identification_epsilon,
    identification_information,
    identification_risk,
    membership_bound,
    membership_information,
    naming_bound,
)

NATS = st.floats(1e-6, 40)
SPREADS = (0.1, 0.3, 0.8, 1.5)
WIDTH = 3


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


@pytest.mark.parametrize("spread", SPREADS)
def test_attackers_on_a_gaussian_channel_stay_below_every_bound(spread):
    """Records s N(0, I), noise N(0, I): ½ d ln(1 + s²) nats; 200 lists of 20 candidates, and 20,000 pairs."""
    nats = 0.5 * WIDTH * math.log1p(spread**2)
    generator = np.random.default_rng(4)
    lists = [spread * generator.standard_normal((20, WIDTH)) for _ in range(200)]
    rates = [empirical_bayes(one, np.ones(WIDTH), generator, draws=50).identification_rate for one in lists]
    row = identification_risk(nats, 20)
    error = np.std(rates, ddof=1) / math.sqrt(len(rates))
    assert 1 / 20 < np.mean(rates) < row.probability + 3 * error
    assert row.probability == naming_bound(nats, 20)
    used, other = spread * generator.standard_normal((2, 20_000, WIDTH))
    seen = used + generator.standard_normal(used.shape)
    scores = [-0.5 * np.square(seen - record).sum(axis=1) for record in (used, other)]
    scores = [one + 0.5 * np.square(seen).sum(axis=1) / (1 + spread**2) for one in scores]  # log-likelihood ratios
    advantage, auc = membership_bound(nats)
    grid = np.sort(np.concatenate(scores))
    tpr, fpr = (1 - np.searchsorted(np.sort(one), grid) / len(one) for one in scores)
    noise = 3 / math.sqrt(20_000)
    assert noise < (tpr - fpr).max() < advantage + noise
    ranked = np.searchsorted(np.sort(scores[1]), scores[0]).mean() / len(scores[1])
    assert 0.5 < ranked < auc + noise


@pytest.mark.parametrize("candidates", [2, 10, 1000, 10**6, 10**12])
def test_no_probability_at_or_above_the_bound_on_naming_takes_fewer_nats(candidates):
    for share in (1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999):
        nats = share * math.log(candidates)
        bound = naming_bound(nats, candidates)
        assert identification_information(bound, candidates) >= nats
        assert identification_information(bound - 2e-12, candidates) <= nats * (1 + 1e-12)


def test_nats_of_a_guess_hardly_better_than_chance_have_their_digits():
    """Among 10¹² candidates, where 1 − p and 1 − 1/M agree to 12 digits."""
    chance = 1e-12
    exact = 2 * chance * math.log(2) - chance
    assert identification_information(2 * chance, 10**12) == pytest.approx(exact, rel=1e-9)
