import numpy as np
import pandas as pd
import pytest
from scipy import stats

from leakbound.claims.claims import COLUMNS, evaluate
from leakbound.claims.scoreboard import scoreboard, to_markdown, verdict_counts
from leakbound.claims.selection import SelectionError
from leakbound.config.catalogue import ClaimConfig, FigureConfig
from leakbound.config.messages import ConfigError
from leakbound.registry import PLOTS

ALPHA = 0.05


def figure(*claims: tuple[str, dict], **settings) -> FigureConfig:
    listed = tuple(
        ClaimConfig(id=f"claim_{index}", text=f"Statement {index}.", test=test, options=options)
        for index, (test, options) in enumerate(claims)
    )
    return FigureConfig(
        id="fig", paper="tan2024", title="t", study="s", plot="levels", caption="c", claims=listed, **settings
    )


def sweep(effect: float, *, seed: int = 0, replicas: int = 3, noise: float = 1.0, **columns) -> pd.DataFrame:
    """Values at levels 1, 2, 3, 4 that rise by ``effect`` a level."""
    generator = np.random.default_rng(seed)
    level = np.repeat([1.0, 2.0, 3.0, 4.0], replicas)
    rows = pd.DataFrame({"level": level, "replica": np.tile(np.arange(replicas), 4)})
    rows["value"] = effect * level + noise * generator.normal(size=len(rows))
    defaults = {"dataset": "digits", "model": "lenet", "defense": "natural", "metric": "auc"}
    rows = rows.assign(**{**defaults, **columns})
    return rows.assign(run=rows["defense"] + "-" + rows["level"].astype(str))


def verdict(claims: pd.DataFrame, index: int = 0) -> str:
    overall = claims[(claims["dataset"] == "all") & (claims["claim"] == f"claim_{index}")]
    return str(overall["verdict"].item())


@pytest.mark.parametrize(
    ("effect", "test", "expected"),
    [
        (3.0, "increasing", "reproduced"),
        (3.0, "decreasing", "contradicted"),
        (-3.0, "decreasing", "reproduced"),
        (-3.0, "increasing", "contradicted"),
    ],
)
def test_a_strong_trend_is_decided_by_three_replicas(effect, test, expected):
    assert verdict(evaluate(figure((test, {})), sweep(effect), ALPHA)) == expected


def test_a_strong_trend_is_found_with_the_stated_power():
    found = [verdict(evaluate(figure(("increasing", {})), sweep(0.8, seed=seed), ALPHA)) for seed in range(60)]
    # Three replicas and steps of 0.8 standard deviations: power 0.93; fewer than 42 of 60 has probability 1e-6.
    assert found.count("reproduced") >= 42
    assert "contradicted" not in found


def test_no_trend_is_hardly_ever_decided_however_many_settings_are_tested():
    claims = figure(("increasing", {"where": {"metric": "auc"}}), ("decreasing", {"where": {"metric": "mse"}}))
    decided, trials = 0, 80
    for seed in range(trials):
        frames = [
            sweep(0.0, seed=1000 * seed + 10 * i + j, metric=metric, dataset=dataset)
            for i, metric in enumerate(("auc", "mse"))
            for j, dataset in enumerate(("digits", "mnist"))
        ]
        verdicts = evaluate(claims, pd.concat(frames), ALPHA)
        decided += (verdicts["verdict"] != "undecided").any()
    # Holm keeps the probability of any verdict at 0.05; more than 13 of 80 has probability below 1e-4.
    assert decided <= stats.binom.isf(1e-4, trials, ALPHA)


def test_every_setting_has_a_row_and_the_overall_row_needs_all_of_them():
    rows = pd.concat([sweep(3.0, dataset="digits"), sweep(3.0, dataset="mnist", seed=1), sweep(0.0, dataset="svhn")])
    claims = evaluate(figure(("increasing", {})), rows, ALPHA)
    assert list(claims.columns) == list(COLUMNS)
    assert dict(zip(claims["dataset"], claims["verdict"], strict=True)) == {
        "digits": "reproduced",
        "mnist": "reproduced",
        "svhn": "undecided",
        "all": "undecided",
    }
    assert claims["detail"].iloc[-1].startswith("2 reproduced, 1 undecided of 3 settings")


