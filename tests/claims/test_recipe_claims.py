"""The claim that a defense lies beyond what plain SGD reaches by its own rates and stopping times."""

import numpy as np
import pandas as pd
import pytest

from leakbound_lab.claims.fronts import beyond_front
from leakbound_lab.claims.outcomes import Blocks
from leakbound_lab.claims.selection import EmptySelectionError
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.registries import CLAIM_TESTS

OPTIONS = {
    "arm": {"defense": "natural"},
    "leakage": {"where": {"metric": "auc"}, "nothing": 0.5, "least": 0.0},
    "utility": {"metric": "test_accuracy"},
}
PLAIN = [(0.55, 0.3), (0.6, 0.4), (0.7, 0.46)]


def table(recipes: dict[str, list[tuple[float, float]]], replicas: int = 3, **columns: object) -> pd.DataFrame:
    """Rows of recipes, leakage and utility of each, the same in all replicas."""
    rows = [
        (defense, defense, 0.01 * index, replica, metric, value)
        for defense, points in recipes.items()
        for index, point in enumerate(points)
        for replica in range(replicas)
        for metric, value in zip(("auc", "test_accuracy"), point, strict=True)
    ]
    names = ["defense", "run", "learning_rate", "replica", "metric", "value"]
    return pd.DataFrame(rows, columns=names).assign(**{"dataset": "digits", "model": "lenet", **columns})


def found(rows: pd.DataFrame, **changes: object) -> Blocks:
    blocks = CLAIM_TESTS.get("beyond")(rows, options={**OPTIONS, **changes})
    assert isinstance(blocks, Blocks)
    assert (blocks.claimed, blocks.rule) == (1, "beyond")
    return blocks


def effects(rows: pd.DataFrame, **changes: object) -> list[float]:
    return found(rows, **changes).effects.iloc[:, 0].tolist()


def test_effect_is_the_mean_height_between_the_corners_that_both_fronts_have():
    rows = table({"none": PLAIN, "natural": [(0.6, 0.5), (0.64, 0.52), (0.62, 0.45)]})
    # From .6 to .64: .5 to .52, and .4 to .424 of plain SGD. Nothing is drawn to a guess, and nothing goes on flat.
    assert effects(rows) == pytest.approx([(0.1 + 0.096) / 2] * 3)
    assert effects(rows.replace({"natural": "none", "none": "natural"})) == pytest.approx([-0.098] * 3)


def test_an_arm_of_the_same_recipes_or_of_mixtures_of_them_is_not_beyond():
    assert effects(table({"none": PLAIN, "natural": PLAIN})) == pytest.approx([0.0] * 3, abs=1e-12)
    mixtures = [tuple(np.average(PLAIN[i : i + 2], axis=0, weights=[1, 2])) for i in (0, 1)]
    assert effects(table({"none": PLAIN, "natural": mixtures}))[0] < 0  # it cuts the corner between them
    assert effects(table({"none": PLAIN[:2], "natural": [PLAIN[0], mixtures[0]]})) == pytest.approx([0.0] * 3)


def test_corners_are_chosen_in_another_replica_than_they_are_judged_in():
    rows = table({"none": [(0.6, 0.5)], "natural": [(0.6, 0.6), (0.6, 0.4)]}, replicas=2)
    swapped = (rows["defense"] == "natural") & (rows["metric"] == "test_accuracy") & (rows["replica"] == 1)
    rows.loc[swapped, "value"] = 1.0 - rows.loc[swapped, "value"]  # each recipe is lucky once
    assert effects(rows) == pytest.approx([-0.1, -0.1])


def test_a_recipe_of_plain_sgd_that_is_good_in_one_replica_only_makes_no_corner():
    rows = table({"none": [*PLAIN, (0.6, 0.1)], "natural": PLAIN}, replicas=6)
    lucky = (rows["learning_rate"] == 0.03) & (rows["metric"] == "test_accuracy") & (rows["replica"] == 0)
    rows.loc[lucky, "value"] = 0.48  # the mean of three is .23, and plain SGD reaches .4 there
    assert effects(rows) == pytest.approx([0.0] * 6, abs=1e-12)


