"""Claims about slopes, about order within replicas, across networks, and about how many seeds would decide."""

import numpy as np
import pandas as pd
import pytest

from leakbound.claims.claims import evaluate
from leakbound.claims.selection import SelectionError, select
from leakbound.claims.statistics import replicas_needed, smallest_sign_p, smallest_trend_p
from leakbound.config.catalogue import ClaimConfig, FigureConfig
from leakbound.config.messages import ConfigError
from leakbound.config.strength import with_strength
from leakbound.registry import CLAIM_TESTS

ALPHA = 0.05


def judged(rows: pd.DataFrame, test: str, options: dict, across: tuple[str, ...] = ()) -> pd.Series:
    claim = ClaimConfig(id="claim", text="A statement.", test=test, options=options, across=across)
    figure = FigureConfig(id="fig", paper="tan2024", title="t", study="s", plot="levels", caption="c", claims=(claim,))
    return evaluate(figure, rows, ALPHA).iloc[-1]


def rising(slope: float, defense: str, *, seed: int, replicas: int = 7, model: str = "lenet") -> pd.DataFrame:
    """Values over batch sizes that rise by ``slope`` when the size doubles, on problems of different difficulty."""
    generator = np.random.default_rng(seed)
    difficulty = np.random.default_rng(0).normal(0, 3, replicas)
    frames = [
        pd.DataFrame({"replica": range(replicas), "value": difficulty + slope * np.log2(size)}).assign(batch_size=size)
        for size in (1, 2, 4, 8)
    ]
    rows = pd.concat(frames, ignore_index=True)
    rows["value"] += generator.normal(0, 0.05, len(rows))
    return rows.assign(defense=defense, level=1.0, dataset="digits", model=model, run=defense)


STEEPER = {"a": {"defense": "white"}, "b": {"defense": "natural"}, "by": "batch_size", "log": True}


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize(("slopes", "verdict"), [((0.1, 0.4), "reproduced"), ((0.4, 0.1), "contradicted")])
def test_steeper_compares_slopes_and_not_heights(blocks, slopes, verdict):
    natural, white = (
        rising(slope, name, seed=i) for i, (slope, name) in enumerate(zip(slopes, ("natural", "white"), strict=True))
    )
    found = judged(pd.concat([natural, white.eval("value = value - 100")]), "steeper", {**STEEPER, "blocks": blocks})
    assert found["verdict"] == verdict
    assert found["effect"] == pytest.approx((slopes[1] - slopes[0]) / np.log(2), abs=0.1)
    assert found["low"] < found["effect"] < found["high"]


def test_equal_slopes_are_hardly_ever_told_apart():
    decided = 0
    for seed in range(40):
        rows = pd.concat([rising(0.2, "natural", seed=2 * seed), rising(0.2, "white", seed=2 * seed + 1)])
        decided += judged(rows, "steeper", {**STEEPER, "blocks": True})["verdict"] != "undecided"
    assert decided <= 7  # level 0.05: more than 7 of 40 has probability 1e-3


def test_slopes_along_a_logarithm_need_positive_values():
    rows = pd.concat([rising(0.1, "natural", seed=0), rising(0.1, "white", seed=1)])
    with pytest.raises(SelectionError, match="log batch_size need values above 0, not 0"):
        judged(rows.eval("batch_size = batch_size - 1"), "steeper", STEEPER)


def models(effects: dict[str, float], noise: float = 0.05) -> pd.DataFrame:
    """One value per replica and model; a replica is one machine load, the same for every model."""
    generator = np.random.default_rng(3)
    load = np.random.default_rng(4).normal(0, 2, 6)
    frames = [
        pd.DataFrame({"replica": range(6), "value": load + effect + generator.normal(0, noise, 6), "model": name})
        for name, effect in effects.items()
    ]
    return pd.concat(frames, ignore_index=True).assign(dataset="digits", run="r", metric="ratio")


ORDERED = {"series": [{"model": name} for name in ("lenet", "resnet10", "vgg16")], "match": []}


def test_a_statement_across_networks_is_tested_once_over_all_of_them():
    rows = models({"lenet": 0.0, "resnet10": 10.0, "vgg16": 20.0})
    together = judged(rows, "ordered", ORDERED, ("model",))
    assert (together["verdict"], together["model"]) == ("reproduced", "all")
    assert judged(rows, "ordered", ORDERED)["verdict"] == "undecided"  # no network alone has an order