def test_one_contradicting_setting_contradicts_the_claim():
    rows = pd.concat([sweep(3.0, dataset="digits"), sweep(-3.0, dataset="mnist")])
    assert verdict(evaluate(figure(("increasing", {})), rows, ALPHA)) == "contradicted"


def test_p_values_are_holm_corrected_within_the_figure():
    claims = figure(*(("increasing", {"where": {"metric": name}}) for name in ("a", "b")))
    rows = pd.concat([sweep(0.5, metric="a"), sweep(0.1, metric="b", seed=2)])
    tested = evaluate(claims, rows, ALPHA)
    tested = tested[tested["dataset"] != "all"].sort_values("p_value")
    first, second = tested["p_value"]
    assert tested["p_adjusted"].tolist() == pytest.approx([min(1, 2 * first), max(min(1, 2 * first), second)])


def test_too_few_replicas_leave_a_claim_undecided_and_say_how_many_would_do():
    rows = sweep(3.0, replicas=1).query("level < 3")
    claims = evaluate(figure(("increasing", {})), rows, ALPHA)
    assert verdict(claims) == "undecided"
    assert "too few replicas: the least p-value that 1 can give is 1" in claims["detail"].iloc[0]


@pytest.mark.parametrize(
    ("test", "options"),
    [
        ("greater", {"a": {"defense": "white"}, "b": {"defense": "natural"}}),
        ("ordered", {"series": [{"defense": "white"}, {"defense": "natural"}]}),
        ("increasing", {"where": {"defense": "white"}}),
        ("front", {"best": "white", "x": {"metric": "auc"}, "y": {"metric": "auc"}}),
    ],
)
def test_a_claim_about_missing_rows_is_undecided_and_says_why(test, options):
    claims = evaluate(figure((test, options)), sweep(1.0), ALPHA)
    assert verdict(claims) == "undecided"
    assert "white" in claims["detail"].iloc[0]


def test_undecided_claims_estimate_the_replicas_that_would_decide_them():
    claims = evaluate(figure(("increasing", {})), sweep(0.2, seed=4), ALPHA)
    assert verdict(claims) == "undecided"
    assert claims["seeds_needed"].iloc[0] > 3


def pair(shift: float, **columns) -> pd.DataFrame:
    return pd.concat(
        [
            sweep(1.0, noise=0.2),
            sweep(1.0, noise=0.2, seed=1, defense="white", **columns).eval("value = value + @shift"),
        ]
    )


def test_greater_compares_at_matched_levels():
    options = {"a": {"defense": "white"}, "b": {"defense": "natural"}}
    claims = evaluate(figure(("greater", options)), pair(0.5), ALPHA)
    assert verdict(claims) == "reproduced"
    assert claims["low"].iloc[0] < 0.5 < claims["high"].iloc[0] + 0.2
    assert verdict(evaluate(figure(("greater", options)), pair(-0.5), ALPHA)) == "contradicted"


def test_greater_by_a_margin_needs_the_margin():
    options = {"a": {"defense": "white"}, "b": {"defense": "natural"}}
    assert verdict(evaluate(figure(("greater", {**options, "margin": 0.2})), pair(0.5), ALPHA)) == "reproduced"
    assert verdict(evaluate(figure(("greater", {**options, "margin": 0.9})), pair(0.5), ALPHA)) == "contradicted"


def test_paired_replicas_decide_what_unpaired_ones_cannot():
    first = sweep(0.0, noise=5.0).assign(variant="white_box")
    second = first.assign(variant="loss_threshold", value=first["value"] - 0.3)
    options = {"a": {"variant": "white_box"}, "b": {"variant": "loss_threshold"}}
    rows = pd.concat([first, second])
    assert verdict(evaluate(figure(("greater", options)), rows, ALPHA)) == "undecided"
    assert verdict(evaluate(figure(("greater", {**options, "paired": True})), rows, ALPHA)) == "reproduced"