def test_luck_in_choosing_counts_as_spread():
    generator = np.random.default_rng(0)
    rows = table({"none": PLAIN * 4, "natural": PLAIN * 4}, replicas=6)
    means, spreads = [], []
    for _ in range(40):
        noise = np.where(rows["metric"] == "auc", 0.02, 0.012) * generator.normal(size=len(rows))
        numbers = effects(rows.assign(value=rows["value"] + noise))
        means.append(np.mean(numbers))
        spreads.append(np.var(numbers, ddof=1) / 6)
    assert np.mean(spreads) > np.var(means)  # so the error of the mean is no smaller than stated
    assert np.mean(spreads) < 4 * np.var(means)


def test_leaking_more_than_where_it_was_chosen_costs_what_it_is_worth():
    rows = table({"none": PLAIN, "natural": PLAIN}, replicas=2)
    rows.loc[(rows["defense"] == "natural") & (rows["metric"] == "auc") & (rows["replica"] == 1), "value"] += 0.01
    # Judged in replica 1: as accurate as plain SGD for .01 more AUC, at slopes of 2 and .6.
    # Judged in replica 0: less accurate than at the leakage that it was chosen for, and leaking less by as much.
    worth = 0.01 * (0.05 * 2 + 0.1 * 0.6) / 0.15
    assert effects(rows) == pytest.approx([0.0, -worth], abs=1e-3)


def test_plain_sgd_is_given_the_lengths_that_the_arm_has():
    stopped = [(0.52, 0.35), (0.56, 0.45)]
    rows = table({"none": PLAIN, "stopped": stopped, "natural": PLAIN}).assign(level=lambda t: np.nan)
    rows.loc[rows["defense"] == "stopped", "level"] = 0.5
    assert effects(rows) == pytest.approx([0.0] * 3, abs=1e-12)  # stopping is none of the arm's recipes
    assert "recipes: 3 to 3 of the lengths full" in found(rows).detail
    for arm in ("none", "stopped"):
        assert effects(rows, arm={"defense": arm}) == pytest.approx([0.0] * 3, abs=1e-12)
    named = pd.concat([rows.assign(length="full"), table({"natural": stopped}, length="half", level=np.nan)])
    assert effects(named) == pytest.approx([0.0] * 3, abs=1e-12)
    assert "recipes: 5 to 5 of the lengths full, half" in found(named).detail
    with pytest.raises(EmptySelectionError, match="the arm's recipes have the lengths full, plain SGD's half"):
        found(rows, plain=["stopped"])


def test_trainings_of_several_numbers_of_rounds_are_recipes_if_both_sides_have_them():
    quick = [(0.52, 0.4), (0.58, 0.5)]
    full, short = (
        table({"none": points, "natural": points}).assign(rounds=n, run=lambda t, n=n: t["defense"] + str(n))
        for n, points in ((600, PLAIN), (75, quick))
    )
    both = found(pd.concat([full, short]))
    assert both.effects.iloc[:, 0].tolist() == pytest.approx([0.0] * 3, abs=1e-12)
    assert "recipes: 5 to 5 of the lengths full of 600, full of 75" in both.detail
    alone = found(pd.concat([full, short[short["defense"] == "natural"]]))  # plain SGD was not given the short ones
    assert alone.effects.iloc[:, 0].tolist() == pytest.approx([0.0] * 3, abs=1e-12)
    assert "recipes: 3 to 3 of the lengths full of 600" in alone.detail


