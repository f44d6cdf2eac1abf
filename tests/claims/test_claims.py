"""Verdicts: what is compared in a block, over blocks, over datasets and over the claims of a figure."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakbound_lab.claims import judging
from leakbound_lab.claims.evaluation import COLUMNS
from leakbound_lab.claims.outcomes import Blocks
from leakbound_lab.claims.scoreboard import verdict_counts
from leakbound_lab.config.catalogue import ClaimConfig, FigureConfig
from leakbound_lab.registries import CLAIM_TESTS, PLOTS
from verdicts import entry, evaluate

ALPHA = 0.05
DELTA = 0.3
DATASETS = ("digits", "mnist", "svhn", "celeba")


def figure(*claims: tuple[str, dict], delta: float | None = DELTA, **settings) -> FigureConfig:
    about = {"delta": delta, "unit": None if delta is None else "points"} | settings.pop("about", {})
    listed = tuple(
        ClaimConfig(id=f"claim_{index}", text=f"Statement {index}.", test=test, options=options, **about)
        for index, (test, options) in enumerate(claims)
    )
    return entry(claims=listed, **settings)


def sweep(effect: float, *, seed: int = 0, replicas: int = 8, noise: float = 1.0, **columns) -> pd.DataFrame:
    """Values at levels 1, 2, 4, 8 that rise by ``effect`` a doubling, on problems that differ far more."""
    generator = np.random.default_rng(seed)
    level = np.repeat([1.0, 2.0, 4.0, 8.0], replicas)
    rows = pd.DataFrame({"level": level, "replica": np.tile(np.arange(replicas), 4)})
    problem = np.random.default_rng(99).normal(0, 5, replicas)[rows["replica"]]
    rows["value"] = problem + effect * np.log2(level) + noise * generator.normal(size=len(rows))
    defaults = {"dataset": "digits", "model": "lenet", "defense": "natural", "metric": "auc"}
    rows = rows.assign(**{**defaults, **columns})
    return rows.assign(run=rows["defense"] + "-" + rows["level"].astype(str))


def datasets(*effects: float, **settings) -> pd.DataFrame:
    """A sweep with an effect of its own on each dataset."""
    return pd.concat(
        [sweep(effect, seed=i, dataset=DATASETS[i], **settings) for i, effect in enumerate(effects)], ignore_index=True
    )


def pair(shift: float, **settings) -> pd.DataFrame:
    """Two defenses on the same problems, one above the other."""
    white = sweep(1.0, **{"seed": 1, "noise": 0.2, **settings}, defense="white").eval("value = value + @shift")
    return pd.concat([sweep(1.0, **{"noise": 0.2, **settings}), white], ignore_index=True)


def over_all(claims: pd.DataFrame, index: int = 0) -> pd.Series:
    return claims[(claims["dataset"] == "all") & (claims["claim"] == f"claim_{index}")].iloc[0]


def verdict(claims: pd.DataFrame, index: int = 0) -> str:
    return str(over_all(claims, index)["verdict"])


RISES = ("increasing", {})
WHITE_ABOVE = {"a": {"defense": "white"}, "b": {"defense": "natural"}}


@pytest.mark.parametrize("effect", [3.0, -3.0])
@pytest.mark.parametrize("test", ["increasing", "decreasing"])
def test_a_strong_trend_is_decided_by_eight_blocks(effect, test):
    found = over_all(evaluate(figure((test, {})), sweep(effect), ALPHA))
    assert found["verdict"] == ("reproduced" if (effect > 0) == (test == "increasing") else "contradicted")
    assert found["effect"] == pytest.approx(effect, abs=0.5)
    assert found["unit"] == "points per doubling"
    assert found["p_value"] == 2.0**-7


def test_a_table_has_a_row_for_each_dataset_and_one_over_all_blocks():
    claims = evaluate(figure(RISES), datasets(3.0, 3.0, 3.0, 3.0, replicas=5), ALPHA)
    assert list(claims.columns) == list(COLUMNS)
    assert dict(zip(claims["dataset"], claims["verdict"], strict=True)) == {
        **dict.fromkeys(DATASETS, "undecided"),  # sign flips of 5 blocks go no lower than 0.0625
        "all": "reproduced",
    }
    assert claims["blocks"].tolist() == [5, 5, 5, 5, 20]
    assert claims["model"].tolist() == ["lenet"] * 4 + ["all"]
    few = "too few to detect an effect at 0.013: sign flips of 5 blocks go no lower than p = 0.062"
    assert claims["detail"].str.endswith(few).tolist() == [True] * 4 + [False]
    assert claims["power"].iloc[0] == 0.0


def test_a_claim_says_in_words_below_what_no_p_can_be():
    rows = datasets(3.0, 3.0, replicas=2)
    claims = evaluate(figure(RISES, ("decreasing", {})), rows, ALPHA)
    for index, row in enumerate(over_all(claims, index) for index in (0, 1)):
        assert row["text"] == f"Statement {index}. With 4 blocks no p below 0.12 is possible."
        assert row["verdict"] == "undecided"
    assert over_all(evaluate(figure(RISES), sweep(3.0), ALPHA))["text"] == "Statement 0."


def test_half_of_the_datasets_must_show_an_effect_and_those_that_do_are_named():
    rows = pd.concat([pair(9.0 * (name == "digits"), dataset=name, seed=i) for i, name in enumerate(DATASETS)])
    noise = np.where(rows["defense"] == "white", np.random.default_rng(3).normal(0, 3, len(rows)), 0.0)
    differs = "datasets differ, by Student's t: digits as claimed; celeba, mnist, svhn negligible"
    few = "shown by digits, but not by at least 2 of 4: p = "
    for detail, value in ((differs, rows["value"]), (few, rows["value"] + noise)):
        alone = over_all(evaluate(figure(("greater", WHITE_ABOVE)), rows.assign(value=value), ALPHA))
        assert alone["verdict"] == "mixed"
        assert detail in alone["detail"]
        assert alone["p_adjusted"] > ALPHA
    two = over_all(evaluate(figure(RISES), datasets(9.0, 9.0, 9.0, 0.0, replicas=5), ALPHA))
    assert two["verdict"] == "reproduced"


def test_networks_of_a_dataset_have_to_agree_as_datasets_have_to():
    rows = pd.concat([sweep(9.0, replicas=5), sweep(-9.0, replicas=5, seed=1, model="resnet10")])
    claims = evaluate(figure(RISES), rows, ALPHA)
    assert claims["blocks"].tolist() == [5, 5, 10]
    assert claims["model"].tolist() == ["lenet", "resnet10", "all"]
    differs = "networks differ, by Student's t: digits lenet as claimed; digits resnet10 the opposite"
    assert over_all(claims)["verdict"] == "mixed"
    assert over_all(claims)["detail"].endswith(differs)


def test_presets_of_a_network_add_their_blocks_whatever_levels_each_has():
    few = sweep(3.0, replicas=5, seed=1).query("level != 2").assign(preset="few")
    claims = evaluate(figure(RISES), pd.concat([sweep(3.0, replicas=5).assign(preset="all"), few]), ALPHA)
    assert claims["blocks"].tolist() == [10, 10]  # replicas of the two have the same numbers
    assert verdict(claims) == "reproduced"


def test_a_network_of_few_blocks_is_not_said_to_show_nothing():
    models = {"lenet": 12, "resnet10": 3, "alexnet": 3}
    rows = pd.concat([sweep(9.0, replicas=count, seed=i, model=name) for i, (name, count) in enumerate(models.items())])
    found = over_all(evaluate(figure(RISES, delta=8.0), rows, ALPHA / 2))
    assert found["verdict"] == "undecided"  # not mixed: the six blocks of the others go no lower than p = 0.031
    assert "but not by at least 2 of 3" in found["detail"]


def test_a_papers_claim_is_judged_on_its_own_networks_and_ours_on_all():
    rows = pd.concat([sweep(3.0), sweep(-9.0, seed=1, model="mlp")])
    judged = over_all(evaluate(figure(RISES), rows, ALPHA))
    assert (judged["verdict"], judged["blocks"], judged["printed"]) == ("reproduced", 8, True)
    ours = over_all(evaluate(figure(RISES, about={"printed": False, "delta": DELTA, "unit": "points"}), rows, ALPHA))
    assert (ours["blocks"], ours["printed"]) == (16, False)
    none = over_all(evaluate(figure(RISES), sweep(-9.0, model="mlp"), ALPHA))
    assert (none["verdict"], none["printed"]) == ("contradicted", False)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_dataset_that_opposes_makes_a_claim_mixed_in_either_direction(sign):
    # Of the effects 9, 9, 9 and -3 the ranks of a quarter of the blocks go the other way.
    rows = datasets(*(sign * effect for effect in (9.0, 9.0, 9.0, -3.0)), replicas=5)
    found = over_all(evaluate(figure(RISES), rows, ALPHA))
    assert found["verdict"] == "mixed"
    assert f"celeba {'the opposite' if sign > 0 else 'as claimed'}" in found["detail"]


def test_an_effect_within_delta_is_negligible_though_it_is_significant():
    rows = sweep(0.1, noise=0.02)
    small = over_all(evaluate(figure(RISES, delta=0.3), rows, ALPHA))
    assert small["verdict"] == "negligible"
    assert small["p_value"] < ALPHA
    assert -0.3 < small["low_90"] < small["high_90"] < 0.3
    assert verdict(evaluate(figure(RISES, delta=0.05), rows, ALPHA)) == "reproduced"


def test_a_step_back_by_delta_is_no_trend():
    rows = sweep(3.0, noise=0.1)
    rows.loc[rows["level"] == 4.0, "value"] -= 4.0
    found = over_all(evaluate(figure(RISES), rows, ALPHA))
    assert (found["verdict"], found["p_value"]) == ("undecided", 2.0**-7)
    assert "these steps may go back by delta: 2 to 4 (-0.9" in found["detail"]
    assert verdict(evaluate(figure(("decreasing", {})), rows.eval("value = -value"), ALPHA)) == "undecided"
    assert verdict(evaluate(figure(RISES, delta=1.5), rows, ALPHA)) == "reproduced"


def test_trends_of_several_series_are_averaged_within_a_block():
    rows = pd.concat([sweep(3.0, noise=0.1), sweep(1.0, noise=0.1, defense="white")])
    found = over_all(evaluate(figure(("increasing", {"within": ["defense"]})), rows, ALPHA))
    assert (found["blocks"], found["verdict"]) == (8, "reproduced")
    assert found["effect"] == pytest.approx(2.0, abs=0.1)


def test_p_values_are_holm_corrected_over_the_claims_of_a_figure():
    claims = figure(*(("increasing", {"where": {"metric": name}}) for name in "ab"), delta=1e-3)
    rows = pd.concat([sweep(0.9, metric="a"), sweep(0.1, metric="b", seed=2)])
    tested = evaluate(claims, rows, ALPHA)
    first, second = (over_all(tested, index)["p_value"] for index in (0, 1))
    assert first < second
    adjusted = [over_all(tested, index)["p_adjusted"] for index in (0, 1)]
    assert adjusted == pytest.approx([min(1, 2 * first), max(min(1, 2 * first), second)])
    assert tested[tested["dataset"] != "all"]["p_adjusted"].tolist() == [first, second]


@pytest.mark.parametrize(
    ("test", "options"),
    [
        ("greater", WHITE_ABOVE),
        ("ordered", {"series": [{"defense": "white"}, {"defense": "natural"}]}),
        ("increasing", {"where": {"defense": "white"}}),
        ("increasing", {"where": {"level": 1.0}}),
        ("steeper", WHITE_ABOVE),
        ("concordant", {"x": {"metric": "auc"}, "y": {"metric": "mse"}}),
        ("front", {"best": {"defense": "white"}, "against": [{"defense": "natural"}], "x": {}, "y": {}}),
    ],
)
def test_a_claim_about_missing_rows_is_undecided_and_says_why(test, options):
    claims = evaluate(figure((test, options)), sweep(1.0), ALPHA)
    assert len(claims) == 1
    assert (verdict(claims), claims["blocks"].item()) == ("undecided", 0)
    assert claims["detail"].str.contains("nothing to compare: .*(?:white|one value|mse)").all()


def test_the_interval_of_a_difference_is_students_over_blocks():
    rows = pair(1.0, replicas=6)
    found = over_all(evaluate(figure(("greater", WHITE_ABOVE)), rows, ALPHA))
    means = rows.groupby(["defense", "replica"])["value"].mean().unstack("replica")
    expected = stats.ttest_1samp((means.loc["white"] - means.loc["natural"]).to_numpy(), 0.0)
    assert found[["low", "high"]].tolist() == pytest.approx(list(expected.confidence_interval(0.95)))
    assert found[["low_90", "high_90"]].tolist() == pytest.approx(list(expected.confidence_interval(0.9)))


def test_a_series_is_compared_with_a_number():
    rows = pair(0.0).query("defense == 'white'")
    above = {"a": {"defense": "white"}, "value": float(rows["value"].mean()) - 9.0}
    found = over_all(evaluate(figure(("greater", above)), rows, ALPHA))
    assert found["effect"] == pytest.approx(9.0)
    assert found["verdict"] == "reproduced"


@pytest.mark.parametrize(
    ("test", "shift", "expected"),
    [
        ("within", 0.1, "reproduced"),
        ("within", 0.9, "contradicted"),
        ("within", -0.9, "contradicted"),
        ("within", 0.3, "undecided"),
        ("at_most", 0.9, "contradicted"),
        ("at_most", -0.9, "reproduced"),
    ],
)
def test_at_most_delta_is_tested_as_an_equivalence(test, shift, expected):
    assert verdict(evaluate(figure((test, WHITE_ABOVE)), pair(shift), ALPHA)) == expected


def test_effects_may_be_parts_of_what_each_block_has():
    rows = pair(0.5).assign(variant="attack")
    prior = sweep(0.0, noise=0.0, metric="mse").assign(variant="prior", value=lambda t: 2.0 + t["replica"] % 2)
    about = {"relative_to": {"variant": "prior"}}
    shown = figure(("greater", WHITE_ABOVE), select={"metric": "auc"}, about=about)
    found = over_all(evaluate(shown, pd.concat([rows, prior]), ALPHA))
    assert found["effect"] == pytest.approx(0.5 * np.mean([1 / 2, 1 / 3]), abs=0.05)


def test_values_may_count_in_decibels():
    rows = pair(0.5, noise=0.01).eval("value = 10 ** (value / 10)")
    shown = figure(("greater", WHITE_ABOVE), about={"decibels": True, "unit": "dB"})
    assert over_all(evaluate(shown, rows, ALPHA))["effect"] == pytest.approx(0.5, abs=0.02)
    with pytest.raises(ValueError, match="decibels are relative already"):
        figure(("greater", WHITE_ABOVE), about={"decibels": True})


def test_strength_pairs_small_capacities_with_large_multipliers():
    rows = pd.concat([sweep(-1.0, noise=0.1), sweep(1.0, noise=0.1, seed=1, defense="dpsgd")])
    options = {"a": {"defense": "natural"}, "b": {"defense": "dpsgd"}, "match": ["strength"]}
    # Natural falls along its strength, 0 to -3, and DP too, 3 to 0: always 3 apart only if 1 meets 8.
    found = over_all(evaluate(figure(("greater", options)), rows, ALPHA))
    assert found["effect"] == pytest.approx(-3.0, abs=0.1)
    assert found["high"] - found["low"] < 0.3


def test_ordered_series_are_recognised_and_series_without_rows_counted():
    rows = pd.concat([pair(0.8), sweep(1.0, noise=0.2, seed=3, defense="personalized").eval("value = value + 1.6")])
    names = ["natural", "white", "personalized"]
    up = {"series": [{"defense": name} for name in names]}
    down = {"series": [{"defense": name} for name in ("absent", *reversed(names))]}
    claims = evaluate(figure(("ordered", up), ("ordered", down)), rows, ALPHA)
    assert (verdict(claims, 0), verdict(claims, 1)) == ("reproduced", "contradicted")
    assert over_all(claims)["effect"] == pytest.approx(0.8, abs=0.1)
    assert "1 series without rows left out" in over_all(claims, 1)["detail"]


def test_a_claim_that_compares_networks_has_blocks_across_them():
    rows = pd.concat([sweep(1.0, noise=0.1, model=name) for name in ("lenet", "resnet10", "vgg16")])
    rows["value"] += rows["model"].map({"lenet": 0.0, "resnet10": 1.0, "vgg16": 2.0})
    order = {"series": [{"model": name} for name in ("lenet", "resnet10", "vgg16")]}
    found = over_all(evaluate(figure(("ordered", order)), rows, ALPHA))
    assert (found["verdict"], found["blocks"]) == ("reproduced", 8)


def test_blocks_that_lack_something_are_left_out_and_counted():
    rows = pair(9.0)
    rows = rows[~((rows["replica"] == 2) & (rows["level"] == 4.0) & (rows["defense"] == "natural"))]
    claims = evaluate(figure(("greater", WHITE_ABOVE), ("increasing", {"where": {"defense": "natural"}})), rows, ALPHA)
    assert set(claims["blocks"]) == {7}
    assert claims["detail"].str.contains("one block with missing values left out").all()


def fronts(shift: float, seed: int = 0, levels: int = 4) -> pd.DataFrame:
    """Trade-offs of three defenses, natural ahead by ``shift``, and dpsgd with only some of its levels."""
    frames = []
    for index, (name, height) in enumerate({"natural": shift, "white": 0.0, "dpsgd": 0.0}.items()):
        gdc = sweep(0.1, noise=0.01, seed=10 * seed + index, defense=name, metric="gdc").eval("value = value % 1 + 0.2")
        accuracy = gdc.assign(metric="acc", value=0.3 + height + 0.1 * (3 - np.log2(gdc["level"])))
        noise = np.random.default_rng(10 * seed + index + 7).normal(0, 0.01, len(accuracy))
        both = pd.concat([gdc.assign(value=0.2 + 0.1 * np.log2(gdc["level"]) + noise), accuracy])
        frames.append(both if name != "dpsgd" else both[both["level"] < 2.0**levels])
    return pd.concat(frames, ignore_index=True)


FRONT = {
    "best": {"defense": "natural"},
    "against": [{"defense": "white"}, {"defense": "dpsgd"}],
    "x": {"metric": "gdc"},
    "y": {"metric": "acc"},
}


def test_the_best_front_is_recognised_and_so_is_a_worse_one():
    assert verdict(evaluate(figure(("front", FRONT), delta=0.01), fronts(0.2), ALPHA)) == "reproduced"
    worse = over_all(evaluate(figure(("front", FRONT), delta=0.01), fronts(-0.2), ALPHA))
    assert worse["verdict"] == "contradicted"
    assert worse["p_value"] == 2 * 2.0**-7  # the decisive one of two others


def test_fronts_of_different_numbers_of_points_are_not_compared():
    found = over_all(evaluate(figure(("front", FRONT), delta=0.01), fronts(0.2, levels=2), ALPHA))
    assert (found["verdict"], found["blocks"]) == ("undecided", 0)
    assert "these have natural 4, white 4, dpsgd 2: give each as many levels and rates" in found["detail"]


def test_a_front_may_be_of_all_learning_rates_of_several_defenses():
    rows = pd.concat([fronts(0.2).assign(learning_rate=rate, chosen=rate == 0.1) for rate in (0.1, 0.2)])
    rows.loc[rows["learning_rate"] == 0.2, "value"] += 0.05
    both = {**FRONT, "best": {"defense": ["natural", "personalized"]}, "against": [{"defense": ["white", "dpsgd"]}]}
    rows = pd.concat(
        [rows, rows[rows["defense"] == "natural"].assign(defense="personalized", run=lambda r: "p" + r["run"])]
    )
    chosen = over_all(evaluate(figure(("front", both), delta=0.01), rows, ALPHA))
    every = over_all(evaluate(figure(("front", both), delta=0.01, rates="all"), rows, ALPHA))
    assert "areas by 8 points" in chosen["detail"]
    assert "areas by 16 points: natural+personalized" in every["detail"]


def test_a_claim_about_an_experiment_needs_delta():
    with pytest.raises(ValueError, match=r"delta is missing \(claim claim_0\): give the smallest effect of interest"):
        evaluate(figure(RISES, delta=None), sweep(1.0), ALPHA)
    with pytest.raises(ValueError, match="delta and unit go together"):
        ClaimConfig(id="rises", text="It rises.", test="increasing", delta=0.1)


def test_verdicts_do_not_depend_on_the_order_of_rows():
    rows = fronts(0.02)
    claims = figure(("front", FRONT), ("increasing", {"where": {"metric": "gdc", "defense": "white"}}))
    shuffled = rows.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(evaluate(claims, rows, ALPHA), evaluate(claims, shuffled, ALPHA))


def test_counted_verdicts_are_drawn_as_bars_as_long_as_their_number():
    rows = pd.concat([sweep(3.0), sweep(3.0, dataset="mnist", seed=1)])
    counts = verdict_counts(evaluate(figure(("increasing", {}), ("decreasing", {})), rows, ALPHA))
    experiments = (counts["kind"] == "experiment") & (counts["verdict"] == "reproduced")
    counts.loc[experiments, "value"] = 5
    axes = PLOTS.get("verdicts")(counts, options={}).axes[0]
    bars = {c.get_label(): (c[0].get_x(), c[0].get_width()) for c in axes.containers}
    assert (bars["reproduced"], bars["contradicted"][1]) == ((0, 5), 1)
    assert sum(width for _, width in bars.values()) == 6


def test_power_is_that_of_students_test_at_the_least_favourable_level_of_holm():
    """Noncentral t, written out, for a figure of three claims: a third of the level, and half of it on a side."""
    claim = ("greater", {"a": {"defense": "white"}, "b": {"defense": "natural"}, "match": ["level"]})
    rows = pair(0.5, noise=0.4)
    for claims in (1, 3):
        found = over_all(evaluate(figure(*[claim] * claims), rows, alpha=ALPHA))
        means = rows.groupby(["replica", "defense"])["value"].mean().unstack()
        spread = (means["white"] - means["natural"]).std(ddof=1)
        tail, far = ALPHA / claims / 2, 2 * DELTA * math.sqrt(8) / spread
        assert found["power"] == pytest.approx(stats.nct.sf(stats.t.isf(tail, 7), 7, far), rel=1e-9)


def blocks_of(values: list[float], unit: str = "points") -> pd.DataFrame:
    """Two defenses whose difference in each block is given, on one dataset."""
    replica = np.arange(len(values))
    known = {"dataset": "digits", "model": "lenet", "level": 1.0, "metric": "auc"}
    sides = [
        pd.DataFrame({"replica": replica, "value": value, "defense": defense, "run": defense, **known})
        for defense, value in (("white", np.array(values)), ("natural", 0.0))
    ]
    return pd.concat(sides, ignore_index=True)


@pytest.mark.parametrize(("blocks", "reached"), [(2, "undecided"), (5, "undecided"), (6, "negligible")])
def test_fewer_blocks_than_sign_flips_need_decide_nothing_not_even_that_an_effect_is_negligible(blocks, reached):
    small = [0.001, 0.002, 0.001, 0.0015, 0.002, 0.001][:blocks]
    claims = evaluate(figure(("greater", WHITE_ABOVE)), blocks_of(small), ALPHA)
    assert {*claims["verdict"]} == {reached}
    assert over_all(claims)["high_90"] < DELTA


def test_two_datasets_of_two_blocks_are_not_mixed():
    rows = [blocks_of([sign * 1.0, sign * 1.001]).assign(dataset=name) for name, sign in (("mnist", 1), ("svhn", -1))]
    assert verdict(evaluate(figure(("greater", WHITE_ABOVE)), pd.concat(rows), ALPHA)) == "undecided"


def test_no_verdict_contradicts_its_interval():
    """All but one block shift by next to nothing: sign flips find p = 2⁻¹¹, and Student's interval holds 0."""
    claims = evaluate(figure(("greater", WHITE_ABOVE), delta=0.1), blocks_of([0.01] * 11 + [10.0]), ALPHA)
    found = over_all(claims)
    assert found["low"] < 0 < found["high"]
    assert found["verdict"] == "undecided"
    values = np.array([0.01] * 11 + [10.0])
    assert found["p_value"] == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue)


