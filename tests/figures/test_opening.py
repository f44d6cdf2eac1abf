"""Sentences and pictures with which a report opens."""

import math

import pandas as pd

from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.statement import Statement, state
from leakbound_lab.config import reading
from leakbound_lab.figures.report.opening import (
    attacked_runs,
    bounds,
    meanings,
    opening_picture,
    outcome_lines,
    sentences,
)

COMMON = {"dataset": "digits", "model": "lenet", "rounds": 20, "batch_size": 32}
COMMON |= {"chosen": True, "status": "", "unit": -1}


def rows(metric: str, variant: str, values: dict[tuple[str, float], list[float]], **others) -> pd.DataFrame:
    """Rows of a study: defense and level to values of its replicas."""
    return pd.DataFrame(
        {**COMMON, "metric": metric, "variant": variant, "defense": defense, "level": level}
        | {"run": f"{defense}-{level:g}", "replica": replica, "value": value, **others}
        for (defense, level), replicas in values.items()
        for replica, value in enumerate(replicas)
    )


NOTHING: dict[object, Statement] = {}
ACCURACY = {("none", math.nan): [0.8, 0.6], ("natural", 50.0): [0.5], ("natural", 9.0): [0.25], ("dpsgd", 1.0): [0.125]}


def behind(nats: float, labels: float | str = "uncounted", **others) -> Statement:
    """What a training behind a channel with seeded noise states."""
    return state("the weights of one replica", secure=False, labels=labels, added=nats, **others)


def private(noise: float) -> Statement:
    """What DP-SGD of ten steps on all records with seeded noise states."""
    event = PrivacyEvent("dpsgd", "poisson", population=320, batch_size=32, steps=10, uses=10, noise_multiplier=noise)
    return state("the weights of one replica", secure=False, labels="covered", events=[event], delta=1e-5)


UNDEFENDED = state("the weights of one replica", secure=False, labels="uncounted", why_not="no noise")


def test_each_defense_at_each_level_has_a_line_with_its_means_and_what_is_stated_of_its_training():
    trained = {"x": rows("test_accuracy", "", ACCURACY)}
    stated = bounds(trained, {"none-nan": UNDEFENDED, "natural-9": behind(2.00001), "white-9": behind(1.0)})
    assert stated == {("none", math.inf): UNDEFENDED, ("natural", 9.0): behind(2.00001)}
    assert outcome_lines(trained, stated) == [
        ["digits, LeNet", "level", "test accuracy", "nats, whole training"],
        ["undefended", "", "0.7", "no bound"],
        ["natural", "9 nats a use", "0.25", "2.001"],  # a bound is rounded up
        ["natural", "50 nats a use", "0.5", "–"],
        ["DP-SGD", "noise 1", "0.125", "–"],
    ]
    assert bounds({}, {}) == {}


def test_lines_of_other_studies_of_the_network_are_joined_and_what_was_not_measured_is_a_dash():
    inverted = rows("relative_mse", "attack", {("natural", 9.0): [0.5], ("white", 4.0): [1e-8]}, rounds=0, batch_size=1)
    more = rows("test_accuracy", "", {("white", 8.0): [0.625]})
    tables = {"x": rows("test_accuracy", "", ACCURACY), "y": inverted, "z": more}
    lines = outcome_lines(tables, bounds(tables, {"natural-9": behind(2.0), "white-8": UNDEFENDED}))
    assert lines[0][2:] == ["test accuracy", "nats, whole training", "error from a gradient"]
    assert {tuple(line[:2]): line[2:] for line in lines[1:]} == {
        ("undefended", ""): ["0.7", "–", "–"],
        ("natural", "9 nats a use"): ["0.25", "2", "0.5"],
        ("natural", "50 nats a use"): ["0.5", "–", "–"],
        ("white", "4 nats a use"): ["–", "–", "1e-08"],
        ("white", "8 nats a use"): ["0.625", "no bound", "–"],
        ("DP-SGD", "noise 1"): ["0.125", "–", "–"],
    }


def test_rows_of_other_rates_networks_and_lengths_and_those_without_a_result_are_left_out():
    others = [{"chosen": False}, {"model": "resnet10"}, {"rounds": 10}, {"batch_size": 64}, {"status": "diverged"}]
    more = [rows("test_accuracy", "", {key: [99.0] for key in ACCURACY}, **other) for other in others]
    table = rows("test_accuracy", "", ACCURACY)
    assert outcome_lines({"x": pd.concat([table, *more])}, NOTHING) == outcome_lines({"x": table}, NOTHING)


