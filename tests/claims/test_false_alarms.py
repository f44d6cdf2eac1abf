"""Simulated rates at which claim tests err, and at which they see what they promise to see.

A trial is an experiment of four datasets with four replicas each. Every block has a problem of its own, far
larger than what is looked for, and noise of three degrees of freedom. Nothing is true of any claim, but everything is
unequal that may be: datasets and levels have different variances, and the choice of a learning rate shifts whole
(replica, level) downwards. Rows go through the tests as those of a study do; a trial is a slice of their replicas.
A quarter of the trials is simulated unless ``THOROUGH`` is set, as ``make test-all`` does.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakbound_lab.claims.judging import STRATUM, judge, opposed, promised, sides, verdict
from leakbound_lab.claims.outcomes import Blocks
from leakbound_lab.claims.statistics import student
from leakbound_lab.registries import CLAIM_TESTS

ALPHA = 0.05
ALLOWED = 0.06
THOROUGH = "THOROUGH" in os.environ
MANY, FEW = (500, 120) if THOROUGH else (125, 30)
"""Trials of a simulation, and of one of whole tables."""
RISK = 1e-5 if THOROUGH else 1e-2  # at which few trials show as small an excess; seeds are fixed
DELTA = 0.5
DATASETS, REPLICAS = 4, 4
LEVELS = np.array([50.0, 100.0, 200.0, 300.0])
Noise = Callable[..., np.ndarray]


def heavy(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Student's t of three degrees of freedom, with variance 1."""
    return generator.standard_t(3, size=shape) / np.sqrt(3)


def normal(generator: np.random.Generator, *shape: int) -> np.ndarray:
    return generator.normal(size=shape)


def nothing(
    generator: np.random.Generator,
    trials: int,
    arms: int,
    *,
    noise: Noise = heavy,
    chosen: bool = True,
    datasets: int = DATASETS,
    replicas: int = REPLICAS,
    levels: int = len(LEVELS),
) -> np.ndarray:
    """Values without any effect, trials x blocks x arms x levels."""
    blocks = datasets * replicas
    value = noise(generator, trials, blocks, arms, levels)
    spread = np.repeat([1.0, 1.0, 2.0, 4.0][:datasets], replicas)[:, None, None]
    value *= spread * np.array([1.0, 1.0, 2.0, 3.0])[:levels]
    if chosen:
        value -= 2 * spread * (generator.random(value.shape) < 0.3)
    return value + 5 * generator.normal(size=(trials, blocks, 1, 1))


def rows_of(values: np.ndarray, **columns: str) -> pd.DataFrame:
    """Rows of all trials as those of one setting; a replica is a block of a trial."""
    blocks = values.shape[1]
    index = np.indices(values.shape).reshape(4, -1)
    rows = pd.DataFrame({"replica": index[0] * blocks + index[1], "defense": [f"d{arm}" for arm in index[2]]})
    return rows.assign(
        level=LEVELS[index[3]], run=rows["defense"] + index[3].astype(str), value=values.ravel(), **columns
    )


def trials_of(test: str, options: dict, rows: pd.DataFrame, trials: int, datasets: int = DATASETS) -> Iterator[Blocks]:
    """What a claim's test finds in each trial."""
    found = CLAIM_TESTS.get(test)(rows, options=options)
    blocks = len(found.effects) // trials
    data = [f"data{place * datasets // blocks}" for place in range(blocks)] * trials
    index = pd.MultiIndex.from_arrays([data, ["lenet"] * len(data), found.effects.index], names=[*STRATUM, "replica"])
    tables = [table if table is None else table.set_axis(index) for table in (found.effects, found.scores, found.steps)]
    for first in range(0, len(data), blocks):
        effects, scores, steps = (table if table is None else table.iloc[first : first + blocks] for table in tables)
        yield replace(found, effects=effects, scores=scores, steps=steps)


def verdicts(found: Iterable[Blocks], delta: float = DELTA) -> Counter[str]:
    """Verdicts of all trials on a claim that is the only one of its figure, and how often an effect was seen."""
    generator = np.random.default_rng(99)
    counts: Counter[str] = Counter()
    for blocks in found:
        judged = judge(blocks, delta, ALPHA, generator)
        reached = verdict(judged, blocks.rule, judged.p_value, ALPHA)
        counts.update([reached, "all", *(["seen"] if judged.p_value < ALPHA and judged.direction else [])])
    return counts


