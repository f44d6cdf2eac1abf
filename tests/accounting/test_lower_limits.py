import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakbound.accounting.lower_limits import (
    Evidence,
    evidence,
    evidence_rows,
    naming_rate,
    pairs_information,
    weights_epsilon,
    weights_information,
)
from leakbound.accounting.one_run import one_run_epsilon
from leakbound.accounting.risk import demonstrated_information, gained_information, identification_information


def shifted(shift: float, networks: int = 6, records: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return shift + generator.standard_normal((networks, records)), generator.standard_normal((networks, records))


@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_the_naming_rate_is_that_over_all_groups(candidates):
    generator = np.random.default_rng(1)
    members, nonmembers = generator.integers(0, 6, 5).astype(float), generator.integers(0, 6, 7).astype(float)
    groups = [
        all(own > nonmembers[list(others)])
        for own in members
        for others in itertools.combinations(range(7), candidates - 1)
    ]
    assert naming_rate(members, nonmembers, candidates) == pytest.approx(np.mean(groups))


def test_weights_that_show_nothing_demonstrate_nothing_but_by_chance():
    """False alarms at 95 %: at most 5 % of 200 simulations, with 1.9 standard errors."""
    limits = [weights_information(*shifted(0.0, seed=seed)) for seed in range(200)]
    assert np.mean(np.array(limits) > 0) <= 0.05 + 0.03


def test_weights_that_show_their_members_demonstrate_all_that_naming_can():
    found = weights_information(*shifted(30.0))
    assert found == pytest.approx(math.log(100), rel=1e-6)
    assert 0 < weights_information(*shifted(0.5)) < weights_information(*shifted(2.0)) < found


def test_limits_from_weights_are_below_the_true_rate_in_95_percent():
    """P(member above one other) = Φ(1/√2) = .7602 in every network; M = 2 alone, 400 simulations."""
    truth = identification_information(0.7602, 2)
    over = [weights_information(*shifted(1.0, 5, 60, seed), candidates=(2,)) > truth for seed in range(400)]
    assert np.mean(over) <= 0.05 + 0.02


def test_a_diverged_network_is_left_out_and_one_alone_demonstrates_nothing():
    members, nonmembers = shifted(30.0, 3)
    members[1] = np.nan
    assert weights_information(members, nonmembers) == pytest.approx(weights_information(*shifted(30.0, 2)), rel=1e-6)
    members[0] = np.nan
    assert weights_information(members, nonmembers) == 0.0


def test_pairs_of_canaries_demonstrate_half_of_what_single_ones_would():
    generator = np.random.default_rng(2)
    inserted = generator.integers(0, 2, (3, 40))
    scores = np.stack([inserted == 0, inserted == 1], axis=-1) * 5.0 + 0.1 * generator.standard_normal((3, 40, 2))
    found, pairs = weights_epsilon(scores, inserted, 1e-5)
    assert pairs == 120
    assert found == one_run_epsilon(120, 60, 60, 1e-5, adjacency="pairs")
    assert 1.0 < found < one_run_epsilon(120, 60, 60, 0.0) / 2 + 1e-9
    scores[0] = np.nan
    assert weights_epsilon(scores, inserted, 1e-5)[1] == 80
    assert weights_epsilon(scores[:, :, ::-1], inserted, 1e-5)[0] == 0.0


def test_pairs_of_canaries_name_their_member_by_networks():
    """One network in four sees nothing, the others all: the limit is that of four rates."""
    inserted = np.tile([0, 1], (4, 10))
    scores = np.stack([inserted == 0, inserted == 1], axis=-1) * 1.0
    assert pairs_information(scores, inserted) == pytest.approx(math.log(2))
    assert pairs_information(scores[:, :, ::-1], inserted) == 0.0
    scores[0, ::2] = scores[0, ::2, ::-1]
    rates = np.array([0.5, 1.0, 1.0, 1.0])
    low = rates.mean() - stats.t.ppf(0.95, 3) * rates.std(ddof=1) / 2
    assert pairs_information(scores, inserted) == pytest.approx(identification_information(low, 2))
    scores[1:] = np.nan
    assert pairs_information(scores, inserted) == 0.0


def named(hits: dict[tuple[str, int], tuple[int, int]], bound: float | None) -> pd.DataFrame:
    """Rows of `naming` with 50 trials in each of two replicas, one use."""
    rows = []
    for replica in (0, 1):
        rows += [(variant, count, "rate_1", pair[replica] / 50) for (variant, count), pair in hits.items()]
        rows += [(variant, -1, "trials", 50.0) for variant in {variant for variant, _ in hits}]
        rows += [] if bound is None else [("bound", -1, "nats_1", bound)]
    return pd.DataFrame(rows, columns=["variant", "unit", "metric", "value"]).assign(
        replica=np.repeat([0, 1], len(rows) // 2)
    )


def test_trials_of_replicas_are_pooled_and_the_choice_of_candidates_is_paid_for():
    rows = named({("images", 2): (50, 50), ("images", 10): (40, 41), ("gradients", 2): (25, 25)}, 3.0)
    images, gradients = evidence({"naming": rows})
    limits = [demonstrated_information(100, 100, 2, 0.975), demonstrated_information(81, 100, 10, 0.975)]
    assert images == Evidence("images", 1, "nats", max(limits), 3.0, 100, "naming")
    assert gradients.demonstrated == 0.0
    assert not images.alarming


def test_more_than_is_allowed_is_an_alarm_and_no_bound_is_none():
    (found,) = evidence({"naming": named({("images", 10): (50, 50)}, 0.5)})
    assert found.alarming
    (free,) = evidence({"naming": named({("images", 10): (50, 50)}, None)})
    assert math.isnan(free.allowed)
    assert not free.alarming
    assert free.to_dict()["allowed"] is None
    assert evidence_rows([free])["variant"].tolist() == ["demonstrated"]


def test_scores_of_weights_stand_beside_the_stated_bounds():
    """The attacker that was chosen beforehand speaks; of several others the best, corrected for the choice."""
    members, nonmembers = shifted(2.0)
    weak, others = shifted(0.0, seed=3)
    scores = {"a_members": members, "a_nonmembers": nonmembers, "b_members": weak, "b_nonmembers": others}
    leakage = {"labels": 2.0, "replica": {"record": 10.0}}
    (best,) = evidence({}, scores, leakage)
    assert (best.attacker, best.allowed, best.trials) == ("a", 12.0, 6)
    assert best.demonstrated == weights_information(members, nonmembers, confidence=0.975)
    chosen = {"strongest_members": weak, "strongest_nonmembers": others}
    (strongest,) = evidence({}, {**scores, **chosen}, leakage)
    assert strongest.attacker == "strongest"


def test_audits_of_all_replicas_count_together():
    counts = {"canaries": 100.0, "guesses": 50.0, "correct": 45.0, "delta": 1e-5}
    rows = pd.DataFrame(
        [
            {"replica": replica, "unit": -1, "variant": variant, "metric": metric, "value": value}
            for replica in range(3)
            for variant, values in (("coins", counts), ("bound", {"epsilon": 9.0}), ("gaussian", {"epsilon": 1.0}))
            for metric, value in values.items()
        ]
    )
    general, tight = evidence({"audit": rows})
    assert general.demonstrated == one_run_epsilon(300, 150, 135, 1e-5)
    assert (general.trials, general.allowed, general.quantity) == (300, 9.0, "epsilon")
    assert tight.demonstrated > general.demonstrated
    assert tight.quantity == "gaussian_epsilon"


def student(rates, doubt):
    """Student's one-sided lower limit of a mean, written out."""
    rates = np.asarray(rates)
    return rates.mean() - stats.t.isf(doubt, len(rates) - 1) * rates.std(ddof=1) / math.sqrt(len(rates))


def test_limits_from_weights_are_those_of_the_written_out_levels():
    """Three numbers of candidates share the doubt, and then the attackers of which the best one counts."""
    members, others = shifted(1.0, 5, 120)
    rates = {count: [naming_rate(*pair, count) for pair in zip(members, others, strict=True)] for count in (2, 10, 100)}

    def limit(doubt):
        return max(identification_information(max(student(of, doubt / 3), 0.0), count) for count, of in rates.items())

    assert weights_information(members, others) == pytest.approx(limit(0.05), rel=1e-12)
    assert weights_information(members, others, (2,)) == pytest.approx(
        identification_information(student(rates[2], 0.05), 2), rel=1e-12
    )
    coins = np.tile([0, 1], (5, 20))
    scores = np.where(np.arange(2) == coins[..., None], 1.0, 0.0)
    scores[:, :8] = scores[:, :8, ::-1]  # eight wrong of forty, and one more in the first network
    scores[0, 8] = scores[0, 8, ::-1]
    arrays = {f"{name}_{part}": of for name in "ab" for part, of in (("members", members), ("nonmembers", others))}
    arrays |= {"a_canaries": scores, "b_canaries": scores, "canaries_inserted": coins}
    bounds = {"replica": {"record": 9.0, "epsilon": 9.0, "delta": 0.0}, "labels": 1.0}
    found = nats, pairs, epsilon = evidence({}, arrays, bounds)
    assert [(one.release, one.quantity) for one in found] == [
        ("weights", "nats"),
        ("canaries", "nats"),
        ("canaries", "epsilon"),
    ]
    assert (nats.demonstrated, nats.allowed) == (pytest.approx(limit(0.025), rel=1e-12), 10.0)
    right = student([31 / 40, 0.8, 0.8, 0.8, 0.8], 0.025)
    assert pairs.demonstrated == pytest.approx(identification_information(right, 2), rel=1e-12)
    assert epsilon.demonstrated == weights_epsilon(scores, coins, 0.0, 0.975)[0]
    assert pairs.demonstrated > 0 < epsilon.demonstrated


def test_pooled_trials_have_the_variance_of_all_of_them_and_share_the_doubt():
    """Two replicas of 400 trials; gains by two numbers of candidates and no hit by one: a third of the doubt each."""
    gains = {2: np.array([[0.6, 0.5, 0.6, 0.6], [0.5, 0.6, 0.5, 0.6]]), 50: np.full((2, 4), 3.0)}
    gains[50][0, 0] = 2.9
    table, limits, doubt = [], [], 0.9
    for replica in range(2):
        table += [("images", "trials", -1, replica, 400.0), ("images", "rate_1", 2, replica, 0.0)]
        for count, of in gains.items():
            table.append(("images", "gain_1", count, replica, of[replica].mean()))
            table.append(("images", "gain_variance_1", count, replica, of[replica].var(ddof=1)))
    for count, of in gains.items():
        within = 399 * of.var(axis=1, ddof=1).sum()
        between = 400 * np.square(of.mean(axis=1) - of.mean()).sum()
        limits.append(gained_information(of.mean(), (within + between) / 799, 800, count, 1 - doubt / 3))
    rows = pd.DataFrame(table, columns=["variant", "metric", "unit", "replica", "value"])
    (found,) = evidence({"naming": rows}, confidence=1 - doubt)
    assert found.demonstrated == pytest.approx(max(limits), rel=1e-12)
    assert max(limits) > 0
