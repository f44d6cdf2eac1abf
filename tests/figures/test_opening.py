"""Sentences and pictures with which a report opens."""

import math

import pandas as pd

from leakbound.figures.report.overview import pictures, sentences

COMMON = {
    "dataset": "digits",
    "model": "lenet",
    "rounds": 20,
    "batch_size": 32,
    "chosen": True,
    "status": "",
    "unit": -1,
}


def rows(metric: str, variant: str, values: dict[tuple[str, float], list[float]], **others) -> pd.DataFrame:
    """Rows of a study: defense and level to values of its replicas."""
    return pd.DataFrame(
        {**COMMON, "metric": metric, "variant": variant, "defense": defense, "level": level, "value": value, **others}
        for (defense, level), replicas in values.items()
        for value in replicas
    )


ACCURACY = {("none", math.nan): [0.8, 0.6], ("natural", 50.0): [0.5], ("natural", 9.0): [0.25], ("dpsgd", 1.0): [0.125]}


def test_defenses_are_told_with_their_means_at_their_outer_levels():
    table = pd.concat([rows("test_accuracy", "", ACCURACY), rows("test_accuracy", "", {("natural", 20.0): [9.0]})])
    assert sentences({"x": table}, {}) == [
        "Test accuracy (digits, LeNet): undefended 0.7; natural 0.25 (9) to 0.5 (50); DP-SGD 0.125 (1)."
    ]


def test_rows_of_other_rates_networks_and_lengths_and_those_without_a_result_are_left_out():
    others = [{"chosen": False}, {"model": "resnet10"}, {"rounds": 10}, {"batch_size": 64}, {"status": "diverged"}]
    more = [rows("test_accuracy", "", {key: [99.0] for key in ACCURACY}, **other) for other in others]
    table = rows("test_accuracy", "", ACCURACY)
    assert sentences({"x": pd.concat([table, *more])}, {}) == sentences({"x": table}, {})


def test_study_with_most_defenses_is_told():
    small, large = rows("test_accuracy", "", {("none", math.nan): [0.1]}), rows("test_accuracy", "", ACCURACY)
    assert sentences({"small": small, "large": large}, {}) == sentences({"large": large}, {})


def test_strongest_attack_is_told_where_it_was_made():
    weak = rows("auc", "white_box", {("none", math.nan): [0.6]})
    strong = rows("auc", "strongest", {("none", math.nan): [0.75]})
    assert "white-box attack (digits, LeNet), AUC (chance is .5): undefended 0.6." in sentences({"x": weak}, {})[0]
    (told,) = sentences({"x": pd.concat([weak, strong])}, {})
    assert "strongest attack (digits, LeNet), AUC (chance is .5): undefended 0.75." in told


def test_attacks_on_uploads_and_on_the_last_weights_have_a_sentence_each():
    table = pd.concat(
        rows("auc", name, {("none", math.nan): [auc]}) for name, auc in (("strongest", 0.7), ("likelihood", 1))
    )
    last, uploads = sentences({"x": table}, {})
    assert last.startswith("Membership inference from the last weights by the strongest attack (digits, LeNet), AUC")
    assert uploads.startswith("Membership inference from the uploads by the likelihood ratio (digits, LeNet), AUC")


def test_gradients_are_told_beside_the_mean_record():
    found = rows("relative_mse", "attack", {("none", math.nan): [1e-8], ("natural", 50.0): [0.5]})
    known = rows("mse", "prior", {("none", math.nan): [0.04], ("natural", 50.0): [0.06]})
    (told,) = sentences({"x": pd.concat([found, known])}, {})
    assert told.endswith("over that of the mean record, which is 0.05: undefended 1e-08; natural 0.5 (50).")


def test_demonstrated_leakage_is_that_nearest_to_its_bound():
    nats = {("one", "images_nats"): (0.5, 1.0), ("other", "weights_nats"): (3.0, 100.0)}
    table = pd.concat(
        rows(metric, variant, {("natural", 1.0): [value]}, run=run)
        for (run, metric), values in nats.items()
        for variant, value in zip(("demonstrated", "allowed"), values, strict=True)
    )
    assert sentences({"x": table}, {}) == [
        "Attacks prove 0.5 of the 1 nats about one record that its noisy copies may reveal (one)."
    ]


def test_verdicts_are_counted_and_nothing_is_told_of_nothing():
    assert sentences({}, {"reproduced": 3, "mixed": 0, "undecided": 1}) == [
        "Of 4 claims about experiments: 3 reproduced, 1 undecided."
    ]
    assert sentences({"theory": pd.DataFrame({"metric": ["test_accuracy"]})}, {}) == []


def test_pictures_are_well_known_ones_first_and_three_at_most():
    assert pictures(["a/1", "tan2024/fig05", "a/2", "beyond/recipes", "a/3"]) == [
        "beyond/recipes",
        "tan2024/fig05",
        "a/1",
    ]
    assert pictures(["a/1"]) == ["a/1"]
