"""Simulated rates at which claim tests err, and at which they see what they promise to see.

A trial is an experiment of four datasets with four replicas each. Every block has a problem of its own, far
larger than what is looked for, and noise of three degrees of freedom. Nothing is true of any claim, but everything is
unequal that may be: datasets and levels have different variances, and the choice of a learning rate shifts whole
(replica, level) downwards. Rows go through the tests as those of a study do; a trial is a slice of their replicas.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakbound.claims.judging import STRATUM, judge, opposed, promised, verdict
from leakbound.claims.outcomes import Blocks
from leakbound.claims.statistics import rank_correlation, student
from leakbound.registry import CLAIM_TESTS

ALPHA = 0.05
ALLOWED = 0.06
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
        judged = judge(blocks, delta, generator)
        reached = verdict(judged, blocks.rule, judged.p_value, delta, ALPHA)
        counts.update([reached, "all", *(["seen"] if judged.p_value < ALPHA and judged.direction else [])])
    return counts


def most(trials: int, rate: float = ALLOWED) -> float:
    """Share that a test with this rate exceeds with probability 1e-5."""
    return stats.binom.isf(1e-5, trials, rate) / trials


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
    if test == "front":  # one with fewer levels, which must not make a difference
        rows = rows[(rows["defense"] != "d2") | (rows["level"] != LEVELS[-1])]
    datasets = settings.get("datasets", DATASETS)
    counts = verdicts(trials_of(test, NULL[test], rows, trials, datasets))
    return counts["seen"] / trials


@pytest.mark.parametrize("test", ["increasing", "greater"])
def test_a_test_seldom_sees_what_is_not_there(test):
    assert null_rate(test, 120, seed=2) <= most(120)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"chosen": False}, {"chosen": False, "noise": normal}])
@pytest.mark.parametrize("test", NULL)
def test_every_test_errs_in_at_most_6_percent_whatever_the_noise(test, settings):
    trials = 300 if test == "front" else 1000
    assert null_rate(test, trials, 1, **settings) <= most(trials)


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


def test_pages_own_null_errs_where_levels_differ_in_variance():
    generator = np.random.default_rng(6)
    trials, k = 4000, 4
    values = generator.normal(size=(trials * 20, k)) * [4, 1, 1, 4]
    found = rank_correlation(np.broadcast_to(np.arange(float(k)), values.shape), values).reshape(trials, 20)
    p_values = 2 * stats.norm.sf(np.abs(found.sum(axis=1)) * np.sqrt((k - 1) / 20))
    assert (p_values < ALPHA).mean() > ALLOWED


@pytest.mark.slow
def test_a_curve_with_a_step_back_is_called_a_trend_in_at_most_5_percent():
    generator = np.random.default_rng(7)
    trials = 1000
    curve = np.array([0.0, 2.0, 2.0 - DELTA, 4.0])  # a step back by delta, the least that counts
    for noise, scale in ((heavy, 0.3), (normal, 0.3), (normal, 1.0)):
        values = scale * noise(generator, trials, 16, 1, 4) + curve
        counts = verdicts(trials_of("increasing", ONE, rows_of(values), trials))
        assert counts["seen"] > 0.9 * trials
        assert counts["reproduced"] / trials <= most(trials, 0.05)


def test_a_curve_that_zigzags_is_no_trend_though_it_rises_on_the_whole():
    generator = np.random.default_rng(8)
    values = 0.3 * heavy(generator, 60, 16, 1, 4) + np.array([0.0, 2.0, 1.2, 4.0])
    counts = verdicts(trials_of("increasing", ONE, rows_of(values), 60))
    assert counts["seen"] == 60
    assert counts["reproduced"] <= 60 * most(60, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("test", ["within", "at_most"])
@pytest.mark.parametrize("noise", [heavy, normal])
def test_an_equivalence_that_just_fails_to_hold_is_seldom_reproduced(test, noise):
    generator = np.random.default_rng(9)
    trials = 1000
    values = 0.5 * noise(generator, trials, 16, 2, 1) + np.array([DELTA, 0.0])[:, np.newaxis]
    counts = verdicts(trials_of(test, FIRST_TWO, rows_of(values), trials))
    assert counts["reproduced"] / trials <= most(trials, 0.05)
    assert counts["contradicted"] / trials <= most(trials, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [heavy, normal])
def test_an_effect_of_delta_is_seldom_called_negligible(noise):
    generator = np.random.default_rng(10)
    trials = 1000
    values = 0.3 * noise(generator, trials, 16, 2, 1) + np.array([DELTA, 0.0])[:, np.newaxis]
    assert verdicts(trials_of("greater", FIRST_TWO, rows_of(values), trials))["negligible"] / trials <= most(
        trials, 0.05
    )


def test_no_effect_is_called_negligible_where_noise_is_small():
    values = 0.2 * normal(np.random.default_rng(11), 40, 16, 2, 1)
    assert verdicts(trials_of("greater", FIRST_TWO, rows_of(values), 40))["negligible"] > 36


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"chosen": False, "noise": normal}])
def test_datasets_that_have_no_effect_seldom_oppose_those_that_have_one(settings):
    generator = np.random.default_rng(12)
    trials = 500
    values = nothing(generator, trials, 2, replicas=5, **settings)
    values[:, :5, 0] += 50  # the first dataset has the effect, three have none
    found = trials_of("greater", FIRST_TWO, rows_of(values), trials)
    assert sum(bool(opposed(blocks, "reproduced", DELTA, ALPHA)) for blocks in found) / trials <= most(trials)


def test_a_dataset_that_goes_the_other_way_is_seen_by_five_replicas():
    values = normal(np.random.default_rng(13), 20, 20, 2, 1)
    values[:, :, 0] += np.repeat([9.0, 9.0, 9.0, -9.0], 5)[:, np.newaxis]
    found = trials_of("greater", FIRST_TWO, rows_of(values), 20)
    assert sum(opposed(blocks, "reproduced", DELTA, ALPHA) == ["data3"] for blocks in found) > 17


@pytest.mark.slow
@pytest.mark.parametrize(("test", "levels"), [("greater", 1), ("increasing", 3), ("increasing", 4)])
@pytest.mark.parametrize("blocks", [10, 20])
def test_power_is_what_was_promised(test, levels, blocks):
    generator = np.random.default_rng(14)
    trials, slopes = 400, np.log2(LEVELS[:levels] / LEVELS[0])
    spread = {1: 1.0, 3: 1.4, 4: 1.4}[levels] * (blocks / 20) ** 0.5
    values = spread * normal(generator, trials, blocks, 2, levels)
    values[:, :, 0] += 2 * DELTA * (slopes if test == "increasing" else 1)
    found = list(trials_of(test, NULL[test], rows_of(values), trials, 2))
    promise = np.mean([promised(one, DELTA, ALPHA).power(blocks) for one in found])
    reached = verdicts(found)["reproduced"] / trials
    assert reached > 0.3
    assert promise - 0.15 < reached < promise + 0.2


@pytest.mark.slow
def test_students_test_of_five_blocks_keeps_its_level_under_heavy_tails():
    values = heavy(np.random.default_rng(15), 3000, 5)
    alarms = np.mean([2 * min(student(one, ["data"] * 5)) < ALPHA for one in values])
    assert alarms <= most(3000)