def most(trials: int, rate: float = ALLOWED) -> float:
    """Share that a test with this rate exceeds with the probability ``RISK``."""
    return stats.binom.isf(RISK, trials, rate) / trials


ONE = {"where": {"defense": "d0"}}
FIRST_TWO = {"a": {"defense": "d0"}, "b": {"defense": "d1"}}
NULL = {
    "increasing": ONE,
    "greater": FIRST_TWO,
    "steeper": FIRST_TWO,
    "ordered": {"series": [{"defense": f"d{arm}"} for arm in range(3)]},
    "concordant": {"x": {"metric": "x"}, "y": {"metric": "y"}, "where": {"defense": "d0"}},
    "front": {
        "best": {"defense": "d0"},
        "against": [{"defense": "d1"}, {"defense": "d2"}],
        "x": {"metric": "x"},
        "y": {"metric": "y"},
        "reference": (-40.0, -40.0),
    },
}


def null_rate(test: str, trials: int, seed: int, **settings) -> float:
    """Share of trials without any effect in which a test sees one."""
    generator = np.random.default_rng(seed)
    arms = {"increasing": 1, "concordant": 1, "ordered": 3, "front": 3}.get(test, 2)
    rows = rows_of(nothing(generator, trials, arms, **settings), metric="y")
    if test in ("concordant", "front"):
        rows = pd.concat([rows, rows_of(nothing(generator, trials, arms, **settings), metric="x")])
    datasets = settings.get("datasets", DATASETS)
    counts = verdicts(trials_of(test, NULL[test], rows, trials, datasets))
    return counts["seen"] / trials


def two_of_six(trials: int, seed: int, first: float, second: float) -> list[Blocks]:
    """Blocks of two datasets of six replicas with true effects in multiples of delta, deviating by delta each."""
    values = DELTA / np.sqrt(2) * normal(np.random.default_rng(seed), trials, 12, 2, 1)
    values[:, :, 0] += DELTA * np.repeat([first, second], 6)[:, np.newaxis]
    return list(trials_of("greater", FIRST_TWO, rows_of(values), trials, 2))


def test_opposite_effects_of_twice_delta_are_negligible_in_less_than_a_hundredth():
    assert verdicts(two_of_six(400, 40, 2.0, -2.0))["negligible"] / 400 < 0.01


@pytest.mark.parametrize("effect", [0.25, 0.5, 1.0, 2.0])
def test_equal_effects_are_seldom_called_unequal(effect):
    found = [sides(blocks, DELTA, ALPHA) for blocks in two_of_six(MANY, 41, effect, effect)]
    assert sum(bool(opposed(each, "undecided")) for each in found) / MANY <= most(MANY)


@pytest.mark.parametrize("settings", [{}, {"chosen": False}, {"chosen": False, "noise": normal}])
@pytest.mark.parametrize("test", NULL)
def test_every_test_errs_in_at_most_6_percent_whatever_the_noise(test, settings):
    assert null_rate(test, MANY, 1, **settings) <= most(MANY)


def shared_shifts(trials: int, replicas: int, seed: int) -> float:
    """Share of trials without any effect in which a trend is seen, where replicas share the luck of a level."""
    generator = np.random.default_rng(seed)
    values = nothing(generator, trials, 1, datasets=1, replicas=replicas, chosen=False, noise=normal)
    values += 2 * generator.normal(size=(trials, 1, 1, len(LEVELS)))
    return verdicts(trials_of("increasing", ONE, rows_of(values), trials, 1))["seen"] / trials


def test_a_rate_that_all_replicas_of_a_level_share_makes_trends_of_nothing_and_more_replicas_make_it_worse():
    # Why learning rates are chosen for each replica: no test within blocks can tell the luck of a level from an effect.
    few, many = shared_shifts(100, 7, seed=3), shared_shifts(100, 12, seed=4)
    assert few > 2 * ALLOWED
    assert many > few
    assert null_rate("increasing", 100, seed=5, datasets=1, replicas=12) <= most(100)


FRONT = np.array([(0.52, 0.25), (0.58, 0.33), (0.66, 0.38), (0.76, 0.4)])
"""AUC and accuracy of four recipes, all of them corners."""
ARMS = {"none": "full", "early_stopping": "best", "stopped": "half"}


