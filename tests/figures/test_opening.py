"""Sentences and pictures with which a report opens."""

import math

import pandas as pd

from leakbound_lab.config import reading
from leakbound_lab.figures.report.overview import attacked_runs, meanings, opening_picture, outcome_lines, sentences

COMMON = {"dataset": "digits", "model": "lenet", "rounds": 20, "batch_size": 32}
COMMON |= {"chosen": True, "status": "", "unit": -1}


def rows(metric: str, variant: str, values: dict[tuple[str, float], list[float]], **others) -> pd.DataFrame:
    """Rows of a study: defense and level to values of its replicas."""
    return pd.DataFrame(
        {**COMMON, "metric": metric, "variant": variant, "defense": defense, "level": level, "value": value, **others}
        for (defense, level), replicas in values.items()
        for value in replicas
    )


ACCURACY = {("none", math.nan): [0.8, 0.6], ("natural", 50.0): [0.5], ("natural", 9.0): [0.25], ("dpsgd", 1.0): [0.125]}


def test_each_defense_at_each_level_has_a_line_with_its_means():
    both = pd.concat([rows("test_accuracy", "", ACCURACY), rows("leakage", "", {("natural", 9.0): [2.00001, 2.00001]})])
    assert outcome_lines({"x": both}) == [
        ["digits, LeNet", "level", "test accuracy", "nats, whole training"],
        ["undefended", "", "0.7", "no bound"],
        ["natural", "9 nats", "0.25", "2.01"],  # a bound is rounded up
        ["natural", "50 nats", "0.5", "no bound"],
        ["DP-SGD", "noise 1", "0.125", "no bound"],
    ]


def test_lines_of_other_studies_of_the_network_are_joined_and_what_was_not_measured_is_a_dash():
    inverted = rows("relative_mse", "attack", {("natural", 9.0): [0.5], ("white", 4.0): [1e-8]}, rounds=0, batch_size=1)
    seen = rows("leakage", "", {("natural", 9.0): [2.0]})
    more = rows("test_accuracy", "", {("white", 8.0): [0.625]})
    lines = outcome_lines({"x": pd.concat([rows("test_accuracy", "", ACCURACY), seen]), "y": inverted, "z": more})
    assert lines[0][2:] == ["test accuracy", "error from a gradient", "nats, whole training"]
    assert {tuple(line[:2]): line[2:] for line in lines[1:]} == {
        ("undefended", ""): ["0.7", "–", "no bound"],
        ("natural", "9 nats"): ["0.25", "0.5", "2"],
        ("natural", "50 nats"): ["0.5", "–", "no bound"],
        ("white", "4 nats"): ["–", "1e-08", "–"],
        ("white", "8 nats"): ["0.625", "–", "no bound"],
        ("DP-SGD", "noise 1"): ["0.125", "–", "no bound"],
    }


def test_rows_of_other_rates_networks_and_lengths_and_those_without_a_result_are_left_out():
    others = [{"chosen": False}, {"model": "resnet10"}, {"rounds": 10}, {"batch_size": 64}, {"status": "diverged"}]
    more = [rows("test_accuracy", "", {key: [99.0] for key in ACCURACY}, **other) for other in others]
    table = rows("test_accuracy", "", ACCURACY)
    assert outcome_lines({"x": pd.concat([table, *more])}) == outcome_lines({"x": table})


def test_all_columns_are_of_the_network_that_was_trained_under_most_defenses():
    trained = rows("test_accuracy", "", ACCURACY)
    small = rows("test_accuracy", "", {("none", math.nan): [0.1]}, model="resnet10")
    assert outcome_lines({"small": small, "large": trained}) == outcome_lines({"large": trained})
    other = rows("relative_mse", "attack", {("none", math.nan): [9.0], ("white", 4.0): [9.0]}, model="resnet10")
    assert outcome_lines({"x": trained, "y": other}) == outcome_lines({"x": trained})
    more = rows("auc", "strongest", {("none", math.nan): [0.9], ("white", 4.0): [0.5]}, model="resnet10", run="other")
    assert attacked_runs({"x": trained, "y": more}) == {}


def test_strongest_attack_stands_where_it_was_made_and_those_on_uploads_in_a_column_of_their_own():
    weak = rows("auc", "white_box", {("none", math.nan): [0.6]})
    strong = rows("auc", "strongest", {("none", math.nan): [0.75]})
    uploads = rows("auc", "likelihood", {("none", math.nan): [1.0]})
    assert outcome_lines({"x": weak})[1][2:] == ["0.6"]
    head, line = outcome_lines({"x": pd.concat([weak, strong, uploads])})
    assert dict(zip(head[2:], line[2:], strict=True)) == {"AUC, uploads": "1", "AUC, last weights": "0.75"}
    assert head[2] == "AUC, uploads"  # the server sees most, and stands first