def test_the_claimed_direction_stands_beside_the_effect():
    claims = [(test, {"where": {"defense": "white"}}) for test in ("increasing", "decreasing")]
    claims.append(("within", WHITE_ABOVE | {"match": []}))
    found = evaluate(figure(*claims), pair(0.0), ALPHA)
    assert [over_all(found, index)["claimed"] for index in range(3)] == [1, -1, 0]


def test_settings_are_corrected_together_before_they_are_called_different():
    """Each dataset alone is significant at 3 %, in opposite directions. Together neither is."""
    pattern = np.array([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0]) / math.sqrt(6 / 5)  # of standard deviation 1
    shift = float(stats.t.isf(0.015, 5)) / math.sqrt(6)
    index = pd.MultiIndex.from_product(
        [("mnist", "svhn"), ("lenet",), ("",), range(6)], names=["dataset", "model", "preset", "replica"]
    )
    effects = pd.DataFrame({"difference": np.concatenate([pattern + shift, pattern - shift])}, index=index)
    blocks = Blocks(effects, 1, "compared")
    assert judging.sides(blocks, 0.01, 0.05) == {1: [], -1: [], 0: []}
    assert judging.sides(blocks, 0.01, 0.0601) == {1: ["mnist"], -1: ["svhn"], 0: []}


def test_page_ranks_the_values_of_the_longest_of_several_tables():
    rows = pd.concat([sweep(1.0, metric="auc"), sweep(1.0, metric="mse").query("level < 8")], ignore_index=True)
    blocks = CLAIM_TESTS.get("increasing")(rows, options={"within": ["metric"]})
    assert blocks.levels == 4
    assert "over 4 values" in blocks.detail
    assert list(blocks.widths.values()) == [1.0, 1.0, 1.0]
