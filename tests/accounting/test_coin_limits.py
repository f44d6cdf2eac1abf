"""Lower limits from coins: how often they lie above the truth, for mechanisms whose truth is known."""

import math

import numpy as np
import pytest
from scipy import special, stats

from leakbound.accounting.coin_limits import StatedBound, coin_limits, verdict_on
from leakbound.accounting.one_run import one_run_epsilon, one_run_information

PAIRS = 60
TRIALS = 200
SLACK = 0.05 + 0.03  # two standard errors of so many trials


def limits(draw, members, others, canaries=None, delta=0.0):
    """Limits from scores of which the first half is known; ε, then nats, by two attackers of which one guesses."""
    known, rest = [
        {"scores": [members[part], others[part]], "noise": list(draw.normal(size=(2, PAIRS)))}
        for part in (slice(PAIRS), slice(PAIRS, None))
    ]
    bound = StatedBound("epsilon", 1.0, delta)
    return {(one.source, one.quantity): one for one in coin_limits(bound, 0.95, known, rest, canaries)}


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_limits_of_randomized_response_are_above_the_truth_in_at_most_five_percent(epsilon):
    """Whether each record was used is released with the truth at e^ε/(1 + e^ε): exactly ε of adding or removing it."""
    draw, right = np.random.default_rng(3), special.expit(epsilon)
    seen = np.array([right**2, 2 * right * (1 - right), (1 - right) ** 2])  # both bits of a pair true, one, none
    nats = float(
        special.rel_entr(seen[0], (seen[0] + seen[2]) / 2) + special.rel_entr(seen[2], (seen[0] + seen[2]) / 2)
    )
    over = np.zeros(3)
    for _ in range(TRIALS):
        members, others = draw.random((2, 2 * PAIRS)) < np.array([[right], [1 - right]])
        included = draw.random(100) < 0.5
        released = np.where(draw.random(100) < right, included, ~included) + 0.0
        alone = limits(draw, members + 0.0, others + 0.0)
        over[0] += alone["pairs", "epsilon"].demonstrated > epsilon
        over[1] += alone["pairs", "nats"].demonstrated > nats
        both = limits(draw, members + 0.0, others + 0.0, (released, included))
        over[2] += max(both[source, "epsilon"].demonstrated for source in ("pairs", "canaries")) > epsilon
    assert (over / TRIALS <= SLACK).all(), over


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.3])
def test_nats_of_a_mechanism_that_reveals_all_or_nothing_are_not_overstated(share):
    """It reveals share · ln 2 about a coin; trials that were taken for independent ones would show ln 2."""
    draw, over = np.random.default_rng(4), 0
    for _ in range(TRIALS):
        revealed = draw.random() < share
        members = draw.normal(size=2 * PAIRS) + (10 if revealed else 0)
        found = limits(draw, members, draw.normal(size=2 * PAIRS))["pairs", "nats"].demonstrated
        over += found > share * math.log(2)
    assert over / TRIALS <= SLACK


def test_information_of_one_run_is_the_divergence_of_its_event():
    """d(α ‖ q)/k with q the chance of so many right guesses, against the sum of the binomial distribution."""
    chance = sum(stats.binom.pmf(right, 40, 0.5) for right in range(35, 41))
    divergence = 0.1 * math.log(0.1 / chance) + 0.9 * math.log(0.9 / (1 - chance))
    assert one_run_information(80, 40, 35, 0.9) == pytest.approx(divergence / 80)
    assert one_run_information(80, 40, 20) == 0.0
    for pairs in (100, 10_000, 1_000_000):
        assert one_run_information(pairs, pairs, pairs) < 0.05 * math.log(2)
    assert one_run_information(1_000_000, 1_000_000, 1_000_000) == pytest.approx(0.05 * math.log(2), rel=1e-5)


@pytest.mark.no_shapes
def test_scores_that_are_all_equal_show_nothing_whatever_the_order_of_the_coins():
    included = np.arange(100) < 50
    found = limits(
        np.random.default_rng(6), np.zeros(2 * PAIRS), np.zeros(2 * PAIRS), (np.zeros(100), included[::2].repeat(2))
    )
    assert found["pairs", "epsilon"].demonstrated == 0.0
    draw = np.random.default_rng(7)
    shuffled = [
        limits(draw, *np.zeros((2, 2 * PAIRS)), (np.zeros(100), draw.permutation(included))) for _ in range(100)
    ]
    assert sum(one["canaries", "epsilon"].demonstrated > 0 for one in shuffled) <= 5


def test_a_verdict_says_what_so_few_coins_could_show():
    draw = np.random.default_rng(8)
    known = {"scores": [np.ones(PAIRS), np.zeros(PAIRS)]}
    found = coin_limits(StatedBound("nats", 60.0), 0.95, known, known)
    said = verdict_on(StatedBound("nats", 60.0), list(found), 0.95)
    assert said.startswith("nats = 60 is not contradicted at confidence 0.95: the lower limit is 0.0")
    assert "one network with so many records shows at most 0.0" in said
    strict = limits(draw, np.ones(2 * PAIRS), np.zeros(2 * PAIRS))
    assert " is contradicted " in verdict_on(StatedBound("epsilon", 1.0, 0.0), list(strict.values()), 0.95)
    clear = strict["pairs", "epsilon"]
    assert clear.demonstrated == clear.reachable == one_run_epsilon(PAIRS, PAIRS, PAIRS, 0.0, 0.95, "pairs")
    assert (clear.contradicts, clear.bound, clear.coins, clear.correct) == (True, 1.0, PAIRS, PAIRS)
    assert verdict_on(None, list(strict.values()), 0.95) == "no bound was given, so none is contradicted"


def test_limits_are_those_of_the_written_out_levels():
    """Canaries and pairs share the doubt about ε, and four ways to guess canaries share theirs. All are right."""
    included = np.arange(40) < 20
    one = {"scores": [np.ones(30), np.zeros(30)]}
    found = list(coin_limits(StatedBound("epsilon", 1.0, 0.0), 0.9, one, one, (included + 0.0, included)))
    canaries, pairs, nats = (limit.demonstrated for limit in found)
    ways = [one_run_epsilon(40, guesses, guesses, 0.0, 1 - 0.05 / 4) for guesses in (40, 20, 4)]
    assert canaries == pytest.approx(max(ways), rel=1e-9)
    assert pairs == pytest.approx(one_run_epsilon(30, 30, 30, 0.0, 0.95, "pairs"), rel=1e-9)
    assert nats == pytest.approx(one_run_information(30, 30, 30, 0.9), rel=1e-9)