def test_strength_pairs_small_capacities_with_large_multipliers():
    channel = sweep(-1.0, noise=0.1)
    private = sweep(1.0, noise=0.1, seed=1, defense="dpsgd")
    options = {"a": {"defense": "natural"}, "b": {"defense": "dpsgd"}, "match": ["strength"]}
    claims = evaluate(figure(("greater", options)), pd.concat([channel, private]), ALPHA)
    # Natural falls along its strength, −1 to −4, and DP too, 4 to 1: always 5 apart only if 1 meets 4.
    assert claims["effect"].iloc[0] == pytest.approx(-5.0, abs=0.2)
    assert claims["high"].iloc[0] - claims["low"].iloc[0] < 0.3


def test_ordered_series_are_recognised():
    rows = pd.concat([pair(0.8), sweep(1.0, noise=0.2, seed=3, defense="personalized").eval("value = value + 1.6")])
    names = ["natural", "white", "personalized"]
    up = {"series": [{"defense": name} for name in names]}
    down = {"series": [{"defense": name} for name in reversed(names)]}
    claims = evaluate(figure(("ordered", up), ("ordered", down)), rows, ALPHA)
    assert (verdict(claims, 0), verdict(claims, 1)) == ("reproduced", "contradicted")


@pytest.mark.parametrize(("slope", "expected"), [(-1.0, "reproduced"), (1.0, "contradicted")])
def test_discordant_quantities_move_against_each_other(slope, expected):
    x = sweep(2.0, metric="x")
    y = x.assign(metric="y", value=slope * x["value"])
    options = {"x": {"metric": "x"}, "y": {"metric": "y"}}
    assert verdict(evaluate(figure(("discordant", options)), pd.concat([x, y]), ALPHA)) == expected


def fronts(shift: float, seed: int = 0, replicas: int = 5) -> pd.DataFrame:
    frames = []
    for index, (name, height) in enumerate({"natural": shift, "white": 0.0, "dpsgd": 0.0}.items()):
        gdc = sweep(0.1, noise=0.01, seed=10 * seed + index, defense=name, metric="gdc", replicas=replicas)
        accuracy = gdc.assign(metric="acc", value=0.9 + height - gdc["value"])
        noise = np.random.default_rng(10 * seed + index + 7).normal(0, 0.01, len(accuracy))
        frames += [gdc, accuracy.assign(value=accuracy["value"] + noise)]
    return pd.concat(frames)


def blocks(seed: int, *, replicas: int = 3, shift: float = 0.0, slope: float = 0.0) -> pd.DataFrame:
    """Two defenses at four levels; a replica is one problem everywhere, and favours one defense by chance."""
    generator = np.random.default_rng(seed)
    problem = generator.normal(0, 1, replicas)
    reaction = generator.normal(0, 0.5, (2, replicas))
    frames = [
        pd.DataFrame(
            {
                "replica": np.arange(replicas),
                "value": problem
                + reaction[index]
                + slope * level
                + shift * index
                + generator.normal(0, 0.05, replicas),
            }
        ).assign(defense=defense, level=float(level), run=f"{defense}-{level}", dataset="digits", model="lenet")
        for index, defense in enumerate(("natural", "white"))
        for level in (1, 2, 3, 4)
    ]
    return pd.concat(frames, ignore_index=True)


WHITE_ABOVE = {"a": {"defense": "white"}, "b": {"defense": "natural"}}
NATURAL_RISES = {"where": {"defense": "natural"}}


def alarms(test: str, options: dict, replicas: int, trials: int) -> int:
    verdicts = [
        verdict(evaluate(figure((test, options)), blocks(seed, replicas=replicas), ALPHA)) for seed in range(trials)
    ]
    return trials - verdicts.count("undecided")


def test_differences_of_blocks_keep_their_level_where_pairs_of_replica_and_level_do_not():
    # A replica favours one defense by chance, at all levels alike: pairs count that four times.
    assert alarms("greater", {**WHITE_ABOVE, "paired": True}, 6, 40) > 10
    # Sign flips of 6 means have level 2/64 at most below 0.05; more than 6 of 60 has probability 2e-3.
    assert alarms("greater", {**WHITE_ABOVE, "blocks": True}, 6, 60) <= 6


