from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml

from leakbound_lab.claims.selection import (
    EmptySelectionError,
    SelectionError,
    both_quantities,
    larger_is_stronger,
    select,
    with_strength,
)
from leakbound_lab.claims.tabulation import COLUMNS, RunResults, accounting_rows, tabulate
from leakbound_lab.config import reading


def attack(variant: str, metric: str, values: dict[tuple[int, int], float]) -> pd.DataFrame:
    rows = [(replica, variant, unit, metric, value, np.nan, np.nan, "") for (replica, unit), value in values.items()]
    columns = ["replica", "variant", "unit", "metric", "value", "low", "high", "status"]
    return pd.DataFrame(rows, columns=columns).assign(learning_rate=RATE, chosen=True)


RATE = 0.1
START = 0.03  # error of model inversion before its first step, in the first class


def part(
    defense: str, level: float | None, *, auc: float, mse: float, tuned: float, diverged=(False, False)
) -> RunResults:
    replicas = range(len(diverged))
    inversion = pd.concat(
        attack(variant, metric, {(r, unit): value * (1 + unit) for r in replicas for unit in range(3)})
        for variant, metric, value in (("printed", "mse", mse), ("tuned", "mse", tuned), ("start", "mse", START))
    )
    curves = [(r, RATE, step, "test_accuracy", step / 100 + r) for r in replicas for step in (10, 50)]
    rates = pd.DataFrame({"replica": replicas, "learning_rate": RATE, "chosen": True, "diverged": diverged})
    return RunResults(
        run=f"digits/lenet/{defense}-{level}/n50-b8",
        dataset="digits",
        model="lenet",
        defense=defense,
        level=level,
        rounds=50,
        batch_size=8,
        rates=rates.assign(at_edge=False),
        curves=pd.DataFrame(
            [*curves, (0, RATE, 50, "epsilon", 3.0)], columns=["replica", "learning_rate", "step", "metric", "value"]
        ),
        attacks={
            "membership": attack("strongest", "auc", {(r, -1): auc for r in replicas}),
            "model_inversion": inversion,
        },
    )


NONE = part("none", None, auc=0.8, mse=0.01, tuned=0.01)
NATURAL = part("natural", 4.0, auc=0.6, mse=0.04, tuned=0.025)


def inverted_as(run: RunResults, rows: pd.DataFrame) -> RunResults:
    """The run with other rows of model inversion."""
    return replace(run, attacks={**run.attacks, "model_inversion": rows})


def value(table: pd.DataFrame, **conditions) -> float:
    return float(select(table, {"replica": 0, **conditions})["value"].item())


def test_the_table_has_the_stated_columns_and_types_whatever_the_order_of_runs():
    table = tabulate([NONE, NATURAL])
    assert list(table.columns) == list(COLUMNS)
    assert tabulate([]).dtypes.equals(table.dtypes)
    pd.testing.assert_frame_equal(table, tabulate([NATURAL, NONE]))


def with_lengths(run: RunResults, **aucs: float) -> RunResults:
    """The run with several lengths of each training, whose attacks have these areas; the full one was chosen."""
    tables = {"rates": run.rates, "curves": run.curves, "membership": run.attacks["membership"]}
    every = {
        name: pd.concat(rows.assign(length=length) for length in aucs).reset_index(drop=True)
        for name, rows in tables.items()
    }
    rates, attacked = (every[name].assign(chosen=every[name]["length"] == "full") for name in ("rates", "membership"))
    attacked["value"] = attacked["length"].map(aucs)
    return replace(run, rates=rates, curves=every["curves"], attacks={"membership": attacked})


def test_every_recipe_has_its_rows_and_improvements_are_over_the_chosen_undefended_one():
    """A run that keeps lengths stands beside one that does not, whose networks are of full length."""
    natural = with_lengths(NATURAL, half=0.55, full=0.7, best=0.65)
    table = tabulate([with_lengths(NONE, half=0.6, full=0.8, best=0.7), natural])
    at = COLUMNS.index("learning_rate") + 1
    assert list(table.columns) == [*COLUMNS[:at], "length", *COLUMNS[at:]]
    for length, auc in (("half", 0.55), ("best", 0.65), ("full", 0.7)):
        own = {"defense": "natural", "length": length}
        assert value(table, **own, metric="auc") == auc
        assert value(table, **own, metric="test_accuracy") == 0.5
        assert value(table, **own, metric="imp_mia") == pytest.approx((0.8 - auc) / 0.8)
        assert bool(select(table, own)["chosen"].all()) == (length == "full")
    assert set(table.loc[table["metric"] == "at_edge", "chosen"]) == {True}
    mixed = tabulate([NONE, natural])
    assert set(mixed.loc[mixed["defense"] == "none", "length"]) == {"full"}
    points = both_quantities(table, {"metric": "auc"}, {"metric": "test_accuracy"})
    assert len(points) == 2 * 2 * 3