def test_levels_count_by_the_window_of_leakages_that_both_fronts_reach():
    arm = {"wide": [(0.58, 0.40), (0.66, 0.46)], "narrow": [(0.692, 0.60), (0.80, 0.70)]}
    rows = table({"none": [(0.50, 0.3), (0.7, 0.50)], **arm})
    rows = rows.assign(level=rows["defense"].map({"none": np.nan, "wide": 1.0, "narrow": 2.0}))
    rows["defense"] = rows["defense"].replace({"wide": "natural", "narrow": "natural"})
    wide, narrow = 0.01, 0.6 + 0.1 * 0.004 / 0.108 - 0.496  # at the middle of the windows of .08 and .008
    both = found(rows)
    assert both.effects["beyond"].tolist() == pytest.approx([(10 * wide + narrow) / 11] * 3)
    assert both.note == "windows 0.08, 0.008"
    least = found(rows, leakage={**OPTIONS["leakage"], "least": 0.02})
    assert least.effects["beyond"].tolist() == pytest.approx([wide] * 3)
    assert least.note == "windows 0.08, 0.008 (too narrow)"
    with pytest.raises(EmptySelectionError, match=r"overlap by 0\.1 or more; windows: 0\.08, 0\.008"):
        found(rows, leakage={**OPTIONS["leakage"], "least": 0.1})
    with pytest.raises(ConfigError, match=r"leakage.least"):  # without it a window of any width would decide
        found(rows, leakage={"where": {"metric": "auc"}, "nothing": 0.5})


def test_pooled_levels_are_recipes_of_one_front():
    plain = table({"none": [(0.55, 0.35), (0.65, 0.45)]})
    low, high = (
        table({"natural": [point]}, level=level, run=f"natural-{level}")
        for level, point in ((1.0, (0.56, 0.40)), (2.0, (0.64, 0.48)))
    )
    rows = pd.concat([plain, low, high])
    assert found(rows).note == "windows 0, 0"
    pooled = found(rows, pool_levels=True)
    assert pooled.note == "windows 0.08"
    assert pooled.effects["beyond"].tolist() == pytest.approx([0.04] * 3)
    assert "levels" not in pooled.detail


def test_leakage_below_that_of_nothing_is_luck_and_counts_as_nothing():
    lucky, none = (table({"none": [(0.5, 0.4)], "natural": [(x, 0.5)]}, replicas=2) for x in (0.4, 0.5))
    assert effects(lucky) == effects(none)


def test_the_guess_of_a_dataset_is_its_own():
    rows = table({"none": [(0.55, 0.46), (0.6, 0.8)], "natural": [(0.55, 0.48), (0.6, 0.8)]}, dataset="celeba")
    assert effects(rows) == pytest.approx([0.01] * 3)
    assert effects(rows, guesses={"celeba": 0.5}) == pytest.approx([0.0] * 3)  # nobody trains for less than a guess


def test_a_network_that_diverged_in_a_replica_is_no_corner_there():
    rows = table({"none": PLAIN, "natural": [*PLAIN, (0.56, 0.9)]}, replicas=4)
    kept = rows[(rows["defense"] != "natural") | (rows["learning_rate"] < 0.025) | (rows["replica"] == 2)]
    assert effects(kept) == pytest.approx([0.0] * 4, abs=1e-12)


def test_replicas_without_plain_sgd_are_not_compared_and_one_alone_chooses_for_nobody():
    rows = table({"none": [(0.6, 0.4)], "natural": [(0.6, 0.5)]})
    rows = rows[~((rows["defense"] == "none") & (rows["replica"] == 1))]
    assert (len(effects(rows)), found(rows).left_out) == (2, 1)
    with pytest.raises(EmptySelectionError, match="choose the corners of fronts and another judges them"):
        found(rows[rows["replica"] == 0])
    apart = table({"none": [(0.6, 0.4)], "natural": [(0.7, 0.5)]})
    with pytest.raises(EmptySelectionError, match="whose leakages overlap"):
        found(apart)


def test_leakage_that_the_judging_replica_sees_is_charged_at_the_mean_slope_of_both_fronts():
    """The arm's front rises by .5 for each unit of leakage, the other by 1, and the judge sees .02 more leakage."""
    arm = np.array([[(0.6, 0.5), (0.8, 0.6)], [(0.62, 0.5), (0.82, 0.6)]])
    other = np.array([[(0.6, 0.3), (0.8, 0.5)]] * 2)
    height, window = beyond_front(arm, other, np.array([0.5, 0.1]))
    assert height == pytest.approx(0.55 - 0.4 - 0.75 * 0.02)
    assert window == pytest.approx(0.2)