def test_trends_of_blocks_keep_their_level():
    # More than 11 of 60 at level 0.05 has probability 7e-5.
    assert alarms("increasing", {**NATURAL_RISES, "blocks": True}, 3, 60) <= 11


def test_blocks_find_a_trend_that_unequal_problems_hide():
    rows = blocks(1, slope=0.3)
    assert verdict(evaluate(figure(("increasing", NATURAL_RISES)), rows, ALPHA)) == "undecided"
    assert verdict(evaluate(figure(("increasing", {**NATURAL_RISES, "blocks": True})), rows, ALPHA)) == "reproduced"


def test_differences_of_blocks_need_six_replicas():
    options = {**WHITE_ABOVE, "blocks": True}
    few, enough = (evaluate(figure(("greater", options)), blocks(2, replicas=n, shift=9.0), ALPHA) for n in (3, 6))
    assert (verdict(few), few["p_value"].iloc[0]) == ("undecided", 0.25)
    assert (verdict(enough), enough["p_value"].iloc[0]) == ("reproduced", 2 / 64)
    assert few["seeds_needed"].iloc[0] >= 6


def test_the_interval_of_blocks_is_students_of_their_means():
    rows = blocks(3, replicas=5, shift=1.0)
    claims = evaluate(figure(("greater", {**WHITE_ABOVE, "blocks": True})), rows, ALPHA)
    means = rows.groupby(["defense", "replica"])["value"].mean().unstack("replica")
    differences = (means.loc["white"] - means.loc["natural"]).to_numpy()
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval()
    assert claims["effect"].iloc[0] == pytest.approx(differences.mean())
    assert claims[["low", "high"]].iloc[0].tolist() == pytest.approx([expected.low, expected.high])


def test_a_replica_that_lacks_a_level_is_no_block():
    rows = blocks(4, replicas=6, shift=9.0)
    rows = rows[~((rows["replica"] == 2) & (rows["level"] == 3.0))]
    claims = evaluate(
        figure(("greater", {**WHITE_ABOVE, "blocks": True}), ("increasing", {**NATURAL_RISES, "blocks": True})),
        rows,
        ALPHA,
    )
    assert set(claims["n"]) == {5}


def test_blocks_go_with_no_other_design():
    for test, options in (
        ("greater", {**WHITE_ABOVE, "blocks": True, "paired": True}),
        ("increasing", {"blocks": True, "within": ["defense"]}),
    ):
        with pytest.raises(ConfigError, match="blocks goes with neither"):
            evaluate(figure((test, options)), blocks(0), ALPHA)


def test_the_interval_of_an_association_resamples_replicas_within_runs():
    x = sweep(8.0, metric="x")
    y = sweep(8.0, metric="y", seed=1)
    options = {"x": {"metric": "x"}, "y": {"metric": "y"}}
    claims = evaluate(figure(("concordant", options)), pd.concat([x, y]), ALPHA)
    # Between levels all pairs agree whatever is drawn, so only the 12 of 66 within a level can vary.
    assert claims["low"].iloc[0] > 0.2
    assert claims["low"].iloc[0] < claims["effect"].iloc[0] < claims["high"].iloc[0] <= 1


FRONT = {"best": "natural", "x": {"metric": "gdc"}, "y": {"metric": "acc"}}


def test_the_best_front_is_recognised_and_so_is_a_worse_one():
    assert verdict(evaluate(figure(("front", FRONT)), fronts(0.2), ALPHA)) == "reproduced"
    assert verdict(evaluate(figure(("front", FRONT)), fronts(-0.2), ALPHA)) == "contradicted"


def test_equal_fronts_are_hardly_ever_told_apart():
    decided = sum(
        verdict(evaluate(figure(("front", FRONT)), fronts(0.0, seed), ALPHA)) != "undecided" for seed in range(12)
    )
    assert decided <= 4  # level 0.05: more than 4 of 12 has probability 2e-4


def test_fronts_of_different_numbers_of_levels_are_not_compared():
    rows = fronts(0.2)
    rows = rows[~((rows["defense"] == "white") & (rows["level"] == 4.0))]
    claims = evaluate(figure(("front", FRONT)), rows, ALPHA)
    assert verdict(claims) == "undecided"
    assert "different numbers of levels (natural 4, dpsgd 4, white 3)" in claims["detail"].iloc[0]
    without = evaluate(figure(("front", {**FRONT, "against": ["dpsgd"]})), rows, ALPHA)
    assert verdict(without) == "reproduced"