def test_order_within_replicas_is_seen_where_replicas_differ_more():
    rows = models({"lenet": 0.0, "resnet10": 0.5, "vgg16": 1.0})
    assert judged(rows, "ordered", ORDERED, ("model",))["verdict"] == "undecided"
    found = judged(rows, "ordered", {**ORDERED, "blocks": True}, ("model",))
    assert (found["verdict"], found["n"]) == ("reproduced", 6)
    down = {"series": ORDERED["series"][::-1], "match": [], "blocks": True}
    assert judged(rows, "ordered", down, ("model",))["verdict"] == "contradicted"


def test_series_without_rows_are_left_out_of_an_order_and_counted():
    found = judged(models({"lenet": 0.0, "vgg16": 20.0}), "ordered", ORDERED, ("model",))
    assert found["verdict"] == "reproduced"
    assert "2 series, 1 series without rows left out" in found["detail"]
    assert judged(models({"lenet": 0.0}), "ordered", ORDERED, ("model",))["verdict"] == "undecided"


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize(("mean", "verdict"), [(1.02, "reproduced"), (1.3, "contradicted")])
def test_less_is_greater_the_other_way_round(mean, verdict, blocks):
    values = mean + 0.01 * np.random.default_rng(5).normal(size=8)
    rows = pd.DataFrame({"replica": range(8), "value": values, "run": "r", "metric": "ratio"})
    found = judged(rows, "less", {"a": {"metric": "ratio"}, "value": 1.1, "match": [], "blocks": blocks})
    assert found["verdict"] == verdict
    assert found["low"] < mean - 1.1 < found["high"]


def test_less_by_a_margin_needs_the_margin():
    rows = pd.DataFrame({"replica": range(8), "value": np.linspace(0.9, 0.92, 8), "run": "r", "metric": "ratio"})
    options = {"a": {"metric": "ratio"}, "value": 1.0, "match": [], "blocks": True}
    assert judged(rows, "less", {**options, "margin": 0.05})["verdict"] == "reproduced"
    assert judged(rows, "less", {**options, "margin": 0.2})["verdict"] == "contradicted"


def test_replicas_that_all_agree_are_told_how_many_the_level_needs():
    def signs(n: int) -> float:
        return smallest_sign_p(n, 1)

    assert replicas_needed(signs(3), 3, 0.05, signs) == 6
    assert replicas_needed(signs(3), 3, 0.005, signs) == 9
    assert replicas_needed(0.9, 3, 0.05, signs) is None  # no effect to be seen: more than a thousand
    assert replicas_needed(0.5, 3, 0.05, signs) == 52

    def page(n: int) -> float:
        return smallest_trend_p([[1] * 4] * n)

    assert replicas_needed(page(1), 1, 0.05, page) == 2


def test_the_strongest_level_is_the_smallest_or_the_largest_by_defense():
    levels = {"natural": (50, 300), "dpsgd": (0.2, 0.8), "parameter_noise": (0.01, 0.1), "large_batch": (2, 8)}
    levels |= {"gradient_compression": (0.01, 0.5), "compression": (0, 10)}
    rows = pd.DataFrame(
        [(name, float(level)) for name in levels for level in levels[name]], columns=["defense", "level"]
    )
    strongest = with_strength(rows).query("strength == 1").set_index("defense")["level"].to_dict()
    assert strongest == {
        "natural": 50,
        "dpsgd": 0.8,
        "parameter_noise": 0.1,
        "large_batch": 8,
        "gradient_compression": 0.01,
        "compression": 0,
    }


def test_conditions_may_say_what_rows_have_not():
    rows = pd.DataFrame({"dataset": ["digits", "svhn", "celeba"], "level": [1.0, np.nan, 2.0]})
    assert select(rows, {"dataset": {"not": ["svhn", "celeba"]}})["dataset"].tolist() == ["digits"]
    assert select(rows, {"level": {"not": None}})["dataset"].tolist() == ["digits", "celeba"]
    with pytest.raises(SelectionError, match=r"give a value, a list of values or \{not: ...\}"):
        select(rows, {"dataset": {"but": "svhn"}})


def test_every_test_declares_its_options_and_refuses_others():
    for name in CLAIM_TESTS.names():
        with pytest.raises(ConfigError, match=rf"claim test {name}: options: bye: unknown setting"):
            CLAIM_TESTS.get(name).check({**STEEPER, "bye": "level"})