def recipe_rows(recipes: dict[str, np.ndarray], first: int = 0) -> pd.DataFrame:
    """Rows of arms, replicas x recipes x quantities each; four rates are a run, and only plain SGD has lengths."""
    rows = []
    for defense, values in recipes.items():
        index = np.indices(values.shape).reshape(3, -1)
        run, rate = index[1] // 4, index[1] % 4
        own = {"replica": first + index[0], "learning_rate": rate.astype(float), "value": values.ravel()}
        own |= {"metric": np.array(["auc", "test_accuracy"])[index[2]], "run": [f"{defense}-{one}" for one in run]}
        own |= {"defense": np.array(list(ARMS))[run] if defense == "none" else defense}
        rows.append(pd.DataFrame(own))
    return pd.concat(rows, ignore_index=True).assign(dataset="data0", model="lenet")


BEYOND = {
    "arm": {"defense": "arm"},
    "leakage": {"where": {"metric": "auc"}, "nothing": 0.5, "least": 0.0},
    "utility": {"metric": "test_accuracy"},
}


def side_of(rows: pd.DataFrame, generator: np.random.Generator) -> int:
    """1 if an arm is called beyond plain SGD, -1 if behind it, else 0."""
    found = CLAIM_TESTS.get("beyond")(rows, options=BEYOND)
    index = pd.MultiIndex.from_product([["data0"], ["lenet"], found.effects.index], names=[*STRATUM, "replica"])
    judged = judge(replace(found, effects=found.effects.set_axis(index)), 0.01, ALPHA, generator)
    return judged.direction * (judged.p_value < ALPHA)


def front_rates(
    arm: int, plain: int, trials: int, seed: int, *, ahead: float = 0.0, restrict: bool = False
) -> tuple[float, float]:
    """Shares of trials in which an arm is called beyond plain SGD, and behind it: both are copies of four recipes.

    Unless they are restricted to what both have, all recipes count as of one length, so that numbers differ.
    """
    generator = np.random.default_rng(seed)
    noise = np.array([0.02, 0.012])
    counts: Counter[int] = Counter()
    for _ in range(trials):
        sides = {
            name: FRONT[np.arange(count) % 4] + noise * generator.normal(size=(10, count, 2))
            for name, count in (("arm", arm), ("none", plain))
        }
        sides["arm"][..., 1] += ahead
        rows = recipe_rows(sides)
        rows = rows if restrict else rows.replace({"defense": {"early_stopping": "none", "stopped": "none"}})
        counts[side_of(rows, generator)] += 1
    return counts[1] / trials, counts[-1] / trials


@pytest.mark.parametrize(("arm", "plain"), [(4, 12), (12, 12), (4, 4), (12, 4)])
@pytest.mark.parametrize("restrict", [False, True])
def test_fronts_of_plain_sgd_err_in_at_most_6_percent_either_way(arm, plain, restrict):
    assert max(front_rates(arm, plain, FEW, seed=22, restrict=restrict)) <= most(FEW)