def test_exact_claims_hold_or_fail_without_chance():
    rows = pd.DataFrame(
        {"metric": "capacity", "kind": list("aabb"), "level": [1.0, 2.0] * 2, "value": [1.0, 1.0, 2.0, 3.0]}
    )
    claims = evaluate(
        figure(
            ("equals", {"a": {"kind": "a"}, "value": 1.0}),
            ("equals", {"a": {"kind": "a"}, "b": {"kind": "b"}}),
            ("increasing", {"where": {"kind": "b"}, "exact": True}),
            ("increasing", {"within": ["kind"], "exact": True}),
            ("greater", {"a": {"kind": "b"}, "b": {"kind": "a"}, "exact": True}),
        ),
        rows,
        ALPHA,
    )
    expected = ["reproduced", "contradicted", "reproduced", "contradicted", "reproduced"]
    assert [verdict(claims, index) for index in range(5)] == expected
    assert set(claims["p_value"]) == {0.0, 1.0}
    assert claims["detail"].str.startswith("exact").all()


def test_verdicts_do_not_depend_on_the_order_of_rows():
    rows = fronts(0.02)
    claims = figure(("front", FRONT), ("increasing", {"where": {"metric": "gdc", "defense": "white"}}))
    shuffled = rows.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(
        evaluate(claims, rows, ALPHA)[["claim", "verdict", "n"]],
        evaluate(claims, shuffled, ALPHA)[["claim", "verdict", "n"]],
    )


def test_the_figures_own_conditions_choose_the_rows():
    rows = pd.concat([sweep(3.0), sweep(-3.0, metric="mse")])
    assert verdict(evaluate(figure(("increasing", {}), select={"metric": "auc"}), rows, ALPHA)) == "reproduced"
    assert verdict(evaluate(figure(("increasing", {}), select={"metric": "psnr"}), rows, ALPHA)) == "undecided"


def test_unknown_options_and_columns_are_errors_that_name_the_nearest():
    with pytest.raises(
        ConfigError, match=r"claim test greater: options: margn: unknown setting.*did you mean 'margin'"
    ):
        evaluate(figure(("greater", {"a": {}, "b": {}, "margn": 1})), sweep(1.0), ALPHA)
    with pytest.raises(SelectionError, match=r"defence.*did you mean 'defense'"):
        evaluate(figure(("increasing", {"where": {"defence": "natural"}})), sweep(1.0), ALPHA)


def test_the_scoreboard_counts_each_claim_once():
    rows = pd.concat([sweep(3.0), sweep(3.0, dataset="mnist", seed=1)])
    claims = evaluate(figure(("increasing", {}), ("decreasing", {})), rows, ALPHA)
    board = scoreboard(claims)
    assert board.to_dict("records")[-1] == {
        "paper": "all",
        "reproduced": 1,
        "contradicted": 1,
        "undecided": 0,
        "claims": 2,
    }
    text = to_markdown(claims)
    assert text.count("Statement 0.") == 1
    assert "contradicted" in text


def test_counted_verdicts_are_drawn_as_bars_as_long_as_their_number():
    rows = pd.concat([sweep(3.0), sweep(3.0, dataset="mnist", seed=1)])
    counts = verdict_counts(evaluate(figure(("increasing", {}), ("decreasing", {})), rows, ALPHA))
    assert counts.to_dict("list") == {
        "paper": ["tan2024"] * 3,
        "verdict": ["reproduced", "contradicted", "undecided"],
        "value": [1, 1, 0],
    }
    counts.loc[0, "value"] = 5
    (axes,) = PLOTS.get("verdicts")(counts, options={}).axes
    bars = {label: (bar.get_x(), bar.get_width()) for c in axes.containers for label, bar in [(c.get_label(), c[0])]}
    assert bars == {"reproduced": (0, 5), "undecided": (5, 0), "contradicted": (5, 1)}