def test_bounds_of_a_provenance_become_rows_of_all_replicas():
    stated = {
        "count": 2,
        "labels": 2.3,
        "replica": {"uses": 3, "printed": 40.0, "record": 5.0},
        "replicas": {"epsilon": 2, "delta": 1e-5, "accountant": "rdp"},
    }
    rows = accounting_rows(stated)
    assert rows[["variant", "metric", "value"]].to_numpy().tolist() == [
        ["replica", "printed", 40.0],
        ["replica", "record", 5.0],
        ["replicas", "epsilon", 2.0],
    ]
    for name, expected in {"replica": -1, "unit": -1, "chosen": True, "status": ""}.items():
        assert rows[name].tolist() == [expected] * 3
    assert accounting_rows(None).empty


def test_curves_give_their_last_value_epsilon_is_accounting_and_classes_their_median():
    table = tabulate([NATURAL])
    assert value(table, variant="printed", metric="mse", unit=-1) == pytest.approx(0.08)
    assert value(table, source="training", metric="test_accuracy") == 0.5
    assert value(table, source="accounting", metric="epsilon") == 3.0


def test_diverged_replicas_are_counted_and_have_no_results():
    table = tabulate([NONE, part("natural", 4.0, auc=0.6, mse=0.04, tuned=0.01, diverged=(True, False))])
    own = select(table, {"defense": "natural"})
    assert own[own["replica"] == 0][["source", "metric", "value"]].to_numpy().tolist() == [
        ["training", "diverged", 1.0]
    ]
    assert {"diverged", "at_edge", "gdc"} <= set(own[own["replica"] == 1]["metric"])


def test_every_metric_of_an_attack_is_summarised_over_units_but_what_it_has_summarised_itself():
    found = [
        attack("guess", name, {(0, unit): 1.0 + unit for unit in range(4)}) for name in ("strokes", "digits", "pixel")
    ]
    own = attack("guess", "digits", {(0, -1): 7.0})
    run = RunResults(**{**vars(NATURAL), "attacks": {"homemade": pd.concat([*found, own])}})
    table = tabulate([run], {"homemade": "mean"})
    summed = select(table, {"source": "homemade", "unit": -1})
    assert dict(zip(summed["metric"], summed["value"], strict=True)) == {"strokes": 2.5, "digits": 7.0}


def test_improvements_over_the_undefended_run_of_the_same_setting_follow_the_printed_formulas():
    table = tabulate([NONE, NATURAL])
    expected = {"imp_mia": 0.25, "imp_dra": 0.75, "imp_dra_gain": 0.6, "gdc": 0.5, "gdc_gain": 0.425}
    for name, number in expected.items():
        assert value(table, source="derived", defense="natural", metric=name) == pytest.approx(number)
        assert value(table, source="derived", defense="none", metric=name) == pytest.approx(0.0)
    other = tabulate([replace(NONE, rounds=60, run="digits/lenet/none/n60-b8"), NATURAL])
    assert set(other[other["source"] == "derived"]["defense"]) == {"none"}


def test_undefended_replicas_improve_by_nothing_on_average():
    inverted = NONE.attacks["model_inversion"]
    farther = inverted.assign(value=inverted["value"].where(inverted["replica"] == 0, 9 * inverted["value"]))
    luck = inverted_as(NONE, farther)
    table = tabulate([luck])
    improvements = table[table["source"] == "derived"].groupby("metric")["value"].agg(["mean", "std"])
    assert improvements.loc["imp_dra", "mean"] == pytest.approx(0.0, abs=1e-12)
    assert improvements.loc["imp_dra", "std"] == pytest.approx(np.std([0.8, -0.8], ddof=1))  # MSE₀ = 1.8 of 1 and 9


def test_the_start_bounds_the_error_class_by_class():
    rows = {"printed": (0.04, 0.04, 0.04), "start": (0.01, 0.02, 0.05), "tuned": (0.03, 0.01, 0.04)}
    inverted = [attack(name, "mse", {(0, unit): one for unit, one in enumerate(own)}) for name, own in rows.items()]
    one = inverted_as(NATURAL, pd.concat(inverted))
    table = tabulate([NONE, one])
    assert value(table, defense="natural", metric="imp_dra_gain") == pytest.approx(1 - 0.02 / 0.01)


def test_trained_networks_have_the_part_of_a_record_that_an_upload_of_their_defense_gives_away():
    """Per replica, over records: .01 and .03 of .08 and .02 remain, no more than the mean image's error."""
    errors = {(0, 0): 0.01, (0, 1): 0.02, (1, 0): 0.04, (1, 1): 0.02}
    prior = {(replica, unit): (0.08, 0.02)[unit] for replica, unit in errors}
    rows = pd.concat([attack("attack", "bounded_mse", errors), attack("prior", "mse", prior)])
    inverted = RunResults("slug", "digits", "lenet", "natural", 4.0, 0, 1, None, None, {"gradient_inversion": rows})
    found = tabulate([NONE, NATURAL, inverted]).query("metric == 'recovered'")
    assert found["run"].unique().tolist() == [NATURAL.run]
    assert found.set_index("replica")["value"].to_dict() == pytest.approx({0: 0.7, 1: 0.4})


