"""Numbers that claim tests hand over, by small tables whose results can be worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from leakbound_lab.claims.judging import joined_blocks, judge, opposed, sides, verdict
from leakbound_lab.claims.outcomes import Blocks, Exact
from leakbound_lab.claims.scoreboard import markdown_table
from leakbound_lab.claims.selection import EmptySelectionError
from leakbound_lab.claims.statistics import student
from leakbound_lab.config.catalogue import ClaimConfig
from leakbound_lab.registries import CLAIM_TESTS
from verdicts import entry, evaluate


def rows_of(*listed: tuple[str, float, int, str, float]) -> pd.DataFrame:
    """Rows of defense, level, replica, metric and value; a run is a defense at a level."""
    rows = pd.DataFrame(listed, columns=["defense", "level", "replica", "metric", "value"])
    named = rows["defense"] + "-" + rows["level"].astype(str)
    return rows.assign(run=named, dataset="digits", model="lenet")


def found(test: str, rows: pd.DataFrame, **options: object) -> Blocks | Exact:
    return CLAIM_TESTS.get(test)(rows, options=options)


def test_effects_and_steps_become_parts_of_each_blocks_own_number_and_ranks_stay():
    replicas = pd.Index([0, 1, 2])
    blocks = Blocks(
        effects=pd.DataFrame({"slope": [2.0, 4.0, 6.0]}, replicas),
        claimed=1,
        detail="compared",
        scores=pd.DataFrame({"slope": [0.5, 1.0, -1.0]}, replicas),
        steps=pd.DataFrame({"1 to 2": [1.0, 2.0, 3.0], "2 to 4": [3.0, 6.0, 9.0]}, replicas),
        left_out=1,
    )
    parts = blocks.scaled(pd.Series({0: 2.0, 1: 8.0, 7: 1.0}))
    assert parts.effects.to_dict("list") == {"slope": [1.0, 0.5]}
    assert parts.steps.to_dict("list") == {"1 to 2": [0.5, 0.25], "2 to 4": [1.5, 0.75]}
    assert parts.scores.to_dict("list") == {"slope": [0.5, 1.0]}
    assert (parts.left_out, parts.claimed, parts.detail) == (2, 1, "compared")


def test_two_levels_are_enough_for_a_correlation_and_one_is_not():
    rows = rows_of(
        *(("natural", level, r, "x", sign * level) for level in (1.0, 2.0) for r, sign in ((0, 1), (1, -1))),
        *(("natural", level, replica, "y", level) for level in (1.0, 2.0) for replica in (0, 1)),
        *(("natural", 1.0, 2, metric, 1.0) for metric in ("x", "y")),
    )
    both = {"x": {"metric": "x"}, "y": {"metric": "y"}}
    blocks = found("concordant", rows, **both)
    assert blocks.effects.to_dict("list") == {"correlation": [1.0, -1.0]}
    assert (blocks.claimed, blocks.left_out) == (1, 1)
    assert blocks.detail == "sign flips; effect: mean rank correlation over 2 levels"
    assert found("discordant", rows, **both).claimed == -1
    for few in (rows[rows["replica"] == 2], rows[rows["level"] == 1.0]):
        with pytest.raises(EmptySelectionError, match="no replica has both quantities at several levels"):
            found("concordant", few, **both)


def test_slopes_of_two_levels_are_compared_for_each_doubling_or_for_each_step():
    heights = {"a": 3.0, "b": 1.0}
    for levels, per in (((1.0, 4.0), " per doubling"), ((0.0, 4.0), " per step")):
        rows = rows_of(
            *((name, level, 0, "m", rise * (level == 4.0)) for name, rise in heights.items() for level in levels),
            *(("a", level, 1, "m", 0.0) for level in levels),
        )
        blocks = found("steeper", rows, a={"defense": "a"}, b={"defense": "b"})
        steps = 2.0 if per == " per doubling" else 1.0
        assert blocks.effects.to_dict("list") == {"slope": [2.0 / steps]}
        assert (blocks.left_out, blocks.per) == (1, per)
    flat = rows[rows["level"] == 4.0]
    with pytest.raises(EmptySelectionError, match="a series has only one value of level"):
        found("steeper", flat, a={"defense": "a"}, b={"defense": "b"})


def test_closed_forms_agree_up_to_their_relative_difference():
    rows = pd.DataFrame({"kind": ["a", "b"] * 2, "level": [1.0, 1.0, 2.0, 2.0], "value": [0.22, 0.2, 11.0, 10.0]})
    options = {"a": {"kind": "a"}, "b": {"kind": "b"}, "match": ["level"]}
    one = found("equals", rows, tolerance=0.2, **options)
    assert one.effect == pytest.approx(0.1)
    assert (one.holds, one.detail) == (True, "largest relative difference 0.1, allowed 0.2")
    assert not found("equals", rows, tolerance=0.05, **options).holds


def fronts(*listed: tuple[str, float, int, float, float]) -> pd.DataFrame:
    """Rows of both quantities of points: defense, level, replica, x and y."""
    return rows_of(
        *((name, level, r, metric, value) for name, level, r, x, y in listed for metric, value in (("x", x), ("y", y)))
    )


def test_areas_of_fronts_are_measured_from_their_corner():
    rows = fronts(
        ("a", 1.0, 0, 0.5, 0.5), ("b", 1.0, 0, 0.8, 0.2), ("a", 1.0, 1, 0.5, 0.5), ("b", 1.0, 2, 0.8, 0.2)
    )  # fmt: skip
    quantities = {"x": {"metric": "x"}, "y": {"metric": "y"}}
    sides = {"best": {"defense": "a"}, "against": [{"defense": ["b", "c"]}]}
    for corner, expected in (
        ([0.0, 0.0], 0.5 * 0.5 - 0.8 * 0.2),
        ([0.1, 0.0], 0.4 * 0.5 - 0.7 * 0.2),
        ([0.0, 0.1], 0.5 * 0.4 - 0.8 * 0.1),
    ):
        blocks = found("front", rows, **quantities, **sides, reference=corner)
        assert blocks.effects.to_dict("list") == {"b+c": pytest.approx([expected])}
        assert (blocks.left_out, blocks.claimed) == (2, 1)
    with pytest.raises(EmptySelectionError, match="a and a front to compare it with"):
        found("front", rows[rows["defense"] == "a"], **quantities, **sides)


def of_datasets(rule="beyond", **effects: object) -> Blocks:
    """Blocks of some datasets with these effects."""
    tables = {name: pd.DataFrame({"difference": own}) for name, own in effects.items()}
    return joined_blocks({(name, "lenet", ""): Blocks(own, 1, "", rule=rule) for name, own in tables.items()})


@pytest.mark.parametrize(
    ("rule", "delta", "p_value"),
    [
        ("within", 1.0, 2 * 2.0**-5),  # above, or below: all five signs
        ("at most", 1.0, 2.0**-5),
        ("within", 4.0, 2.0**-5),  # both sides must hold
    ],
)
def test_a_difference_within_delta_has_two_sides_to_be_outside_of(rule, delta, p_value):
    assert judge(of_datasets(rule, digits=[3.0] * 5), delta, 0.05, np.random.default_rng(0)).p_value == p_value


@pytest.mark.parametrize(
    ("test", "text"), [("at_most", "all as claimed, 2 equal up to rounding"), ("less", "all as claimed, 2 equal")]
)
def test_what_differs_from_a_bound_by_rounding_does_not_exceed_it(test, text):
    rows = pd.DataFrame(
        {"kind": ["guessed", "bound"] * 2, "level": [1.0, 1.0, 2.0, 2.0], "value": [1.0, 0.9999999999999993, 0.5, 0.5]}
    )
    options = {"a": {"kind": "guessed"}, "b": {"kind": "bound"}, "exact": True}
    one = found(test, rows, **options)
    assert one.holds
    assert text in one.detail
    beyond = rows.assign(value=[1.0, 0.99999, 0.5, 0.5])
    assert found(test, beyond, **options).detail.startswith("2 comparisons, 1 against the claim")
    swapped = {"a": options["b"], "b": options["a"], "exact": True}
    assert found("greater", rows, **swapped).holds
    same = rows.assign(value=0.5)  # at most each other, and not less
    assert (found(test, same, **options).holds, found("greater", same, **swapped).holds) == (test == "at_most", False)


def test_an_exact_trend_follows_its_column_and_may_rest_or_waver_by_rounding_but_not_all_the_way():
    rows = pd.DataFrame({"level": [4.0, 1.0, 2.0], "value": [7.0, 1.0, 2.0]})
    assert found("increasing", rows, exact=True) == Exact(1.0, True, "2 steps along level, all as claimed")
    assert found("decreasing", rows, exact=True) == Exact(-5.0, False, "2 steps along level, 2 against the claim")
    values = {"rises": [1.0, 2.0, 2.0 - 4e-16], "flat": [1.0, 1.0 + 2e-16, 1.0], "falls": [1.0, 2.0, 1.999]}
    for name, expected in (("rises", True), ("flat", False), ("falls", False)):
        rows = pd.DataFrame({"level": [1.0, 2.0, 3.0], "value": values[name]})
        assert found("increasing", rows, exact=True).holds is expected, name


def exact_claims() -> pd.DataFrame:
    """A closed form that holds for one dataset and fails for the other."""
    values = {"digits": (1.0, 2.0, 4.0), "svhn": (1.0, 3.0, 2.5)}
    listed = [(name, "lenet", float(i), value) for name, own in values.items() for i, value in enumerate(own)]
    rows = pd.DataFrame(listed, columns=["dataset", "model", "level", "value"])
    claim = ClaimConfig(id="rises", text="It rises.", test="increasing", options={"exact": True})
    return evaluate(entry(claims=(claim,)), rows, 0.05)


def test_rows_of_a_closed_form_name_their_setting_and_the_weakest_speaks_for_all():
    claims = exact_claims()
    assert claims[["dataset", "model", "verdict"]].to_numpy().tolist() == [
        ["digits", "lenet", "holds"],
        ["svhn", "lenet", "fails"],
        ["all", "all", "fails"],
    ]
    assert claims["effect"].tolist() == [1.0, -0.5, -0.5]
    assert claims["p_value"].tolist() == claims["p_adjusted"].tolist() == [0.0, 1.0, 1.0]
    assert claims["blocks"].tolist() == [0, 0, 0]
    assert claims["exact"].all()
    assert claims["power"].isna().all()
    assert claims["detail"].iloc[-1] == "exact: 2 steps along level, 1 against the claim"


def test_a_table_in_markdown_is_written_to_the_letter():
    body = [["a|b", "reproduced"], [1, "undecided"], [2, "negligible"]]
    assert markdown_table(["x", "y"], body) == (
        "| x | y |\n| --- | --- |\n| a\\|b | **reproduced** |\n| 1 | undecided |\n| 2 | **negligible** |"
    )


def test_series_are_compared_along_what_they_differ_in():
    options = CLAIM_TESTS.get("greater").check(
        {"a": {"defense": "white", "dataset": "svhn"}, "b": {"defense": "natural", "dataset": "svhn"}}
    )
    assert options.compared() == {"defense"}
    alone = CLAIM_TESTS.get("greater").check({"a": {"defense": "white", "dataset": "svhn"}, "value": 0.5})
    assert alone.compared() == {"defense", "dataset"}


def test_a_difference_is_the_mean_over_matches_and_says_over_how_many():
    rows = rows_of(*((name, level, 0, "m", level * (name == "a")) for name in "ab" for level in (1.0, 3.0)))
    series = {"a": {"defense": "a"}, "b": {"defense": "b"}}
    blocks = found("less", rows, **series)
    assert blocks.effects.to_dict("list") == {"difference": [2.0]}
    assert (blocks.detail, blocks.claimed) == ("sign flips; effect: mean difference over 2 matches", -1)


def test_a_trend_hands_over_its_slopes_ranks_steps_and_widths():
    values = {0: (1.0, 3.0, 5.0), 1: (4.0, 2.0, 0.0)}
    rows = rows_of(
        *(
            ("natural", level, r, "m", v)
            for r, own in values.items()
            for level, v in zip((1.0, 2.0, 8.0), own, strict=True)
        ),
        ("natural", 1.0, 2, "m", 1.0),
    )
    blocks = found("decreasing", rows)
    assert blocks.effects["slope"].tolist() == pytest.approx([9 / 7, -9 / 7])
    assert blocks.scores["slope"].tolist() == pytest.approx([1.0, -1.0])
    assert blocks.steps.to_dict("list") == {"1 to 2": [-2.0, 2.0], "2 to 8": [-2.0, 2.0]}
    assert blocks.widths == {"1 to 2": 1.0, "2 to 8": 2.0}
    assert (blocks.levels, blocks.per, blocks.left_out, blocks.claimed) == (3, " per doubling", 1, -1)


@pytest.mark.parametrize(("noise", "against"), [(3.0, []), (0.1, ["svhn"])])
def test_only_a_dataset_that_speaks_significantly_the_other_way_opposes(noise, against):
    spread = noise * np.array([-1.0, 1.0, -1.0, 1.0, 0.0])
    found = sides(of_datasets(digits=2.0 + 0.01 * spread, svhn=-0.8 + spread), 0.1, 0.05)
    assert opposed(found, "reproduced") == against
    assert opposed(found, "contradicted") == ["digits"]
    assert opposed(found, "undecided") == (["digits", "svhn"] if against else [])


def two_datasets(first: float, second: float, spread: float) -> Blocks:
    """Six blocks each with these means; a 90 % interval of a dataset is its mean ± 0.8226 x spread (t of 5: 2.015)."""
    noise = spread * np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]) / np.sqrt(1.2)  # standard deviation: the spread
    return of_datasets(digits=first + noise, svhn=second + noise)


@pytest.mark.parametrize(
    ("first", "second", "spread", "reached", "disagreeing"),
    [
        (0.01, -0.01, 0.01, "negligible", []),  # ends at ±0.0182
        (0.01, -0.01, 0.0125, "undecided", []),  # at ±0.0203, although their mean is 0
        (0.03, -0.03, 0.01, "undecided", ["digits", "svhn"]),  # opposite effects do not cancel
        (0.023, 0.0, 0.01, "undecided", ["digits", "svhn"]),  # unequal ones do not either: their mean is within ±0.02
        (0.05, 0.0, 0.01, "reproduced", ["svhn"]),
        (0.03, 0.011, 0.01, "reproduced", ["svhn"]),  # ends at 0.0218 and 0.0192
        (0.027, 0.011, 0.01, "reproduced", []),  # at 0.0188 and 0.0192: not shown to differ
    ],
)
def test_each_dataset_must_be_within_delta_for_negligible_and_unequal_ones_are_named(
    first, second, spread, reached, disagreeing
):
    blocks = two_datasets(first, second, spread)
    judged = judge(blocks, 0.02, 0.05, np.random.default_rng(0))
    assert verdict(judged, "beyond", judged.p_value, 0.05) == reached
    assert not judged.negligible or judged.small
    assert opposed(sides(blocks, 0.02, 0.05), reached) == disagreeing


def test_blocks_without_spread_are_certain_and_single_ones_tell_nothing():
    one = [0, 0, 0]
    assert student(np.array([2.0, 2.0, 2.0]), one) == (0.0, 1.0)
    assert student(np.array([-2.0, -2.0, -2.0]), one) == (1.0, 0.0)
    assert student(np.zeros(3), one) == (1.0, 1.0)
    assert student(np.array([2.0]), one[:1]) == (1.0, 1.0)