def test_an_arm_that_is_two_delta_ahead_is_seen_by_ten_blocks():
    assert front_rates(12, 12, FEW // 3, seed=23, ahead=0.02)[0] > 0.9
    assert front_rates(4, 4, FEW // 3, seed=24, ahead=0.02)[0] > 0.8


def plain_sgd(generator: np.random.Generator) -> np.ndarray:
    """Twelve recipes of plain SGD, whose lengths differ, in ten replicas that share some of their luck."""
    half, best = (0.06 * np.array([1.0, 0.6]) * part for part in (1.0, 0.2))
    recipes = np.concatenate([FRONT, FRONT - best * [0.8, 0.4], np.maximum(FRONT - half * [0.8, 1.4], [0.5, 0.1])])
    shared = generator.normal(size=(10, 1, 2))
    return recipes + np.array([0.02, 0.012]) * (0.6 * shared + generator.normal(size=(10, 12, 2)))


@pytest.mark.parametrize("part", [slice(0, 4), slice(8, 12), slice(0, 12)])
def test_networks_of_another_replica_are_neither_beyond_plain_sgd_nor_behind_it(part):
    generator = np.random.default_rng(25)
    counts: Counter[int] = Counter()
    for _ in range(FEW):
        plain = plain_sgd(generator)
        rows = recipe_rows({"none": plain})
        order = np.roll(np.arange(len(plain)), generator.integers(1, len(plain)))
        arm = rows[rows["defense"].isin(list(ARMS)[part.start // 4 : part.stop // 4])]
        arm = arm.assign(replica=order[arm["replica"]], run="arm-" + arm["run"], length=arm["defense"].map(ARMS))
        counts[side_of(pd.concat([rows.assign(length="full"), arm.assign(defense="arm")]), generator)] += 1
    assert max(counts[1], counts[-1]) / FEW <= most(FEW)


def forty_recipes(unsteady: float) -> np.ndarray:
    """Numbers of six replicas for equal recipes on both sides, trials x replicas.

    A quarter of the recipes train badly. Those of plain SGD are ``unsteady`` times as different between replicas.
    """
    generator = np.random.default_rng(32)
    leak, below = np.tile(np.geomspace(0.005, 0.3, 10), 4), np.repeat([0.0, 0.01, 0.02, 0.04], 10)
    truth = np.stack([0.5 + leak, 0.1 + 0.6 * np.sqrt(leak) - below], axis=-1)
    numbers = []
    for _ in range(FEW):
        tables = []
        for defense in ("none", "arm"):
            noise = generator.normal(size=(6, 40, 2))
            noise[:, 30:, 1] *= unsteady if defense == "none" else 1.0
            noise += 0.6 * generator.normal(size=(6, 1, 2))
            own = recipe_rows({"arm": truth + np.array([0.02, 0.012]) * noise})
            tables.append(own.assign(defense=defense, run=defense + own["run"]))
        found = CLAIM_TESTS.get("beyond")(pd.concat(tables), options=BEYOND)
        numbers.append(found.effects["beyond"].to_numpy())
    return np.array(numbers)


@pytest.mark.parametrize("unsteady", [1.0, 4.0])
def test_fronts_of_forty_recipes_err_in_at_most_6_percent_even_if_bad_ones_are_unsteady(unsteady):
    numbers = forty_recipes(unsteady)
    scores = numbers.mean(axis=1) / (numbers.std(axis=1, ddof=1) / np.sqrt(6))
    assert abs(numbers.mean()) < 0.006
    for side in (1, -1):
        assert (side * scores > stats.t.ppf(1 - ALPHA / 2, 5)).mean() <= most(FEW)


@pytest.mark.parametrize("spread", [(1, 1, 2, 3), (3, 2, 1, 1)])
@pytest.mark.parametrize("blocks", [10, 20])
def test_skewed_errors_whose_spread_moves_are_a_trend_in_at_most_6_percent(spread, blocks):
    """Lognormal errors of equal means."""
    sigma = 0.85
    errors = np.exp(sigma * normal(np.random.default_rng(27), MANY, blocks, 1, 4)) - np.exp(sigma**2 / 2)
    values = errors / np.sqrt(np.expm1(sigma**2) * np.exp(sigma**2)) * spread
    counts = verdicts(trials_of("increasing", ONE, rows_of(values), MANY, 1))
    assert counts["seen"] / MANY <= most(MANY)


def deviating(trials: int, seed: int, shifts: tuple[float, ...], noise: Noise = heavy) -> Counter[str]:
    """Verdicts where datasets of five replicas each have effects of their own, in standard deviations."""
    values = noise(np.random.default_rng(seed), trials, 5 * len(shifts), 2, 1)
    values[:, :, 0] += np.repeat(shifts, 5)[:, np.newaxis]
    return verdicts(trials_of("greater", FIRST_TWO, rows_of(values), trials, len(shifts)), 0.1)


def test_three_datasets_of_four_speak_for_all():
    assert deviating(10, 29, (3.0, 3.0, 3.0, 0.0))["reproduced"] > 7


@pytest.mark.parametrize("noise", [heavy, normal])
@pytest.mark.parametrize("shifts", [(3.0, 0.0, 0.0, 0.0), (-3.0, 0.0, 0.0, 0.0), (9.0, 9.0, 0.0, 0.0, 0.0)])
def test_fewer_than_half_of_the_datasets_do_not_speak_for_all(noise, shifts):
    counts = deviating(MANY, 30, shifts, noise)
    assert (counts["reproduced"] + counts["contradicted"]) / MANY <= most(MANY)


def test_a_difference_within_delta_is_seldom_said_to_be_larger_on_either_side():
    values = normal(np.random.default_rng(31), MANY, 16, 2, 1)
    counts = verdicts(trials_of("within", FIRST_TWO, rows_of(values), MANY, 1), 0.02)
    assert counts["contradicted"] / MANY <= most(MANY)


def test_a_curve_with_a_step_back_is_called_a_trend_in_at_most_5_percent():
    generator = np.random.default_rng(7)
    curve = np.array([0.0, 2.0, 2.0 - DELTA, 4.0])  # a step back by delta, the least that counts
    for noise, scale in ((heavy, 0.3), (normal, 0.3), (normal, 1.0)):
        values = scale * noise(generator, MANY, 16, 1, 4) + curve
        counts = verdicts(trials_of("increasing", ONE, rows_of(values), MANY))
        assert counts["seen"] > 0.9 * MANY
        assert counts["reproduced"] / MANY <= most(MANY, 0.05)


@pytest.mark.parametrize("test", ["within", "at_most"])
@pytest.mark.parametrize("noise", [heavy, normal])
def test_an_equivalence_that_just_fails_to_hold_is_seldom_reproduced(test, noise):
    values = 0.5 * noise(np.random.default_rng(9), MANY, 16, 2, 1) + np.array([DELTA, 0.0])[:, np.newaxis]
    counts = verdicts(trials_of(test, FIRST_TWO, rows_of(values), MANY))
    assert max(counts["reproduced"], counts["contradicted"]) / MANY <= most(MANY, 0.05)


@pytest.mark.parametrize("noise", [heavy, normal])
def test_an_effect_of_delta_is_seldom_called_negligible(noise):
    values = 0.3 * noise(np.random.default_rng(10), MANY, 16, 2, 1) + np.array([DELTA, 0.0])[:, np.newaxis]
    counts = verdicts(trials_of("greater", FIRST_TWO, rows_of(values), MANY))
    assert counts["negligible"] / MANY <= most(MANY, 0.05)


def test_no_effect_is_called_negligible_where_noise_is_small():
    values = 0.1 * normal(np.random.default_rng(11), 40, 16, 2, 1)
    assert verdicts(trials_of("greater", FIRST_TWO, rows_of(values), 40))["negligible"] > 36


@pytest.mark.parametrize("settings", [{}, {"chosen": False, "noise": normal}])
def test_datasets_that_have_no_effect_seldom_oppose_those_that_have_one(settings):
    values = nothing(np.random.default_rng(12), MANY, 2, replicas=5, **settings)
    values[:, :5, 0] += 50  # the first dataset has the effect, three have none
    found = trials_of("greater", FIRST_TWO, rows_of(values), MANY)
    assert sum(bool(opposed(sides(blocks, DELTA, ALPHA), "reproduced")) for blocks in found) / MANY <= most(MANY)


def test_a_dataset_that_goes_the_other_way_is_seen_by_five_replicas():
    values = normal(np.random.default_rng(13), 20, 20, 2, 1)
    values[:, :, 0] += np.repeat([9.0, 9.0, 9.0, -9.0], 5)[:, np.newaxis]
    found = trials_of("greater", FIRST_TWO, rows_of(values), 20)
    assert sum(opposed(sides(blocks, DELTA, ALPHA), "reproduced") == ["data3"] for blocks in found) > 17


@pytest.mark.parametrize(("test", "levels"), [("greater", 1), ("increasing", 3), ("increasing", 4)])
@pytest.mark.parametrize("blocks", [10, 20])
def test_power_is_what_was_promised(test, levels, blocks):
    slopes = np.log2(LEVELS[:levels] / LEVELS[0])
    spread = {1: 1.0, 3: 1.4, 4: 1.4}[levels] * (blocks / 20) ** 0.5
    values = spread * normal(np.random.default_rng(14), MANY, blocks, 2, levels)
    values[:, :, 0] += 2 * DELTA * (slopes if test == "increasing" else 1)
    found = list(trials_of(test, NULL[test], rows_of(values), MANY, 2))
    promise = np.mean([promised(one, DELTA, ALPHA, ALPHA).power(blocks) for one in found])
    reached = verdicts(found)["reproduced"] / MANY
    assert reached > 0.3
    assert promise - 0.15 < reached < promise + 0.2


def test_students_test_of_five_blocks_keeps_its_level_under_heavy_tails():
    values = heavy(np.random.default_rng(15), 3000, 5)
    alarms = np.mean([2 * min(student(one, ["data"] * 5)) < ALPHA for one in values])
    assert alarms <= most(3000)