def test_select_chooses_by_value_list_and_missing_value():
    table = tabulate([NONE, NATURAL])
    assert set(select(table, {"level": None})["defense"]) == {"none"}
    assert set(select(table, {"level": 4})["defense"]) == {"natural"}
    assert set(select(table, {"defense": ["natural", "absent"]})["defense"]) == {"natural"}
    assert len(select(table, {"level": [None, 4.0]})) == len(table)


def test_select_names_an_unknown_column_and_the_condition_that_leaves_nothing():
    with pytest.raises(EmptySelectionError, match=r"select.defense = 'white' leaves no row; there are natural, none"):
        select(tabulate([NONE, NATURAL]), {"dataset": "digits", "defense": "white"})
    with pytest.raises(SelectionError, match=r"select.defence: unknown column.*did you mean 'defense'"):
        select(tabulate([NONE]), {"defence": "none"})


def test_the_gap_of_accuracy_is_training_minus_test_in_every_replica():
    test = NATURAL.curves[NATURAL.curves["metric"] == "test_accuracy"]
    train = test.assign(metric="train_accuracy", value=test["value"] + 0.05 + 0.1 * test["replica"])
    fitted = replace(NATURAL, curves=pd.concat([NATURAL.curves, train]))
    wide = tabulate([fitted]).pivot_table(index=["run", "replica"], columns="metric", values="value", aggfunc="first")
    assert len(wide["accuracy_gap"].dropna()) == len(wide)
    np.testing.assert_allclose(wide["accuracy_gap"], wide["train_accuracy"] - wide["test_accuracy"])


def test_a_unit_without_a_value_stays_out_of_summaries():
    inversion = NATURAL.attacks["model_inversion"]
    stuck = inversion["unit"] == 0
    lost = inversion.assign(value=inversion["value"].mask(stuck), status=np.where(stuck, "stuck", ""))
    run = inverted_as(NATURAL, lost)
    table = tabulate([NONE, run])
    assert value(table, defense="natural", variant="printed", metric="mse", unit=-1) == pytest.approx(0.1)
    assert (table["status"] == "stuck").sum() == 6


# -- selection: conditions, and the strength of levels ------------------------------------------------------------


def test_the_strongest_level_is_the_smallest_or_the_largest_by_defense():
    levels = {"natural": (50, 300), "dpsgd": (0.8, 0.2), "parameter_noise": (0.1, 0.01), "large_batch": (8, 2)}
    levels |= {"gradient_compression": (0.01, 0.5), "compression": (0, 10)}  # the strongest first
    rows = pd.DataFrame(
        [(name, float(level)) for name in levels for level in levels[name]], columns=["defense", "level"]
    )
    strongest = with_strength(rows).query("strength == 1").set_index("defense")["level"].to_dict()
    assert strongest == {name: first for name, (first, _) in levels.items()}


def test_conditions_may_say_what_rows_have_not():
    rows = pd.DataFrame({"dataset": ["digits", "svhn", "celeba"], "level": [1.0, np.nan, 2.0]})
    assert select(rows, {"dataset": {"not": ["svhn", "celeba"]}})["dataset"].tolist() == ["digits"]
    assert select(rows, {"level": {"not": None}})["dataset"].tolist() == ["digits", "celeba"]
    with pytest.raises(SelectionError, match=r"give a value, a list of values or \{not: ...\}"):
        select(rows, {"dataset": {"but": "svhn"}})


def test_defenses_of_other_names_are_ranked_by_what_the_configuration_says():
    defenses = {"mild": {"mechanism": "dpsgd"}, "dpsgd": {"mechanism": "channel"}, "white": {"mechanism": "channel"}}
    values = yaml.safe_load(reading.as_yaml(reading.quick()))
    stated = reading.config_of({**values, "defenses": defenses, "studies": {}}, "test").stated_strength()
    assert stated == {"mild": "larger level", "dpsgd": "smaller level"}
    assert reading.quick().stated_strength() == {}
    scores = attack("tuned", "mse", {(0, 0): 0.5})
    runs = [
        RunResults(f"{name}-{level:g}", "digits", "lenet", name, level, 10, 2, attacks={"gradient_inversion": scores})
        for name, level in (("dpsgd", 1.0), ("dpsgd", 2.0), ("large_batch", 3.0), ("mild", 1.0), ("mild", 2.0))
    ]
    rows = tabulate(runs, {}, stated)
    assert list(rows.columns) == [*tabulate(runs, {}).columns, "stronger_with"]
    assert with_strength(rows)["strength"].tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert larger_is_stronger(rows).tolist() == [False, False, True, True, True]