def test_least_membership_is_told_beside_what_is_undefended():
    areas = {("none", math.nan): [0.75], ("natural", 50.0): [0.7], ("natural", 9.0): [0.6, 0.5]}
    areas[("dpsgd", 1.0)] = [0.625]
    table = pd.concat([rows("test_accuracy", "", ACCURACY), rows("auc", "strongest", areas)])
    (sentence,) = sentences({"x": table}, {})
    assert sentence == (
        "Membership inference from the last weights (digits, LeNet), AUC (chance is .5): undefended: 0.75 at a test "
        "accuracy of 0.7; least under natural, 9 nats: 0.55 at a test accuracy of 0.25."
    )


def test_columns_are_explained_that_the_table_has_and_no_others():
    lines = outcome_lines({"x": rows("auc", "likelihood", {("none", math.nan): [1.0]})})
    (meaning,) = meanings(lines)
    assert "every upload" in meaning
    assert meanings(outcome_lines({"x": rows("test_accuracy", "", ACCURACY)})) == []
    assert meanings([]) == []


def test_each_observer_has_a_sentence_of_its_own_with_the_defense_that_hides_most_from_it():
    last = rows("auc", "strongest", {("none", math.nan): [0.75], ("natural", 9.0): [0.5], ("dpsgd", 1.0): [0.625]})
    seen = rows("auc", "likelihood", {("none", math.nan): [1.0], ("natural", 9.0): [0.9], ("dpsgd", 1.0): [0.6]})
    said = sentences({"x": pd.concat([rows("test_accuracy", "", ACCURACY), last, seen])}, {})
    assert said == [
        "Membership inference by a server that sees every upload (digits, LeNet), AUC (chance is .5): undefended: 1 at "
        "a test accuracy of 0.7; least under DP-SGD, noise 1: 0.6 at a test accuracy of 0.125.",
        "Membership inference from the last weights (digits, LeNet), AUC (chance is .5): undefended: 0.75 at a test "
        "accuracy of 0.7; least under natural, 9 nats: 0.5 at a test accuracy of 0.25.",
    ]


def test_quick_shows_the_server_behind_every_defense_and_level_of_its_first_table():
    studies = reading.quick().studies
    longest = max(studies["comparison"].rounds)
    arms = {
        (defense, level)
        for study in studies.values()
        if study.rounds and max(study.rounds) == longest and study.datasets == studies["comparison"].datasets
        for defense, levels in study.defenses.items()
        for level in levels or [None]
    }
    seen = studies["uploads"]
    assert seen.rounds == (longest,)
    assert {"membership", "membership_uploads"} <= set(seen.attacks)
    assert {(defense, level) for defense, levels in seen.defenses.items() for level in levels or [None]} == arms


def test_curves_are_of_the_run_of_each_defense_where_the_attack_sees_least():
    parts = [
        rows("auc", "strongest", {("none", math.nan): [0.75]}, run="plain"),
        rows("auc", "strongest", {("natural", 50.0): [0.7, 0.7]}, run="weak"),
        rows("auc", "strongest", {("natural", 9.0): [0.9, 0.3]}, run="strong"),
    ]
    assert attacked_runs({"x": pd.concat(parts)}) == {"none": "plain", "natural": "strong"}
    assert attacked_runs({}) == {}


def test_demonstrated_leakage_is_that_nearest_to_its_bound():
    nats = {("one", "images_nats"): (0.5, 1.0), ("other", "weights_nats"): (3.0, 100.0)}
    table = pd.concat(
        rows(metric, variant, {("natural", 1.0): [value]}, run=run)
        for (run, metric), values in nats.items()
        for variant, value in zip(("demonstrated", "allowed"), values, strict=True)
    )
    assert sentences({"x": table}, {}) == [
        "Attacks prove 0.5 of the 1 nat about one record that its noisy copies may reveal (one)."
    ]


def test_verdicts_are_counted_and_nothing_is_told_of_nothing():
    assert sentences({}, {"reproduced": 3, "mixed": 0, "undecided": 1}) == [
        "Of 4 claims about experiments: 3 reproduced, 1 undecided."
    ]
    assert sentences({"theory": pd.DataFrame({"metric": ["test_accuracy"]})}, {}) == []


def test_picture_is_a_well_known_one_or_else_the_first():
    assert opening_picture(["a/1", "tan2024/fig05", "a/2", "beyond/recipes", "a/3"]) == "beyond/recipes"
    assert opening_picture(["a/1", "beyond/recipes", "beyond/uploads_front"]) == "beyond/uploads_front"
    assert opening_picture(["a/1", "a/2"]) == "a/1"
    assert opening_picture([]) is None