def test_all_columns_are_of_the_network_that_was_trained_under_most_defenses():
    trained = rows("test_accuracy", "", ACCURACY)
    small = rows("test_accuracy", "", {("none", math.nan): [0.1]}, model="resnet10")
    assert outcome_lines({"small": small, "large": trained}, NOTHING) == outcome_lines({"large": trained}, NOTHING)
    other = rows("relative_mse", "attack", {("none", math.nan): [9.0], ("white", 4.0): [9.0]}, model="resnet10")
    assert outcome_lines({"x": trained, "y": other}, NOTHING) == outcome_lines({"x": trained}, NOTHING)
    more = rows("auc", "strongest", {("none", math.nan): [0.9], ("white", 4.0): [0.5]}, model="resnet10", run="other")
    assert attacked_runs({"x": trained, "y": more}) == {}


def test_strongest_attack_stands_where_it_was_made_and_those_on_uploads_in_a_column_of_their_own():
    weak = rows("auc", "white_box", {("none", math.nan): [0.6]})
    strong = rows("auc", "strongest", {("none", math.nan): [0.75]})
    uploads = rows("auc", "likelihood", {("none", math.nan): [1.0]})
    assert outcome_lines({"x": weak}, NOTHING)[1][2:] == ["0.6"]
    head, line = outcome_lines({"x": pd.concat([weak, strong, uploads])}, NOTHING)
    assert dict(zip(head[2:], line[2:], strict=True)) == {"AUC, uploads": "1", "AUC, last weights": "0.75"}
    assert head[2] == "AUC, uploads"  # the server sees most, and stands first


def said(*parts: pd.DataFrame, totals: dict[str, int] | None = None) -> list[str]:
    """Sentences that open quick's report."""
    return sentences({"x": pd.concat(parts)} if parts else {}, NOTHING, totals or {}, reading.quick())


def test_least_membership_is_told_beside_what_is_undefended():
    areas = {("none", math.nan): [0.75], ("natural", 50.0): [0.7], ("natural", 9.0): [0.6, 0.5]}
    areas[("dpsgd", 1.0)] = [0.625]
    trained, last = said(rows("test_accuracy", "", ACCURACY), rows("auc", "strongest", areas))
    members = reading.quick().datasets["digits"].members
    assert trained == (
        f"digits, LeNet: a client trains on {members} records in 20 steps of 32. Numbers are means of 1 to 2 replicas."
    )
    assert last == (
        "Whoever gets the last weights recognises members with an AUC of 0.75 undefended and of 0.55 behind natural "
        "(9 nats a use), the least (0.5 is guessing). Test accuracy is 0.7 and 0.25."
    )


def test_an_attack_that_no_defense_weakens_is_said_to_be_so():
    areas = {("none", math.nan): [0.6], ("natural", 9.0): [0.75]}
    *_, last = said(rows("test_accuracy", "", ACCURACY), rows("auc", "strongest", areas))
    assert "an AUC of 0.6 undefended, no more than behind any defense (0.5 is guessing). Test accuracy is 0.7." in last


def test_nothing_is_compared_with_defenses_that_were_not_tried():
    """What is undefended alone was said to be no worse than behind any defense."""
    alone = {("none", math.nan): [0.75]}
    told = said(
        rows("test_accuracy", "", alone),
        rows("auc", "strongest", alone),
        rows("relative_mse", "attack", alone, rounds=0, batch_size=1),
    )
    assert told[0].endswith("Numbers are of one replica.")
    assert told[1:] == [
        "Whoever gets the last weights recognises members with an AUC of 0.75 undefended (0.5 is guessing). "
        "Test accuracy is 0.75.",
        "Whoever sees the gradient of one record recovers it with a squared error of 0.75 undefended (1 is that of the "
        "mean record).",
    ]


def test_an_attacker_recovers_a_record_from_its_gradient_with_the_largest_error_that_a_defense_causes():
    errors = {("none", math.nan): [1e-9], ("natural", 9.0): [0.5, 0.7], ("white", 9.0): [0.25]}
    (told,) = said(rows("relative_mse", "attack", errors, rounds=0, batch_size=1))
    assert told == (
        "Whoever sees the gradient of one record recovers it with a squared error of 1e-09 undefended and of 0.6 "
        "behind natural (9 nats a use), the most (1 is that of the mean record)."
    )


def test_the_smallest_bounds_are_said_as_they_are_stated_with_the_noise_that_they_need():
    table = {"x": rows("auc", "likelihood", {("none", math.nan): [1.0]})}
    listed = {("none", math.inf): UNDEFENDED, ("natural", 50.0): behind(30.0), ("natural", 9.0): behind(12.3411)}
    listed |= {("dpsgd", 1.0): private(1.0), ("dpsgd", 9.0): private(9.0)}
    config = reading.quick()
    (said,) = sentences(table, listed, {}, config)
    members = config.datasets["digits"].members
    assert said == (
        "All uploads of a training reveal behind natural (9 nats a use) about one record at most 12.35 nats on average "
        "over records, plus labels, not counted; behind DP-SGD (noise 9) about one record at most "
        f"{private(9.0).amount}. This holds if the noise is secret; here it comes from seeds. To name one of {members} "
        "records takes "
        f"{math.log(members):.1f} nats."
    )
    assert "ε = " in said
    assert "for every record, labels included. This" in said
    owned = {("natural", 9.0): state("the weights", secure=True, labels=1.5, added=3.0, unit="owner", group=4)}
    (said,) = sentences(table, owned, {}, config)
    assert said.startswith(
        "All uploads of a training reveal behind natural (9 nats a use) about all records of one owner together (at "
        "most 4) at most 4.5 nats on average over owners, 1.5 of them by labels. This holds if the noise is secret. "
    )
    assert sentences(table, {("none", math.inf): UNDEFENDED}, {}, config) == []


def test_columns_are_explained_that_the_table_has_and_no_others():
    lines = outcome_lines({"x": rows("auc", "likelihood", {("none", math.nan): [1.0]})}, NOTHING)
    ((column, meaning),) = meanings(lines, NOTHING).items()
    assert column == "AUC, uploads"
    assert "every upload" in meaning
    assert meanings(outcome_lines({"x": rows("test_accuracy", "", ACCURACY)}, NOTHING), NOTHING) == {}
    assert meanings([], NOTHING) == {}


def test_nats_of_the_table_are_explained_as_each_defense_states_them():
    """They were said to be without labels behind every channel, also where responses count them."""
    tables = {"x": rows("test_accuracy", "", ACCURACY)}
    stated = {"none-nan": UNDEFENDED, "dpsgd-1": private(1.0)}
    stated |= {"natural-9": behind(2.0, 0.5), "natural-50": behind(9.0, 0.5)}
    listed = bounds(tables, stated)
    assert meanings(outcome_lines(tables, listed), listed) == {
        "nats, whole training": "the most that all uploads reveal, if the noise is secret: behind natural about one "
        "record, on average over records, labels included; behind DP-SGD about one record, for every record, labels "
        "included"
    }


def test_each_observer_has_a_sentence_of_its_own_with_the_defense_that_hides_most_from_it():
    last = rows("auc", "strongest", {("none", math.nan): [0.75], ("natural", 9.0): [0.5], ("dpsgd", 1.0): [0.625]})
    seen = rows("auc", "likelihood", {("none", math.nan): [1.0], ("natural", 9.0): [0.9], ("dpsgd", 1.0): [0.6]})
    _, server, recipient = said(rows("test_accuracy", "", ACCURACY), last, seen)
    assert server == (
        "A server that sees every upload recognises members with an AUC of 1 undefended and of 0.6 behind DP-SGD "
        "(noise 1), the least (0.5 is guessing). Test accuracy is 0.7 and 0.125."
    )
    assert recipient.startswith(
        "Whoever gets the last weights recognises members with an AUC of 0.75 undefended and of 0.5"
    )


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
    told = said(
        *(
            rows(metric, variant, {("natural", 1.0): [value]}, run=run)
            for (run, metric), values in nats.items()
            for variant, value in zip(("demonstrated", "allowed"), values, strict=True)
        )
    )
    assert told == ["Attacks prove 0.5 of the 1 nat about one record that its noisy copies may reveal (run one)."]


def test_verdicts_are_counted_and_nothing_is_told_of_nothing():
    assert said(totals={"undecided": 1}) == ["Of 1 claim about experiments: 1 undecided."]
    assert said(totals={"reproduced": 3, "mixed": 0, "undecided": 1}) == [
        "Of 4 claims about experiments: 3 reproduced, 1 undecided."
    ]
    assert said(pd.DataFrame({"metric": ["test_accuracy"]})) == []


def test_picture_is_a_well_known_one_or_else_the_first():
    assert opening_picture(["a/1", "tan2024/fig05", "a/2", "beyond/recipes", "a/3"]) == "beyond/recipes"
    assert opening_picture(["a/1", "beyond/recipes", "beyond/uploads_front"]) == "beyond/uploads_front"
    assert opening_picture(["a/1", "a/2"]) == "a/1"
    assert opening_picture([]) is None
